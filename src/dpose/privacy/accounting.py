"""Events to epsilon, and epsilon to noise: what a run costs, and how much noise a budget asks for.

    sigma = noise_multiplier(0.8, 4e-5, q=1024 / 22146, steps=541)
    event = SampledGaussian(q=1024 / 22146, sigma=sigma, steps=541, sensitivity=1.0)
    epsilon([event], 4e-5)      # at most 0.8, at least 0.7992
    cost(events, 1e-5, accountant=Accountant.ZCDP)     # of any events, by the accountant that a statement names
    cost(events, 1e-5)                                 # by whichever valid composition gives the least

Numbers of sampled Gaussians are dp-accounting's. PLD is the default; RDP is there to match the papers. What the two
compute, why they bound the truth from above and how the relations differ is derived in docs/proofs/accounting.md; the
compositions of other events in docs/proofs/odometer.md.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.privacy import calibration, memo
from dpose.privacy.events import Approximate, Event, Gaussian, Laplace, Renyi, SampledGaussian, merge
from dpose.privacy.gaussian import LEAST_VARIANCE, discrete_epsilon, discrete_mu
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import (
    MAX_SIGMA,
    MIN_SIGMA,
    as_given,
    check_delta,
    check_epsilon,
    check_rate,
    check_steps,
    not_below,
)
from dpose.privacy.renyi import ORDERS, converted, rdp_of_step, zcdp_epsilon

MAX_BUDGET = 100.0
"""No noise is calibrated for a larger epsilon, which would give no useful protection."""
MAX_EPSILON = 200.0
"""PLD is not computed where RDP puts epsilon above this: minutes, to say that nothing is protected."""
FINE, COARSE = 1e-4, 1e-3
"""Widths of the grid of privacy losses: of every epsilon that is claimed, and of searches, ten times as fast. Either
gives an epsilon that is too large rather than too small, and a trade-off curve that is too permissive."""
ROUGH = (1.1, 1.25, 1.5, 1.75, *range(2, 17), 20, 24, 32, 40, 48, 64, 128, 256, 512, 1024)
"""Orders that tell about how large an RDP epsilon is, where it is not claimed: most of dp-accounting's own have a
fraction, and take a hundred times as long."""
CALIBRATION = "calibration"
"""The kind of question that `noise_multiplier` remembers answers of."""
MIN_DELTA = 1e-10
"""PLD convolves by fast Fourier transform; smaller deltas come too near its rounding error."""
MANY_KINDS = 24
"""Kinds of events beyond which no loss distributions are convolved: it would take minutes."""
LARGE = 20.0
"""A pure epsilon above which its loss distribution is not convolved: it gains nothing, and its grid grows."""


class Accountant(StrEnum):
    """How epsilon is computed."""

    PLD = "pld"
    """Privacy loss distributions: tight up to a discretisation that errs on the safe side."""
    RDP = "rdp"
    """Renyi DP: a looser bound, the one that the papers used."""
    PURE = "pure"
    """The epsilons of pure differential privacy, added up exactly; delta is 0."""
    ZCDP = "zcdp"
    """Zero-concentrated differential privacy: rho adds up, and is converted to (epsilon, delta) once."""
    GAUSSIAN = "gaussian"
    """The Gaussian mechanism's own (epsilon, delta) curve: D^2 / sigma^2 adds up (Balle and Wang 2018)."""


OF_RUNS = (Accountant.PLD, Accountant.RDP)
"""Accountants of sampled Gaussians."""


