"""Events to epsilon, and epsilon to noise: what a run costs, and how much noise a budget asks for.

    sigma = noise_multiplier(0.8, 4e-5, q=1024 / 22146, steps=541)
    event = Event(q=1024 / 22146, sigma=sigma, steps=541, sensitivity=1.0)
    epsilon([event], 4e-5)      # at most 0.8, at least 0.7992

The numbers are dp-accounting's. PLD is the default; RDP is there to match the papers. What the two compute,
why they bound the truth from above and how the relations differ is derived in docs/proofs/accounting.md.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.privacy import calibration, memo
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import (
    MAX_SIGMA,
    MIN_SIGMA,
    check_delta,
    check_epsilon,
    check_rate,
    check_sigma,
    check_steps,
    parse_decimal,
)
from dpose.privacy.rounding import as_given

MAX_BUDGET = 100.0
"""No noise is calibrated for a larger epsilon: it would protect nobody."""
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


class Accountant(StrEnum):
    """How epsilon is computed."""

    PLD = "pld"
    """Privacy loss distributions: tight up to a discretisation that errs on the safe side."""
    RDP = "rdp"
    """Renyi DP: a looser bound, the one that the papers used."""


FLOATING, ROUNDED = "poisson-gaussian", "poisson-rounded-gaussian"
"""Noise drawn and added in floating point; or whole numbers, each with exactly the probability of a rounded Gaussian:
post-processing, which costs the same (docs/proofs/exact-noise.md)."""


@dataclass(frozen=True)
class Event:
    """`steps` releases of a Poisson-subsampled Gaussian: what the accountant sees of a run.

    Attributes:
        q: Sampling rate, in (0, 1].
        sigma: Noise multiplier: the noise's standard deviation is sigma * sensitivity.
        steps: Number of releases, >= 1.
        sensitivity: L2 bound on one unit's contribution to the noised sum, in the sum's units. Under
            replacement the sum moves by up to twice that; the accountant doubles it, the event does not.
        type: `FLOATING` or `ROUNDED`.

    Raises:
        DposeError: a value is out of range.
    """

    q: float
    sigma: float
    steps: int
    sensitivity: float
    type: str = FLOATING

    def __post_init__(self) -> None:
        if self.type not in (FLOATING, ROUNDED):
            raise DposeError(
                "event-type-unknown",
                f"unknown event type {self.type!r}",
                fix="it was made by a newer dpose; update dpose",
            )
        check_rate(self.q)
        check_steps(self.steps)
        check_sigma(self.sigma)
        if not (math.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise DposeError(
                "sensitivity-not-positive", f"sensitivity must be positive and finite, not {self.sensitivity}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; q, sigma and sensitivity as decimal strings that read back exactly."""
        return {
            "type": self.type,
            "q": repr(float(self.q)),
            "sigma": repr(float(self.sigma)),
            "steps": self.steps,
            "sensitivity": repr(float(self.sensitivity)),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "event") -> Event:
        """The event that `to_dict` wrote.

        Raises:
            DposeError: a field is missing, unknown, of the wrong type or out of range; names it.
        """
        expected = {"type", "q", "sigma", "steps", "sensitivity"}
        if not isinstance(values, Mapping) or set(values) != expected:
            raise DposeError(
                "event-fields-wrong",
                f"an event has the fields {', '.join(sorted(expected))} and no others",
                where,
            )
        if not isinstance(values["type"], str):
            raise DposeError("event-type-malformed", "type must be a string", where)
        numbers = {
            name: parse_decimal(values[name], f"{where}.{name}") for name in ("q", "sigma", "sensitivity")
        }
        try:
            return cls(steps=values["steps"], type=values["type"], **numbers)
        except DposeError as error:
            raise DposeError(error.code, error.what, where, error.fix) from error

    @property
    def rounded(self) -> bool:
        """Whether the noise is that of whole numbers, exactly."""
        return self.type == ROUNDED

    def dp_event(self) -> Any:
        """The same as a `dp_accounting.DpEvent`."""
        return _library_event(self.q, self.sigma, self.steps)


