"""What a budget and a number of units let one expect of `dp-head` and of the recipe, from settings alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
RECIPE, FEWEST = Law(1347.0, 0.419, 0.08, 267.0, 13_322.0, top=0.732), 1000
"""Of what training all weights of BlazePose lite brings: of the recipe, at the sigma of `dp-head` with its budget
(`benchmarks/recipe_law.py`); and from how many people on it holds: of 500 it is off by up to 0.13."""
HEAD_ALONE = 200.0
"""n / sigma below which `dp-head` alone kept no less than the recipe, whose steps drown in noise (docs/results.md)."""
JOINTS, PUBLIC = 16, 200
"""Joints of the skeleton that the directions are counted for, and public people that they were fitted on."""


def kept_share(units: int, sigma: float) -> tuple[float, float] | None:
    """Return between which shares of the gain without privacy `dp-head` keeps; None outside what was measured."""
    known, new = (law.range(units / sigma) for law in (KNOWN_JOINTS, NEW_JOINTS))
    return (min(known[0], new[0]), max(known[1], new[1])) if known and new else None


def where_head_is_enough(plan: TrainingPlan, units: int) -> str:
    """A sentence where the recipe brings no more than `dp-head` alone with the budget; raises as `expectation`."""
    n, sigma = plan.one_step_noise(units)
    if n / sigma >= HEAD_ALONE:
        return ""
    return " With so few units for that budget dp-head alone does no worse: --method dp-head, without --recipe."


def expectation(plan: TrainingPlan, units: int) -> str:
    """Say what to expect of the recipe and of `dp-head` with a plan's budget and relation, before any data are read.

    Raises:
        DposeError: the plan has no epsilon, or as `TrainingPlan.bind`.
    """
    n, sigma = plan.one_step_noise(units)
    given = f"With {n:,} units at epsilon {upper(plan.epsilon or plan.bind(units, units).epsilon or 0)}"
    shares, of_recipe = kept_share(n, sigma), RECIPE.range(n / sigma) if n >= FEWEST else None
    if shares is None:
        side = "few" if n / sigma < KNOWN_JOINTS.least else "many"
        return f"{given} nothing was measured: units are too {side} for that budget to say what is kept."
    directions = directions_for(n, sigma, 2 * JOINTS, PUBLIC)
    recipe = (
        f"the recipe from BlazePose to keep {_percent(of_recipe)} of what training without privacy would bring "
        "(7 to 10 points of PCKh@0.5 on rendered wards), and "
        if of_recipe
        else ""
    )
    head = (
        f"dp-head alone (one step, {directions} directions) {'' if recipe else 'to keep '}{_percent(shares)} of what "
        "its correction would (1 to 2 points there; 9 on joints that the model does not know)"
    )
    more = where_head_is_enough(plan, units) or ("" if recipe else " Of the recipe too little was measured there.")
    return f"{given} expect {recipe}{head}. Yours will differ.{more}"


def _percent(shares: tuple[float, float]) -> str:
    low, high = (round(100 * share) for share in shares)
    return f"{low} to {high} %"
