"""What the account is asked: who read some pictures, what that cost together, where weights come from.

    found = readers(marks)                         # charges that read any of these pictures
    spent_on(marks, Neighbours("image"), delta=1e-5)    # epsilon of the picture that has given the most

Nothing here writes but compositions, which are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpose.account.compositions import Compositions
from dpose.account.history import history, worst_case
from dpose.account.journal import Transaction
from dpose.account.records import EVALUATION, TUNING, Charge, State, names_of_run, unbounded
from dpose.account.sets import cells_of, cells_within, chains_of, check_sets, sets_of
from dpose.account.store import Where, opened
from dpose.errors import DposeError
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import Neighbours


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
        chosen: As `epsilon`, for runs and releases that were chosen after seeing earlier ones; infinite, too, where
            there is a score without noise.
    """

    epsilon: float
    delta: float
    asked: Neighbours
    charges: tuple[Charge, ...]
    unbounded: tuple[tuple[Charge, str], ...]
    scores: int
    chosen: float


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
        sets = sets_of(account, marks)
        return touching_sets(history(account).among(sets), sets)


def read_with(entries: Iterable[Charge], where: Where = None) -> list[Charge]:
    """The charges that read any picture that `entries`, of this account, read; they among them, oldest first.

    One that took some of them to be public comes without its events: nothing bounds what it tells of those.

    Raises:
        DposeError: the account cannot be read.
    """
    own = ",".join(map(str, sorted({s for entry in entries if entry.stored for s in entry.stored.sets})))
    with opened(where).transaction(write=False) as account:
        met = account.rows("SELECT DISTINCT other FROM meets WHERE one IN ({each})", numbers=own)
        sets = frozenset(int(row[0]) for row in met)
        return touching_sets(history(account).among(sets), sets)


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
        found += touching_sets([entry], of_store[where])
    return found


def touching_sets(entries: Iterable[Charge], sets: frozenset[int]) -> list[Charge]:
    """Those of stored `entries` that read any of the account's `sets`, as `touching`."""
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
    asked: Neighbours,
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
        chains = set(chains_of(account, cells_of(account, marks)).values()) if len(marks) else set()
        sets: frozenset[int] = frozenset().union(*chains)
        found = touching_sets(history(account).among(sets), sets)
        spent, computed = _spent(
            account, found, {frozenset().union(*chains)} if same else chains, asked, delta, also
        )
    computed.keep(where)
    return spent


def spent_among(entries: Sequence[Charge], asked: Neighbours, delta: float, where: Where = None) -> Spent:
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
        found = touching_sets(entries, frozenset().union(*chains))
        spent, computed = _spent(account, found, chains, asked, delta)
    computed.keep(where)
    return spent


def composed_each(
    questions: Sequence[tuple[Sequence[Charge], float, Neighbours]], where: Where = None
) -> list[float]:
    """`composed` for each (charges, delta, neighbours), remembered by the account.

    Raises:
        DposeError: the account cannot be read, or a delta is out of range.
    """
    with opened(where).transaction(write=False) as account:
        computed = Compositions(account)
    found = [computed.of(entries, delta, asked) for entries, delta, asked in questions]
    computed.keep(where)
    return found


def _spent(
    account: Transaction,
    found: Sequence[Charge],
    chains: Iterable[frozenset[int]],
    asked: Neighbours,
    delta: float,
    also: Sequence[Charge] = (),
) -> tuple[Spent, Compositions]:
    """What `found` and `also` have spent on the picture of `chains` that has spent most; what was computed for it."""
    computed = Compositions(account)
    reasons = tuple(
        (entry, why)
        for entry in (*found, *also)
        if entry.what != EVALUATION and (why := unbounded(entry, asked.unit))
    )
    scores = sum(entry.what == EVALUATION for entry in (*found, *also))
    if reasons:
        return Spent(math.inf, delta, asked, tuple(found), reasons, scores, math.inf), computed
    counted = [entry for entry in found if entry.what != EVALUATION]
    parts = [tuple(counted)] if asked.together else _parts(counted, chains)
    every = [[*part, *also] for part in (parts or [()])]
    worst = max(computed.of(part, delta, asked) for part in every)
    chosen = math.inf if scores else max(computed.chosen(part, delta, asked) for part in every)
    return Spent(worst, delta, asked, tuple(found), (), scores, chosen), computed


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
        The runs, each once; and the digests that no run of the account released.
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


def times_set_back(where: Where = None) -> int:
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
