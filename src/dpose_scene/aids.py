"""Walking and seating aids: crutches, walking frames, wheelchairs, made of boxes.

Aids are in the pictures of the split `aids`, and in scenes that request them. That split shows one scene five times:
the same person, room and light, standing without and with crutches or a walking frame, and seated on something else and
in a wheelchair. Nothing is trained on it, so that it measures the effect of an aid on a model that never saw one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose_scene.furniture import Things
from dpose_scene.materials import CHAIR, CUSHION, METAL
from dpose_scene.skeleton import JOINT
from dpose_scene.splits import SPLITS, check_place, scene_seed

Floats = NDArray[np.float64]

AIDS: dict[str, str] = {"crutches": "floor", "walking frame": "floor", "wheelchair": "seat"}
"""Aids, and the support of a person who uses each."""

_RIM = 14  # boxes of a wheel
_TUBE = 0.013  # half the thickness of a frame's tubes, metres


@dataclass(frozen=True)
class SceneChoice:
    """The scene of a picture: arguments of `render.render_person`.

    Attributes:
        seed: Seed of the scene.
        action: Action of the person; None for the one drawn by the seed.
        aid: One of `AIDS`, or None.
    """

    seed: int
    action: str | None = None
    aid: str | None = None

    @property
    def words(self) -> str:
        """The aid in words, or the words for a person without one."""
        return self.aid or ("none, seated" if self.action == "sit" else "none, standing")


_SHOWN = (("lean", None), ("lean", "crutches"), ("lean", "walking frame"), ("sit", None), ("sit", "wheelchair"))
"""Variants of one scene that follow each other in the split `aids`."""


def choose_scene(look: str, split: str, index: int) -> SceneChoice:
    """The scene of picture `index` of a split."""
    if split != "aids":
        return SceneChoice(scene_seed(look, split, index))
    check_place("picture", SPLITS, split, index)
    action, aid = _SHOWN[index % len(_SHOWN)]
    return SceneChoice(scene_seed(look, split, index - index % len(_SHOWN)), action, aid)


def check_aid(aid: str | None, support: str) -> None:
    """Refuse an unknown aid, or one that does not fit the action.

    Args:
        aid: Name given by the user.
        support: Support of the person in the action.

    Raises:
        DposeError: the aid is unknown, or needs another support.
    """
    if aid is None:
        return
    if aid not in AIDS:
        raise DposeError("aid-unknown", f"unknown aid {aid!r}", "aid", f"choose one of {', '.join(AIDS)}")
    if support != AIDS[aid]:
        raise DposeError(
            "aid-unsupported",
            f"is not used by a person who rests on a {support}",
            f"aid {aid!r}",
            "choose the action sit" if AIDS[aid] == "seat" else "choose the action lean",
        )


def add_aid(things: Things, aid: str, joints: Floats, yaw: float, seat: float) -> None:
    """Add an aid at the place of the person who uses it.

    Args:
        things: Written.
        aid: One of `AIDS`.
        joints: (J, 3) of the person, metres.
        yaw: The person's heading.
        seat: Height of the seat's top, metres.
    """
    if aid == "crutches":
        _add_crutches(things, joints, yaw)
    elif aid == "walking frame":
        _add_walking_frame(things, joints, yaw)
    else:
        _add_wheelchair(things, joints, yaw, seat)


def _add_crutches(things: Things, joints: Floats, yaw: float) -> None:
    for side in "rl":
        (x, hand, z), elbow = joints[JOINT[f"{side}_wrist"]], float(joints[JOINT[f"{side}_elbow"], 1])
        at, cuff = (float(x), float(z)), max(elbow, hand + 0.12)
        things.box((0, cuff / 2, 0), (_TUBE, cuff / 2, _TUBE), METAL, at, yaw)
        things.box((0, hand, 0.04), (0.018, 0.018, 0.07), CUSHION, at, yaw)
        things.box((0, cuff, -0.02), (0.045, 0.03, 0.02), CHAIR, at, yaw)
        things.box((0, 0.02, 0), (0.024, 0.02, 0.024), CUSHION, at, yaw)


def _add_walking_frame(things: Things, joints: Floats, yaw: float) -> None:
    pelvis = joints[JOINT["pelvis"]]
    at = (float(pelvis[0]), float(pelvis[2]))
    ahead = np.array([math.sin(yaw), 0.0, math.cos(yaw)])
    hands = joints[[JOINT["r_wrist"], JOINT["l_wrist"]]]
    across = np.abs((hands - pelvis) @ np.array([math.cos(yaw), 0.0, -math.sin(yaw)]))
    wide, grip = max(0.26, float(across.max())), float(np.clip(hands[:, 1].mean(), 0.6, 1.1))
    front = max(float(((hands - pelvis) @ ahead).mean()), 0.2) + 0.12
    for side in (-wide, wide):
        things.box((side, grip, front - 0.18), (0.018, 0.018, 0.20), CUSHION, at, yaw)
        things.box((side, 0.45 * grip, front - 0.18), (_TUBE, _TUBE, 0.18), METAL, at, yaw)
        for z in (front, front - 0.36):
            things.box((side, grip / 2, z), (_TUBE, grip / 2, _TUBE), METAL, at, yaw)
    for height in (0.45 * grip, 0.8 * grip):
        things.box((0, height, front), (wide, _TUBE, _TUBE), METAL, at, yaw)


def _add_wheelchair(things: Things, joints: Floats, yaw: float, seat: float) -> None:
    pelvis = joints[JOINT["pelvis"]]
    at, seat = (float(pelvis[0]), float(pelvis[2])), max(seat, 0.3)
    things.box((0, seat - 0.025, 0.05), (0.22, 0.025, 0.23), CHAIR, at, yaw)
    things.box((0, seat + 0.26, -0.20), (0.21, 0.24, 0.016), CHAIR, at, yaw, -0.1)
    feet = [float((joints[JOINT[f"{side}_ankle"]] - pelvis) @ [math.sin(yaw), 0, math.cos(yaw)]) for side in "rl"]
    for side in (-1, 1):
        x = side * 0.25
        things.box((x, seat + 0.20, 0.06), (0.025, 0.018, 0.16), CUSHION, at, yaw)
        things.box((x, seat + 0.10, 0.20), (_TUBE, 0.10, _TUBE), METAL, at, yaw)
        things.box((x, (seat + 0.52) / 2 + 0.1, -0.21), (_TUBE, (seat + 0.52) / 2 - 0.1, _TUBE), METAL, at, yaw)
        things.box((x, seat + 0.53, -0.27), (0.018, 0.018, 0.06), CUSHION, at, yaw)
        _add_wheel(things, at, yaw, side * 0.30, (0.30, -0.10), 0.30)
        _add_wheel(things, at, yaw, side * 0.22, (0.08, 0.34), 0.08)
        things.box((side * 0.11, 0.05, max(feet) + 0.06), (0.08, 0.012, 0.10), METAL, at, yaw)
        things.box((side * 0.20, seat / 2, 0.27), (_TUBE, seat / 2 - 0.03, _TUBE), METAL, at, yaw)


def _add_wheel(
    things: Things, at: tuple[float, float], yaw: float, x: float, hub: tuple[float, float], radius: float
) -> None:
    """A wheel to the left or right of `at`: a rim and four spokes about `hub` (up, forward)."""
    up, ahead = hub
    for k in range(_RIM):
        angle = 2 * math.pi * k / _RIM
        place = (x, up + radius * math.cos(angle), ahead + radius * math.sin(angle))
        half = (0.014, radius * math.tan(math.pi / _RIM), 0.014)
        things.box(place, half, METAL, at, yaw, angle + math.pi / 2)
    for k in range(4):
        things.box((x, up, ahead), (0.005, radius, 0.005), METAL, at, yaw, math.pi * k / 4)
