"""Rules on poses: standing, sitting or lying, by two angles in one public table.

    postures = [posture_of(pose, skeleton) for pose in poses]

The rules are replaceable: `Posture` is any function from a pose to a word of `POSTURES`, an action model among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpose.pose.predict import Pose
from dpose.pose.skeletons import Skeleton

STANDING, SITTING, LYING, UNKNOWN = "standing", "sitting", "lying", ""
SHOWN = 0.2
"""Least score of a joint that a rule looks at."""
TALL = 1.28
"""Body height over the way from shoulder by hip and knee to ankle, which is 0.78 of it."""
TRUNKS = 3.4
"""Body height over the trunk's length, where legs cannot be seen."""

Posture: TypeAlias = Callable[[Pose, Skeleton], str]


@dataclass(frozen=True)
class Rule:
    """A posture by the angles of trunk and thighs from the upright, degrees; the first rule that fits is taken.

    Attributes:
        posture: What it says.
        trunk: From and below how many degrees the trunk (from the hips to the shoulders) leans.
        thigh: The same of the thighs (from the knees to the hips). Unseen thighs fit if 0 does.
    """

    posture: str
    trunk: tuple[float, float]
    thigh: tuple[float, float]


ANGLES = (
    Rule(LYING, trunk=(60.0, 181.0), thigh=(0.0, 181.0)),
    Rule(STANDING, trunk=(0.0, 60.0), thigh=(0.0, 45.0)),
    Rule(SITTING, trunk=(0.0, 60.0), thigh=(45.0, 181.0)),
)
"""The table."""


@dataclass(frozen=True)
class SeenPerson:
    """What counts know of one person in one frame.

    Attributes:
        number: Of the track, within one chunk.
        posture: `STANDING`, `SITTING`, `LYING` or `UNKNOWN`.
        on_floor: True if the person lies with hips inside the public floor.
        hips: (2,), pixels.
        feet: (2,), pixels; the lowest joints that are seen.
        height: Body height in pixels, about.
    """

    number: int
    posture: str
    on_floor: bool
    hips: NDArray[np.float64]
    feet: NDArray[np.float64]
    height: float


def joint_middle(pose: Pose, skeleton: Skeleton, name: str) -> NDArray[np.float64] | None:
    """The middle of a left and a right joint, (2,), of those that are seen; None if neither is."""
    places = [k for k, joint in enumerate(skeleton.joints) if joint in (f"l_{name}", f"r_{name}")]
    seen = [k for k in places if pose.scores[k] >= SHOWN and np.isfinite(pose.keypoints[k]).all()]
    return pose.keypoints[seen].mean(axis=0) if seen else None


def lean(lower: NDArray[np.float64] | None, upper: NDArray[np.float64] | None) -> float | None:
    """Degrees by which the way from one point up to another leans from the upright; None if one is unknown."""
    if lower is None or upper is None:
        return None
    across, down = upper - lower
    return math.degrees(math.atan2(abs(float(across)), -float(down)))


def posture_of(pose: Pose, skeleton: Skeleton) -> str:
    """What `ANGLES` say of a pose; `UNKNOWN` if shoulders or hips are not seen."""
    hips = joint_middle(pose, skeleton, "hip")
    trunk = lean(hips, joint_middle(pose, skeleton, "shoulder"))
    thigh = lean(joint_middle(pose, skeleton, "knee"), hips) or 0.0
    if trunk is None:
        return UNKNOWN
    fits = (r.posture for r in ANGLES if r.trunk[0] <= trunk < r.trunk[1] and r.thigh[0] <= thigh < r.thigh[1])
    return next(fits, UNKNOWN)


def body_height(pose: Pose, skeleton: Skeleton) -> float:
    """A person's height in pixels, about, from the lengths of trunk, thighs and shanks."""
    places = [joint_middle(pose, skeleton, name) for name in ("shoulder", "hip", "knee", "ankle")]
    lengths = [float(np.hypot(*(one - two))) for one, two in pairwise(places) if one is not None and two is not None]
    if len(lengths) == 3:
        return TALL * sum(lengths)
    return TRUNKS * lengths[0] if lengths else 0.0
