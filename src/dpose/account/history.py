"""What the journal says has been charged, in the order in which it happened; and the charges of some pictures.

    charges()                               # all of them, oldest first
    charges(of=marks)                       # those that read any of these pictures

A process reads the journal once, and keeps it packed. **Guarantee.** Every row is checked when it is read
(docs/proofs/odometer.md): no charge of a picture is passed over.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dpose.account.charges import TUNING, Charge, charge_from, names_of_run, worst_case
from dpose.account.journal import JournalRow, Transaction, Where
from dpose.account.sets import check_sets, sets_of
from dpose.account.store import ACCEPTED, opened
from dpose.errors import DposeError
from dpose.privacy.marks import Marks

K = TypeVar("K")
V = TypeVar("V")

_PLACES = struct.Struct(">QQ")


class GrowingMapping(Mapping[K, V]):
    """A mapping that never changes: with more in it, it is another one, which shares nearly all with this one.

    Its layers are mappings, each less than half of the one below it. So of n entries one is copied log2(n) times at the
    most, however few are added at a time, and whoever reads one mapping is not disturbed by who adds to it.

    Args:
        layers: Oldest first; what stands in a newer one stands for what is below.
    """

    def __init__(self, layers: tuple[dict[K, V], ...] = ()) -> None:
        self._layers = layers
        self._count = sum(1 for _ in self) if len(layers) > 1 else sum(map(len, layers))

    def with_all(self, more: Mapping[K, V]) -> GrowingMapping[K, V]:
        """These, and `more` in the place of those of the same keys."""
        layers = [*self._layers, dict(more)]
        while len(layers) > 1 and 2 * len(layers[-1]) >= len(layers[-2]):
            newer = layers.pop()
            layers[-1] = {**layers[-1], **newer}
        made = GrowingMapping[K, V]()
        made._layers = tuple(layers)
        made._count = self._count + sum(key not in self for key in more)
        return made

    def __getitem__(self, key: K) -> V:
        for layer in reversed(self._layers):
            if key in layer:
                return layer[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        """The keys, in the order in which they first came."""
        for depth, layer in enumerate(self._layers):
            below = self._layers[:depth]
            yield from (key for key in layer if not any(key in one for one in below))

    def __len__(self) -> int:
        return self._count


def packed(body: Mapping[str, Any], first: int, seq: int, like: bytes) -> bytes:
    """A row of the journal in few bytes.

    Args:
        body: What it says.
        first: The row that first named what it is about.
        seq: Its own number.
        like: The text of another row, which most of this one is equal to.
    """
    squeeze = zlib.compressobj(9, wbits=-15, memLevel=4, zdict=like)
    text = json.dumps(body, separators=(",", ":")).encode()
    return _PLACES.pack(first, seq) + squeeze.compress(text) + squeeze.flush()


def unpacked(content: bytes, like: bytes) -> tuple[dict[str, Any], int, int]:
    """The body, the first row and the row's number that `packed` was given."""
    first, seq = _PLACES.unpack_from(content)
    body: dict[str, Any] = json.loads(
        zlib.decompressobj(wbits=-15, zdict=like).decompress(content[_PLACES.size :])
    )
    return body, first, seq


def likeness(body: Mapping[str, Any]) -> bytes:
    """What `packed` takes as `like` for rows like this one."""
    return json.dumps(body, separators=(",", ":")).encode()


class Charges(Mapping[str, Charge]):
    """Charges by their ids, oldest first; each is made of its packed row when it is asked for.

    Args:
        rows: What `packed` made of each.
        like: What it was given.
        where: The account.
    """

    def __init__(
        self, rows: GrowingMapping[str, bytes] | None = None, like: bytes = b"", where: Where = None
    ) -> None:
        self._rows, self._like, self._where = rows or GrowingMapping[str, bytes](), like, where

    def __getitem__(self, name: str) -> Charge:
        body, first, seq = unpacked(self._rows[name], self._like)
        return charge_from(JournalRow(seq, "charge", name, body, ""), self._where, first)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def reading(self, where: Where) -> _Reading:
        """The same, to add to."""
        return _Reading(self, where)


