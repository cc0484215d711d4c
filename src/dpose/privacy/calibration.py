"""Solving epsilon(sigma) = target in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpose.errors import DposeError
from dpose.privacy.ranges import as_given

TOLERANCE = 1e-3
"""How far below the target the epsilon of a calibrated sigma may lie, relatively."""


def least_noise(
    cost: Callable[[float], float], target: float, guess: float, lowest: float, highest: float, growth: float = 0.1
) -> float:
    """A noise multiplier whose cost is at most `target` and at most `TOLERANCE` below it.

    Args:
        cost: Epsilon as a function of sigma, falling; may be infinite. Falling need not be strict.
        target: The epsilon to meet.
        guess: A sigma near the answer, for speed alone.
        lowest: Smallest sigma allowed; the answer where even that costs less than the target.
        highest: Largest sigma allowed.
        growth: How far from the guess the first other one is taken, relatively; doubled each time.

    Raises:
        DposeError: even `highest` costs more than the target.
    """
    # log epsilon is nearly straight in log sigma: interpolation there needs few evaluations. The bracket's
    # ends hold (log sigma, log cost); `answer` is a sigma that was evaluated and costs at most the target.
    bottom, top = math.log(lowest), math.log(highest)
    aim = math.log(target * (1 - TOLERANCE / 2))
    enough: tuple[float, float] | None = None
    too_little: tuple[float, float] | None = None
    answer = highest
    x = min(max(math.log(guess), bottom), top)
    while True:
        sigma = min(max(math.exp(x), lowest), highest)
        value = cost(sigma)
        point = (x, math.log(value) if value > 0 else -math.inf)
        if value <= target:
            answer, enough = sigma, point
            if value >= target * (1 - TOLERANCE) or x <= bottom:
                return answer
        else:
            too_little = point
        if enough is None:
            if x >= top:
                raise DposeError(
                    "epsilon-unreachable",
                    f"no noise meets epsilon {as_given(target)} with these steps and this sampling rate",
                    fix="take fewer steps, a smaller batch or a larger epsilon",
                )
            x = min(x + growth, top)
        elif too_little is None:
            x = max(x - growth, bottom)
        elif enough[0] - too_little[0] < 1e-9:
            return answer
        else:
            x = _between(too_little, enough, aim)
        growth *= 2


def _between(left: tuple[float, float], right: tuple[float, float], aim: float) -> float:
    """The place where the line through two points meets `aim`, kept off the ends; the middle if there is none."""
    width = right[0] - left[0]
    if not (math.isfinite(left[1]) and math.isfinite(right[1])) or left[1] <= right[1]:
        return left[0] + width / 2
    share = (left[1] - aim) / (left[1] - right[1])
    return left[0] + width * min(max(share, 0.05), 0.95)
