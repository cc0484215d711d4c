"""Which copy of a run's ledger may go on, and under which key: the account decides, by compare-and-set.

    steps = CountedSteps(ledger, entry, where, place)
    steps.take_up(key_id, first_step=0, logged=())      # False: under this key another copy goes on, or may
    steps.reserve(event, first_step=0, count=50)         # how many of them may be taken
    ...
    steps.commit(0, 50)

A run folder can be copied, and the state folder with its key too. There is one account: for each ledger, by the hash of
its first line, it holds under each key the last line of the one copy that goes on, the first step that was never
reserved, and how many steps count. They change in the transaction in which the ledger gets its line.

**Guarantee.** docs/proofs/resume.md, "Copies". Of all copies of a ledger one at a time draws under a key, all that one
key has drawn stands before it, and the copies together reserve no more steps than the plan has.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpose.account.journal import Transaction
from dpose.account.records import Charge
from dpose.account.reservations import charge_within
from dpose.account.store import Where, opened
from dpose.files import private_folder
from dpose.privacy.entries import EntryType, spent
from dpose.privacy.events import SampledGaussian
from dpose.privacy.keys import state_folder
from dpose.privacy.ledger import Ledger

KIND = "ledger"
"""What the journal calls a row about a ledger; its name is the hash of the ledger's first line."""


class LedgerTakenError(Exception):
    """Another copy of the ledger has gone on under this key; nothing was reserved."""


@dataclass(frozen=True)
class KeyUse:
    """How far a ledger has come under one key.

    Attributes:
        head: Hash of a line of the one copy that goes on: what it wrote behind that line reserved nothing.
        following: The first step that was never reserved.
        steps: How many steps count.
        place: `place_of` the process that reserved last.
    """

    head: str
    following: int
    steps: int
    place: str


def place_of(state_dir: Path | None = None) -> str:
    """A name of the state folder on this machine, which a copy of it does not have."""
    folder = state_folder(state_dir)
    private_folder(folder)
    number = folder.stat().st_ino if folder.exists() else 0
    return hashlib.sha256(f"{platform.node()}\n{folder.resolve()}\n{number}".encode()).hexdigest()


class CountedSteps:
    """The steps of one process of a run: reserved in its ledger, and let in by the account.

    Args:
        ledger: Open.
        entry: The run's charge, with the event of its plan.
        where: The account; steps count in it if the charge names this ledger, otherwise in the ledger alone.
        place: `place_of` the state folder.

    Attributes:
        total: How many steps count, of all copies of the ledger.
    """

    def __init__(self, ledger: Ledger, entry: Charge, planned: int, where: Where, place: str) -> None:
        self.ledger, self.entry, self.planned = ledger, entry, planned
        self._where, self._place = where, place
        self._counted = entry.ledger == ledger.identity
        self.total = ledger.spent_steps

    @property
    def head(self) -> str:
        """Hash of the ledger's last line."""
        return self.ledger.head

    def take_up(self, key_id: str, first_step: int, logged: Container[int], *, begun: bool) -> bool:
        """Charge the run, and go on with it at `first_step` under the key `key_id`, if no other copy does.

        Args:
            key_id: The key.
            first_step: The step that would be taken next.
            logged: Steps whose updates under that key this copy can compare with.
            begun: Whether the ledger is another process's, and so gets a line that says who goes on.

        Returns:
            Whether it may; nothing is written otherwise.

        Raises:
            DposeError: a budget would be passed, the account knows the run by another ledger, or one of the two cannot
                be written.
        """
        if not self._counted:
            if begun:
                self.ledger.resume(key_id, first_step)
            return True
        with opened(self._where).transaction() as account:
            if not self._may(_keys(account, self.ledger).get(key_id), key_id, first_step, logged):
                return False
            charge_within(account, self.entry)
            if begun:
                self.ledger.resume(key_id, first_step)
            self._note(account)
        return True

    def reserve(self, event: SampledGaussian, first_step: int, count: int) -> int:
        """Reserve the next `count` steps, or as many as the plan's claim has room for.

        Returns:
            How many.

        Raises:
            LedgerTakenError: another copy goes on under the key.
            DposeError: ledger or account cannot be written. Nothing may be sampled then.
        """
        with self._moving() as room:
            while count and self.ledger.new_steps(event, first_step, count) > room:
                count -= 1
            if count:
                self.ledger.reserve(event, first_step, count)
        return count

    def commit(self, first_step: int, steps: int) -> None:
        """Record that reserved steps were taken.

        Raises:
            DposeError: ledger or account cannot be written.
        """
        try:
            with self._moving():
                self.ledger.commit(first_step, steps)
        except LedgerTakenError:
            self.ledger.commit(first_step, steps)  # they were reserved before the other copy went on

    @contextlib.contextmanager
    def _moving(self) -> Iterator[int]:
        """The account's transaction in which the ledger gets a line; for how many more steps there is room."""
        if not self._counted:
            yield self.planned - self.ledger.spent_steps
            self.total = self.ledger.spent_steps
            return
        with opened(self._where).transaction() as account:
            mine = _keys(account, self.ledger).get(self.ledger.entries[-1].key_id)
            if mine is None or mine.head not in self.ledger.heads:
                raise LedgerTakenError
            yield self.planned - _total(_known(account, self.ledger))
            self._note(account)

    def _may(self, use: KeyUse | None, key_id: str, first_step: int, logged: Container[int]) -> bool:
        reserved = [e for e in self.ledger.entries if e.type is EntryType.RESERVE and e.key_id == key_id]
        if use is None:  # as the account knows, nothing was drawn under it
            return not reserved
        if use.head not in self.ledger.heads:
            return False
        # an earlier step would be drawn after another past than the key's own
        if reserved and first_step < min(entry.first_step for entry in reserved):
            return False
        # what is not in this copy's log may be drawn at this moment by a process that lives elsewhere
        return use.place == self._place or all(step in logged for step in range(first_step, use.following))

    def _note(self, account: Transaction) -> None:
        keys = _known(account, self.ledger)
        own = self.ledger.entries[-1].key_id
        keys[own] = replace(keys[own], head=self.ledger.head, place=self._place)
        self.total = _total(keys)
        if self.total > self.planned and self.entry.events:
            events = tuple(
                replace(e, steps=self.total) for e in self.entry.events if isinstance(e, SampledGaussian)
            )
            charge_within(account, replace(self.entry, events=events), checked=False)
        body = {"charge": self.entry.id, "keys": {name: asdict(use) for name, use in keys.items()}}
        account.append(KIND, self.ledger.identity, body)


def _keys(account: Transaction, ledger: Ledger) -> dict[str, KeyUse]:
    """How far the account has seen the ledger come, by keys."""
    row = account.last_of(ledger.identity)
    return {name: KeyUse(**use) for name, use in row.body["keys"].items()} if row else {}


def _known(account: Transaction, ledger: Ledger) -> dict[str, KeyUse]:
    """The same with what this copy has reserved besides, under its last line's key among them."""
    keys = _keys(account, ledger)
    for key_id in {entry.key_id for entry in ledger.entries}:
        under = [e for e in ledger.entries if e.type is EntryType.RESERVE and e.key_id == key_id]
        use = keys.get(key_id, KeyUse("", 0, 0, ""))
        keys[key_id] = replace(
            use,
            following=max([use.following, *(entry.first_step + entry.steps for entry in under)]),
            steps=max(use.steps, sum(event.steps for event in spent(under))),
        )
    return keys


def _total(keys: Mapping[str, KeyUse]) -> int:
    return sum(use.steps for use in keys.values())
