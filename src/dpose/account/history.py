"""What the journal says has been charged and budgeted, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpose.account.growing import GrowingMapping, likeness, packed, unpacked
from dpose.account.journal import JournalRow, Transaction
from dpose.account.records import Budget, Charge, State, Stored
from dpose.account.store import ACCEPTED, Where
from dpose.errors import DposeError
from dpose.privacy.events import event_from_dict
from dpose.privacy.marks import NO_MARKS
from dpose.privacy.neighbours import Neighbours, Relation

_TEXTS = ("id", "what", "data", "folder", "at", "unit", "views", "start", "within", "settings", "ledger")


@dataclass(frozen=True)
class KeptBudget:
    """A budget as the account holds it.

    Attributes:
        budget: It, without its pictures.
        set_id: Which pictures.
        owner: Keyed hash of its owner's word; "" without.
        seq: When it was set, in the journal's numbers.
    """

    budget: Budget
    set_id: int
    owner: str
    seq: int

    @property
    def name(self) -> str:
        """What the account calls it: there is one for a set of pictures."""
        return budget_name(self.set_id)


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
        budgets: By their names.
        accepted: How often the account was set back and taken as it was.
        by_set: Of each set of pictures, the ids of the charges that read it: of a million charges those of one picture
            are found without looking at the others.
    """

    seq: int = 0
    mac: str = ""
    charges: Mapping[str, Charge] = field(default_factory=Charges)
    budgets: Mapping[str, KeptBudget] = field(default_factory=dict)
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


def budget_name(set_id: int) -> str:
    """What the account calls the budget of a set of pictures."""
    return f"budget {set_id}"


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
            budgets[row.name] = budget_from(row)
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


def charge_to_dict(
    entry: Charge, sets: Mapping[int, str], opened: Mapping[int, str], marks: int
) -> dict[str, Any]:
    """What the journal keeps of a charge: its sets by name and digest, and no picture."""
    return {
        **{name: getattr(entry, name) for name in _TEXTS},
        "delta": repr(float(entry.delta)),
        "relation": entry.relation.value,
        "events": [event.to_dict() for event in entry.events],
        "beyond": entry.beyond,
        "weights": list(entry.weights),
        "area": entry.area,
        "units": entry.units,
        "outputs": list(entry.outputs),
        "elsewhere": list(entry.elsewhere),
        "state": entry.state.value,
        "sets": {str(name): digest for name, digest in sets.items()},
        "opened": {str(name): digest for name, digest in opened.items()},
        "marks": marks,
    }


def charge_from(row: JournalRow, where: Where, first: int | None = None) -> Charge:
    """The charge in a row of the journal; its place is that of row `first`, which first named it.

    Raises:
        DposeError: the row was written by another dpose.
    """
    values = row.body
    try:
        return Charge(
            **{name: str(values[name]) for name in _TEXTS},
            relation=Relation(values["relation"]),
            delta=float(values["delta"]),
            events=tuple(
                event_from_dict(event, f"row {row.seq} of the account") for event in values["events"]
            ),
            beyond=values["beyond"] is True,
            weights=tuple(map(str, values["weights"])),
            marks=NO_MARKS,
            opened=NO_MARKS,
            area=int(values["area"]),
            units=int(values.get("units", 0)),
            outputs=tuple(map(str, values["outputs"])),
            elsewhere=tuple(map(str, values["elsewhere"])),
            state=State(values["state"]),
            stored=Stored(
                row.seq if first is None else first,
                frozenset(map(int, values["sets"])),
                frozenset(map(int, values["opened"])),
                int(values["marks"]),
                where,
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError(
            "account-row-unreadable",
            f"row {row.seq} of the account cannot be read ({error})",
            fix="update dpose",
        ) from error


def budget_to_dict(budget: Budget, set_id: int, digest: str, owner: str) -> dict[str, Any]:
    """What the journal keeps of a budget."""
    return {
        "epsilon": repr(float(budget.epsilon)),
        "delta": repr(float(budget.delta)),
        "data": budget.data,
        "unit": budget.neighbours.unit.value,
        "neighbours": budget.neighbours.to_dict(),
        "owner": owner,
        "set": set_id,
        "digest": digest,
    }


def budget_from(row: JournalRow) -> KeptBudget:
    """The budget in a row of the journal."""
    values = row.body
    near = Neighbours.read(values["neighbours"], values["unit"])
    assert near is not None
    budget = Budget(float(values["epsilon"]), float(values["delta"]), str(values["data"]), NO_MARKS, near)
    return KeptBudget(budget, int(values["set"]), str(values["owner"]), row.seq)


def worst_case(entry: Charge) -> Charge:
    """`entry` as it counts for pictures that it took to be public: nothing bounds what it tells of those."""
    return replace(entry, events=(), beyond=False)