class _Reading:
    """Charges that are being read on, row by row."""

    def __init__(self, before: Charges, where: Where) -> None:
        self._before, self._where, self._like = before, where, before._like
        self._rows: dict[str, bytes] = {}

    def add(self, row: JournalRow) -> frozenset[int]:
        """Take a row; the sets that its charge had not read before."""
        before = self._of(row.name)
        entry = charge_from(row, self._where, before.stored.seq if before and before.stored else row.seq)
        assert entry.stored is not None
        self._like = self._like or likeness(row.body)
        self._rows[row.name] = packed(row.body, entry.stored.seq, row.seq, self._like)
        return _sets(entry) - (_sets(before) if before else frozenset())

    def _of(self, name: str) -> Charge | None:
        if name in self._rows:
            return Charges(GrowingMapping((self._rows,)), self._like, self._where)[name]
        return self._before.get(name)

    def read(self) -> Charges:
        """All of them."""
        return Charges(self._before._rows.with_all(self._rows), self._like, self._where)


@dataclass(frozen=True)
class History:
    """All that the journal says, up to a row.

    Attributes:
        seq: That row; 0 for none.
        mac: Its MAC.
        charges: By their ids, oldest first, as they stand now.
        budgets: The rows that set them, by their names.
        accepted: How often the account was set back and taken as it was.
        by_set: Of each set of pictures, the ids of the charges that read it: of a million charges those of one picture
            are found without looking at the others.
    """

    seq: int = 0
    mac: str = ""
    charges: Mapping[str, Charge] = field(default_factory=Charges)
    budgets: Mapping[str, JournalRow] = field(default_factory=dict)
    accepted: int = 0
    by_set: Mapping[int, tuple[str, ...]] = field(default_factory=GrowingMapping, repr=False)

    def among(self, sets: Iterable[int]) -> list[Charge]:
        """The charges that read any of `sets`, or took pictures of them to be public; oldest first."""
        names = {name for one in sets for name in self.by_set.get(one, ())}
        return sorted((self.charges[name] for name in names), key=_place)


def _sets(entry: Charge) -> frozenset[int]:
    assert entry.stored is not None
    return entry.stored.sets | entry.stored.opened


def _place(entry: Charge) -> int:
    assert entry.stored is not None
    return entry.stored.seq


def history(account: Transaction) -> History:
    """All that has happened; what this process has read before it does not read again.

    Raises:
        DposeError: the journal is not as it was written.
    """
    known = account.known
    before = known if isinstance(known, History) else History()
    if before.seq:
        found = account.rows("SELECT mac FROM journal WHERE seq = :seq", seq=before.seq)
        if not found or found[0][0] != before.mac:
            raise account.store.altered(
                f"row {before.seq} of its journal is not the one that was read before"
            )
    assert isinstance(before.charges, Charges)
    assert isinstance(before.by_set, GrowingMapping)
    charges, by_set = before.charges.reading(account.store.where), dict[int, tuple[str, ...]]()
    budgets, accepted, last = dict(before.budgets), before.accepted, None
    for row in account.journal(before.seq, before.mac):
        last = row
        if row.kind == "charge":
            for one in charges.add(row):
                names = by_set.get(one) or before.by_set.get(one, ())
                by_set[one] = (*names, row.name)
        elif row.kind == "budget":
            budgets[row.name] = row
        elif row.kind == "lift":
            budgets.pop(row.name, None)
        accepted += row.kind == ACCEPTED
    if last is None:
        return before
    made = History(last.seq, last.mac, charges.read(), budgets, accepted, before.by_set.with_all(by_set))
    account.known = made
    if not account.appended:  # what is not committed yet may never be
        account.store.known = made
    return made


def charges(
    where: Where = None, *, of: Marks | None = None, near: Iterable[Charge] | None = None
) -> list[Charge]:
    """What is recorded, oldest first, by the account's own numbers and no clock.

    A charge that took some of the pictures to be public comes without its events: nothing bounds what it tells of them.

    Args:
        where: The account.
        of: Only what read any of these pictures.
        near: Only what read any picture that these charges of the account read; they among them.

    Raises:
        DposeError: the account cannot be read.
    """
    with opened(where).transaction(write=False) as account:
        found = history(account)
        if of is None and near is None:
            return list(found.charges.values())
        sets = sets_of(account, of) if of is not None else _met(account, near or ())
        return touching_sets(found.among(sets), sets)


def _met(account: Transaction, entries: Iterable[Charge]) -> frozenset[int]:
    """The sets that share a picture with what stored charges read."""
    own = ",".join(map(str, sorted({s for entry in entries if entry.stored for s in entry.stored.sets})))
    met = account.rows("SELECT DISTINCT other FROM meets WHERE one IN ({each})", numbers=own)
    return frozenset(int(row[0]) for row in met)


