"""What charges cost together: Renyi divergences at one order for budgets, the tightest epsilon for a fixed plan.

    composed(found, delta=1e-5)                             # epsilon of all of them, for a plan fixed beforehand
    renyi_cost(events, order=6.5, replaces=False)           # what a budget's filter adds up

docs/proofs/odometer.md proves both: the bound of each event, replacement under Poisson sampling by the weak triangle
inequality, and the conversion.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from dpose.privacy.accounting import MAX_EPSILON, Event, epsilon, merge, rdp_at
from dpose.privacy.exact import zcdp_epsilon
from dpose.privacy.neighbours import Relation
from dpose.privacy.odometer.losses import ApproximateLoss, ChargedEvent, PureLoss, RenyiLoss, ZcdpLoss
from dpose.privacy.odometer.records import EVALUATION, PIXEL, Asked, Charge, restated

ORDERS = tuple(
    [1 + 2 ** (k / 4) for k in range(-12, 13)] + [float(round(2 ** (k / 4))) for k in range(13, 57)]
)
"""Orders that a budget or a bound is taken from: 1.125 to 16,384, whole above 9."""
CHOSEN: tuple[float, ...] = tuple(float(2.0 ** (k / 4)) for k in range(-20, 45))
"""Epsilons of the filters that `chosen_epsilon` asks: public, and fixed before anything is seen; 1/32 to 2,048."""
APPROXIMATE_SHARE = 0.1
"""The share of a budget's delta that is kept for events that have a delta of their own."""
MANY_KINDS = 24
"""Kinds of events beyond which no loss distributions are convolved: it would take minutes."""
LARGE = 20.0
"""A pure epsilon above which its loss distribution is not convolved: it gains nothing, and its grid grows."""


def order_of_budget(budget_epsilon: float, delta: float) -> tuple[float, float]:
    """The order of a budget's filter and the most Renyi divergence that it may spend: a public rule.

    Of `ORDERS` the one at which the most rho of zCDP fits; the delta of the conversion is (1 - `APPROXIMATE_SHARE`)
    of the budget's.
    """
    rest = delta * (1 - APPROXIMATE_SHARE)
    caps = [(order, budget_epsilon - _conversion(order, rest)) for order in ORDERS]
    return max(caps, key=lambda pair: pair[1] / pair[0])


def renyi_cost(events: Iterable[ChargedEvent], order: float, *, replaces: bool) -> tuple[float, float]:
    """Bounds on the Renyi divergence of `order` of all events together, and on the probability that it does not hold.

    Args:
        events: Restated for one relation.
        order: Above 1.
        replaces: Whether a unit is replaced by another; zeroed out, added or removed otherwise.
    """
    divergence = failing = 0.0
    for event, count in Counter(events).items():
        divergence += count * _renyi(event, order, replaces)
        failing += count * event.delta if isinstance(event, ApproximateLoss) else 0.0
    return divergence, failing


@lru_cache(maxsize=65536)
def _renyi(event: ChargedEvent, order: float, replaces: bool) -> float:
    match event:
        case PureLoss() | ApproximateLoss():
            return min(event.epsilon, order * event.epsilon**2 / 2)
        case ZcdpLoss():
            return order * event.rho
        case RenyiLoss():
            return _two_steps(event.at, order) if replaces else event.at(order)
    if not replaces:
        return _sampled(event, order)
    once = replace(event, steps=1)
    unsampled = 2 * order / event.sigma**2  # the sum moves by 2 C, and who was sampled is told besides
    known = _two_steps(lambda a: _sampled(once, a) if a <= HIGHEST_SAMPLED else math.inf, order)
    return event.steps * min(unsampled, known)


def _sampled(event: Event, order: float) -> float:
    """A bound on the divergence of a sampled Gaussian: that of the next whole order; of a small one itself if less.

    Divergences rise with the order. Between whole orders the accountant sums a slow series; near 1 it knows none.
    """
    whole = rdp_at(event, float(max(2, math.ceil(order))))
    return whole if order > 9 else min(whole, rdp_at(event, order))


HIGHEST_SAMPLED = 1024
"""The highest order that a step of a replacement is asked for, which takes the longer the higher it is: beyond it, no
more is known of a replacement than without sampling."""
SPLITS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 9.0)


def _two_steps(curve: object, order: float) -> float:
    """Replacement as two steps, out and in, by the weak triangle inequality of Renyi divergences (Mironov 2017).

    For 1/p + 1/q = 1: D_a(P | R) <= (a - 1/p) / (a - 1) D_(p a)(P | Q) + D_(q (a - 1/p))(Q | R).
    """
    assert callable(curve)
    found = math.inf
    for p in SPLITS:
        q = p / (p - 1)
        first, second = p * order, q * (order - 1 / p)
        found = min(found, (order - 1 / p) / (order - 1) * curve(first) + curve(second))
    return found


def composed(entries: Sequence[Charge], delta: float, asked: Asked | None = None) -> float:
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
        replaced = any(e.relation is Relation.REPLACE and e.unit != PIXEL for e in entries)
        return composed_events([event for e in entries for event in e.events], delta, replaces=replaced)
    events = [event for entry in entries for event in restated(entry, asked)]
    return composed_events(events, delta, replaces=asked.replaces)


