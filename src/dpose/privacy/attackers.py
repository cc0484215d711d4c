"""What no attacker can do against a run, from its whole trade-off curve: a section of its statement.

    bound = bound_attackers(events, Relation.ZERO_OUT, delta=1e-5)
    bound.found                                     # (0.01, 0.0302): of 1 % false alarms, at most 3.02 % found
    bound.mu                                        # the run is at least as private as a Gaussian of this mu ...
    bound.floor, bound.loses                        # ... for deltas from here on; and by how much it is more private

docs/proofs/accounting.md says why each of these holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dpose.errors import DposeError
from dpose.privacy.accounting import COARSE, FINE, MIN_DELTA, beyond_use
from dpose.privacy.events import SampledGaussian, merge
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import parse_decimal
from dpose.privacy.rounding import as_given, upper

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


def loss_grid(events: Sequence[SampledGaussian]) -> float:
    """The grid of losses for what is shown and not claimed: coarse where each step costs much against it.

    The losses of one step spread by about q / sigma. On a grid that is hardly finer, many steps add up to several
    times too much.
    """
    return COARSE if all(event.q / event.sigma > SPREAD for event in events) else FINE


@dataclass(frozen=True)
class AttackerBound:
    """What no attacker can do against a run, by its whole curve: a section of its statement.

    Attributes:
        found: (share of false alarms, the most that is found), both in [0, 1]; rounded up.
        mu: The least mu whose `gaussian` curve is above the run's, as far as `floor`; rounded up.
        floor: For deltas of at least this; below it the Gaussian curve says nothing about the run.
        loses: About the most by which the Gaussian curve allows more to be found than the run's own does.

    Raises:
        DposeError: a number is out of range.
    """

    found: tuple[tuple[float, float], ...]
    mu: float
    floor: float
    loses: float

    def __post_init__(self) -> None:
        shares = [*(share for pair in self.found for share in pair), self.floor, self.loses]
        if (
            FALSE_POSITIVES not in dict(self.found)
            or not all(0 <= share <= 1 for share in shares)
            or not 0 < self.mu < math.inf
        ):
            raise DposeError("attacker-bound-invalid", "is no bound on attackers", "attackers")

    def check(self, true: AttackerBound, slack: float) -> None:
        """Refuse a bound that allows less than `true`, or at other rates.

        Raises:
            DposeError: it does.
        """
        ours, theirs = dict(self.found), dict(true.found)
        slack += LAST_DIGIT
        short = [rate for rate, most in theirs.items() if ours.get(rate, -1.0) < most * (1 - slack)]
        if short or len(ours) != len(theirs) or self.floor != true.floor or self.mu < true.mu * (1 - slack):
            raise DposeError(
                "attacker-bound-too-small",
                "allows attackers less than the recorded events do",
                "attackers",
                "do not rely on it",
            )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: numbers as decimal strings."""
        return {
            "found_at_most": [{"false_alarms": repr(a), "found": repr(b)} for a, b in self.found],
            "gaussian_mu": repr(self.mu),
            "for_delta_from": repr(self.floor),
            "gaussian_loses": repr(self.loses),
        }

    @classmethod
    def from_dict(cls, values: Any, where: str = "attackers") -> AttackerBound:
        """The bound that `to_dict` wrote.

        Raises:
            DposeError: it is none.
        """
        names = ("gaussian_mu", "for_delta_from", "gaussian_loses")
        try:
            pairs = [(pair["false_alarms"], pair["found"]) for pair in values["found_at_most"]]
            if set(values) != {"found_at_most", *names}:
                raise KeyError("another field")
            numbers = [parse_decimal(values[name], f"{where}.{name}") for name in names]
        except (KeyError, TypeError) as error:
            raise DposeError("attacker-bound-invalid", "is no bound on attackers", where) from error
        found = tuple((parse_decimal(a, where), parse_decimal(b, where)) for a, b in pairs)
        return cls(found, *numbers)


def trade_off_lines(bound: AttackerBound) -> list[str]:
    """What no attacker can do, by the whole curve."""
    rates = "; ".join(
        f"{upper(found, 3, times=100)}% at {as_given(100 * rate)}%" for rate, found in bound.found
    )
    return [
        f"found at most, at false alarms of: {rates}",
        f"this is at least as private as telling N(0, 1) from N({upper(bound.mu)}, 1), for deltas of at least "
        f"{upper(bound.floor)}; such a Gaussian would allow up to {upper(bound.loses, 3, times=100)} points more to be "
        "found",
    ]


def bound_attackers(
    events: Sequence[SampledGaussian], relation: Relation, delta: float
) -> AttackerBound | None:
    """What no attacker can do, by the whole curve of `events`; None where it is not worth computing.

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
def _bound(
    events: tuple[SampledGaussian, ...], relation: Relation, delta: float, grid: float
) -> AttackerBound:
    import numpy as np

    from dpose.privacy.tradeoff import composed_accountant, gaussian, of_events, profile

    accountant = composed_accountant(events, relation, grid)
    curve = of_events(events, relation, grid=grid)
    mu = _least_mu(profile(accountant, max(float(accountant.get_epsilon(delta)), grid), STEPS))
    everywhere = np.concatenate([np.logspace(-6, -2, 200), np.linspace(0.01, 1.0, 400)])
    gap = gaussian(mu).power(everywhere) - curve.power(everywhere)
    found = tuple((rate, _up(float(curve.power(rate)[0]))) for rate in FALSE_ALARMS)
    return AttackerBound(found, _up(mu), delta, min(1.0, _up(max(0.0, float(gap.max())))))


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
