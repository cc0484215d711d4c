"""Reservations: what is counted before anything is computed, and committed when its output is complete.

    charge_account(Charge(...))                    # reserved; refused where a budget would be passed
    with committing(charge.id):                       # committed at the end, or marked as failed
        ...                                        # computed and written

A reservation counts from the moment that `charge_account` returns, whatever becomes of it: a process that dies between
may have shown what it computed. Reservations are serialisable transactions of the account, so that any number of
processes that race for the last of a budget never spend more than it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from dpose.errors import DposeError
from dpose.privacy.odometer.cells import (
    cells_of,
    cells_within,
    chains_of,
    check_sets,
    register_set,
    sets_of,
    without,
)
from dpose.privacy.odometer.composition import composed
from dpose.privacy.odometer.filters import admit, forget_bounds
from dpose.privacy.odometer.history import charge_from, charge_to_dict, history, worst_case
from dpose.privacy.odometer.records import (
    EVALUATION,
    Asked,
    Charge,
    Marks,
    State,
    Stored,
    joined,
    restated,
    unbounded,
)
from dpose.privacy.odometer.store import Transaction, Where, opened


@dataclass(frozen=True)
class Spent:
    """What some pictures have been spent for, of the one that has spent the most.

    Attributes:
        epsilon: Of everything that read it, for a plan fixed beforehand; infinite where something has no bound.
        delta: At which it is told.
        asked: For which neighbours.
        charges: That read any of them, oldest first; those that took some of them to be public without their events.
        unbounded: Of the charges without a bound for these neighbours (scores apart), why.
        scores: How many scores without noise there are besides.
    """

    epsilon: float
    delta: float
    asked: Asked
    charges: tuple[Charge, ...]
    unbounded: tuple[tuple[Charge, str], ...]
    scores: int


class _DryRunError(Exception):
    """Ends a transaction that was only to be tried."""


def charge_account(entry: Charge, where: Where = None) -> Charge:
    """Check the budgets and reserve `entry`, with no other process in between; on disk when this returns.

    Returns:
        It, as the account has it: joined with what was charged under its name before.

    Raises:
        DposeError: a budget would be passed, the run began with other first weights, or the account cannot be written.
    """
    return reserve_all([entry], where)[0]


def reserve_all(entries: Sequence[Charge], where: Where = None) -> list[Charge]:
    """`charge_account` for all of `entries` in one transaction: all are reserved, or none.

    Raises:
        DposeError: as `charge_account`.
    """
    with opened(where).transaction() as account:
        return [_reserve(account, entry, checked=True) for entry in entries]


def reserve_after(entry: Charge, known: Mapping[str, State], where: Where = None) -> Charge:
    """`charge_account`, provided that of all charges of its kind (`what`) on its pictures only `known` ones are there.

    Whoever has looked at an account and decides by what it saw decides by what is still so: of processes that race for
    one picture, all but the first are told.

    Args:
        entry: What is reserved.
        known: The states of the charges that were seen, by id.
        where: The account.

    Raises:
        DposeError: as `charge_account`, or another process has read the pictures, or finished with them, meanwhile.
    """
    with opened(where).transaction() as account:
        found = _touching_sets(history(account).charges.values(), sets_of(account, entry.marks))
        now = {other.id: other.state for other in found if other.what == entry.what}
        if now != dict(known):
            raise DposeError(
                f"another process has just made or begun a {entry.what} of this", entry.data, "run this again"
            )
        return _reserve(account, entry, checked=True)


def charge(entry: Charge, where: Where = None) -> Charge:
    """Record what has been spent already, whatever budgets say; on disk when this returns.

    Of an earlier charge of that name the pictures and the released weights stay: what was read and shown once remains
    read and shown.

    Raises:
        DposeError: the account cannot be written, or the run began with other first weights.
    """
    with opened(where).transaction() as account:
        return _reserve(account, entry, checked=False)


def check_budgets(entry: Charge, where: Where = None) -> None:
    """Refuse `entry` if it would take more than a budget leaves, or if what it takes is bounded by nothing.

    Raises:
        DposeError: it would; says what is spent and what would be.
    """
    try:
        with opened(where).transaction(make=False) as account:
            _reserve(account, entry, checked=True)
            raise _DryRunError
    except _DryRunError:
        pass


def _reserve(account: Transaction, entry: Charge, *, checked: bool) -> Charge:
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
    found = account.rows(
        "SELECT id, digest, members FROM sets WHERE id IN ({each})", numbers=",".join(map(str, sets | public))
    )
    digests = {int(name): str(digest) for name, digest, _ in found}
    marks = sum(int(members) for name, _, members in found if int(name) in sets)
    body = charge_to_dict(
        entry, {s: digests[s] for s in sorted(sets)}, {s: digests[s] for s in sorted(public)}, marks
    )
    seq = account.append("charge", entry.id, body)
    first = entry.stored.seq if entry.stored else seq
    return replace(entry, stored=Stored(first, sets, public, marks, account.store.where))


def _of_name(account: Transaction, name: str) -> Charge | None:
    row = account.last_of(name)
    return charge_from(row, account.store.where) if row else None


def commit(name: str, outputs: Iterable[str] = (), where: Where = None) -> None:
    """Record that the output of a charge is complete.

    Args:
        name: Its id.
        outputs: SHA-256 of every file of the output.
        where: The account.

    Raises:
        DposeError: the account knows no such charge, or cannot be written.
    """
    _settle(name, State.COMMITTED, tuple(outputs), where)


def fail(name: str, where: Where = None) -> None:
    """Record that a charge ended without output. It counts all the same: what it computed by then nobody knows.

    Raises:
        DposeError: the account knows no such charge, or cannot be written.
    """
    _settle(name, State.FAILED, (), where)


@contextlib.contextmanager
def committing(name: str, outputs: Iterable[str] = (), where: Where = None) -> Iterator[None]:
    """Commit a charge at the end of the block; whatever ends it otherwise, record that the charge failed: it counts.

    Args:
        name: The charge's id; "" where nothing was charged, and nothing is done then.
        outputs: SHA-256 of every file of the output: looked at when the block has ended.
        where: The account.

    Raises:
        DposeError: as `commit`.
    """
    try:
        yield
    except BaseException:
        if name:
            with contextlib.suppress(DposeError):  # it is counted already; the first error is the one to tell
                fail(name, where)
        raise
    if name:
        commit(name, outputs, where)


def _settle(name: str, state: State, outputs: tuple[str, ...], where: Where) -> None:
    with opened(where).transaction() as account:
        entry = _of_name(account, name)
        if entry is None or entry.stored is None:
            raise DposeError("the account knows no such charge", name, "reserve it first")
        if entry.state is State.COMMITTED and state is State.FAILED:
            raise DposeError("is complete already, and cannot have failed", name)
        outputs = tuple(dict.fromkeys((*entry.outputs, *outputs)))
        _written(
            account, replace(entry, state=state, outputs=outputs), entry.stored.sets, entry.stored.opened
        )


def note_weights(run_id: str, digest: str, where: Where = None) -> None:
    """Record that the run `run_id` released a file of weights; to be called before the file is seen.

    Nothing happens where the account does not know the run.

    Raises:
        DposeError: the account cannot be read or written.
    """
    with opened(where).transaction() as account:
        entry = _of_name(account, run_id)
        if entry is not None and entry.stored is not None and digest not in entry.weights:
            noted = replace(entry, weights=(*entry.weights, digest))
            _written(account, noted, entry.stored.sets, entry.stored.opened)


def charges(where: Where = None) -> list[Charge]:
    """All that is recorded, oldest first, by the account's own numbers and no clock.

    Raises:
        DposeError: the account cannot be read.
    """
    with opened(where).transaction(write=False) as account:
        return list(history(account).charges.values())


def readers(marks: Marks, where: Where = None) -> list[Charge]:
    """The charges that read any of the pictures `marks`, oldest first.

    One that took some of them to be public comes without its events: nothing bounds what it tells of those.

    Raises:
        DposeError: the account cannot be read.
    """
    with opened(where).transaction(write=False) as account:
        return _touching_sets(history(account).charges.values(), sets_of(account, marks))


def read_with(entry: Charge, where: Where = None) -> list[Charge]:
    """The charges that read any picture that `entry`, of this account, read; itself among them, oldest first.

    One that took some of them to be public comes without its events: nothing bounds what it tells of those.

    Raises:
        DposeError: the account cannot be read.
    """
    own = ",".join(map(str, sorted(entry.stored.sets))) if entry.stored else ""
    with opened(where).transaction(write=False) as account:
        met = account.rows("SELECT DISTINCT other FROM meets WHERE one IN ({each})", numbers=own)
        return _touching_sets(history(account).charges.values(), frozenset(int(row[0]) for row in met))


def touching(entries: Iterable[Charge], marks: Marks) -> list[Charge]:
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
        found += _touching_sets([entry], of_store[where])
    return found


def _touching_sets(entries: Iterable[Charge], sets: frozenset[int]) -> list[Charge]:
    found = []
    for entry in entries:
        assert entry.stored is not None
        if entry.stored.opened & sets:
            found.append(worst_case(entry))
        elif entry.stored.sets & sets:
            found.append(entry)
    return found


def _any(some: Marks, marks: Marks) -> bool:
    import numpy as np

    return bool(np.isin(some, marks).any())


def finished_alike(marks: Marks, settings: str, where: Where = None) -> list[Charge]:
    """Committed charges of any of the pictures `marks` with these settings: their output need not be made again.

    Args:
        marks: A picture, by the digests of its file and of its pixels.
        settings: Digest of all that decides the output.
        where: The account.

    Raises:
        DposeError: the account cannot be read.
    """
    found = readers(marks, where)
    return [entry for entry in found if settings == entry.settings != "" and entry.state is State.COMMITTED]


def spent_on(
    marks: Marks,
    asked: Asked,
    delta: float,
    also: Sequence[Charge] = (),
    where: Where = None,
    *,
    same: bool = False,
) -> Spent:
    """What has been spent on the pictures `marks`, for the neighbours asked about: of the one that has spent the most.

    Charges that share no picture compose in parallel: which pictures they read was settled by lists and not by what is
    in the pictures. For units of more than one picture (a video, a person) all are added up.

    Args:
        marks: Some pictures.
        asked: For which neighbours.
        delta: At which epsilon is told, in (0, 1).
        also: Charges that are not made yet and read all of them: what they would cost together.
        where: The account.
        same: Whether all of `marks` are digests of one picture: whatever read it by one of them adds up with the rest.

    Raises:
        DposeError: the account cannot be read, or delta is out of range.
    """
    with opened(where).transaction(write=False) as account:
        known = history(account).charges.values()
        chains = set(chains_of(account, cells_of(account, marks)).values()) if len(marks) else set()
        found = _touching_sets(known, frozenset().union(*chains))
        spent, computed = _spent(
            account, found, {frozenset().union(*chains)} if same else chains, asked, delta, also
        )
    computed.keep(where)
    return spent


def spent_among(entries: Sequence[Charge], asked: Asked, delta: float, where: Where = None) -> Spent:
    """What stored charges have spent together, and nothing else: of the picture that has spent the most.

    Args:
        entries: Of the account.
        asked: For which neighbours.
        delta: At which epsilon is told, in (0, 1).
        where: The account.

    Raises:
        DposeError: the account cannot be read, or delta is out of range.
    """
    read = frozenset(s for entry in entries if entry.stored for s in entry.stored.sets)
    with opened(where).transaction(write=False) as account:
        cells = {cell.id for set_id in read for cell in cells_within(account, set_id) if cell.members}
        chains = set(chains_of(account, cells).values())
        found = _touching_sets(entries, frozenset().union(*chains))
        spent, computed = _spent(account, found, chains, asked, delta)
    computed.keep(where)
    return spent


def composed_each(
    questions: Sequence[tuple[Sequence[Charge], float, Asked]], where: Where = None
) -> list[float]:
    """`composed` for each (charges, delta, neighbours), remembered by the account.

    Raises:
        DposeError: the account cannot be read, or a delta is out of range.
    """
    with opened(where).transaction(write=False) as account:
        computed = _Remembered(account)
    found = [computed.of(entries, delta, asked) for entries, delta, asked in questions]
    computed.keep(where)
    return found


def _spent(
    account: Transaction,
    found: Sequence[Charge],
    chains: Iterable[frozenset[int]],
    asked: Asked,
    delta: float,
    also: Sequence[Charge] = (),
) -> tuple[Spent, _Remembered]:
    """What `found` and `also` have spent on the picture of `chains` that has spent most; what was computed for it."""
    computed = _Remembered(account)
    reasons = tuple(
        (entry, why)
        for entry in (*found, *also)
        if entry.what != EVALUATION and (why := unbounded(entry, asked.unit))
    )
    scores = sum(entry.what == EVALUATION for entry in (*found, *also))
    if reasons:
        return Spent(float("inf"), delta, asked, tuple(found), reasons, scores), computed
    counted = [entry for entry in found if entry.what != EVALUATION]
    parts = [tuple(counted)] if asked.together else _parts(counted, chains)
    worst = max(computed.of([*part, *also], delta, asked) for part in (parts or [()]))
    return Spent(worst, delta, asked, tuple(found), (), scores), computed


class _Remembered:
    """Compositions that the account has computed before: by their events, so that none can be out of date."""

    def __init__(self, account: Transaction) -> None:
        self._key = account.key
        self._old: dict[str, float] = {}
        for digest, value, mac in account.rows("SELECT digest, value, mac FROM compositions"):
            if mac == self._key.mac(
                "composition", digest, value
            ):  # what somebody else wrote is computed anew
                self._old[digest] = float(value)
        self._new: dict[str, float] = {}

    def of(self, entries: Sequence[Charge], delta: float, asked: Asked) -> float:
        """`composed`, or what it was before."""
        events = sorted(repr(event) for entry in entries for event in restated(entry, asked))
        name = self._key.mac("question", version("dp-accounting"), repr(delta), str(asked.replaces), *events)
        if name not in self._old:
            self._old[name] = self._new[name] = composed(entries, delta, asked)
        return self._old[name]

    def keep(self, where: Where) -> None:
        """Write what is new, where there is an account."""
        if not self._new:
            return
        with opened(where).transaction(make=False) as account:
            for digest, value in self._new.items():
                account.run(
                    "INSERT INTO compositions (digest, value, mac) VALUES (:digest, :value, :mac) "
                    "ON CONFLICT DO NOTHING",
                    digest=digest,
                    value=repr(value),
                    mac=self._key.mac("composition", digest, repr(value)),
                )


def _parts(found: Sequence[Charge], chains: Iterable[frozenset[int]]) -> list[tuple[Charge, ...]]:
    """The charges of each picture, those alike once."""
    of_set: dict[int, list[Charge]] = {}
    for entry in found:
        assert entry.stored is not None
        for set_id in entry.stored.sets:
            of_set.setdefault(set_id, []).append(entry)
    parts: dict[tuple[object, ...], tuple[Charge, ...]] = {}
    for chain in chains:
        mine = {entry.id: entry for set_id in chain & of_set.keys() for entry in of_set[set_id]}
        kinds = sorted((hash(e.events), e.area, e.unit, e.within) for e in mine.values())
        parts.setdefault(tuple(kinds), tuple(mine.values()))
    return list(parts.values())


def lineage(digests: Iterable[str], entries: Sequence[Charge]) -> tuple[list[Charge], list[str]]:
    """The runs that weights come from: the one that released them, the one that released its first weights, and so on.

    Args:
        digests: SHA-256 of files of weights.
        entries: Of the account.

    Returns:
        The runs, each once; and the digests (or `UNKNOWN`) that no run of the account released.
    """
    found: dict[str, Charge] = {}
    left, seen, unknown = list(digests), set[str](), []
    while left:
        digest = left.pop()
        if not digest or digest in seen:
            continue
        seen.add(digest)
        by = [entry for entry in entries if digest in entry.weights]
        if not by:
            unknown.append(digest)
        found |= {entry.id: entry for entry in by}
        left += [entry.start for entry in by]
    return list(found.values()), unknown


def groups(where: Where = None) -> list[list[Charge]]:
    """All charges, in groups that have pictures in common, directly or by way of others; order is kept.

    Raises:
        DposeError: the account cannot be read.
    """
    with opened(where).transaction(write=False) as account:
        entries = list(history(account).charges.values())
        near: dict[int, set[int]] = {}
        for one, other in account.rows("SELECT one, other FROM meets"):
            near.setdefault(int(one), set()).add(int(other))
    group_of: dict[int, int] = {}
    for start in near:
        left = [start] if start not in group_of else []
        while left:
            here = left.pop()
            if group_of.setdefault(here, start) == start:
                left += [there for there in near[here] if there not in group_of]
    found: dict[int, list[Charge]] = {}
    for entry in entries:
        assert entry.stored is not None
        # a charge's own sets are joined by it
        mine = sorted({group_of[s] for s in entry.stored.sets}) or [-entry.stored.seq]
        first = mine[0]
        for other in mine[1:]:
            group_of = {s: first if g == other else g for s, g in group_of.items()}
            found[first] = [*found.get(first, []), *found.pop(other, [])]
        found.setdefault(first, []).append(entry)
    ordered = [sorted(group, key=lambda e: e.stored.seq if e.stored else 0) for group in found.values()]
    return sorted(ordered, key=lambda group: group[0].stored.seq if group[0].stored else 0)


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
