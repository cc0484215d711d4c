"""What a budget and a number of units let one expect of `dp-head` and of the recipe, from settings alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpose.privacy.ranges import upper
from dpose.training.closed_form import directions_for
from dpose.training.plan import TrainingPlan


@dataclass(frozen=True)
class Law:
    """Share of the gain that is kept, top * (1 - exp(-(n / sigma / c)^b)), as it was fitted.

    Attributes:
        scale: c.
        power: b.
        error: The largest error on a number of people that it was not fitted on, rounded up.
        least: The least n / sigma that it was fitted on.
        most: The largest.
        top: What the steps can learn of it without noise.
    """

    scale: float
    power: float
    error: float
    least: float = 62.0
    most: float = 97_967.0
    top: float = 1.0

    def share(self, ratio: float) -> float:
        """The share at n / sigma."""
        return self.top * (1 - math.exp(-((ratio / self.scale) ** self.power)))

    def range(self, ratio: float) -> tuple[float, float] | None:
        """Between which shares; None outside what was measured."""
        if not self.least <= ratio <= self.most:
            return None
        return max(0.0, self.share(ratio) - self.error), min(1.0, self.share(ratio) + self.error)


KNOWN_JOINTS = Law(256.0, 0.378, 0.08)
"""Of joints that BlazePose full finds, which a correction moves by little (`benchmarks/dp_head.py`)."""
NEW_JOINTS = Law(184.4, 0.750, 0.07)
"""Of palms and footing, which BlazePose lite starts at the nearest joints that it has (`benchmarks/dp_head.py`)."""
RECIPE = Law(1334.0, 1.014, 0.12, 268.0, 13_322.0, top=0.625)
"""Of what training all weights of BlazePose lite brings: of the recipe, at the sigma of `dp-head` with its budget
(`benchmarks/recipe_law.py`)."""
JOINTS, PUBLIC = 16, 200
"""Joints of the skeleton that the directions are counted for, and public people that they were fitted on."""


def kept_share(units: int, sigma: float) -> tuple[float, float] | None:
    """Return between which shares of the gain without privacy `dp-head` keeps; None outside what was measured."""
    known, new = (law.range(units / sigma) for law in (KNOWN_JOINTS, NEW_JOINTS))
    return (min(known[0], new[0]), max(known[1], new[1])) if known and new else None


def expectation(plan: TrainingPlan, units: int) -> str:
    """Say what to expect of `dp-head` and the recipe with a plan's budget and relation, before any data are read."""
    one_step = replace(plan, method="dp-head", steps=None)
    event = one_step.bind(units).event
    assert event is not None
    sigma = float(event.sigma)
    shares, of_recipe = kept_share(units, sigma), RECIPE.range(units / sigma)
    budget = f"With {units:,} units at noise multiplier {upper(event.sigma, 3)}"
    if shares is None:
        side = "few" if units / sigma < KNOWN_JOINTS.least else "many"
        return f"{budget} nothing was measured: units are too {side} for that noise to say what dp-head keeps."
    directions = directions_for(units, sigma, 2 * JOINTS, PUBLIC)
    recipe = f", and the recipe {_percent(of_recipe)} of what training all weights would bring" if of_recipe else ""
    return (
        f"{budget} expect dp-head (one step, {directions} directions) to keep {_percent(shares)} of what its "
        f"correction would bring without privacy{recipe} (rendered wards, BlazePose full and lite; yours will differ)."
    )


def _percent(shares: tuple[float, float]) -> str:
    low, high = (round(100 * share) for share in shares)
    return f"{low} to {high} %"
