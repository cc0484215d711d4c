"""What a budget and a number of units let one expect of `dp-head`, from settings alone."""

from __future__ import annotations

import math
from dataclasses import replace

from dpose.privacy.ranges import upper
from dpose.training.closed_form import directions_for
from dpose.training.plan import TrainingPlan

LAW = (-0.054, 0.289)
"""a and b of the kept share a + b log10(n / sigma), fitted on rendered wards with BlazePose full
(`benchmarks/dp_head.py`)."""
ERROR = 0.10
"""The largest error of the law on a number of people that it was not fitted on (0.096), rounded up."""
MEASURED = (60.0, 48_900.0)
"""Values of n / sigma between which the law was fitted."""
JOINTS = 16
"""Joints of the skeleton that it was fitted on."""


def kept_share(units: int, sigma: float) -> tuple[float, float] | None:
    """Return between which shares of the gain without privacy `dp-head` keeps; None outside what was measured."""
    ratio = units / sigma
    if not MEASURED[0] <= ratio <= MEASURED[1]:
        return None
    middle = min(1.0, max(0.0, LAW[0] + LAW[1] * math.log10(ratio)))
    return max(0.0, middle - ERROR), min(1.0, middle + ERROR)


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
    directions = directions_for(units, float(event.sigma), 2 * JOINTS)
    return (
        f"{budget} expect dp-head (one step, {directions} directions) to keep {low} to {high} % of what its correction "
        "would bring without privacy (rendered wards, BlazePose full; yours will differ)."
    )
