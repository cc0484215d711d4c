"""The articulated skeleton: degrees of freedom and their limits, bones, forward kinematics.

World axes: x to the left of a person who faces the camera, y up, z towards the camera; metres and radians. A
person of yaw 0 looks along +z. All joints are hinges or Euler triples of *anatomical* angles: flexion,
abduction and rotation are positive in the same sense on both sides of the body, so mirroring a pose swaps
two blocks of numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import scene_kernel

Floats = NDArray[np.float64]

_TRUNK = ("yaw", "pitch", "roll", "spine_flex", "spine_side", "spine_twist", "neck_flex", "neck_side", "neck_twist")
_SIDE = (
    "shoulder_flex",
    "shoulder_abd",
    "shoulder_rot",
    "elbow",
    "pronation",
    "wrist",
    "hip_flex",
    "hip_abd",
    "hip_rot",
    "knee",
    "ankle",
    "curl",
)
_ROOT = ("x", "lift", "z")

DOFS: tuple[str, ...] = (*_TRUNK, *(f"r_{n}" for n in _SIDE), *(f"l_{n}" for n in _SIDE), *_ROOT)
"""The degrees of freedom of a pose, in the order of a pose array: 33 angles in radians, 3 lengths in m."""

DOF: dict[str, int] = {name: i for i, name in enumerate(DOFS)}
"""Index of each degree of freedom in a pose array."""

_LIMITS_DEGREES = {
    "spine_flex": (-25, 75),
    "spine_side": (-35, 35),
    "spine_twist": (-45, 45),
    "neck_flex": (-45, 50),
    "neck_side": (-35, 35),
    "neck_twist": (-75, 75),
    "shoulder_flex": (-55, 180),
    "shoulder_abd": (-35, 175),
    "shoulder_rot": (-80, 90),
    "elbow": (2, 148),
    "pronation": (-85, 85),
    "wrist": (-60, 70),
    "hip_flex": (-25, 128),
    "hip_abd": (-22, 70),
    "hip_rot": (-45, 45),
    "knee": (1, 148),
    "ankle": (-45, 25),
    "curl": (0, 90),
}


def _limits() -> Floats:
    table = np.full((len(DOFS), 2), (-np.inf, np.inf))
    for name, (low, high) in _LIMITS_DEGREES.items():
        for full in (name, f"r_{name}", f"l_{name}"):
            if full in DOF:
                table[DOF[full]] = math.radians(low), math.radians(high)
    return table


LIMITS: Floats = _limits()
"""(36, 2) lowest and highest value of each degree of freedom; the root's own are unbounded."""

JOINTS = (
    "pelvis",
    "lumbar",
    "thorax",
    "upper_neck",
    "head_top",
    "r_shoulder",
    "r_elbow",
    "r_wrist",
    "r_fingers",
    "l_shoulder",
    "l_elbow",
    "l_wrist",
    "l_fingers",
    "r_hip",
    "r_knee",
    "r_ankle",
    "r_toe",
    "r_heel",
    "l_hip",
    "l_knee",
    "l_ankle",
    "l_toe",
    "l_heel",
)
"""The joints that forward kinematics places, in the order of its rows."""

JOINT: dict[str, int] = {name: i for i, name in enumerate(JOINTS)}

FRAMES = (
    "pelvis",
    "abdomen",
    "chest",
    "neck",
    "head",
    "r_upper_arm",
    "r_forearm",
    "r_hand",
    "l_upper_arm",
    "l_forearm",
    "l_hand",
    "r_thigh",
    "r_shank",
    "r_foot",
    "l_thigh",
    "l_shank",
    "l_foot",
)
"""The rigid parts, in the order of the rotations of forward kinematics (columns: left, up, forward)."""

FRAME: dict[str, int] = {name: i for i, name in enumerate(FRAMES)}

KEYPOINTS = (
    "r_ankle",
    "r_knee",
    "r_hip",
    "l_hip",
    "l_knee",
    "l_ankle",
    "pelvis",
    "thorax",
    "upper_neck",
    "head_top",
    "r_wrist",
    "r_elbow",
    "r_shoulder",
    "l_shoulder",
    "l_elbow",
    "l_wrist",
)
"""MPII's sixteen joints in MPII's order; left and right are the person's own."""

