"""Poses: what people do, as key poses in degrees, and how they move from one to the next.

An action is a list of key poses at times between 0 and 1; a moment between two keys is interpolated smoothly. What
varies from scene to scene (noise on every joint, the arms, the speed, the mirror image) is drawn once a scene, so that
a clip keeps it and stays smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.scene.draws import Draws
from dpose.scene.skeleton import DOF, DOFS, clamp, mirror

Floats = NDArray[np.float64]

FRAMES_PER_SECOND = 12.0
"""The pace at which `frame` counts time."""


def pose(base: Floats | None = None, **degrees: float) -> Floats:
    """A pose array (36,) from angles in degrees and lengths in metres.

    A name without its side (`elbow=90`) sets both sides. Joints not named keep the value of `base`, or zero.
    """
    out = np.zeros(len(DOFS)) if base is None else base.copy()
    for name, value in degrees.items():
        scaled = value if name in ("x", "lift", "z") else math.radians(value)
        for full in (name, f"r_{name}", f"l_{name}"):
            if full in DOF:
                out[DOF[full]] = scaled
    return out


_STAND = pose(
    shoulder_abd=9, elbow=14, hip_abd=4, hip_rot=-7, knee=3, ankle=2, curl=25, shoulder_flex=2, shoulder_rot=12
)
_SEAT = pose(
    _STAND, hip_flex=88, knee=88, hip_abd=9, shoulder_flex=28, elbow=52, shoulder_rot=22, spine_flex=6, ankle=2
)
_SUPINE = pose(_STAND, pitch=-90, shoulder_abd=16, hip_abd=8, elbow=20, neck_flex=14, ankle=-22)
_CROUCH = pose(
    _STAND, pitch=22, hip_flex=112, knee=132, ankle=22, hip_abd=18, spine_flex=18, shoulder_flex=55, elbow=60
)
_BENT = pose(_STAND, pitch=38, spine_flex=52, hip_flex=42, knee=14, shoulder_flex=95, elbow=14, neck_flex=-8)

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
"""What arms do while the rest of the body does something else."""

_ARM_DOFS = np.array([DOF[f"{side}_{name[2:]}"] for side in "rl" for name in DOFS[9:15]])

_STEP = pose(
    _STAND, r_hip_flex=26, r_knee=8, l_hip_flex=-16, l_knee=22, l_ankle=-12, r_shoulder_flex=-22, l_shoulder_flex=26
)
_PASS = pose(_STAND, r_hip_flex=2, r_knee=4, l_hip_flex=22, l_knee=58, shoulder_flex=0, pitch=3)
_STRIDE = pose(
    _STAND,
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
_STRIDE_PASS = pose(_STAND, pitch=12, r_hip_flex=14, r_knee=22, l_hip_flex=26, l_knee=108, elbow=88, lift=0.0)
_KNEEL = pose(_STAND, r_hip_flex=82, r_knee=88, l_hip_flex=2, l_knee=88, l_ankle=-40, hip_abd=6, shoulder_flex=20)
_SIDE_LYING = pose(
    _STAND, pitch=-90, roll=82, hip_flex=42, knee=58, l_hip_flex=58, l_knee=74, elbow=70, shoulder_flex=52,
    neck_side=-8, ankle=-15,
)  # fmt: skip
_LUNGE = pose(
    _STAND, r_hip_flex=78, r_knee=82, r_ankle=6, l_hip_flex=-16, l_knee=34, l_ankle=18, shoulder_abd=30, pitch=4
)
_LONG_SIT = pose(
    _STAND, pitch=-26, hip_flex=72, knee=14, spine_flex=18, neck_flex=6, shoulder_flex=14, elbow=48, hip_abd=6, ankle=-15
)  # fmt: skip
_SQUAT = pose(
    _STAND, pitch=14, spine_flex=12, hip_flex=86, knee=96, ankle=20, hip_abd=16, hip_rot=-18, shoulder_flex=78, elbow=10
)  # fmt: skip


@dataclass(frozen=True)
class Action:
    """One thing people do.

    Attributes:
        keys: (time in [0, 1], pose) pairs in order of time.
        seconds: How long 0 to 1 takes.
        cyclic: Whether time 1 goes on with time 0 (walking) or the last pose holds (sitting down).
        support: What the person rests on: `floor`, `seat` or `bed`.
        free_arms: Whether arms of the table `ARMS` may replace the action's own.
        noise: Standard deviation of every joint angle, degrees.
    """

    keys: tuple[tuple[float, Floats], ...]
    seconds: float = 1.2
    cyclic: bool = False
    support: str = "floor"
    free_arms: bool = False
    noise: float = 6.0


def _gait(contact: Floats, passing: Floats, seconds: float) -> Action:
    keys = ((0.0, contact), (0.25, passing), (0.5, mirror(contact)), (0.75, mirror(passing)), (1.0, contact))
    return Action(keys, seconds, cyclic=True)


def _still(base: Floats, support: str = "floor", noise: float = 8.0, **drift: float) -> Action:
    """Hardly a movement: the pose drifts a little and comes back."""
    away = base + pose(None, **(drift or {"spine_side": 2, "neck_twist": 6, "spine_flex": 1}))
    return Action(((0.0, base), (0.5, away), (1.0, base)), 3.0, True, support, True, noise)


def _wave() -> Action:
    up = pose(_STAND, r_shoulder_abd=105, r_elbow=78, r_shoulder_rot=-72)
    over = pose(up, r_elbow=38, r_shoulder_abd=118)
    return Action(((0.0, up), (0.5, over), (1.0, up)), 0.8, cyclic=True)


_JUMP_UP = pose(_STAND, lift=0.32, ankle=-35, shoulder_flex=150, shoulder_abd=20, knee=12, hip_flex=8)
_KICK_BACK = pose(_STAND, r_hip_flex=-22, r_knee=70, l_shoulder_flex=40, r_shoulder_flex=-30, pitch=6, shoulder_abd=35)
_KICK = pose(_STAND, r_hip_flex=82, r_knee=10, r_ankle=-30, pitch=-12, shoulder_abd=40, l_knee=14, r_shoulder_flex=20)
_WIND_UP = pose(
    _STAND, r_shoulder_abd=88, r_shoulder_rot=-70, r_elbow=95, spine_twist=-32, l_shoulder_flex=70, l_hip_flex=28
)  # fmt: skip
_RELEASE = pose(
    _STAND, r_shoulder_flex=112, r_elbow=16, spine_twist=30, spine_flex=22, l_hip_flex=24, l_knee=22, r_hip_flex=-12
)
_REACH = pose(_STAND, r_shoulder_flex=165, r_shoulder_abd=8, r_elbow=8, spine_side=9, neck_flex=-25, ankle=-12)
_STAR = pose(_STAND, shoulder_abd=138, hip_abd=34, elbow=8, lift=0.12, knee=4, hip_rot=-20)
_ON_ALL_FOURS = pose(
    _STAND, pitch=84, hip_flex=84, knee=88, ankle=-35, shoulder_flex=88, elbow=6, neck_flex=-28, shoulder_abd=4
)
_DANCE_A = pose(
    _STAND, r_shoulder_abd=120, l_shoulder_abd=60, elbow=50, spine_side=12, r_hip_flex=30, r_knee=50, spine_twist=15
)  # fmt: skip
_BEND_SIDE = pose(_STAND, spine_side=32, r_shoulder_abd=160, hip_abd=16, l_elbow=60, l_shoulder_abd=30, l_shoulder_rot=60)
_GET_UP = pose(_SEAT, pitch=36, spine_flex=22, shoulder_flex=45, elbow=40, knee=98, hip_flex=92, lift=0.02)

_ACTIONS: dict[str, Action] = {
    "stand": _still(_STAND),
    "walk": _gait(_STEP, _PASS, 1.15),
    "run": _gait(_STRIDE, _STRIDE_PASS, 0.75),
    "wave": _wave(),
    "reach": Action(((0.0, _STAND), (0.7, _REACH), (1.0, _REACH)), 1.1),
    "bend": Action(((0.0, _STAND), (0.55, _BENT), (1.0, _STAND)), 1.6, cyclic=True),
    "side_bend": Action(((0.0, _STAND), (0.5, _BEND_SIDE), (1.0, _STAND)), 1.6, cyclic=True),
    "crouch": Action(((0.0, _STAND), (0.75, _CROUCH), (1.0, _CROUCH)), 1.2),
    "squat": Action(((0.0, _STAND), (0.5, _SQUAT), (1.0, _STAND)), 1.5, cyclic=True),
    "jump": Action(
        ((0.0, _STAND), (0.28, _SQUAT), (0.55, _JUMP_UP), (0.8, pose(_SQUAT, hip_flex=50, knee=52)), (1.0, _STAND)), 1.3
    ),
    "star_jump": Action(((0.0, _STAND), (0.5, _STAR), (1.0, _STAND)), 0.9, cyclic=True),
    "kick": Action(((0.0, _STAND), (0.35, _KICK_BACK), (0.62, _KICK), (1.0, _STAND)), 1.2),
    "throw": Action(((0.0, _STAND), (0.42, _WIND_UP), (0.68, _RELEASE), (1.0, _STAND)), 1.2),
    "lunge": Action(((0.0, _STAND), (0.5, _LUNGE), (1.0, _STAND)), 1.5, cyclic=True),
    "dance": Action(((0.0, _DANCE_A), (0.5, mirror(_DANCE_A)), (1.0, _DANCE_A)), 1.2, cyclic=True, noise=12),
    "kneel": _still(_KNEEL),
    "crawl": _still(_ON_ALL_FOURS, noise=5, r_hip_flex=-14, l_hip_flex=12, r_shoulder_flex=14, l_shoulder_flex=-12),
    "sit": _still(_SEAT, "seat"),
    "sit_down": Action(((0.0, _STAND), (0.55, _GET_UP), (1.0, _SEAT)), 1.2, support="seat"),
    "stand_up": Action(((0.0, _SEAT), (0.45, _GET_UP), (1.0, _STAND)), 1.2, support="seat"),
    "lie": _still(_SUPINE, "bed", 9.0),
    "lie_side": _still(_SIDE_LYING, "bed"),
    "sit_bed": _still(_LONG_SIT, "bed"),
    "turn": Action(
        ((0.0, _SUPINE), (0.45, pose(_SUPINE, roll=35, l_hip_flex=45, l_knee=70, l_shoulder_flex=60)), (1.0, _SIDE_LYING)),
        1.3,
        support="bed",
    ),
}  # fmt: skip

ACTIONS: tuple[str, ...] = tuple(_ACTIONS)
"""What people in scenes do."""


@dataclass(frozen=True)
class Motion:
    """An action as one person performs it in one scene.

    Attributes:
        action: Its name.
        support: `floor`, `seat` or `bed`.
        times: (K,) key times in seconds.
        poses: (K, 36) key poses, varied and clamped.
        seconds: Duration of one cycle.
        cyclic: Whether it repeats.
        start: The time of frame 0, seconds.
        heading: The person's yaw, radians.
    """

    action: str
    support: str
    times: Floats
    poses: Floats
    seconds: float
    cyclic: bool
    start: float
    heading: float

    def at(self, frame: float) -> Floats:
        """The pose (36,) at a frame; every angle is within its limits."""
        time = self.start + frame / FRAMES_PER_SECOND
        local = time % self.seconds if self.cyclic else min(max(time, 0.0), self.seconds)
        k = min(int(np.searchsorted(self.times, local, side="right")) - 1, len(self.times) - 2)
        share = (local - self.times[k]) / (self.times[k + 1] - self.times[k])
        share = min(max(share, 0.0), 1.0)
        share = share * share * (3.0 - 2.0 * share)
        now = (1.0 - share) * self.poses[k] + share * self.poses[k + 1]
        now[DOF["spine_flex"]] += 0.012 * math.sin(1.6 * time)  # breathing and swaying never stop
        now[DOF["spine_side"]] += 0.012 * math.sin(1.1 * time + 1.0)
        now[DOF["yaw"]] = self.heading
        return clamp(now)


def action_named(name: str) -> Action:
    """The action of this name.

    Raises:
        DposeError: there is none.
    """
    if name not in _ACTIONS:
        raise DposeError(f"unknown action {name!r}", "action", f"choose one of {', '.join(ACTIONS)}")
    return _ACTIONS[name]


_NOISE_SCALE = np.ones(len(DOFS))
for _name, _scale in {
    "yaw": 0.0, "pitch": 0.5, "roll": 0.4, "spine_flex": 0.7, "neck_twist": 2.4, "neck_flex": 1.3, "x": 0, "lift": 0,
    "z": 0, "r_elbow": 1.8, "l_elbow": 1.8, "r_shoulder_rot": 2.0, "l_shoulder_rot": 2.0, "r_shoulder_flex": 1.6,
    "l_shoulder_flex": 1.6, "r_shoulder_abd": 1.2, "l_shoulder_abd": 1.2, "r_pronation": 3.0, "l_pronation": 3.0,
    "r_hip_abd": 0.7, "l_hip_abd": 0.7, "r_wrist": 1.5, "l_wrist": 1.5, "r_curl": 3.0, "l_curl": 3.0,
}.items():  # fmt: skip
    _NOISE_SCALE[DOF[_name]] = _scale


def draw_motion(draws: Draws, name: str, heading: float, moment: bool, spread: float = 0.0) -> Motion:
    """An action as this scene's person performs it.

    Args:
        draws: The scene's random numbers.
        name: One of `ACTIONS`.
        heading: The person's yaw in radians.
        moment: Whether frame 0 is a random moment of the action rather than its beginning.
        spread: Least angle between arm and trunk in radians (stout people hold their arms further out).

    Raises:
        DposeError: the action is unknown.
    """
    action = action_named(name)
    poses = np.stack([key for _, key in action.keys])
    if action.free_arms and draws.chance(0.72):
        arms = ARMS[draws.choice(list(ARMS))]
        poses[:, _ARM_DOFS] = arms[_ARM_DOFS]
        if draws.chance(0.3):  # each arm does something else
            other = ARMS[draws.choice(list(ARMS))]
            poses[:, _ARM_DOFS[:6]] = other[_ARM_DOFS[:6]]
    poses += math.radians(action.noise) * _NOISE_SCALE * draws.normals(len(DOFS))
    if draws.chance(0.5):
        poses = mirror(poses)
    for side in "rl":
        column = poses[:, DOF[f"{side}_shoulder_abd"]]
        np.maximum(column, spread + 0.05, out=column)
    poses = np.stack([clamp(p) for p in poses])
    if action.cyclic:
        poses[-1] = poses[0]
    seconds = action.seconds * draws.uniform(0.85, 1.25)
    start = draws.uniform(0.0, seconds) if moment else 0.0
    times = np.array([time for time, _ in action.keys]) * seconds
    return Motion(name, action.support, times, poses, seconds, action.cyclic, start, heading)