def overlapping(entries: Iterable[Charge], marks: Marks) -> list[Charge]:
    """Those of `entries` that read any of the pictures `marks`: told by the account for those that it holds.

    One that took some of them to be public comes without its events: nothing bounds what it tells of those.

    Raises:
        DposeError: the account cannot be read.
    """
    of_store: dict[Where, frozenset[int]] = {}
    found = []
    for entry in entries:
        if entry.stored is None:
            if _any(entry.opened, marks):
                found.append(worst_case(entry))
            elif _any(entry.marks, marks):
                found.append(entry)
            continue
        where = entry.stored.where
        if where not in of_store:
            with opened(where).transaction(write=False) as account:
                of_store[where] = sets_of(account, marks)
        found += touching_sets([entry], of_store[where])
    return found


def touching_sets(entries: Iterable[Charge], sets: frozenset[int]) -> list[Charge]:
    """Those of stored `entries` that read any of the account's `sets`, as `overlapping`."""
    found = []
    for entry in entries:
        assert entry.stored is not None
        if entry.stored.opened & sets:
            found.append(worst_case(entry))
        elif entry.stored.sets & sets:
            found.append(entry)
    return found


def _any(some: Marks, marks: Marks) -> bool:
    return bool(np.isin(some, marks).any())


def groups(where: Where = None) -> list[list[Charge]]:
    """All charges, in groups that have pictures in common, directly or by way of others; order is kept.

    The two sides of a choice among trials are of one group, though they share no picture.

    Raises:
        DposeError: the account cannot be read.
    """
    store = opened(where)
    with store.transaction(write=False) as account:
        entries = list(history(account).charges.values())
        meets = account.rows("SELECT one, other FROM meets")
    try:
        return _groups(entries, [(int(one), int(other)) for one, other in meets])
    except (KeyError, ValueError, TypeError) as error:
        raise store.altered("which sets of pictures meet is not what was written") from error


def _groups(entries: list[Charge], meets: list[tuple[int, int]]) -> list[list[Charge]]:
    near: dict[int, set[int]] = {}
    for one, other in meets:
        near.setdefault(one, set()).add(other)
    group_of: dict[int, int] = {}
    for start in near:
        left = [start] if start not in group_of else []
        while left:
            here = left.pop()
            if group_of.setdefault(here, start) == start:
                left += [there for there in near[here] if there not in group_of]
    found: dict[int, list[Charge]] = {}
    chosen = {names_of_run(entry.id)[1]: entry for entry in entries if entry.what == TUNING[0]}
    for entry in entries:
        assert entry.stored is not None
        # a charge's own sets are joined by it, and those of both sides of a choice
        both = [e.stored.sets for e in (entry, chosen.get(entry.id)) if e and e.stored]
        mine = sorted({group_of[s] for s in frozenset().union(*both)}) or [-entry.stored.seq]
        first = mine[0]
        for other in mine[1:]:
            group_of = {s: first if g == other else g for s, g in group_of.items()}
            found[first] = [*found.get(first, []), *found.pop(other, [])]
        found.setdefault(first, []).append(entry)
    ordered = [sorted(group, key=lambda e: e.stored.seq if e.stored else 0) for group in found.values()]
    return sorted(ordered, key=lambda group: group[0].stored.seq if group[0].stored else 0)


def rollback_count(where: Where = None) -> int:
    """How often the account was set back and taken as it was: each time less may stand as spent than was.

    Raises:
        DposeError: the account cannot be read.
    """
    with opened(where).transaction(write=False) as account:
        return history(account).accepted


def check_account(where: Where = None) -> str:
    """What is wrong with the account, read as a whole; "" for nothing.

    The journal is checked row by row, and every set of pictures against the digest that charges name it by.

    Raises:
        DposeError: the account cannot be reached.
    """
    store = opened(where)
    with store.transaction(write=False) as account:
        store.known = None
        try:
            rows = list(account.journal())
        except DposeError as error:
            return error.what
        digests = {str(name): digest for name, digest in account.rows("SELECT id, digest FROM sets")}
        for row in rows:
            named = {**row.body.get("sets", {}), **row.body.get("opened", {})}
            if any(digests.get(name) != digest for name, digest in named.items()):
                return f"row {row.seq} names a set of pictures that is another one"
        return check_sets(account)