KEYPOINT_ROWS: NDArray[np.int64] = np.array([JOINT[name] for name in KEYPOINTS])

BONES: dict[str, float] = {
    "hip_half": 0.092,
    "lumbar": 0.14,
    "spine": 0.36,
    "neck": 0.098,
    "head": 0.235,
    "shoulder_half": 0.178,
    "upper_arm": 0.29,
    "forearm": 0.255,
    "hand": 0.175,
    "thigh": 0.43,
    "shank": 0.425,
    "foot": 0.165,
    "heel": 0.055,
    "ankle_height": 0.075,
}
"""Bone lengths in metres of an adult of 1.76 m; an identity scales them."""

BONE: dict[str, int] = {name: i for i, name in enumerate(BONES)}


def clamp(pose: Floats) -> Floats:
    """`pose` (..., 36) with every angle brought inside its limits."""
    return np.minimum(np.maximum(pose, LIMITS[:, 0]), LIMITS[:, 1])


def _mirror_tables() -> tuple[NDArray[np.int64], Floats]:
    swap = {"r": "l", "l": "r"}
    order = [DOF[swap[n[0]] + n[1:]] if n[:2] in ("r_", "l_") else DOF[n] for n in DOFS]
    flipped = {"yaw", "roll", "spine_side", "spine_twist", "neck_side", "neck_twist", "x"}
    return np.array(order), np.array([-1.0 if n in flipped else 1.0 for n in DOFS])


_MIRROR_ORDER, _MIRROR_SIGN = _mirror_tables()


def mirror(pose: Floats) -> Floats:
    """The pose (..., 36) seen in a mirror: left and right change places."""
    return pose[..., _MIRROR_ORDER] * _MIRROR_SIGN


@scene_kernel
def _turn(parent: Floats, x: float, y: float, z: float, out: Floats) -> None:
    """Out = parent Rx(x) Rz(z) Ry(y): flexion, then abduction, then rotation about the bone."""
    cx, sx, cy, sy, cz, sz = math.cos(x), math.sin(x), math.cos(y), math.sin(y), math.cos(z), math.sin(z)
    # Rx Rz Ry, written out
    m00, m01, m02 = cz * cy, -sz, cz * sy
    m10, m11, m12 = cx * sz * cy + sx * sy, cx * cz, cx * sz * sy - sx * cy
    m20, m21, m22 = sx * sz * cy - cx * sy, sx * cz, sx * sz * sy + cx * cy
    for i in range(3):
        a, b, c = parent[i, 0], parent[i, 1], parent[i, 2]
        out[i, 0] = a * m00 + b * m10 + c * m20
        out[i, 1] = a * m01 + b * m11 + c * m21
        out[i, 2] = a * m02 + b * m12 + c * m22


@scene_kernel
def _step(start: Floats, frame: Floats, x: float, y: float, z: float, out: Floats) -> None:
    """Out = start + frame (x, y, z)."""
    for i in range(3):
        out[i] = start[i] + frame[i, 0] * x + frame[i, 1] * y + frame[i, 2] * z


