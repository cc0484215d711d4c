"""Setting a scene: everything that stays the same while the person moves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpose_scene.aids import add_aid
from dpose_scene.background import draw_room, furnish_palette
from dpose_scene.bedding import Blanket
from dpose_scene.body import Body, body_of
from dpose_scene.camera import Camera, axes_looking, frame_person
from dpose_scene.draws import Draws
from dpose_scene.furniture import BED_HEIGHT, Things, add_bed, add_chair, add_furniture, add_occluder
from dpose_scene.looks import ACTION_WEIGHTS, GOWNS, draw_light, draw_view, look_index
from dpose_scene.motion import FRAMES_PER_SECOND, Motion, action_named, draw_motion
from dpose_scene.sensor import Sensor, draw_sensor
from dpose_scene.skeleton import BONE, JOINT, place
from dpose_scene.splits import people_of

Floats = NDArray[np.float64]

SHADOW_MAP = 80
"""Side of the light's map, texels."""

_GOWN_STREAM = 77  # names the stream that decides who wears a gown
_REACH = 1.45  # metres around the person that the light's map covers


@dataclass(frozen=True)
class SceneStage:
    """Parts of a scene that do not change from frame to frame.

    Attributes:
        body: Body of the person.
        motion: Motion of the person.
        camera: Camera.
        room: (22,) see `background.draw_room`.
        light: (17,) see `looks.draw_light`.
        light_axes: (14,) the light's parallel view, see `raster.project_light`.
        palette: (32, 12) materials of the person and of things.
        boxes: (N, 9) furniture, see `mesh.add_boxes`.
        blanket: Bedding, if any.
        sensor: Sensor of the camera.
        support: Height of the support under the person, metres.
    """

    body: Body
    motion: Motion
    camera: Camera
    room: Floats
    light: Floats
    light_axes: Floats
    palette: Floats
    boxes: Floats
    blanket: Blanket | None
    sensor: Sensor
    support: float


def posed(body: Body, motion: Motion, support: float, frame: float) -> tuple[Floats, Floats]:
    """Joints and frames at a frame; the feet (on a bed the pelvis) stay, and the body moves over them."""
    joints, frames = place(motion.at(frame), body.bones, support)
    if motion.support == "bed":
        foot = joints[JOINT["pelvis"]].copy()
    else:
        foot = 0.5 * (joints[JOINT["r_ankle"]] + joints[JOINT["l_ankle"]])
    joints[:, 0] -= foot[0]
    joints[:, 2] -= foot[2]
    return joints, frames


def identity_of(look: str, seed: int) -> int:
    """Draw the identity that a scene shows by default."""
    return _drawn_identity(Draws(look_index(look), seed), seed)


def _drawn_identity(draws: Draws, seed: int) -> int:
    people = people_of(seed)
    return people[draws.integer(len(people))]


