"""Reservations: charges are counted before anything is computed, and committed when their output is complete.

    made = charge(Charge(...))                     # reserved; refused where a budget would be passed
    with committing(made.id):                      # committed at the end, or marked as failed
        ...                                        # computed and written

    steps = CountedSteps(ledger, made, planned, where, place)
    steps.take_up(key_id, first_step=0, logged=(), begun=False)      # False: under this key another copy goes on
    steps.reserve(event, first_step=0, count=50)                     # how many of them may be taken

A reservation counts from the moment that `charge` returns, whatever becomes of it: a process that dies in between may
have shown what it computed. Reservations are serialisable transactions of the account, so that processes that race for
the last of a budget never spend more than it. A run folder can be copied, and the state folder with its key too, but
there is one account: for each ledger, by the hash of its first line, it holds under each key the last line of the one
copy that goes on, the first step that was never reserved, and how many steps count. They change in the transaction in
which the ledger gets its line.

**Guarantee.** docs/proofs/odometer.md, and docs/proofs/resume.md, "Copies": of all copies of a ledger one at a time
draws under a key, all that one key has drawn stands before it, and the copies together reserve no more steps than the
plan has.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpose.account.budgets import admit, forget_bounds
from dpose.account.charges import (
    Charge,
    State,
    Stored,
    charge_from,
    charge_to_dict,
    history,
    joined,
    names_of_run,
    numbers_of,
    register_set,
    sets_of,
    touching_sets,
    without,
)
from dpose.account.store import Transaction, Where, opened
from dpose.errors import DposeError
from dpose.files import private_folder
from dpose.privacy.entries import EntryType, spent
from dpose.privacy.events import SampledGaussian
from dpose.privacy.keys import state_folder
from dpose.privacy.ledger import Ledger

WINDOW = "window"
"""What the journal calls a row about a count's window; its name is that of the count's charge, and this."""
KIND = "ledger"
"""What the journal calls a row about a ledger; its name is the hash of the ledger's first line."""


def charge(entry: Charge, where: Where = None, *, checked: bool = True, dry_run: bool = False) -> Charge:
    """`charge_all` of one."""
    return charge_all([entry], where, checked=checked, dry_run=dry_run)[0]


def charge_all(
    entries: Sequence[Charge],
    where: Where = None,
    *,
    known: Sequence[Mapping[str, State]] | None = None,
    checked: bool = True,
    dry_run: bool = False,
) -> list[Charge]:
    """Check the budgets and reserve `entries`, all or none, no other process in between; on disk when this returns.

    Of an earlier charge of a name the pictures and the released weights stay (`joined`).

    Args:
        entries: What is reserved.
        where: The account.
        known: Of each entry, the states of the charges of its kind (`what`) that were seen on its pictures, by id: what
            was decided by them is then still so, and of processes that race for one picture all but the first are
            refused. No two entries share a picture then. None not to ask.
        checked: False to record what has been spent already, whatever budgets say.
        dry_run: Refuse what would be refused, and write nothing.

    Returns:
        They, as the account has them.

    Raises:
        DposeError: a budget would be passed, an entry claims another thing than it did, another process has read the
            pictures meanwhile, or the account cannot be written.
    """
    with contextlib.suppress(_DryRunError), opened(where).transaction(make=not dry_run) as account:
        for entry, seen in zip(entries, known or (), strict=False):
            _check_nothing_new(account, entry, seen)
        made = [charge_within(account, entry, checked=checked) for entry in entries]
        if dry_run:
            raise _DryRunError
        return made
    return list(entries)


class _DryRunError(Exception):
    """Ends a transaction that was only to be tried."""


def _check_nothing_new(account: Transaction, entry: Charge, seen: Mapping[str, State]) -> None:
    sets = sets_of(account, entry.marks)
    found = touching_sets(history(account).among(sets), sets)
    if {other.id: other.state for other in found if other.what == entry.what} != dict(seen):
        raise DposeError(
            "charge-made-meanwhile",
            f"another process has just made or begun a {entry.what} of this",
            entry.data,
            "run this again",
        )


def charge_within(account: Transaction, entry: Charge, *, checked: bool = True) -> Charge:
    """`charge` within a transaction.

    Raises:
        DposeError: as `charge`.
    """
    before = _of_name(account, entry.id)
    sets, public = set[int](), set[int]()
    if before:
        assert before.stored is not None
        entry = joined(before, entry)
        sets |= before.stored.sets
        public |= before.stored.opened
    # pictures that it has read before are in its sets already: no picture is in two of them
    for marks, into in ((entry.marks, sets), (entry.opened, public)):
        left = without(account, marks, into) if into else marks
        if len(left):
            into.add(register_set(account, left))
    if checked:
        admit(account, entry, sets, public, before)
    else:
        forget_bounds(account, sets | public)
    return _written(account, entry, sets, public)


