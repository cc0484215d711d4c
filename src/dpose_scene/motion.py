"""Motion: actions as key poses in time, and how one person performs one of them.

An action is a list of key poses at times between 0 and 1; a moment between two keys is interpolated smoothly.
What varies from scene to scene (noise on every joint, the arms, the speed, the mirror image) is drawn once a
scene, so that a clip keeps it and stays smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose_scene.draws import Draws
from dpose_scene.poses import (
    ARMS,
    BEND_SIDE,
    BENT,
    CRAWL,
    CROUCH,
    DANCE_A,
    GET_UP,
    JUMP_UP,
    KICK,
    KICK_BACK,
    KNEEL,
    LEAN,
    LONG_SIT,
    LUNGE,
    PASS,
    REACH,
    RELEASE,
    SEAT,
    SIDE_LYING,
    SQUAT,
    STAND,
    STAR,
    STEP,
    STRIDE,
    STRIDE_PASS,
    SUPINE,
    WIND_UP,
    pose,
)
from dpose_scene.skeleton import DOF, DOFS, clamp, mirror

Floats = NDArray[np.float64]

FRAMES_PER_SECOND = 12.0
"""The pace at which `frame` counts time."""

_ARM_DOFS = np.array([DOF[f"{side}_{name[2:]}"] for side in "rl" for name in DOFS[9:15]])
_RIGHT_ARM = np.array([name.startswith(("r_shoulder", "r_elbow", "r_pronation", "r_wrist")) for name in DOFS])


@dataclass(frozen=True)
class Action:
    """An action of people.

    Attributes:
        keys: (time in [0, 1], pose) pairs in order of time.
        seconds: Duration from time 0 to 1.
        cyclic: True if time 0 follows time 1 (walking), False if the last pose holds (sitting down).
        support: Support of the person: `floor`, `seat` or `bed`.
        free_arms: True if arms of the table `ARMS` may replace the action's own.
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


_DRIFT = {"spine_side": 4.0, "neck_twist": 14.0, "spine_flex": 3.0, "elbow": 14.0, "shoulder_flex": 6.0}


def _still(base: Floats, support: str = "floor", noise: float = 8.0, **drift: float) -> Action:
    """Keys of a nearly still pose, which drifts a little and returns."""
    away = base + pose(None, **(drift or _DRIFT))
    return Action(((0.0, base), (0.5, away), (1.0, base)), 3.0, True, support, True, noise)


def _wave() -> Action:
    up = pose(STAND, r_shoulder_abd=96, r_elbow=100, r_shoulder_rot=-72)
    over = pose(up, r_elbow=24, r_shoulder_abd=124)
    return Action(((0.0, up), (0.5, over), (1.0, up)), 0.8, cyclic=True)


_ACTIONS: dict[str, Action] = {
    "stand": _still(STAND),
    "walk": _gait(STEP, PASS, 1.15),
    "run": _gait(STRIDE, STRIDE_PASS, 0.75),
    "wave": _wave(),
    "reach": Action(((0.0, STAND), (0.7, REACH), (1.0, REACH)), 1.1),
    "bend": Action(((0.0, STAND), (0.55, BENT), (1.0, STAND)), 1.6, cyclic=True),
    "side_bend": Action(((0.0, STAND), (0.5, BEND_SIDE), (1.0, STAND)), 1.6, cyclic=True),
    "crouch": Action(((0.0, STAND), (0.75, CROUCH), (1.0, CROUCH)), 1.2),
    "squat": Action(((0.0, STAND), (0.5, SQUAT), (1.0, STAND)), 1.5, cyclic=True),
    "jump": Action(
        ((0.0, STAND), (0.28, SQUAT), (0.55, JUMP_UP), (0.8, pose(SQUAT, hip_flex=50, knee=52)), (1.0, STAND)), 1.6
    ),
    "star_jump": Action(((0.0, STAND), (0.5, STAR), (1.0, STAND)), 0.9, cyclic=True),
    "kick": Action(((0.0, STAND), (0.35, KICK_BACK), (0.62, KICK), (1.0, STAND)), 1.5),
    "throw": Action(((0.0, STAND), (0.42, WIND_UP), (0.72, RELEASE), (1.0, STAND)), 1.6),
    "lunge": Action(((0.0, STAND), (0.5, LUNGE), (1.0, STAND)), 1.5, cyclic=True),
    "dance": Action(((0.0, DANCE_A), (0.5, mirror(DANCE_A)), (1.0, DANCE_A)), 1.2, cyclic=True, noise=12),
    "lean": Action(
        ((0.0, LEAN), (0.5, pose(LEAN, neck_twist=14, spine_side=4, spine_flex=10)), (1.0, LEAN)), 3.0, True, noise=3.0
    ),
    "fall": Action(((0.0, STAND), (0.45, CROUCH), (1.0, SIDE_LYING)), 1.3, noise=4.0),
    "kneel": _still(KNEEL),
    "crawl": Action(((0.0, CRAWL), (0.5, mirror(CRAWL)), (1.0, CRAWL)), 1.2, cyclic=True),
    "sit": _still(SEAT, "seat"),
    "sit_down": Action(((0.0, STAND), (0.55, GET_UP), (1.0, SEAT)), 1.2, support="seat"),
    "stand_up": Action(((0.0, SEAT), (0.45, GET_UP), (1.0, STAND)), 1.2, support="seat"),
    "lie": _still(SUPINE, "bed", 9.0),
    "lie_side": _still(SIDE_LYING, "bed"),
    "sit_bed": _still(LONG_SIT, "bed"),
    "turn": Action(
        ((0.0, SUPINE), (0.45, pose(SUPINE, roll=35, l_hip_flex=45, l_knee=70, l_shoulder_flex=60)), (1.0, SIDE_LYING)),
        1.3,
        support="bed",
    ),
}