def epsilon(
    events: Sequence[Event],
    delta: float,
    relation: Relation = Relation.ZERO_OUT,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """The total epsilon of all `events` together at `delta`. Always computed, never read from a file.

    What one process has computed it does not compute again: the number depends on the arguments alone.
    PLD answers infinity, which is always true, where epsilon is far beyond any use (`MAX_EPSILON`).

    >>> round(epsilon([Event(q=1.0, sigma=4.0, steps=1, sensitivity=1.0)], delta=1e-5), 2)
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
    events: tuple[Event, ...], delta: float, relation: Relation, accountant: Accountant, grid: float
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


def _renyi_epsilon(
    events: Sequence[Event], delta: float, orders: tuple[float, ...] = (), noise: float = 1.0
) -> float:
    """By RDP for zero-out and for add-or-remove, at these orders or at dp-accounting's own, of `noise` times sigma."""
    from dp_accounting.rdp import rdp_privacy_accountant as library

    total = sum(event.steps * _renyi_step(event.q, noise * event.sigma, orders) for event in events)
    return float(library.compute_epsilon(orders or library.DEFAULT_RDP_ORDERS, total, delta)[0])


@lru_cache(maxsize=4096)
def _renyi_step(q: float, sigma: float, orders: tuple[float, ...]) -> Any:
    """The Renyi divergences of one step; not to be written to."""
    from dp_accounting.rdp import rdp_privacy_accountant

    with quiet_accountant():
        counting = rdp_privacy_accountant.RdpAccountant(
            orders or None, neighboring_relation=library_relation(Relation.ZERO_OUT)
        )
        return counting.compose(_library_event(q, sigma, 1)).rdp


@lru_cache(maxsize=65536)
def rdp_at(event: Event, order: float) -> float:
    """The Renyi divergence of `order` of `event`, for a unit zeroed out, added or removed; infinite where unknown.

    Args:
        event: What was released.
        order: Above 1.
    """
    from dp_accounting.rdp import rdp_privacy_accountant

    with quiet_accountant():
        counting = rdp_privacy_accountant.RdpAccountant(
            orders=[order], neighboring_relation=library_relation(Relation.ZERO_OUT)
        )
        counting.compose(event.dp_event())
        return float(counting.rdp[0])


def merge(events: Sequence[Event]) -> tuple[Event, ...]:
    """The same events with equal ones joined into one of more steps, in order of first appearance.

    >>> (both,) = merge([Event(0.01, 2.0, 30, 1.0), Event(0.01, 2.0, 12, 1.0)])
    >>> both.steps
    42
    """
    steps: dict[tuple[float, float, float, str], int] = {}
    for event in events:
        kind = (event.q, event.sigma, event.sensitivity, event.type)
        steps[kind] = steps.get(kind, 0) + event.steps
    return tuple(
        Event(q=q, sigma=sigma, steps=count, sensitivity=sensitivity, type=name)
        for (q, sigma, sensitivity, name), count in steps.items()
    )


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
    >>> 0.999 <= epsilon([Event(0.01, sigma, 100, 1.0)], 1e-5, accountant=Accountant.RDP) <= 1.0
    True

    Answers are remembered in the user's cache folder. **The cache is a convenience and no authority**:
    whoever claims an epsilon computes it with `epsilon` from the events themselves, as the plan and
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
            f"epsilon {as_given(epsilon)} protects nobody",
            fix=f"choose one below {as_given(MAX_BUDGET)}, or train non-private",
        )
    check_rate(q)
    check_steps(steps)
    _check_accountant(delta, relation, accountant)
    asked = {
        "epsilon": repr(float(epsilon)),
        "delta": repr(float(delta)),
        "q": repr(float(q)),
        "steps": steps,
        "relation": relation.value,
        "accountant": accountant.value,
    }
    remembered = memo.recall(CALIBRATION, asked)
    with contextlib.suppress(TypeError, ValueError):
        if MIN_SIGMA <= (sigma := float(remembered)) <= MAX_SIGMA:
            return sigma
    sigma = _calibrate(epsilon, delta, q, steps, relation, accountant)
    memo.remember(CALIBRATION, asked, repr(sigma))
    return sigma


def epsilon_curve(
    event: Event,
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
def _curve(
    q: float, sigma: float, delta: float, relation: Relation, points: tuple[int, ...]
) -> tuple[float, ...]:
    from dp_accounting.pld import privacy_loss_distribution

    single = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        value_discretization_interval=FINE,
        sampling_prob=q,
        neighboring_relation=library_relation(relation),
    )
    return tuple(float(single.self_compose(k).get_epsilon_for_delta(delta)) if k else 0.0 for k in points)


def _check_accountant(delta: float, relation: Relation, accountant: Accountant) -> None:
    check_delta(delta)
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


def beyond_use(events: Sequence[Event], delta: float, relation: Relation) -> bool:
    """Whether epsilon is so large (`MAX_EPSILON`) that PLD is not computed."""
    # replacement has no RDP bound; half the noise under zero-out is near enough to judge the size by
    noise = 0.5 if relation is Relation.REPLACE else 1.0
    return _renyi_epsilon(events, delta, ROUGH, noise) > MAX_EPSILON


def _library_event(q: float, sigma: float, steps: int) -> Any:
    from dp_accounting import dp_event

    gaussian = dp_event.GaussianDpEvent(sigma)
    # at q = 1 the plain Gaussian: dp-accounting then composes in closed form
    once = gaussian if q == 1 else dp_event.PoissonSampledDpEvent(q, gaussian)
    return dp_event.SelfComposedDpEvent(once, steps)


def library_relation(relation: Relation) -> Any:
    """The same as dp-accounting names it."""
    from dp_accounting import privacy_accountant

    names = privacy_accountant.NeighboringRelation
    return {
        Relation.ZERO_OUT: names.REPLACE_SPECIAL,
        Relation.ADD_REMOVE: names.ADD_OR_REMOVE_ONE,
        Relation.REPLACE: names.REPLACE_ONE,
    }[relation]


@contextlib.contextmanager
def quiet_accountant() -> Iterator[None]:
    """Silence the warning about an RDP order left out: the minimum over the other orders is still a bound."""
    log = logging.getLogger("absl")

    def wanted(record: logging.LogRecord) -> bool:
        return "Excluding this order" not in record.getMessage()

    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


def _calibrate(
    target: float, delta: float, q: float, steps: int, relation: Relation, accountant: Accountant
) -> float:
    def cost(sigma: float, grid: float = FINE) -> float:
        return _epsilon((Event(q, sigma, steps, 1.0),), float(delta), relation, accountant, grid)

    def rough_cost(sigma: float) -> float:
        return _renyi_epsilon([Event(q, sigma, steps, 1.0)], float(delta), ROUGH)

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
