"""A box that moves: neighbours of a clip that differ in some frames, in each of them inside one rectangle.

    box = MovingBox.parse("box:120x300/seconds:4").timed(frame_times(info))
    box.neighbours(shape)                       # of 120 x 300 pixels, in T frames

This is what a person who walks through a picture changes, as long as neither shadow nor mirror nor the camera's own
exposure carries the change out of the box. docs/proofs/video.md derives how much it moves an operator's values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import exact_text, parse_exact
from dpose.release.grid import Shape

FORM = "box:WxH/frames:T or box:WxH/seconds:S"
OUTSIDE = (
    "what the people or things in the box change outside it is not covered: shadows, reflections, light, the camera's "
    "own exposure and focus, and compression made before this"
)


@dataclass(frozen=True)
class MovingBox:
    """A rectangle that may lie anywhere in each of some frames.

    Attributes:
        width: Pixels.
        height: Pixels.
        frames: T, in how many frames: any ones, in one piece or in many. None where seconds are not counted yet.
        seconds: What was asked for instead; None for frames.

    Raises:
        DposeError: a number is out of range, or neither frames nor seconds are given.
    """

    width: int
    height: int
    frames: int | None = None
    seconds: Fraction | None = None

    def __post_init__(self) -> None:
        if min(self.width, self.height, 1 if self.frames is None else self.frames) < 1:
            raise DposeError(
                "box-empty", "a box has at least 1 pixel, and lasts for at least 1 frame", "neighbours"
            )
        if self.frames is None and self.seconds is None:
            raise DposeError(
                "box-without-duration",
                "how long the box may be there is missing",
                "neighbours",
                f"say {FORM}",
            )
        if self.seconds is not None and self.seconds < 0:
            raise DposeError(
                "seconds-negative", f"seconds are at least 0, not {exact_text(self.seconds)}", "neighbours"
            )

    @classmethod
    def parse(cls, text: str) -> MovingBox:
        """The box that a text names.

        >>> MovingBox.parse("box:120x300/frames:25")
        MovingBox(width=120, height=300, frames=25, seconds=None)

        Raises:
            DposeError: it names none.
        """
        found = re.fullmatch(r"box:(\d{1,6})x(\d{1,6})(?:/(frames|seconds):(.{1,40}))?", text)
        if found is None or (found[3] == "frames" and not re.fullmatch(r"\d{1,9}", found[4])):
            raise DposeError("box-malformed", f"{text!r} is not of the form {FORM}", "neighbours")
        sides = int(found[1]), int(found[2])
        if found[3] == "seconds":
            return cls(*sides, seconds=parse_exact(found[4], "neighbours"))
        return cls(*sides, int(found[4]) if found[3] else None)

    @property
    def area(self) -> int:
        """Pixels of one frame."""
        return self.width * self.height

    def timed(self, times: Sequence[Fraction]) -> MovingBox:
        """The box with its seconds counted in frames of a clip whose frames have these time stamps, in order."""
        return self if self.seconds is None else replace(self, frames=most_frames(times, self.seconds))

    def neighbours(self, shape: Shape) -> Neighbours:
        """The neighbouring relation for a picture or clip of this shape, no larger than it.

        For a picture it is as many pixels as the box has, wherever they lie.

        Raises:
            DposeError: seconds have not been counted in frames.
        """
        width, height = min(self.width, shape.width), min(self.height, shape.height)
        if shape.still:
            return Neighbours.of_pixels(width * height, "picture")
        if self.frames is None:
            raise DposeError(
                "frames-without-times",
                "seconds can be counted where frames have time stamps",
                "neighbours",
                "say frames:T",
            )
        return Neighbours.of_box(width, height, min(self.frames, shape.frames))

    def notes(self, shape: Shape) -> tuple[str, ...]:
        """What was made of the box for a clip of this shape, where it is not just what was asked for."""
        near, told = self.neighbours(shape), []
        if shape.still:
            cut = f"as many pixels as {self.width:,} x {self.height:,} has were asked for: cut to the picture's size"
            return () if near.m == self.area else (cut,)
        if self.seconds is not None:
            told.append(
                f"{exact_text(self.seconds)} seconds in one piece are at most {self.frames:,} frames of this clip; "
                "several shorter stays count by their frames"
            )
        if near.box != (self.width, self.height):
            told.append(
                f"the box that was asked for, {self.width:,} x {self.height:,}, is cut to the frame's size"
            )
        if near.frames != self.frames:
            told.append(f"the box may be there in all {shape.frames:,} frames: more than that were asked for")
        return tuple(told)


def most_frames(times: Sequence[Fraction], seconds: Fraction) -> int:
    """The most frames that lie within so many seconds of each other; floor(seconds * rate) + 1 at a constant rate.

    Args:
        times: When each is shown, in order.
        seconds: At least 0.
    """
    most = first = 0
    for last, time in enumerate(times):
        while time - times[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def most_overlap(edges: NDArray[np.int64], length: int) -> int:
    """The largest sum of squares of what a stretch has in common with the pieces of a line, wherever it lies.

    Between two places where one of its ends meets an edge, moving it by s changes two of the overlaps, to a + s and b -
    s: the sum of squares is convex in s. So the most is found where an end meets an edge.

    Args:
        edges: Where pieces begin and end, rising from 0, (pieces + 1,).
        length: Of the stretch; no more than all of the line counts.
    """
    length = min(length, int(edges[-1]))
    starts = np.clip(np.concatenate([edges, edges - length]), 0, edges[-1] - length)
    ends = starts + length
    # the pieces that hold what lies just before either end; at an edge, the one that ends there
    first, last = np.searchsorted(edges, starts) - 1, np.searchsorted(edges, ends) - 1
    whole = np.concatenate([[0], np.cumsum(np.diff(edges) ** 2)])
    apart = (edges[first + 1] - starts) ** 2 + (ends - edges[last]) ** 2 + whole[last] - whole[first + 1]
    return int(np.where(first == last, length**2, apart).max())


def most_weight(weights: NDArray[np.float64], length: int) -> float:
    """The largest sum of so many neighbouring weights, none of them negative."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    length = min(length, len(weights))
    return float((sums[length:] - sums[:-length]).max())