def _written(account: Transaction, entry: Charge, sets: Iterable[int], public: Iterable[int]) -> Charge:
    sets, public = frozenset(sets), frozenset(public)
    found = account.rows("SELECT id, digest, members FROM sets WHERE id IN ({each})", numbers=numbers_of(sets | public))
    digests = {int(name): str(digest) for name, digest, _ in found}
    marks = sum(int(members) for name, _, members in found if int(name) in sets)
    body = charge_to_dict(entry, {s: digests[s] for s in sorted(sets)}, {s: digests[s] for s in sorted(public)}, marks)
    seq = account.append("charge", entry.id, body)
    first = entry.stored.seq if entry.stored else seq
    return replace(entry, stored=Stored(first, sets, public, marks, account.store.where))


def _of_name(account: Transaction, name: str) -> Charge | None:
    row = account.last_of(name)
    return charge_from(row, account.store.where) if row else None


def conclude(outputs: Mapping[str, Iterable[str]], state: State = State.COMMITTED, where: Where = None) -> None:
    """Record how charges ended, all in one transaction: their output is complete, or they ended without.

    A charge that failed counts all the same: what it had computed by then is unknown.

    Args:
        outputs: SHA-256 of every file of the output, by the charge's id.
        state: How they ended.
        where: The account.

    Raises:
        DposeError: the account knows no such charge, one that is said to have failed was complete, or the account
            cannot be written.
    """
    with opened(where).transaction() as account:
        for name, files in outputs.items():
            entry = _of_name(account, name)
            if entry is None:
                raise DposeError("charge-unknown", "the account knows no such charge", name, "reserve it first")
            if entry.state is State.COMMITTED and state is State.FAILED:
                raise DposeError("charge-complete", "is complete already, and cannot have failed", name)
            every = tuple(dict.fromkeys((*entry.outputs, *files)))
            _noted(account, replace(entry, state=state, outputs=every))


def claim_window(name: str, number: int, where: Where = None) -> bool:
    """Claim the right to show one window of a count: on disk when this returns, and given once for ever.

    Args:
        name: The count's charge.
        number: Of the window, from 0 on in order of time.
        where: The account.

    Returns:
        False if this window or a later one was claimed before, by any process and whatever its clock said.

    Raises:
        DposeError: the account cannot be read or written. Nothing may be shown then.
    """
    with opened(where).transaction() as account:
        row = account.last_of(f"{name} {WINDOW}")
        if row is not None and number <= int(row.body["number"]):
            return False
        account.append(WINDOW, f"{name} {WINDOW}", {"number": number})
    return True


def last_window(name: str, where: Where = None) -> int:
    """The last window of a count that was claimed; -1 for none."""
    with opened(where).transaction(write=False) as account:
        row = account.last_of(f"{name} {WINDOW}")
    return -1 if row is None else int(row.body["number"])


@contextlib.contextmanager
def committing(name: str, outputs: Iterable[str] = (), where: Where = None) -> Iterator[None]:
    """Commit a charge at the end of the block; whatever ends it otherwise, record that the charge failed: it counts.

    Args:
        name: The charge's id; "" if nothing was charged, and nothing is done then.
        outputs: SHA-256 of every file of the output: looked at when the block has ended.
        where: The account.

    Raises:
        DposeError: as `conclude`.
    """
    try:
        yield
    except BaseException:
        if name:
            with contextlib.suppress(DposeError):  # it is counted already; the first error is the one to tell
                conclude({name: ()}, State.FAILED, where)
        raise
    if name:
        conclude({name: outputs}, where=where)


def note_weights(run_id: str, digest: str, where: Where = None) -> None:
    """Record that the run `run_id` released a file of weights; to be called before the file is seen.

    Nothing happens where the account does not know the run.

    Raises:
        DposeError: the account cannot be read or written.
    """
    with opened(where).transaction() as account:
        for name in names_of_run(run_id):
            entry = _of_name(account, name)
            if entry is not None and digest not in entry.weights:
                _noted(account, replace(entry, weights=(*entry.weights, digest)))


def _noted(account: Transaction, entry: Charge) -> None:
    """Write a charge that the account holds anew, of the pictures that it has read."""
    assert entry.stored is not None
    _written(account, entry, entry.stored.sets, entry.stored.opened)


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
            events = tuple(replace(e, steps=self.total) for e in self.entry.events if isinstance(e, SampledGaussian))
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