@scene_kernel
def forward(pose: Floats, bones: Floats, joints: Floats, frames: Floats) -> None:
    """Forward kinematics, with the pelvis at (x, lift, z) of the pose.

    Args:
        pose: (36,) in the order of `DOFS`, within `LIMITS`.
        bones: (14,) lengths in metres in the order of `BONES`.
        joints: (23, 3), written: positions in the order of `JOINTS`.
        frames: (17, 3, 3), written: rotations in the order of `FRAMES`.
    """
    hip, lumbar, spine, neck, head, shoulder = bones[0], bones[1], bones[2], bones[3], bones[4], bones[5]
    cy, sy = math.cos(pose[0]), math.sin(pose[0])
    world = np.zeros((3, 3))
    world[0, 0], world[0, 2], world[1, 1], world[2, 0], world[2, 2] = cy, sy, 1.0, -sy, cy
    joints[0, 0], joints[0, 1], joints[0, 2] = pose[33], pose[34], pose[35]
    _turn(world, pose[1], pose[2], 0.0, frames[0])
    _turn(frames[0], pose[3] * 0.5, pose[5] * 0.5, -pose[4] * 0.5, frames[1])
    _turn(frames[1], pose[3] * 0.5, pose[5] * 0.5, -pose[4] * 0.5, frames[2])
    _turn(frames[2], pose[6] * 0.5, pose[8] * 0.5, -pose[7] * 0.5, frames[3])
    _turn(frames[3], pose[6] * 0.5, pose[8] * 0.5, -pose[7] * 0.5, frames[4])
    _step(joints[0], frames[0], 0.0, lumbar, 0.0, joints[1])
    _step(joints[1], frames[1], 0.0, spine * 0.4, 0.0, joints[2])
    _step(joints[2], frames[2], 0.0, spine * 0.6, 0.0, joints[2])
    _step(joints[2], frames[3], 0.0, neck, 0.012, joints[3])
    _step(joints[3], frames[4], 0.0, head, 0.0, joints[4])
    for side in range(2):
        s = 1.0 - 2.0 * side  # +1 for the right side, whose outward direction is -x
        d, j, f = 9 + 12 * side, 5 + 4 * side, 5 + 3 * side
        _turn(frames[2], -pose[d], s * pose[d + 2], -s * pose[d + 1], frames[f])
        # the shoulder girdle follows the arm: up when it is raised, forward when it reaches
        down_up = down_forward = 0.0
        for i in range(3):
            down_up -= frames[f, i, 1] * frames[2, i, 1]
            down_forward -= frames[f, i, 1] * frames[2, i, 2]
        raised = 0.5 * (down_up + 1.0)
        _step(
            joints[2],
            frames[2],
            -s * (shoulder - 0.035 * raised * raised),
            -0.028 + 0.085 * raised * math.sqrt(raised),
            0.03 * down_forward,
            joints[j],
        )
        _step(joints[j], frames[f], 0.0, -bones[6], 0.0, joints[j + 1])
        _turn(frames[f], -pose[d + 3], 0.0, 0.0, frames[f + 1])
        _step(joints[j + 1], frames[f + 1], 0.0, -bones[7], 0.0, joints[j + 2])
        _turn(frames[f + 1], 0.0, s * pose[d + 4], s * pose[d + 5], frames[f + 2])
        _step(joints[j + 2], frames[f + 2], 0.0, -bones[8], 0.0, joints[j + 3])
        j, f = 13 + 5 * side, 11 + 3 * side
        _step(joints[0], frames[0], -s * hip, 0.0, 0.0, joints[j])
        _turn(frames[0], -pose[d + 6], s * pose[d + 8], -s * pose[d + 7], frames[f])
        _step(joints[j], frames[f], 0.0, -bones[9], 0.0, joints[j + 1])
        _turn(frames[f], pose[d + 9], 0.0, 0.0, frames[f + 1])
        _step(joints[j + 1], frames[f + 1], 0.0, -bones[10], 0.0, joints[j + 2])
        _turn(frames[f + 1], -pose[d + 10], 0.0, 0.0, frames[f + 2])
        _step(joints[j + 2], frames[f + 2], 0.0, -bones[13] + 0.02, bones[11], joints[j + 3])
        _step(joints[j + 2], frames[f + 2], 0.0, -bones[13] + 0.02, -bones[12], joints[j + 4])


CONTACT_RADII: Floats = np.array(
    [0.1, 0.1, 0.1, 0.07, 0.03] + [0.065, 0.045, 0.03, 0.015] * 2 + [0.10, 0.06, 0.045, 0.02, 0.02] * 2
)
"""Distance of the body's surface from each joint, metres: decides which part touches the ground first."""


def place(pose: Floats, bones: Floats, support: float = 0.0) -> tuple[Floats, Floats]:
    """Joints (23, 3) and frames (17, 3, 3) of a pose whose lowest point rests on height `support`.

    The pose's own `lift` is added on top: a jump leaves the ground by it.
    """
    joints, frames = np.empty((len(JOINTS), 3)), np.empty((len(FRAMES), 3, 3))
    forward(pose, bones, joints, frames)
    lowest = float((joints[:, 1] - CONTACT_RADII).min()) - float(pose[DOF["lift"]])
    joints[:, 1] += support - lowest
    return joints, frames
