"""What charges cost together: Renyi divergences at one order for budgets, the tightest epsilon for a fixed plan.

    composed(found, delta=1e-5)                             # epsilon of all of them, for a plan fixed beforehand
    renyi_cost(events, order=6.5, replaces=False)           # what a budget's filter adds up
    spending(Neighbours("image"), 1e-5, of=marks).epsilon   # of the picture that has spent the most

docs/proofs/odometer.md proves both: the bound of each event, replacement under Poisson sampling by the weak triangle
inequality, and the conversion.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version

from dpose.account.charges import (
    EVALUATION,
    PIXEL,
    Charge,
    cells_of,
    cells_within,
    chains_of,
    history,
    reading,
    restated,
    unbounded,
)
from dpose.account.store import Transaction, Where, opened
from dpose.privacy.accounting import added_up, cost
from dpose.privacy.events import Approximate, Event
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.renyi import APPROXIMATE_SHARE, order_of_budget

CHOSEN: tuple[float, ...] = tuple(float(2.0 ** (k / 4)) for k in range(-20, 45))
"""Epsilons of the filters that `chosen_epsilon` compares: public, and fixed before anything is seen; 1/32 to 2,048."""


def renyi_cost(events: Iterable[Event], order: float, *, replaces: bool) -> tuple[float, float]:
    """Bounds on the Renyi divergence of `order` (> 1) of all events together, and on the probability that it fails.

    All are restated for one relation: a unit is replaced by another (`replaces`), or zeroed out, added or removed.
    """
    divergence = failing = 0.0
    for event, count in Counter(events).items():
        divergence += count * event.renyi(order, replaces=replaces)
        failing += count * event.delta if isinstance(event, Approximate) else 0.0
    return divergence, failing


def composed(entries: Sequence[Charge], delta: float, requested: Neighbours | None = None) -> float:
    """Epsilon at `delta` of everything in `entries` together; infinite if one of them is bounded by nothing.

    For a plan fixed beforehand: what the entries did must not have been chosen by looking at each other's results
    (budgets hold for that, too: `filters`). Scores without noise (`what` "evaluation") have no epsilon and are left
    out; anyone who shows the sum names them.

    Args:
        entries: What was done.
        delta: In (0, 1).
        requested: The neighbours; None for those of the entries themselves: by replacement if one of them claims that,
            otherwise by zeroing out.

    Raises:
        DposeError: delta is out of range.
    """
    entries = [entry for entry in entries if entry.what != EVALUATION]
    if not entries:
        return 0.0
    if not all(entry.events for entry in entries):
        return math.inf
    if requested is None:
        replaces = any(e.relation is Relation.REPLACE and e.unit != PIXEL for e in entries)
        events = [event for entry in entries for event in entry.events]
    else:
        replaces, events = (requested.replaces, [event for entry in entries for event in restated(entry, requested)])
    return float(cost(events, delta, Relation.REPLACE if replaces else Relation.ZERO_OUT))


def chosen_epsilon(charges: Sequence[Charge], delta: float, requested: Neighbours, alone: float) -> float:
    """Epsilon at `delta` of charges that read one picture, each of them chosen after seeing what earlier ones gave.

    The least of `CHOSEN` whose filter, at its share of delta, would have let all of them in; of pure losses alone their
    sum. Infinite where none would have.

    **Guarantee.** With e the figure, a function of the charges: for every event S of all outputs, P(S) is at most the
    mean of exp(e) over S under any neighbour, plus delta (docs/proofs/odometer.md, "Without a budget"), provided that
    delta and the neighbours asked about were not chosen by what was seen.

    Args:
        charges: All with a bound for the neighbours, those that were made again as they stand now.
        delta: In (0, 1).
        requested: The neighbours.
        alone: Of one charge its own epsilon at `chosen_share(delta)`, for its plan; infinite if there are more.
    """
    events = [event for charge in charges for event in restated(charge, requested)]
    most = added_up(event.pure() for event in events)
    share = chosen_share(delta)
    for point in CHOSEN:
        order, cap = order_of_budget(point, share)
        if point >= most:
            break
        if alone <= point:
            return point
        spent, failing = renyi_cost(events, order, replaces=requested.replaces) if cap > 0 else (math.inf, 0.0)
        if spent <= cap and failing <= APPROXIMATE_SHARE * share:
            return point
    return most


def chosen_share(delta: float) -> float:
    """The share of `delta` that each filter of `CHOSEN` has: they are asked all together."""
    return delta / len(CHOSEN)


class Compositions:
    """Compositions that the account has computed before: by their events, so that none can be out of date."""

    def __init__(self, account: Transaction) -> None:
        self._key = account.key
        self._new: dict[str, float] = {}
        self._old = {  # what somebody else wrote is computed anew
            digest: float(value)
            for digest, value, mac in account.rows("SELECT digest, value, mac FROM compositions")
            if mac == self._key.mac("composition", digest, value)
        }

    def of(self, entries: Sequence[Charge], delta: float, requested: Neighbours) -> float:
        """`composed`, or what it was before."""
        events = sorted(repr(event) for entry in entries for event in restated(entry, requested))
        name = self._key.mac("question", version("dp-accounting"), repr(delta), str(requested.replaces), *events)
        if name not in self._old:
            self._old[name] = self._new[name] = composed(entries, delta, requested)
        return self._old[name]

    def chosen(self, entries: Sequence[Charge], delta: float, requested: Neighbours) -> float:
        """`chosen_epsilon` of charges among which is no score without noise: 0 for nothing."""
        alone = self.of(entries, chosen_share(delta), requested) if len(entries) == 1 else math.inf
        return chosen_epsilon(entries, delta, requested, alone)

    def keep(self, where: Where) -> None:
        """Write what is new, where there is an account."""
        macs = {digest: self._key.mac("composition", digest, repr(value)) for digest, value in self._new.items()}
        rows = [{"digest": digest, "value": repr(self._new[digest]), "mac": mac} for digest, mac in macs.items()]
        if rows:
            with opened(where).transaction(make=False) as account:
                account.run(
                    "INSERT INTO compositions (digest, value, mac) VALUES (:digest, :value, :mac) "
                    "ON CONFLICT DO NOTHING",
                    *rows,
                )


@dataclass(frozen=True)
class Spent:
    """What some pictures have been spent for, of the one that has spent the most.

    Attributes:
        requested: Neighbours of the answer.
        delta: At which it is stated.
        epsilon: Of everything that read it, for a plan fixed beforehand; infinite if something has no bound.
        chosen: As `epsilon`, for runs and releases that were chosen after seeing earlier ones; infinite, too, where
            there is a score without noise.
        together: Of all that has a bound, as if it had all read one picture.
        charges: That read any of them, oldest first; those that took some of them to be public without their events.
        unbounded: Why the charges without a bound for these neighbours (scores apart) have none, and of how many each
            is true.
        scores: How many scores without noise there are besides.
    """

    requested: Neighbours
    delta: float
    epsilon: float = 0.0
    chosen: float = 0.0
    together: float = 0.0
    charges: tuple[Charge, ...] = ()
    unbounded: Counter[str] = field(default_factory=Counter)
    scores: int = 0


def spending(
    requested: Neighbours,
    delta: float,
    where: Where = None,
    *,
    of: Marks | None = None,
    among: Sequence[Charge] = (),
    also: Sequence[Charge] = (),
    same: bool = False,
) -> Spent:
    """What has been spent on pictures, for the neighbours asked about: of the one that has spent the most.

    Charges that share no picture compose in parallel: which pictures they read was settled by lists and not by what is
    in the pictures. For units of more than one picture (a video, a person) all are added up.

    Args:
        requested: Neighbours of the answer.
        delta: Delta at which epsilon is computed, in (0, 1).
        where: The account.
        of: The pictures, and everything that read them; None for the charges `among` and nothing else.
        among: Charges of the account.
        also: Charges that are not made yet and read all of the pictures: what they would cost together.
        same: Whether all of `of` are digests of one picture: whatever read it by one of them adds up with the rest.
    """
    with opened(where).transaction(write=False) as account:
        computed = Compositions(account)
        read = frozenset().union(*(entry.stored.sets for entry in among))
        cells = cells_within(account, read) if of is None else cells_of(account, of)
        chains = set(chains_of(account, cells).values())
        sets: frozenset[int] = frozenset().union(*chains)
        found = reading(among, sets) if of is None else history(account).among(sets)
    spent = _spent(computed, found, {sets} if same else chains, requested, delta, also)
    computed.keep(where)
    return spent


def composed_each(questions: Sequence[tuple[Sequence[Charge], float, Neighbours]], where: Where = None) -> list[float]:
    """`composed` for each (charges, delta, neighbours), remembered by the account."""
    with opened(where).transaction(write=False) as account:
        computed = Compositions(account)
    found = [computed.of(*question) for question in questions]
    computed.keep(where)
    return found


def _spent(
    computed: Compositions,
    found: Sequence[Charge],
    chains: Iterable[frozenset[int]],
    requested: Neighbours,
    delta: float,
    also: Sequence[Charge],
) -> Spent:
    """What `found` and `also` have spent on the picture of `chains` that has spent most."""
    counted = [entry for entry in (*found, *also) if entry.what != EVALUATION]
    scores = len(found) + len(also) - len(counted)
    reasons = [unbounded(entry, requested.unit) for entry in counted]
    bounded = [entry for entry, why in zip(counted, reasons, strict=True) if not why]
    together = computed.of(bounded, delta, requested)
    none = Counter(filter(None, reasons))
    answer = Spent(requested, delta, math.inf, math.inf, together, tuple(found), none, scores)
    if none:
        return answer
    stored = [entry for entry in found if entry.what != EVALUATION]
    parts = [tuple(stored)] if requested.together else _parts(stored, chains)
    every = [[*part, *also] for part in (parts or [()])]
    worst = max(computed.of(part, delta, requested) for part in every)
    chosen = math.inf if scores else max(computed.chosen(part, delta, requested) for part in every)
    return replace(answer, epsilon=worst, chosen=chosen)


def _parts(found: Sequence[Charge], chains: Iterable[frozenset[int]]) -> list[tuple[Charge, ...]]:
    """The charges of each picture, those alike once."""
    of_set = defaultdict[int, list[Charge]](list)
    for entry in found:
        for set_id in entry.stored.sets:
            of_set[set_id].append(entry)
    parts: dict[tuple[object, ...], tuple[Charge, ...]] = {}
    for read in chains:
        mine = {entry.id: entry for set_id in read & of_set.keys() for entry in of_set[set_id]}
        kinds = sorted((hash(e.events), e.area, e.unit, e.within) for e in mine.values())
        parts.setdefault(tuple(kinds), tuple(mine.values()))
    return list(parts.values())