def epsilon(
    events: Sequence[SampledGaussian],
    delta: float,
    relation: Relation = Relation.ZERO_OUT,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """The total epsilon of the steps of runs together at `delta`. Always computed, never read from a file.

    What one process has computed it does not compute again: the number depends on the arguments alone.
    PLD answers infinity, which is always true, where epsilon is far beyond any use (`MAX_EPSILON`).

    >>> round(epsilon([SampledGaussian(q=1.0, sigma=4.0, steps=1, sensitivity=1.0)], delta=1e-5), 2)
    0.93

    Args:
        events: What was released; no event costs nothing.
        delta: In (0, 1).
        relation: The neighbouring relation.
        accountant: PLD or RDP.

    Raises:
        DposeError: delta is out of range, or the accountant cannot handle the relation.
    """
    relation, accountant = Relation(relation), Accountant(accountant)
    _check_accountant(delta, relation, accountant)
    if not events:
        return 0.0
    return _epsilon(merge(events), float(delta), relation, accountant, FINE)


@lru_cache(maxsize=4096)
def _epsilon(
    events: tuple[SampledGaussian, ...], delta: float, relation: Relation, accountant: Accountant, grid: float
) -> float:
    if accountant is Accountant.PLD and beyond_use(events, delta, relation):
        return math.inf
    if accountant is Accountant.RDP:
        return _renyi_epsilon(events, delta)
    from dp_accounting.pld import pld_privacy_accountant

    counting = pld_privacy_accountant.PLDAccountant(library_relation(relation), grid)
    for event in events:
        counting.compose(event.dp_event())
    return float(counting.get_epsilon(delta))


def cost(
    events: Sequence[Event], delta: float, relation: Relation = Relation.ZERO_OUT, accountant: Accountant | None = None
) -> float | Fraction:
    """The total epsilon of events of any kind at `delta`: what a statement claims, or the account adds up.

    Args:
        events: For one relation.
        delta: In (0, 1), or 0 if all are pure.
        relation: The neighbouring relation.
        accountant: The one that a statement names; None for the least of all compositions that are valid for events
            fixed beforehand.

    Returns:
        A fraction under the accountant "pure".

    Raises:
        DposeError: the accountant cannot count one of the events, or delta is out of range.
    """
    if accountant is None:
        counted = tuple(sorted(Counter(merge(events)).items(), key=repr))
        return _least_cost(counted, float(delta), Relation(relation) is Relation.REPLACE)
    if accountant in OF_RUNS:
        steps = [event for event in events if isinstance(event, SampledGaussian)]
        if len(steps) < len(events):
            raise DposeError("accountant-unsuited", f'accountant "{accountant}" cannot count the events of a release')
        return epsilon(steps, delta, relation, accountant)
    if accountant is Accountant.PURE:
        _check_counts(accountant, events, [event.pure() for event in events])
        return sum((Fraction(event.pure()) for event in events), Fraction(0))
    if accountant is Accountant.ZCDP:
        _check_counts(accountant, events, [event.rho() for event in events])
        return zcdp_epsilon(sum((Fraction(event.rho()) for event in events), Fraction(0)), delta)
    gaussian = [event for event in events if isinstance(event, Gaussian)]
    _check_counts(accountant, events, [event.rho() for event in events])
    mu = discrete_mu([(event.sensitivity_squared, event.variance, event.steps) for event in gaussian])
    return discrete_epsilon(mu, delta)


def _check_counts(accountant: Accountant, events: Sequence[Event], costs: Sequence[Fraction | float]) -> None:
    for event, known in zip(events, costs, strict=True):
        if math.isinf(known):
            raise DposeError(
                "event-unsupported", f'accountant "{accountant}" cannot count events of type {event.type!r}'
            )


@lru_cache(maxsize=4096)
def _least_cost(counted: tuple[tuple[Event, int], ...], delta: float, replaces: bool) -> float:
    """`cost` by the least of the compositions that are valid, each by itself, of events and how often there are."""
    relation, kinds = Relation.REPLACE if replaces else Relation.ZERO_OUT, len(counted)
    training = [event for event, count in counted for _ in range(count) if isinstance(event, SampledGaussian)]
    pairs = [(event, count) for event, count in counted if isinstance(event, Laplace | Approximate)]
    gaussian = [(event, count) for event, count in counted if isinstance(event, Gaussian)]
    resolved = not 0 < delta < MIN_DELTA  # by loss distributions; below, Renyi divergences tell of training
    if all(isinstance(event, SampledGaussian) for event, _ in counted) and len(training) <= MANY_KINDS:
        if resolved:
            return epsilon(training, delta, relation=relation)
        # as a run claims it
        known = math.inf if replaces and training else epsilon(training, delta, accountant=Accountant.RDP)
        return min(known, _by_renyi(counted, delta, replaces))
    if delta == 0:  # pure losses need none
        return added_up(event.pure() * count for event, count in counted)
    failing = sum(event.delta * count for event, count in pairs if isinstance(event, Approximate))
    if failing >= delta or any(math.isinf(_bound(event)) for event, _ in pairs):
        return math.inf
    found = added_up(_bound(event) * count for event, count in pairs) if len(pairs) == kinds else math.inf
    rho = added_up(event.rho() * count for event, count in gaussian)
    if len(gaussian) == kinds:
        found = min(found, zcdp_epsilon(rho, delta))
        if all(event.variance >= LEAST_VARIANCE for event, _ in gaussian):  # as a statement counts them
            mu = discrete_mu([(e.sensitivity_squared, e.variance, e.steps * count) for e, count in gaussian])
            found = min(found, discrete_epsilon(mu, delta))
    found = min(found, _by_renyi(counted, delta - failing, replaces))
    if resolved and kinds <= MANY_KINDS and not any(isinstance(event, Renyi) for event, _ in counted):
        # zCDP has no loss distribution of its own: that of its (epsilon, delta) at half of what is left
        part = (delta - failing) / 2 if rho else 0.0
        concentrated = [(Approximate(zcdp_epsilon(rho, part), part), 1)] if rho else []
        found = min(found, _by_distributions(training, [*pairs, *concentrated], delta, relation))
    # basic composition: pure losses cost no delta
    pure = added_up(event.pure() * count for event, count in pairs if isinstance(event, Laplace))
    rest = tuple((event, count) for event, count in counted if not isinstance(event, Laplace))
    if pure and rest:
        found = min(found, pure + _least_cost(rest, delta, replaces))
    return found


def _bound(event: Laplace | Approximate) -> float:
    """The epsilon that holds but for an event of the event's own delta."""
    return event.epsilon if isinstance(event, Approximate) else not_below(event.pure())


def added_up(costs: Iterable[Fraction | float]) -> float:
    """The sum of costs of one kind, never below it."""
    total = Fraction(0)
    for one in costs:
        if math.isinf(one):
            return math.inf
        total += Fraction(not_below(one))  # of a power of two: the sum stays short
    return not_below(total)


def _by_renyi(counted: Sequence[tuple[Event, int]], delta: float, replaces: bool) -> float:
    few = ORDERS if len(counted) <= MANY_KINDS else ORDERS[::4]
    own = {order for event, _ in counted[:MANY_KINDS] if isinstance(event, Renyi) for order, _ in event.curve}
    found = math.inf
    for order in sorted({*few, *own}):
        spent = sum(count * event.renyi(order, replaces=replaces) for event, count in counted)
        found = min(found, spent + converted(order, delta))
    return max(0.0, found)


def _by_distributions(
    training: Sequence[SampledGaussian],
    pairs: Sequence[tuple[Laplace | Approximate, int]],
    delta: float,
    relation: Relation,
) -> float:
    """Epsilon by convolving loss distributions: a Gaussian's own, the dominating pair of an (epsilon, delta)."""
    from dp_accounting.pld import common, privacy_loss_distribution

    if any(_bound(event) * count > LARGE for event, count in pairs):
        return math.inf
    if training and not epsilon(training, delta, relation=relation) < MAX_EPSILON:
        return math.inf
    parts = [
        privacy_loss_distribution.from_gaussian_mechanism(
            event.sigma, sampling_prob=event.q, neighboring_relation=library_relation(relation)
        ).self_compose(event.steps)
        for event in training
    ]
    for event, count in pairs:
        steps, failing = (1, event.delta) if isinstance(event, Approximate) else (event.steps, 0.0)
        once = _bound(event) if steps == 1 else not_below(Fraction(event.pure()) / steps)
        known = common.DifferentialPrivacyParameters(once, failing)
        parts.append(privacy_loss_distribution.from_privacy_parameters(known).self_compose(steps * count))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    with contextlib.suppress(ValueError):
        return float(whole.get_epsilon_for_delta(delta))
    return math.inf


def _renyi_epsilon(
    events: Sequence[SampledGaussian], delta: float, orders: tuple[float, ...] = (), noise: float = 1.0
) -> float:
    """By RDP for zero-out and for add-or-remove, at these orders or at dp-accounting's own, of `noise` times sigma."""
    from dp_accounting.rdp import rdp_privacy_accountant as library

    total = sum(event.steps * rdp_of_step(event.q, noise * event.sigma, orders) for event in events)
    return float(library.compute_epsilon(orders or library.DEFAULT_RDP_ORDERS, total, delta)[0])


def noise_multiplier(
    epsilon: float,
    delta: float,
    q: float,
    steps: int,
    relation: Relation = Relation.ZERO_OUT,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """The noise multiplier sigma that spends `epsilon` over `steps` steps.

    The epsilon of the answer is at most the target and at most 0.1 % below it.

    >>> sigma = noise_multiplier(1.0, 1e-5, q=0.01, steps=100, accountant=Accountant.RDP)
    >>> 0.999 <= epsilon([SampledGaussian(0.01, sigma, 100, 1.0)], 1e-5, accountant=Accountant.RDP) <= 1.0
    True

    Answers are remembered in the user's cache folder. **The cache is a convenience and no authority**:
    anyone who claims an epsilon computes it with `epsilon` from the events themselves, as the plan and
    `PrivacyStatement.verify` do, so a wrong entry can waste a run but cannot weaken a claim. An entry that is
    damaged or belongs to other arguments or another dp-accounting is ignored.

    Args:
        epsilon: The budget, > 0.
        delta: In (0, 1).
        q: Sampling rate, in (0, 1].
        steps: Number of steps, >= 1.
        relation: The neighbouring relation. Under replacement sigma is still relative to one unit's bound.
        accountant: PLD or RDP.

    Raises:
        DposeError: an argument is out of range, or no noise multiplier in [MIN_SIGMA, MAX_SIGMA] meets the
            budget.
    """
    relation, accountant = Relation(relation), Accountant(accountant)
    check_epsilon(epsilon)
    if epsilon > MAX_BUDGET:
        raise DposeError(
            "epsilon-too-large",
            f"epsilon {as_given(epsilon)} gives no useful protection",
            fix=f"choose one below {as_given(MAX_BUDGET)}, or train non-private",
        )
    check_rate(q)
    check_steps(steps)
    _check_accountant(delta, relation, accountant)
    requested = {
        "epsilon": repr(float(epsilon)),
        "delta": repr(float(delta)),
        "q": repr(float(q)),
        "steps": steps,
        "relation": relation.value,
        "accountant": accountant.value,
    }
    remembered = memo.recall(CALIBRATION, requested)
    with contextlib.suppress(TypeError, ValueError):
        if MIN_SIGMA <= (sigma := float(remembered)) <= MAX_SIGMA:
            return sigma
    sigma = _calibrate(epsilon, delta, q, steps, relation, accountant)
    memo.remember(CALIBRATION, requested, repr(sigma))
    return sigma


def epsilon_curve(
    event: SampledGaussian,
    delta: float,
    relation: Relation,
    points: Sequence[int],
    accountant: Accountant = Accountant.PLD,
) -> list[float]:
    """Epsilon spent after each number of steps in `points`: for showing, where `epsilon` is for claiming.

    The single step's loss distribution is made once and composed for every point.

    Args:
        event: The run; its own `steps` are not used.
        delta: In (0, 1).
        relation: The neighbouring relation.
        points: Numbers of steps, each >= 0.
        accountant: PLD or RDP.

    Raises:
        DposeError: as `epsilon`, or a point is negative.
    """
    relation, accountant = Relation(relation), Accountant(accountant)
    _check_accountant(delta, relation, accountant)
    if any(point < 0 for point in points):
        raise DposeError("steps-negative", "a number of steps cannot be negative", f"points={list(points)}")
    longest = replace(event, steps=max([1, *points]))
    if accountant is Accountant.RDP or event.q == 1 or beyond_use([longest], delta, relation):
        return [epsilon([replace(event, steps=k)], delta, relation, accountant) if k else 0.0 for k in points]
    return list(_curve(event.q, event.sigma, float(delta), relation, tuple(points)))


@lru_cache(maxsize=256)
def _curve(q: float, sigma: float, delta: float, relation: Relation, points: tuple[int, ...]) -> tuple[float, ...]:
    from dp_accounting.pld import privacy_loss_distribution

    single = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, value_discretization_interval=FINE, sampling_prob=q, neighboring_relation=library_relation(relation)
    )
    return tuple(float(single.self_compose(k).get_epsilon_for_delta(delta)) if k else 0.0 for k in points)


def _check_accountant(delta: float, relation: Relation, accountant: Accountant) -> None:
    check_delta(delta)
    if accountant not in OF_RUNS:
        raise DposeError(
            "accountant-unsuited", f'accountant "{accountant}" cannot count runs', fix='use "pld" or "rdp"'
        )
    if accountant is Accountant.RDP and relation is Relation.REPLACE:
        raise DposeError(
            "replace-without-rdp-bound",
            "the RDP accountant has no bound for replacing a unit under Poisson sampling",
            fix='use accountant "pld"',
        )
    if accountant is Accountant.PLD and delta < MIN_DELTA:
        raise DposeError(
            "delta-below-accountant",
            f"delta {as_given(delta)} is below what the PLD accountant resolves",
            fix=f'use a delta of at least {as_given(MIN_DELTA)}, or accountant "rdp"',
        )


def beyond_use(events: Sequence[SampledGaussian], delta: float, relation: Relation) -> bool:
    """Whether epsilon is so large (`MAX_EPSILON`) that PLD is not computed."""
    # replacement has no RDP bound; half the noise under zero-out is near enough to judge the size by
    noise = 0.5 if relation is Relation.REPLACE else 1.0
    return _renyi_epsilon(events, delta, ROUGH, noise) > MAX_EPSILON


def library_relation(relation: Relation) -> Any:
    """The same as dp-accounting names it."""
    from dp_accounting import privacy_accountant

    names = privacy_accountant.NeighboringRelation
    return {
        Relation.ZERO_OUT: names.REPLACE_SPECIAL,
        Relation.ADD_REMOVE: names.ADD_OR_REMOVE_ONE,
        Relation.REPLACE: names.REPLACE_ONE,
    }[relation]


def _calibrate(target: float, delta: float, q: float, steps: int, relation: Relation, accountant: Accountant) -> float:
    def cost(sigma: float, grid: float = FINE) -> float:
        return _epsilon((SampledGaussian(q, sigma, steps, 1.0),), float(delta), relation, accountant, grid)

    def rough_cost(sigma: float) -> float:
        return _renyi_epsilon([SampledGaussian(q, sigma, steps, 1.0)], float(delta), ROUGH)

    def coarse_cost(sigma: float) -> float:
        return cost(sigma, grid=COARSE)

    # the Gaussian mechanism's classical bound at the subsampled scale: only a place to start
    scale = 2.0 if relation is Relation.REPLACE else 1.0
    guess = scale * (0.4 + q * math.sqrt(2 * steps * math.log(1.25 / delta)) / target)
    if accountant is Accountant.RDP:
        return calibration.least_noise(cost, target, guess, MIN_SIGMA, MAX_SIGMA)
    if relation is not Relation.REPLACE:
        guess = calibration.least_noise(rough_cost, target, guess, MIN_SIGMA, MAX_SIGMA)
    # ten times as fast and nearly as exact, so that the claim's own grid is asked once or twice
    guess = calibration.least_noise(coarse_cost, target, guess, MIN_SIGMA, MAX_SIGMA)
    return calibration.least_noise(cost, target, guess, MIN_SIGMA, MAX_SIGMA, growth=1e-3)
