"""Solving epsilon(sigma) = target in few evaluations, and remembering the answers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from dpose.errors import DposeError
from dpose.files import file_json, write_atomic
from dpose.privacy.rounding import as_given

TOLERANCE = 1e-3
"""How far below the target the epsilon of a calibrated sigma may lie, relatively."""
FORMAT = 1


def least_noise(
    cost: Callable[[float], float],
    target: float,
    guess: float,
    lowest: float,
    highest: float,
    growth: float = 0.1,
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
    """Where the line through two points meets `aim`, kept off the ends; the middle if there is none."""
    width = right[0] - left[0]
    if not (math.isfinite(left[1]) and math.isfinite(right[1])) or left[1] <= right[1]:
        return left[0] + width / 2
    share = (left[1] - aim) / (left[1] - right[1])
    return left[0] + width * min(max(share, 0.05), 0.95)


def recall(asked: Mapping[str, Any]) -> float | None:
    """The remembered noise multiplier for these arguments and this dp-accounting, or None. Never raises."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        entry = file_json(_path(asked))
        sigma = float(entry["noise_multiplier"])
        if entry == _entry(asked, sigma) and math.isfinite(sigma):
            return sigma
    return None


def remember_answer(asked: Mapping[str, Any], sigma: float) -> None:
    """Store an answer; a cache that cannot be written is no error."""
    with contextlib.suppress(DposeError, OSError):
        write_atomic(_path(asked), json.dumps(_entry(asked, sigma)))


def _question(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {**asked, "format": FORMAT, "dp-accounting": metadata.version("dp-accounting")}


def _entry(asked: Mapping[str, Any], sigma: float) -> dict[str, Any]:
    entry = {"asked": _question(asked), "noise_multiplier": repr(sigma)}
    return {**entry, "sha256": _digest(entry)}


def _path(asked: Mapping[str, Any]) -> Path:
    folder = platformdirs.user_cache_path("dpose") / "calibration"
    return folder / f"{_digest(_question(asked))[:32]}.json"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
