"""What charges cost together: Renyi divergences at one order for budgets, the tightest epsilon for a fixed plan.

    composed(found, delta=1e-5)                             # epsilon of all of them, for a plan fixed beforehand
    renyi_cost(events, order=6.5, replaces=False)           # what a budget's filter adds up

docs/proofs/odometer.md proves both: the bound of each event, replacement under Poisson sampling by the weak triangle
inequality, and the conversion.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from dpose.account.records import EVALUATION, PIXEL, Charge, restated
from dpose.privacy.accounting import added_up, cost
from dpose.privacy.events import Approximate, Event
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.renyi import ORDERS, converted

CHOSEN: tuple[float, ...] = tuple(float(2.0 ** (k / 4)) for k in range(-20, 45))
"""Epsilons of the filters that `chosen_epsilon` asks: public, and fixed before anything is seen; 1/32 to 2,048."""
APPROXIMATE_SHARE = 0.1
"""The share of a budget's delta that is kept for events that have a delta of their own."""


def order_of_budget(budget_epsilon: float, delta: float) -> tuple[float, float]:
    """The order of a budget's filter and the most Renyi divergence that it may spend: a public rule.

    Of `ORDERS` the one at which the most rho of zCDP fits; the delta of the conversion is (1 - `APPROXIMATE_SHARE`)
    of the budget's.
    """
    rest = delta * (1 - APPROXIMATE_SHARE)
    caps = [(order, budget_epsilon - converted(order, rest)) for order in ORDERS]
    return max(caps, key=lambda pair: pair[1] / pair[0])


def renyi_cost(events: Iterable[Event], order: float, *, replaces: bool) -> tuple[float, float]:
    """Bounds on the Renyi divergence of `order` of all events together, and on the probability that it does not hold.

    Args:
        events: Restated for one relation.
        order: Above 1.
        replaces: Whether a unit is replaced by another; zeroed out, added or removed otherwise.
    """
    divergence = failing = 0.0
    for event, count in Counter(events).items():
        divergence += count * event.renyi(order, replaces=replaces)
        failing += count * event.delta if isinstance(event, Approximate) else 0.0
    return divergence, failing


def composed(entries: Sequence[Charge], delta: float, asked: Neighbours | None = None) -> float:
    """Epsilon at `delta` of everything in `entries` together; infinite where one of them is bounded by nothing.

    For a plan fixed beforehand: what the entries did must not have been chosen by looking at each other's results
    (budgets hold for that, too: `filters`). Scores without noise (`what` "evaluation") have no epsilon and are left
    out; whoever shows the sum names them.

    Args:
        entries: What was done.
        delta: In (0, 1).
        asked: The neighbours; None for those of the entries themselves: by replacement where one of them claims that,
            otherwise by zeroing out.

    Raises:
        DposeError: delta is out of range.
    """
    entries = [entry for entry in entries if entry.what != EVALUATION]
    if not entries:
        return 0.0
    if not all(entry.events for entry in entries):
        return math.inf
    if asked is None:
        replaces = any(e.relation is Relation.REPLACE and e.unit != PIXEL for e in entries)
        events = [event for entry in entries for event in entry.events]
    else:
        replaces, events = asked.replaces, [event for entry in entries for event in restated(entry, asked)]
    return float(cost(events, delta, Relation.REPLACE if replaces else Relation.ZERO_OUT))


def chosen_epsilon(charges: Sequence[Charge], delta: float, asked: Neighbours, alone: float) -> float:
    """Epsilon at `delta` of charges that read one picture, each of them chosen after seeing what earlier ones gave.

    The least of `CHOSEN` whose filter, at its share of delta, would have let all of them in; of pure losses alone their
    sum. Infinite where none would have.

    **Guarantee.** With e the figure, a function of the charges: for every event S of all outputs, P(S) is at most the
    mean of exp(e) over S under any neighbour, plus delta (docs/proofs/odometer.md, "Without a budget"), provided that
    delta and the neighbours asked about were not chosen by what was seen.

    Args:
        charges: All with a bound for the neighbours, those that were made again as they stand now.
        delta: In (0, 1).
        asked: The neighbours.
        alone: Of one charge its own epsilon at `chosen_share(delta)`, for its plan; infinite where there are more.
    """
    events = [event for charge in charges for event in restated(charge, asked)]
    most = added_up(event.pure() for event in events)
    share = chosen_share(delta)
    for point in CHOSEN:
        order, cap = order_of_budget(point, share)
        if point >= most:
            break
        if alone <= point:
            return point
        spent, failing = renyi_cost(events, order, replaces=asked.replaces) if cap > 0 else (math.inf, 0.0)
        if spent <= cap and failing <= APPROXIMATE_SHARE * share:
            return point
    return most


def chosen_share(delta: float) -> float:
    """The share of `delta` that each filter of `CHOSEN` has: they are asked all together."""
    return delta / len(CHOSEN)


def filter_epsilon(spent: tuple[float, float], budget_epsilon: float, delta: float) -> float:
    """What a budget's filter has spent, as an epsilon at the budget's delta: 0 for nothing."""
    if spent == (0.0, 0.0):
        return 0.0
    if spent[1] > delta * APPROXIMATE_SHARE * (1 + 1e-9):
        return math.inf
    order, _ = order_of_budget(budget_epsilon, delta)
    return max(0.0, spent[0] + converted(order, delta * (1 - APPROXIMATE_SHARE)))
