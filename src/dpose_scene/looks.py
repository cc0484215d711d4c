"""The two looks: actions, camera positions and light of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose_scene.draws import Draws

Floats = NDArray[np.float64]

LOOKS = ("studio", "ward")
"""`studio` is bright and even; `ward` is dim, coloured, noisy, seen from above, with beds and gowns."""

_UPRIGHT = ("stand", "walk", "run", "wave", "reach", "bend", "side_bend", "jump", "star_jump", "kick", "throw", "lunge")


def _weights(**extra: float) -> dict[str, float]:
    return {**dict.fromkeys(_UPRIGHT, 1.0), **extra}


ACTION_WEIGHTS: dict[str, dict[str, float]] = {
    "studio": _weights(
        stand=4.0,
        walk=1.6,
        crouch=1.0,
        squat=1.0,
        dance=1.2,
        kneel=1.0,
        crawl=0.5,
        sit=2.2,
        sit_down=0.5,
        stand_up=0.5,
        lie=0.4,
        lie_side=0.3,
        sit_bed=0.3,
        turn=0.2,
    ),
    "ward": _weights(
        stand=2.4,
        walk=1.6,
        run=0.2,
        star_jump=0.2,
        kick=0.3,
        throw=0.3,
        crouch=0.7,
        squat=0.4,
        dance=0.2,
        kneel=0.5,
        crawl=0.4,
        sit=3.2,
        sit_down=0.8,
        stand_up=0.8,
        lie=2.6,
        lie_side=1.2,
        sit_bed=2.3,
        turn=0.9,
    ),
}
"""Frequency of each action when none is requested."""

GOWNS = {"studio": 0.0, "ward": 0.45}
"""Share of identities in a hospital gown."""


def look_index(look: str) -> int:
    """The number of a look."""
    if look not in LOOKS:
        raise DposeError("look-unknown", f"unknown look {look!r}", "look", f"choose one of {', '.join(LOOKS)}")
    return LOOKS.index(look)


@dataclass(frozen=True)
class CameraView:
    """Position of the camera relative to the person; angles in radians, lengths in metres.

    Attributes:
        heading: Direction that the person faces; 0 towards the camera.
        elevation: Elevation of the camera over the horizon.
        roll: Roll of the camera.
        distance: Distance of the camera.
        fill: Extent of the person over the picture's.
        shift: Offset from the middle, shares of width and height.
    """

    heading: float
    elevation: float
    roll: float
    distance: float
    fill: float
    shift: tuple[float, float]


def draw_view(draws: Draws, look: str, support: str) -> CameraView:
    """Draw the position of the camera."""
    ward = look == "ward"
    degrees = draws.weighted({0: 5.0, 1: 2.0, 2: 1.2, 3: 1.1})
    heading = (
        draws.normal(28.0),
        draws.choice((-1, 1)) * draws.uniform(40, 80),
        draws.choice((-1, 1)) * draws.uniform(70, 110),
        180.0 + draws.normal(35.0),
    )[degrees]
    elevation = draws.uniform(14, 48) if ward else draws.normal(5.0) + 5.0
    if support == "bed":
        # a person lying along the view fills an upright frame; one lying across it is small
        heading = draws.weighted({0.0: 5.0, 180.0: 1.2, 90.0: 0.6, -90.0: 0.6}) + draws.normal(22.0)
        elevation = draws.uniform(34, 72) if ward else draws.uniform(28, 66)
    fill = draws.uniform(0.68, 0.86) if not ward else draws.uniform(0.64, 0.82)
    return CameraView(
        math.radians(heading),
        math.radians(elevation),
        math.radians(draws.normal(6.0 if ward else 2.5)),
        draws.uniform(2.6, 4.2) if ward else draws.uniform(3.0, 6.0),
        fill,
        (draws.normal(0.03), draws.normal(0.025)),
    )


def draw_light(draws: Draws, look: str) -> Floats:
    """(17,) light: see `shader.shade`."""
    light = np.zeros(17)
    if look == "studio":
        azimuth, height = draws.uniform(-1.1, 1.1), draws.uniform(0.7, 1.25)
        key, warm = draws.uniform(0.55, 0.85), draws.uniform(-0.06, 0.06)
        sky, ground = draws.uniform(0.38, 0.55), draws.uniform(0.20, 0.34)
        colours = ((1 + warm, 1.0, 1 - warm), (1 - 0.5 * warm, 1.0, 1 + 0.5 * warm), (1.02, 1.0, 0.98))
        light[12], light[16] = draws.uniform(0.1, 0.35), draws.uniform(0.45, 0.75)
    else:
        azimuth, height = draws.uniform(-2.4, 2.4), draws.uniform(0.35, 1.2)
        key, warm = draws.uniform(0.35, 0.95), draws.choice((-1.0, 1.0)) * draws.uniform(0.1, 0.42)
        sky, ground = draws.uniform(0.10, 0.24), draws.uniform(0.06, 0.14)
        green = draws.uniform(0.96, 1.10)
        colours = ((1 + warm, 1.0, 1 - warm), (1 - 0.8 * warm, green, 1 + 0.8 * warm), (0.9, green, 0.95))
        light[12], light[16] = draws.uniform(0.0, 0.4), draws.uniform(0.7, 0.95)
    light[:3] = math.sin(azimuth) * math.cos(height), math.sin(height), math.cos(azimuth) * math.cos(height)
    for start, strength, colour in zip((3, 6, 9), (key, sky, ground), colours, strict=True):
        light[start : start + 3] = [strength * c for c in colour]
    return light
