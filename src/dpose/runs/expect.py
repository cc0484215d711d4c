"""What a budget and a number of units let one expect of `dp-head`, from settings alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpose.privacy.ranges import upper
from dpose.training.closed_form import directions_for
from dpose.training.plan import TrainingPlan


@dataclass(frozen=True)
class Law:
    """Share of the gain that is kept, 1 - exp(-(n / sigma / c)^b), as it was fitted (`benchmarks/dp_head.py`).

    Attributes:
        scale: c.
        power: b.
        error: The largest error on a number of people that it was not fitted on, rounded up.
    """

    scale: float
    power: float
    error: float

    def share(self, ratio: float) -> float:
        """The share at n / sigma."""
        return 1 - math.exp(-((ratio / self.scale) ** self.power))


MEASURED = (62.0, 97_967.0)
"""Values of n / sigma between which laws were fitted."""
KNOWN_JOINTS = Law(256.0, 0.378, 0.08)
"""Of joints that BlazePose full finds, which a correction moves by little."""
NEW_JOINTS = Law(184.4, 0.750, 0.07)
"""Of palms and footing, which BlazePose lite starts at the nearest joints that it has."""
JOINTS, PUBLIC = 16, 200
"""Joints of the skeleton that the directions are counted for, and public people that they were fitted on."""


def kept_share(units: int, sigma: float) -> tuple[float, float] | None:
    """Return between which shares of the gain without privacy `dp-head` keeps; None outside what was measured."""
    ratio = units / sigma
    if not MEASURED[0] <= ratio <= MEASURED[1]:
        return None
    laws = (KNOWN_JOINTS, NEW_JOINTS)
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
        side = "few" if units / float(event.sigma) < MEASURED[0] else "many"
        return f"{budget} nothing was measured: units are too {side} for that noise to say what dp-head keeps."
    low, high = (round(100 * share) for share in shares)
    directions = directions_for(units, float(event.sigma), 2 * JOINTS, PUBLIC)
    return (
        f"{budget} expect dp-head (one step, {directions} directions) to keep {low} to {high} % of what its correction "
        "would bring without privacy (rendered wards, BlazePose full and lite; yours will differ)."
    )