ACTIONS: tuple[str, ...] = tuple(_ACTIONS)
"""Actions of people in scenes, by name."""


@dataclass(frozen=True)
class Motion:
    """An action as one person performs it in one scene.

    Attributes:
        action: Name of the action.
        support: `floor`, `seat` or `bed`.
        times: (K,) key times in seconds.
        poses: (K, 36) key poses, varied and clamped.
        seconds: Duration of one cycle.
        cyclic: True if the action repeats.
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
        now = self._between(k, min(max(share, 0.0), 1.0))
        now[DOF["spine_flex"]] += 0.012 * math.sin(1.6 * time)  # breathing and swaying never stop
        now[DOF["spine_side"]] += 0.012 * math.sin(1.1 * time + 1.0)
        now[DOF["yaw"]] = self.heading
        return clamp(now)

    def _between(self, k: int, share: float) -> Floats:
        """The pose `share` of the way from key k to the next: a cubic that does not halt at a cycle's keys."""
        square, cube = share * share, share * share * share
        now: Floats = self.poses[k] + (3.0 * square - 2.0 * cube) * (self.poses[k + 1] - self.poses[k])
        if self.cyclic:
            last = len(self.poses) - 1
            before, after = self.poses[(k - 1) % last], self.poses[(k + 2) % last]
            now += (share - 2.0 * square + cube) * 0.5 * (self.poses[k + 1] - before)
            now += (cube - square) * 0.5 * (after - self.poses[k])
        return now


def action_named(name: str) -> Action:
    """Look up an action by name."""
    if name not in _ACTIONS:
        raise DposeError("action-unknown", f"unknown action {name!r}", "action", f"choose one of {', '.join(ACTIONS)}")
    return _ACTIONS[name]


_NOISE_SCALE = np.ones(len(DOFS))
for _name, _scale in {
    "yaw": 0.0,
    "pitch": 0.5,
    "roll": 0.4,
    "spine_flex": 0.7,
    "neck_twist": 2.4,
    "neck_flex": 1.3,
    "x": 0,
    "lift": 0,
    "z": 0,
    "r_elbow": 1.8,
    "l_elbow": 1.8,
    "r_shoulder_rot": 2.0,
    "l_shoulder_rot": 2.0,
    "r_shoulder_flex": 1.6,
    "l_shoulder_flex": 1.6,
    "r_shoulder_abd": 1.2,
    "l_shoulder_abd": 1.2,
    "r_pronation": 3.0,
    "l_pronation": 3.0,
    "r_hip_abd": 0.7,
    "l_hip_abd": 0.7,
    "r_wrist": 1.5,
    "l_wrist": 1.5,
    "r_curl": 3.0,
    "l_curl": 3.0,
}.items():
    _NOISE_SCALE[DOF[_name]] = _scale


def draw_motion(draws: Draws, name: str, heading: float, moment: bool, spread: float = 0.0) -> Motion:
    """An action as this scene's person performs it.

    Args:
        draws: The scene's random numbers.
        name: One of `ACTIONS`.
        heading: The person's yaw in radians.
        moment: True if frame 0 is a random moment of the action, False for its beginning.
        spread: Least angle between arm and trunk in radians (stout people hold their arms further out).
    """
    action = action_named(name)
    poses = np.stack([key for _, key in action.keys])
    if action.free_arms and draws.chance(0.72):
        arms = ARMS[draws.choice(list(ARMS))]
        if draws.chance(0.3):  # each arm does something else
            other = ARMS[draws.choice(list(ARMS))]
            arms = np.where(_RIGHT_ARM, other, arms)
        # the arms still move as the action moves them, but about another pose
        poses[:, _ARM_DOFS] += (arms - poses[0])[_ARM_DOFS]
    poses += math.radians(action.noise) * _NOISE_SCALE * draws.normals(len(DOFS))
    if draws.chance(0.5):
        poses = mirror(poses)
    for side in "rl":
        column = poses[:, DOF[f"{side}_shoulder_abd"]]
        np.maximum(column, spread + 0.05, out=column)
    poses = clamp(poses)
    if action.cyclic:
        poses[-1] = poses[0]
    seconds = action.seconds * draws.uniform(0.85, 1.25)
    start = draws.uniform(0.0, seconds) if moment else 0.0
    times = np.array([time for time, _ in action.keys]) * seconds
    return Motion(name, action.support, times, poses, seconds, action.cyclic, start, heading)