def composed_events(events: Sequence[ChargedEvent], delta: float, *, replaces: bool) -> float:
    """Epsilon at `delta` of events for one relation, fixed beforehand: the least of the bounds that are valid.

    Args:
        events: Restated for that relation.
        delta: In (0, 1).
        replaces: Whether a unit is replaced by another.

    Raises:
        DposeError: delta is out of range.
    """
    counted = tuple(sorted(Counter(_merged(events)).items(), key=repr))
    return _composed(counted, float(delta), replaces)


def _merged(events: Sequence[ChargedEvent]) -> list[ChargedEvent]:
    return [
        *merge([e for e in events if isinstance(e, Event)]),
        *(e for e in events if not isinstance(e, Event)),
    ]


@lru_cache(maxsize=4096)
def _composed(counted: tuple[tuple[ChargedEvent, int], ...], delta: float, replaces: bool) -> float:
    relation = Relation.REPLACE if replaces else Relation.ZERO_OUT
    events = [event for event, count in counted for _ in range(count)]
    training = [event for event in events if isinstance(event, Event)]
    if len(training) == len(events) and len(training) <= MANY_KINDS:
        return epsilon(training, delta, relation=relation)
    if delta == 0:  # pure losses need none
        pure_alone = all(isinstance(event, PureLoss) for event in events)
        return (
            math.fsum(event.epsilon for event in events if isinstance(event, PureLoss))
            if pure_alone
            else math.inf
        )
    failing = sum(event.delta for event in events if isinstance(event, ApproximateLoss))
    if failing >= delta or any(math.isinf(getattr(event, "epsilon", 0.0)) for event in events):
        return math.inf
    if all(isinstance(event, PureLoss | ApproximateLoss) for event in events):
        found = math.fsum(event.epsilon for event in events if isinstance(event, PureLoss | ApproximateLoss))
    else:
        found = math.inf
    rho = math.fsum(event.rho for event in events if isinstance(event, ZcdpLoss))
    if all(isinstance(event, ZcdpLoss) for event in events):
        found = min(found, zcdp_epsilon(rho, delta))
    found = min(found, _by_renyi(counted, delta - failing, replaces))
    if len(counted) <= MANY_KINDS and not any(isinstance(event, RenyiLoss) for event in events):
        # zCDP has no loss distribution of its own: that of its (epsilon, delta) at half of what is left
        part = (delta - failing) / 2 if rho else 0.0
        concentrated = [(ApproximateLoss(zcdp_epsilon(rho, part), part), 1)] if rho else []
        pairs = [(e, n) for e, n in counted if isinstance(e, PureLoss | ApproximateLoss)] + concentrated
        if all(e.epsilon * n <= LARGE for e, n in pairs):
            found = min(found, _by_distributions(training, pairs, delta, relation))
    pure = math.fsum(event.epsilon for event in events if isinstance(event, PureLoss))
    if pure and len(counted) > 1:  # basic composition: pure losses cost no delta
        rest = tuple((event, count) for event, count in counted if not isinstance(event, PureLoss))
        if rest:
            found = min(found, pure + _composed(rest, delta, replaces))
    return found


def _by_renyi(counted: Iterable[tuple[ChargedEvent, int]], delta: float, replaces: bool) -> float:
    found = math.inf
    counted = list(counted)
    few = ORDERS if len(counted) <= MANY_KINDS else ORDERS[::4]
    own = {
        order for event, _ in counted[:MANY_KINDS] if isinstance(event, RenyiLoss) for order, _ in event.curve
    }
    for order in sorted({*few, *own}):
        spent = sum(count * _renyi(event, order, replaces) for event, count in counted)
        found = min(found, spent + _conversion(order, delta))
    return max(0.0, found)


def _by_distributions(
    training: Sequence[Event],
    pairs: Sequence[tuple[PureLoss | ApproximateLoss, int]],
    delta: float,
    relation: Relation,
) -> float:
    """By convolving loss distributions: of each Gaussian its own, of each (epsilon, delta) its dominating pair."""
    from dp_accounting.pld import common, privacy_loss_distribution

    from dpose.privacy.accounting import library_relation

    if training and not epsilon(training, delta, relation=relation) < MAX_EPSILON:
        return math.inf
    parts = [
        privacy_loss_distribution.from_gaussian_mechanism(
            event.sigma, sampling_prob=event.q, neighboring_relation=library_relation(relation)
        ).self_compose(event.steps)
        for event in training
    ]
    for pair, count in pairs:
        failing = pair.delta if isinstance(pair, ApproximateLoss) else 0.0
        known = common.DifferentialPrivacyParameters(pair.epsilon, failing)
        parts.append(privacy_loss_distribution.from_privacy_parameters(known).self_compose(count))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    with contextlib.suppress(ValueError):
        return float(whole.get_epsilon_for_delta(delta))
    return math.inf


def _conversion(order: float, delta: float) -> float:
    """What is added to a Renyi divergence of `order` to have an epsilon at `delta` (Canonne et al. 2020, Prop. 12)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def chosen_epsilon(charges: Sequence[Charge], delta: float, asked: Asked, alone: float) -> float:
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
    pure = [event.epsilon for event in events if isinstance(event, PureLoss)]
    most = math.fsum(pure) if len(pure) == len(events) else math.inf
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
    return max(0.0, spent[0] + _conversion(order, delta * (1 - APPROXIMATE_SHARE)))
