"""What can be counted: each query's name, what one chunk gives, its declared range, and how its numbers are read.

    query = QUERIES["falls"]
    query.row(seen, rules)               # a chunk's numbers, from the people that were seen in its frames

A row is clamped to its declared range before it is added to a window (`dpose.measure.plan`), so nothing here has to be
right for the guarantee: only for the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dpose.pose.happenings import (
    SPEEDS,
    Rules,
    Seen,
    confirmed_falls,
    line_crossings,
    people_in,
    people_on_floor,
    people_present,
    speed_bins,
)
from dpose.pose.postures import LYING, SITTING, STANDING

Row = Callable[[Seen, Rules], Sequence[int]]


@dataclass(frozen=True)
class CountQuery:
    """Something that can be counted.

    Attributes:
        help: What its numbers are, in a few words.
        row: A chunk's numbers.
        most: The default of its declared range: of one frame (`each_frame`), else of a chunk.
        unit: How a window's number is read.
        each_frame: True if a chunk's number adds up frames: its range is then `most` times the frames of a chunk.
        mean: True if a window's number is divided by its frames, False if by the frames of a second or by nothing.
        bins: Names of the numbers of a histogram; empty for one number.
        lead: True if it needs to see what was before its chunk.
    """

    help: str
    row: Row
    most: int
    unit: str
    each_frame: bool = False
    mean: bool = False
    bins: tuple[str, ...] = ()
    lead: bool = False

    @property
    def width(self) -> int:
        """How many numbers a chunk gives."""
        return max(1, len(self.bins))


_EDGES = ("", *map(str, SPEEDS), "")
QUERIES: dict[str, CountQuery] = {
    "occupancy": CountQuery("people present, mean", people_present, 10, "people", each_frame=True, mean=True),
    "entries": CountQuery("people who cross the line", line_crossings, 4, "entries"),
    "standing": CountQuery("time spent standing", people_in(STANDING), 10, "person seconds", each_frame=True),
    "sitting": CountQuery("time spent sitting", people_in(SITTING), 10, "person seconds", each_frame=True),
    "lying": CountQuery("time spent lying", people_in(LYING), 10, "person seconds", each_frame=True),
    "floor": CountQuery("time spent on the floor", people_on_floor, 10, "person seconds", each_frame=True),
    "falls": CountQuery("falls", confirmed_falls, 1, "falls", lead=True),
    "speed": CountQuery(
        "people by walking speed, body heights a second",
        speed_bins,
        4,
        "people",
        bins=tuple(f"{low}-{high}" for low, high in pairwise(_EDGES)),
    ),
}
"""The queries by name."""
