"""A day of film: short scenes at public times of one day, with what truly happens in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose_scene.looks import look_index
from dpose_scene.motion import FRAMES_PER_SECOND
from dpose_scene.render import Scene, moments

DAY_ACTIONS = ("walk", "fall", "sit", "stand", "lie", "", "wave")
"""What happens in the scenes of a day, in turn; in one no person is there."""
SCENE_SECONDS = 10
DAY_SIZE = (240, 320)
DAY_RATE = 2
"""Seconds of a scene, (height, width) of its frames, and frames a second."""
_BEGINS = 2
"""Seconds after which an action begins; until then the person stands, sits or lies as at its beginning."""
_FIRST = 3 << 18


@dataclass(frozen=True)
class DayScene:
    """One scene.

    Attributes:
        begin: Seconds since midnight.
        action: One of `DAY_ACTIONS`.
        seed: Of the scene.
    """

    begin: Fraction
    action: str
    seed: int

    @property
    def people(self) -> int:
        """How many people are there."""
        return int(bool(self.action))

    @property
    def falls(self) -> int:
        """How many of them fall."""
        return int(self.action == "fall")


def day_scenes(an_hour: int) -> tuple[DayScene, ...]:
    """The scenes of a day, so many an hour, at equal distances."""
    if not 1 <= an_hour <= 300:
        raise DposeError("films-out-of-range", "an hour has 1 to 300 scenes", f"synthetic:films:{an_hour}", "say 2")
    apart = Fraction(3600, an_hour)
    number = look_index("ward")
    return tuple(
        DayScene(k * apart, DAY_ACTIONS[k % len(DAY_ACTIONS)], 4 * (number * (1 << 20) + _FIRST + k))
        for k in range(24 * an_hour)
    )


def day_moments(scene: DayScene) -> Iterator[tuple[Fraction, Scene | None]]:
    """Times and labelled frames of a scene, two a second; None without a person."""
    times = [Fraction(k, DAY_RATE) for k in range(SCENE_SECONDS * DAY_RATE)]
    if not scene.action:
        yield from ((scene.begin + time, None) for time in times)
        return
    frames = [int((time - _BEGINS) * int(FRAMES_PER_SECOND)) for time in times]
    for time, one in zip(times, moments("ward", scene.seed, scene.action, frames, DAY_SIZE), strict=True):
        yield scene.begin + time, one


def day_frames(scene: DayScene) -> Iterator[tuple[Fraction, NDArray[np.uint8]]]:
    """Times and frames of a scene, uint8 (240, 320, 3) RGB, two a second; grey without a person."""
    for time, one in day_moments(scene):
        yield time, np.full((*DAY_SIZE, 3), 128, np.uint8) if one is None else one.image
