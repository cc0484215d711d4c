"""Frames at moments of a day, and a public choice of them by the clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TimedFrame:
    """A frame and when it was taken.

    Attributes:
        time: Seconds since midnight.
        pixels: uint8, (H, W, 3) RGB; None if only the time is told.
    """

    time: Fraction
    pixels: NDArray[np.uint8] | None


def sampled(frames: Iterable[TimedFrame], rate: Fraction) -> Iterator[TimedFrame]:
    """The first frame at or after each tick of the rate: by the public times of frames, whatever they show."""
    following = -1
    for frame in frames:
        tick = math.floor(frame.time * rate)
        if frame.pixels is None:
            yield frame
        elif tick >= following:
            following = tick + 1
            yield frame
