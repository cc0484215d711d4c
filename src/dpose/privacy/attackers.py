"""What no attacker can do against a run, from its whole trade-off curve: a section of its statement.

    bound = bound_attackers(events, Relation.ZERO_OUT, delta=1e-5)
    bound.rates[0.01]                               # 0.0302: at 1 % false alarms at most 3.02 % are found
    bound.gaussian_mu                               # the run is at least as private as a Gaussian of this mu ...
    bound.mu_valid_from_delta, bound.mu_excess      # ... for deltas from here on; and by how much it is more private

docs/proofs/accounting.md says why each of these holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from dpose.errors import DposeError
from dpose.privacy.accounting import COARSE, FINE, MIN_DELTA, beyond_use
from dpose.privacy.events import SampledGaussian, merge
from dpose.privacy.fields import Decimal, StatementPart, statement_part
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import upper

if TYPE_CHECKING:
    from dpose.privacy.tradeoff import Floats

FALSE_POSITIVES = 0.01
"""The rate of false alarms that words are said at."""
FALSE_ALARMS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of false alarms that a statement says the bound of."""
LAST_DIGIT = 1e-5
"""Numbers here have six digits; another build may round the last one otherwise."""
SPREAD = 0.02
"""Twenty times the coarse grid."""
STEPS = 4000
"""Epsilons at which a Gaussian curve is held above a run's."""


def true_positives(epsilon: float, delta: float, false_positives: float = FALSE_POSITIVES) -> float:
    """The largest true-positive rate of an attacker at a given rate of false alarms, by (epsilon, delta) alone.

    For a test between two neighbouring datasets, (epsilon, delta)-differential privacy bounds the
    true-positive rate by min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)) at false-positive rate a
    (Kairouz, Oh and Viswanath 2015, "The composition theorem for differential privacy").
    """
    # e^epsilon overflows above 709, where the bound has long been 1
    grown = math.exp(min(epsilon, 700.0)) * false_positives + delta
    shrunk = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - false_positives)
    return min(1.0, grown, shrunk)


def loss_grid(events: Sequence[SampledGaussian]) -> float:
    """The grid of losses for what is shown and not claimed: coarse where each step costs much against it.

    The losses of one step spread by about q / sigma. On a grid that is hardly finer, many steps add up to several
    times too much.
    """
    return COARSE if all(event.q / event.sigma > SPREAD for event in events) else FINE


@statement_part
class RateBound(StatementPart):
    """The largest true-positive rate of any attacker at one false-positive rate.

    Attributes:
        fpr: The false-positive rate, in [0, 1].
        tpr: The bound, in [0, 1]; rounded up.
    """

    fpr: Decimal
    tpr: Decimal


@statement_part
class AttackerBound(StatementPart):
    """What no attacker can do against a run, by its whole trade-off curve.

    Attributes:
        tpr_bound: Bounds at `FALSE_ALARMS`.
        gaussian_mu: The least mu whose `gaussian` curve is above the run's for deltas of at least
            `mu_valid_from_delta`; rounded up.
        mu_valid_from_delta: Below this delta the Gaussian curve says nothing about the run.
        mu_excess: About the most by which the Gaussian curve allows a larger true-positive rate than the run's own.

    Raises:
        DposeError: a number is out of range.
    """

    tpr_bound: tuple[RateBound, ...]
    gaussian_mu: Decimal
    mu_valid_from_delta: Decimal
    mu_excess: Decimal

    def __post_init__(self) -> None:
        shares = [*self.rates, *self.rates.values(), self.mu_valid_from_delta, self.mu_excess]
        if (
            FALSE_POSITIVES not in self.rates
            or not all(0 <= share <= 1 for share in shares)
            or not 0 < self.gaussian_mu < math.inf
        ):
            raise DposeError("attacker-bound-invalid", "is no bound on attackers", "attackers")

    @property
    def rates(self) -> dict[float, float]:
        """The bounds by their false-positive rates."""
        return {bound.fpr: bound.tpr for bound in self.tpr_bound}

    def check(self, true: AttackerBound, slack: float) -> None:
        """Refuse a bound that allows less than `true`, or at other rates.

        Raises:
            DposeError: it does.
        """
        ours, theirs = self.rates, true.rates
        slack += LAST_DIGIT
        short = [rate for rate, most in theirs.items() if ours.get(rate, -1.0) < most * (1 - slack)]
        same = len(ours) == len(theirs) and self.mu_valid_from_delta == true.mu_valid_from_delta
        if short or not same or self.gaussian_mu < true.gaussian_mu * (1 - slack):
            raise DposeError(
                "attacker-bound-too-small",
                "allows attackers less than the recorded events do",
                "attackers",
                "do not rely on it",
            )


def bound_attackers(events: Sequence[SampledGaussian], relation: Relation, delta: float) -> AttackerBound | None:
    """What no attacker can do, by the whole curve of `events`; None if it is not worth computing.

    One pair (epsilon, delta) overstates what an attacker can do nearly everywhere (Gomez et al. 2025, "(epsilon, delta)
    considered harmful"), and the mu that matches the run's curve at one point is too small at others. Here mu is the
    least whose delta(epsilon) is nowhere below the run's, at all epsilons where that is at least `delta`.

    Args:
        events: What was released; at least one.
        relation: The neighbouring relation.
        delta: How far down the Gaussian curve is to hold.
    """
    counted = tuple(merge(events))
    if delta < MIN_DELTA or beyond_use(counted, delta, Relation(relation)):
        return None
    return _bound(counted, Relation(relation), float(delta), loss_grid(counted))


@lru_cache(maxsize=256)
def _bound(events: tuple[SampledGaussian, ...], relation: Relation, delta: float, grid: float) -> AttackerBound:
    import numpy as np

    from dpose.privacy.tradeoff import composed_accountant, gaussian, of_events, profile

    accountant = composed_accountant(events, relation, grid)
    curve = of_events(events, relation, grid=grid)
    mu = _least_mu(profile(accountant, max(float(accountant.get_epsilon(delta)), grid), STEPS))
    everywhere = np.concatenate([np.logspace(-6, -2, 200), np.linspace(0.01, 1.0, 400)])
    gap = gaussian(mu).power(everywhere) - curve.power(everywhere)
    rates = tuple(RateBound(rate, _up(float(curve.power(rate)[0]))) for rate in FALSE_ALARMS)
    return AttackerBound(rates, _up(mu), delta, min(1.0, _up(max(0.0, float(gap.max())))))


def _least_mu(profile: Floats) -> float:
    """The least mu whose delta is above all of a profile: between its points, too, as both fall."""
    from dpose.privacy.tradeoff import gaussian_deltas

    epsilons, deltas = profile[1:, 0], profile[:-1, 1]

    def above(mu: float) -> bool:
        return bool((gaussian_deltas(mu, epsilons) >= deltas).all())

    low, high = 0.0, 1.0
    while not above(high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _up(value: float) -> float:
    return float(upper(value, 6))