def build_stage(
    look: str, seed: int, size: tuple[int, int], identity: int | None, action: str | None, aid: str | None = None
) -> SceneStage:
    """Draw everything that a scene's arguments decide; see `render.render` for them."""
    number = look_index(look)
    draws = Draws(number, seed)
    drawn = _drawn_identity(draws, seed)
    who = drawn if identity is None else identity
    body = body_of(who, wears_gown(look, who))
    chosen = draws.weighted(ACTION_WEIGHTS[look])
    name = chosen if action is None else action
    view = draw_view(draws, look, action_named(name).support)
    motion = draw_motion(draws, name, view.heading, action is None, body.arm_spread)
    support = BED_HEIGHT[look] if motion.support == "bed" else 0.0
    # the camera frames the moment of a still, or the whole of a requested action
    last = motion.seconds * FRAMES_PER_SECOND
    moments = [0.0] if action is None else [0.0, 0.25 * last, 0.5 * last, 0.75 * last, last]
    joints = np.concatenate([posed(body, motion, support, m)[0] for m in moments])
    axes = axes_looking(0.0, view.elevation, view.roll)
    camera = frame_person(joints, axes, view.distance, size, view.fill, view.shift)
    room = draw_room(draws, look)
    if motion.support == "bed":  # walls stand clear of it
        room[[16, 19]] = np.maximum(room[[16, 19]], 2.0)
    light = draw_light(draws, look)
    palette = body.palette.copy()
    furnish_palette(draws, look, palette)
    things = Things()
    add_furniture(things, draws, look, room)
    blanket = None
    middle = 0.5 * (joints.min(axis=0) + joints.max(axis=0))
    if motion.support == "seat":
        seated = _seated(body, motion)
        top = float(seated[JOINT["pelvis"], 1]) - 0.115
        # drawn in any case: with an aid all else stays as it is without
        add_chair(Things() if aid else things, draws, seated[JOINT["pelvis"]], motion.heading, top)
        if aid:
            add_aid(things, aid, seated, motion.heading, top)
    elif motion.support == "bed":
        blanket = _bed(things, draws, look, body, motion, joints)
    else:
        if aid:
            add_aid(things, aid, posed(body, motion, 0.0, 0.0)[0], motion.heading, 0.0)
        if draws.chance(0.22 if look == "ward" else 0.07):
            add_occluder(things, draws, look)
    return SceneStage(
        body,
        motion,
        camera,
        room,
        light,
        _light_axes(light, middle),
        palette,
        things.array(),
        blanket,
        draw_sensor(draws, look),
        support,
    )


@lru_cache(maxsize=8192)
def wears_gown(look: str, identity: int) -> bool:
    """True if this person wears a hospital gown in this look, in every picture."""
    return Draws(look_index(look), identity, _GOWN_STREAM).chance(GOWNS[look])


def _seated(body: Body, motion: Motion) -> Floats:
    """Joints of the pose in which the person sits."""
    frame = {"sit_down": 1e6, "stand_up": -1e6}.get(motion.action, 0.0)
    return posed(body, motion, 0.0, frame)[0]


def _bed(things: Things, draws: Draws, look: str, body: Body, motion: Motion, joints: Floats) -> Blanket | None:
    yaw = motion.heading
    along = joints[:, 0] * math.sin(yaw) + joints[:, 2] * math.cos(yaw)
    head, foot = float(along.min()) - 0.18, float(along.max()) + 0.16
    recline = 0.0
    if motion.action == "sit_bed":
        spine = joints[JOINT["thorax"]] - joints[JOINT["pelvis"]]
        flat = -(spine[0] * math.sin(yaw) + spine[2] * math.cos(yaw))
        recline = math.atan2(float(spine[1]), max(float(flat), 0.02))
        head = min(head, -0.95)
    add_bed(things, draws, look, (0.0, 0.0), yaw, head, foot, recline)
    if not draws.chance(0.62 if look == "ward" else 0.15):
        return None
    knee = float(along[[JOINT["r_knee"], JOINT["l_knee"]]].min())
    top = draws.weighted({0.75: 1.6, 0.45: 1.4, 0.1: 1.0, -0.25: 0.5})
    start = top * knee if top > 0 else top
    grid = np.array([-0.56, 0.56, start, foot - 0.02])
    bulk = body.bones[BONE["thigh"]] / 0.43 * (1.0 + 2.0 * (body.arm_spread - 0.03))
    skirted = body.attributes["bottom"].endswith(("gown", "dress", "skirt"))
    loose = 0.11 if skirted else 0.03
    return Blanket(np.array([0.0, 0.0, yaw]), grid, BED_HEIGHT[look], bulk, loose)


def _light_axes(light: Floats, middle: Floats) -> Floats:
    """The light's parallel view of the things around `middle`, see `raster.project_light`."""
    x, y, z = (float(v) for v in light[:3])
    flat = math.hypot(x, z) + 1e-9
    ax, az = z / flat, -x / flat  # across: level, at right angles to the light
    down = (-az * y, az * x - ax * z, ax * y)
    return np.array([*middle, ax, 0.0, az, *down, x, y, z, SHADOW_MAP / (2 * _REACH), SHADOW_MAP / 2])
