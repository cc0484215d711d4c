"""Key poses: bodies at the turning points of actions.

Angles are in degrees, and read like a description: a name without its side sets both sides.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.skeleton import DOF, DOFS

Floats = NDArray[np.float64]


def pose(base: Floats | None = None, **degrees: float) -> Floats:
    """Make a pose array (36,) from angles in degrees and lengths in metres.

    A name without its side (`elbow=90`) sets both sides. Joints not named keep the value of `base`, or zero.
    """
    out = np.zeros(len(DOFS)) if base is None else base.copy()
    for name, value in degrees.items():
        scaled = value if name in ("x", "lift", "z") else math.radians(value)
        for full in (name, f"r_{name}", f"l_{name}"):
            if full in DOF:
                out[DOF[full]] = scaled
    return out


STAND = pose(
    shoulder_abd=9, elbow=14, hip_abd=4, hip_rot=-7, knee=3, ankle=2, curl=25, shoulder_flex=2, shoulder_rot=12
)
SEAT = pose(STAND, hip_flex=88, knee=88, hip_abd=9, shoulder_flex=28, elbow=52, shoulder_rot=22, spine_flex=6, ankle=2)
LEAN = pose(STAND, shoulder_flex=22, elbow=24, spine_flex=6, shoulder_abd=14)
SUPINE = pose(STAND, pitch=-90, shoulder_abd=16, hip_abd=8, elbow=20, neck_flex=14, ankle=-22)
CROUCH = pose(STAND, pitch=22, hip_flex=112, knee=132, ankle=22, hip_abd=18, spine_flex=18, shoulder_flex=55, elbow=60)
BENT = pose(STAND, pitch=38, spine_flex=52, hip_flex=42, knee=14, shoulder_flex=95, elbow=14, neck_flex=-8)

ARMS: dict[str, Floats] = {
    name: pose(None, **angles)
    for name, angles in {
        "relaxed": {"shoulder_abd": 9, "elbow": 14, "shoulder_rot": 12},
        "hips": {"shoulder_abd": 42, "elbow": 98, "shoulder_rot": 62, "shoulder_flex": -14, "wrist": 20},
        "one_hip": {"shoulder_abd": 10, "elbow": 14, "r_shoulder_abd": 42, "r_elbow": 98, "r_shoulder_rot": 60},
        "crossed": {"shoulder_flex": 32, "shoulder_abd": 6, "elbow": 104, "shoulder_rot": 66, "r_elbow": 98},
        "phone": {"shoulder_abd": 9, "elbow": 14, "r_shoulder_flex": 46, "r_elbow": 140, "r_shoulder_rot": -8},
        "reading": {"shoulder_flex": 30, "elbow": 92, "shoulder_rot": 22, "shoulder_abd": 6, "pronation": -40},
        "wave": {"shoulder_abd": 9, "elbow": 14, "r_shoulder_abd": 92, "r_elbow": 92, "r_shoulder_rot": -70},
        "raised": {"shoulder_abd": 20, "shoulder_flex": 160, "elbow": 18},
        "spread": {"shoulder_abd": 88, "elbow": 10},
        "forward": {"shoulder_flex": 85, "shoulder_abd": 4, "elbow": 12},
        "head": {"shoulder_abd": 118, "elbow": 136, "shoulder_rot": -58, "shoulder_flex": 10},
        "chin": {"shoulder_abd": 6, "elbow": 30, "r_shoulder_flex": 42, "r_elbow": 132, "r_shoulder_rot": 34},
        "point": {"shoulder_abd": 9, "elbow": 14, "r_shoulder_flex": 80, "r_shoulder_abd": 14, "r_elbow": 6},
        "behind": {"shoulder_flex": -32, "shoulder_abd": 8, "elbow": 58, "shoulder_rot": 60},
        "belly": {"shoulder_flex": 8, "shoulder_abd": 14, "elbow": 76, "shoulder_rot": 64},
        "high_low": {"shoulder_abd": 12, "elbow": 20, "r_shoulder_flex": 150, "r_shoulder_abd": 20},
    }.items()
}
"""Arm poses that may replace an action's own."""

