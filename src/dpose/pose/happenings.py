"""What people do, from their poses in a few frames: presence, postures, crossings, falls, walking speed.

    numbers = confirmed_falls(Seen(start, frames), rules)

Each function reads the frames of a stretch of video and what was found in them, and gives whole numbers: one for each
frame, for the stretch, or for each bin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpose.media.areas import Point
from dpose.pose.postures import STANDING, SeenPerson

SPEEDS = (0.1, 0.3, 0.5, 0.7, 1.0)
"""Edges of the bins of walking speed, body heights a second: slower than the first, ..., faster than the last."""
WALK = 1.0
"""Seconds over which a person must be seen for a speed."""
NEAR = 1.0
"""Body heights within which somebody on the floor is the one who stood before."""
STILL = 0.5
"""Body heights within which somebody on the floor is the one of the frame before."""


@dataclass(frozen=True)
class SeenFrame:
    """The people of one frame.

    Attributes:
        time: Seconds since midnight.
        people: Who was found.
        size: Width and height of the frame, pixels.
    """

    time: Fraction
    people: Sequence[SeenPerson]
    size: tuple[int, int]


@dataclass(frozen=True)
class Seen:
    """What a chunk sees: its lead-in and its own frames, in order.

    Attributes:
        start: When the chunk itself begins, seconds since midnight.
        frames: Those of the lead-in first.
    """

    start: Fraction
    frames: Sequence[SeenFrame]

    @property
    def own(self) -> list[SeenFrame]:
        """The frames of the chunk itself."""
        return [frame for frame in self.frames if frame.time >= self.start]


@dataclass(frozen=True)
class Rules:
    """Public settings of the queries.

    Attributes:
        line: Two points; entries cross it from the left to the right of somebody who looks from one to the other.
        fall_within: From upright to the floor at most so many seconds.
        fall_stays: On the floor for at least so many seconds.
    """

    line: Sequence[Point]
    fall_within: Fraction
    fall_stays: Fraction


def people_present(seen: Seen, rules: Rules) -> list[int]:
    """How many people each frame has."""
    return [len(frame.people) for frame in seen.own]


def people_in(posture: str) -> Callable[[Seen, Rules], list[int]]:
    """How many people of each frame have a posture."""

    def row(seen: Seen, rules: Rules) -> list[int]:
        return [sum(person.posture == posture for person in frame.people) for frame in seen.own]

    return row


def people_on_floor(seen: Seen, rules: Rules) -> list[int]:
    """How many people of each frame lie on the floor."""
    return [sum(person.on_floor for person in frame.people) for frame in seen.own]


def line_crossings(seen: Seen, rules: Rules) -> list[int]:
    """How often people who were numbered cross the line, from its left to its right."""
    return [
        sum(
            _crosses(before, after, rules.line, frame.size)
            for _, before, after, frame in _steps(seen)
            if frame.time >= seen.start
        )
    ]


def _steps(seen: Seen) -> list[tuple[SeenFrame, SeenPerson, SeenPerson, SeenFrame]]:
    """Every person in two frames that follow each other, as far as numbers say who is who."""
    last: dict[int, tuple[SeenFrame, SeenPerson]] = {}
    found = []
    for frame in seen.frames:
        for person in frame.people:
            if person.number in last:
                found.append((*last[person.number], person, frame))
            last[person.number] = (frame, person)
    return found


def _crosses(before: SeenPerson, after: SeenPerson, line: Sequence[Point], size: tuple[int, int]) -> bool:
    start, end = (np.array([float(x) * size[0], float(y) * size[1]]) for x, y in line)
    one, two = _side(before.feet, start, end), _side(after.feet, start, end)
    # to its left is negative, with down the second axis
    if not (one < 0 <= two):
        return False
    at = before.feet + (after.feet - before.feet) * (one / (one - two))
    along = float((at - start) @ (end - start) / max(float((end - start) @ (end - start)), 1e-9))
    return 0 <= along <= 1


def _side(point: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]) -> float:
    along, away = end - start, point - start
    return float(along[0] * away[1] - along[1] * away[0])


def confirmed_falls(seen: Seen, rules: Rules) -> list[int]:
    """How many falls are confirmed in the chunk: upright, on the floor within some seconds, and staying there.

    Who is who is decided by places alone, since somebody who falls looks like another person to any tracker.
    """
    count = 0
    for first, frame in enumerate(seen.frames):
        for person in frame.people:
            if not person.on_floor or not _has_just_fallen(seen.frames[:first], frame, person, rules):
                continue
            confirmed = _stays_until(seen.frames[first:], person, rules.fall_stays)
            count += confirmed is not None and confirmed >= seen.start
    return [count]


def _has_just_fallen(before: Sequence[SeenFrame], frame: SeenFrame, person: SeenPerson, rules: Rules) -> bool:
    """True if no one lay here in the frame before, and somebody stood here not long ago."""
    if before and any(p.on_floor and _apart(p, person) < STILL for p in before[-1].people):
        return False
    recent = [other for other in before if frame.time - other.time <= rules.fall_within]
    return any(p.posture == STANDING and _apart(p, person) < NEAR for other in recent for p in other.people)


def _stays_until(frames: Sequence[SeenFrame], person: SeenPerson, stays: Fraction) -> Fraction | None:
    """The time at which a person has lain here for so long, one frame at a time missed at most; None if never."""
    begin, missed = frames[0].time, 0
    for frame in frames:
        here = any(p.on_floor and _apart(p, person) < STILL for p in frame.people)
        missed = 0 if here else missed + 1
        if missed > 1:
            return None
        if here and frame.time - begin >= stays:
            return frame.time
    return None


def _apart(one: SeenPerson, other: SeenPerson) -> float:
    return float(np.hypot(*(one.hips - other.hips)) / max(one.height, other.height, 1.0))


def speed_bins(seen: Seen, rules: Rules) -> list[int]:
    """How many people walk in each bin of speed: the way of their hips by their height and the time, if both show."""
    ways: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for first, before, after, frame in _steps(seen):
        if first.time >= seen.start and before.height and after.height:
            passed = float(frame.time - first.time)
            ways[after.number].append((_apart(before, after), passed, 1.0))
    counts = [0] * (len(SPEEDS) + 1)
    for steps in ways.values():
        way, passed, _ = np.sum(steps, axis=0)
        if passed >= WALK:
            counts[int(np.searchsorted(SPEEDS, way / passed, side="right"))] += 1
    return counts
