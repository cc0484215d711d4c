"""What a budget and a number of units let one expect of `dp-head`, from settings alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpose.privacy.ranges import upper
from dpose.training.closed_form import directions_for
from dpose.training.plan import TrainingPlan


@dataclass(frozen=True)
class Law:
    """Share of the gain that is kept, a + b log10(n / sigma), as it was fitted (`benchmarks/dp_head.py`).

    Attributes:
        a: Share at n / sigma = 1.
        b: Share that ten times as many people bring.
        error: The largest error on a number of people that it was not fitted on, rounded up.
        measured: Values of n / sigma between which it was fitted.
    """

    a: float
    b: float
    error: float
    measured: tuple[float, float]

    def share(self, ratio: float) -> float:
        """The share at n / sigma."""
        return min(1.0, max(0.0, self.a + self.b * math.log10(ratio)))


KNOWN_JOINTS = Law(-0.054, 0.289, 0.10, (60.0, 48_900.0))
"""Of joints that BlazePose full finds, which a correction moves by little."""
NEW_JOINTS = Law(-0.678, 0.553, 0.18, (62.0, 12_200.0))
"""Of palms and footing, which BlazePose lite starts at the nearest joints that it has."""
JOINTS, PUBLIC = 16, 200
"""Joints of the skeleton that the directions are counted for, and public people that they were fitted on."""


def kept_share(units: int, sigma: float) -> tuple[float, float] | None:
    """Return between which shares of the gain without privacy `dp-head` keeps; None outside what was measured."""
    ratio = units / sigma
    laws = [law for law in (KNOWN_JOINTS, NEW_JOINTS) if law.measured[0] <= ratio <= law.measured[1]]
    if not laws:
        return None
    low, high = (f(law.share(ratio) + sign * law.error for law in laws) for f, sign in ((min, -1), (max, 1)))
    return max(0.0, low), min(1.0, high)


def expectation(plan: TrainingPlan, units: int) -> str:
    """Say what to expect of `dp-head` with a plan's budget and relation, before any data are read."""
    one_step = replace(plan, method="dp-head", steps=None)
    event = one_step.bind(units).event
    assert event is not None
    shares = kept_share(units, float(event.sigma))
    budget = f"With {units:,} units at noise multiplier {upper(event.sigma, 3)}"
    if shares is None:
        side = "few" if units / float(event.sigma) < KNOWN_JOINTS.measured[0] else "many"
        return f"{budget} nothing was measured: units are too {side} for that noise to say what dp-head keeps."
    low, high = (round(100 * share) for share in shares)
    directions = directions_for(units, float(event.sigma), 2 * JOINTS, PUBLIC)
    return (
        f"{budget} expect dp-head (one step, {directions} directions) to keep {low} to {high} % of what its correction "
        "would bring without privacy (rendered wards, BlazePose full and lite; yours will differ)."
    )