STEP = pose(
    STAND, r_hip_flex=26, r_knee=8, l_hip_flex=-16, l_knee=22, l_ankle=-12, r_shoulder_flex=-22, l_shoulder_flex=26
)
PASS = pose(STAND, r_hip_flex=2, r_knee=4, l_hip_flex=22, l_knee=58, shoulder_flex=0, pitch=3)
STRIDE = pose(
    STAND,
    pitch=12,
    r_hip_flex=62,
    r_knee=74,
    l_hip_flex=-22,
    l_knee=36,
    l_ankle=-28,
    elbow=88,
    r_shoulder_flex=-42,
    l_shoulder_flex=46,
    lift=0.06,
)
STRIDE_PASS = pose(STAND, pitch=12, r_hip_flex=14, r_knee=22, l_hip_flex=26, l_knee=108, elbow=88, lift=0.0)
KNEEL = pose(STAND, r_hip_flex=82, r_knee=88, l_hip_flex=2, l_knee=88, l_ankle=-40, hip_abd=6, shoulder_flex=20)
SIDE_LYING = pose(
    STAND,
    pitch=-90,
    roll=82,
    hip_flex=42,
    knee=58,
    l_hip_flex=58,
    l_knee=74,
    elbow=70,
    shoulder_flex=52,
    neck_side=-8,
    ankle=-15,
)
LUNGE = pose(
    STAND, r_hip_flex=78, r_knee=82, r_ankle=6, l_hip_flex=-16, l_knee=34, l_ankle=18, shoulder_abd=30, pitch=4
)
LONG_SIT = pose(
    STAND, pitch=-26, hip_flex=72, knee=14, spine_flex=18, neck_flex=6, shoulder_flex=14, elbow=48, hip_abd=6, ankle=-15
)
SQUAT = pose(
    STAND, pitch=14, spine_flex=12, hip_flex=86, knee=96, ankle=20, hip_abd=16, hip_rot=-18, shoulder_flex=78, elbow=10
)
JUMP_UP = pose(STAND, lift=0.32, ankle=-35, shoulder_flex=150, shoulder_abd=20, knee=12, hip_flex=8)
KICK_BACK = pose(STAND, r_hip_flex=-22, r_knee=70, l_shoulder_flex=40, r_shoulder_flex=-30, pitch=6, shoulder_abd=35)
KICK = pose(STAND, r_hip_flex=82, r_knee=10, r_ankle=-30, pitch=-12, shoulder_abd=40, l_knee=14, r_shoulder_flex=20)
WIND_UP = pose(
    STAND, r_shoulder_abd=88, r_shoulder_rot=-70, r_elbow=95, spine_twist=-32, l_shoulder_flex=70, l_hip_flex=28
)
RELEASE = pose(
    STAND, r_shoulder_flex=112, r_elbow=16, spine_twist=30, spine_flex=22, l_hip_flex=24, l_knee=22, r_hip_flex=-12
)
REACH = pose(STAND, r_shoulder_flex=165, r_shoulder_abd=8, r_elbow=8, spine_side=9, neck_flex=-25, ankle=-12)
STAR = pose(STAND, shoulder_abd=138, hip_abd=34, elbow=8, lift=0.12, knee=4, hip_rot=-20)
ON_ALL_FOURS = pose(
    STAND, pitch=84, hip_flex=84, knee=88, ankle=-35, shoulder_flex=88, elbow=6, neck_flex=-28, shoulder_abd=4
)
CRAWL = pose(
    ON_ALL_FOURS, r_hip_flex=64, l_hip_flex=104, r_shoulder_flex=112, l_shoulder_flex=70, l_knee=104, r_knee=84
)
DANCE_A = pose(
    STAND, r_shoulder_abd=120, l_shoulder_abd=60, elbow=50, spine_side=12, r_hip_flex=30, r_knee=50, spine_twist=15
)
BEND_SIDE = pose(STAND, spine_side=32, r_shoulder_abd=160, hip_abd=16, l_elbow=60, l_shoulder_abd=30, l_shoulder_rot=60)
GET_UP = pose(SEAT, pitch=36, spine_flex=22, shoulder_flex=45, elbow=40, knee=98, hip_flex=92, lift=0.02)
