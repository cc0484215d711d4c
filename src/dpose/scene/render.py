"""The front door: one person in one room, as a picture with exact labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.scene.background import (
    BED_HEIGHT,
    Blanket,
    Things,
    add_bed,
    add_blanket,
    add_boxes,
    add_chair,
    add_furniture,
    add_occluder,
    draw_room,
    furnish_palette,
)
from dpose.scene.body import Body, body_of
from dpose.scene.camera import Camera, axes_looking, frame_person
from dpose.scene.draws import Draws
from dpose.scene.looks import (
    ACTION_WEIGHTS,
    GOWNS,
    Sensor,
    draw_light,
    draw_sensor,
    draw_view,
    develop,
    look_index,
)
from dpose.scene.materials import FIRST_OBJECT
from dpose.scene.mesh import SEGMENT_TABLE, empty_mesh, sweep
from dpose.scene.poses import FRAMES_PER_SECOND, Motion, action_named, draw_motion
from dpose.scene.raster import SAMPLES, fill, project, project_light
from dpose.scene.room import paint_room
from dpose.scene.shader import shade
from dpose.scene.skeleton import BONE, JOINT, KEYPOINT_ROWS, place
from dpose.scene.splits import people_of

Floats = NDArray[np.float64]

_SHADOW_MAP = 80
_REACH = 1.45  # metres around the person that the shadow map covers
_BED_PART, _BOX_PART = 900, 1000


@dataclass(frozen=True)
class Scene:
    """A picture of one person, with its labels.

    Attributes:
        image: uint8 (H, W, 3) RGB.
        keypoints: float32 (16, 2) x, y in pixels, MPII's order; the centre of the top-left pixel is (0, 0), left and
            right are the person's own.
        visible: bool (16,): inside the picture and not hidden by a thing in front (bedding, furniture). A joint that
            only the person's own body hides counts as visible, as annotators mark it.
        head_box: float32 (4,) x0, y0, x1, y1 tight around the skull, chin to crown, in pixels.
        mask: bool (H, W): pixels at least half covered by the visible person.
        identity: Who it is.
        attributes: What a witness would say; the same in every picture of this identity and look.
        action: What the person does.
        frame: Which frame of it.
    """

    image: NDArray[np.uint8]
    keypoints: NDArray[np.float32]
    visible: NDArray[np.bool_]
    head_box: NDArray[np.float32]
    mask: NDArray[np.bool_]
    identity: int
    attributes: dict[str, str]
    action: str
    frame: int


@dataclass(frozen=True)
class _Stage:
    """All of a scene that does not change from frame to frame."""

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
    anchor: Floats


def _posed(stage_body: Body, motion: Motion, support: float, frame: float) -> tuple[Floats, Floats]:
    """Joints and frames; the feet (on a bed the pelvis) stay where they are while the body moves over them."""
    joints, frames = place(motion.at(frame), stage_body.bones, support)
    if motion.support == "bed":
        foot = joints[JOINT["pelvis"]].copy()
    else:
        foot = 0.5 * (joints[JOINT["r_ankle"]] + joints[JOINT["l_ankle"]])
    joints[:, 0] -= foot[0]
    joints[:, 2] -= foot[2]
    return joints, frames


def _stage(look: str, seed: int, size: tuple[int, int], identity: int | None, action: str | None) -> _Stage:
    number = look_index(look)
    draws = Draws(number, seed)
    people = people_of(seed)
    drawn = people[draws.integer(len(people))]
    who = drawn if identity is None else identity
    gown = Draws(number, who, 77).chance(GOWNS[look])
    body = body_of(who, gown)
    chosen = draws.weighted(ACTION_WEIGHTS[look])
    name = chosen if action is None else action
    view = draw_view(draws, look, action_named(name).support)
    motion = draw_motion(draws, name, view.heading, action is None, body.arm_spread)
    support = BED_HEIGHT[look] if motion.support == "bed" else 0.0
    # the camera frames the moment of a still, or the whole of an action that was asked for
    last = motion.seconds * FRAMES_PER_SECOND
    moments = [0.0] if action is None else [0.0, 0.25 * last, 0.5 * last, 0.75 * last, last]
    joints = np.concatenate([_posed(body, motion, support, m)[0] for m in moments])
    axes = axes_looking(0.0, view.elevation, view.roll)
    camera = frame_person(joints, axes, view.distance, size, view.fill, view.shift)
    room = draw_room(draws, look)
    light = draw_light(draws, look)
    palette = body.palette.copy()
    furnish_palette(draws, look, palette)
    things = Things()
    add_furniture(things, draws, look, room)
    blanket = None
    middle = 0.5 * (joints.min(axis=0) + joints.max(axis=0))
    if motion.support == "seat":
        seated = _seated(body, motion)
        add_chair(things, draws, seated[JOINT["pelvis"]], motion.heading, float(seated[JOINT["pelvis"], 1]) - 0.115)
    elif motion.support == "bed":
        blanket = _bed(things, draws, look, body, motion, joints)
    elif draws.chance(0.22 if look == "ward" else 0.07):
        add_occluder(things, draws, look)
    return _Stage(
        body, motion, camera, room, light, _light_axes(light, middle), palette, things.array(), blanket,
        draw_sensor(draws, look), support, middle,
    )  # fmt: skip


def _seated(body: Body, motion: Motion) -> Floats:
    """Joints of the pose in which the person sits."""
    frame = {"sit_down": 1e6, "stand_up": -1e6}.get(motion.action, 0.0)
    return _posed(body, motion, 0.0, frame)[0]


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
    grid = np.array([-0.50, 0.50, start, foot - 0.02])
    return Blanket(np.array([0.0, 0.0, yaw]), grid, BED_HEIGHT[look], body.bones[BONE["thigh"]] / 0.43)


def _light_axes(light: Floats, middle: Floats) -> Floats:
    towards = light[:3]
    across = np.array([towards[2], 0.0, -towards[0]])
    across /= np.linalg.norm(across) + 1e-9
    down = np.array(
        [
            across[1] * towards[2] - across[2] * towards[1],
            across[2] * towards[0] - across[0] * towards[2],
            across[0] * towards[1] - across[1] * towards[0],
        ]
    )
    return np.concatenate([middle, across, down, towards, [_SHADOW_MAP / (2 * _REACH), _SHADOW_MAP / 2]])


def _draw(stage: _Stage, size: tuple[int, int], seed: int, frame: int) -> Scene:
    height, width = size
    joints, frames = _posed(stage.body, stage.motion, stage.support, frame)
    mesh = empty_mesh()
    tubes = stage.body.tubes
    sweep(mesh, tubes.rings, tubes.tubes, SEGMENT_TABLE, joints, frames)
    sides = 14
    if len(stage.boxes):
        add_boxes(mesh, stage.boxes, _BOX_PART)
    if stage.blanket is not None:
        add_blanket(mesh, stage.blanket, joints, _BED_PART)
    camera = stage.camera.array()
    screen, sun = np.empty_like(mesh.points), np.empty_like(mesh.points)
    project(mesh, camera, screen)
    depth = np.zeros((SAMPLES * height, SAMPLES * width), np.float32)
    ids = np.full(depth.shape, -1, np.int32)
    fill(mesh, screen, True, depth, ids)
    project_light(mesh, stage.light_axes, sun)
    sun_depth = np.zeros((_SHADOW_MAP, _SHADOW_MAP), np.float32)
    fill(mesh, sun, True, sun_depth, np.empty((_SHADOW_MAP, _SHADOW_MAP), np.int32))
    cover = cv2.blur((sun_depth > 0).astype(np.float32), (5, 5))
    linear_image = np.empty((height, width, 3), np.float32)
    mask = np.empty((height, width), np.bool_)
    paint_room(camera, stage.room, stage.light, stage.light_axes, cover, linear_image)
    shade(mesh, screen, ids, sun, sun_depth, stage.palette, stage.light, camera, linear_image, mask)
    image = develop(linear_image, stage.sensor, hash_frame(seed, frame))
    pixels, distance = stage.camera.project(joints[KEYPOINT_ROWS])
    first, count = stage.body.skull
    skull = screen[_skull_rows(tubes.tubes, first, count, sides)][:, :2]
    skull = (skull + 0.5) / SAMPLES - 0.5
    box = np.concatenate([skull.min(axis=0), skull.max(axis=0)]).astype(np.float32)
    visible = _visible(pixels, distance, depth, ids, mesh.quads, size)
    return Scene(
        image, pixels.astype(np.float32), visible, box, mask, stage.body.identity, dict(stage.body.attributes),
        stage.motion.action, frame,
    )  # fmt: skip


def _skull_rows(tubes: NDArray[np.int32], first: int, count: int, sides: int) -> slice:
    """The vertices of the tube whose first ring is `first`."""
    start = 0
    for ring, rings, around, _ in tubes:
        if ring == first:
            return slice(start, start + count * (sides + 1))
        start += int(rings) * (int(around) + 1)
    raise AssertionError("the skull is one of the body's tubes")


def hash_frame(seed: int, frame: int) -> int:
    """A seed for a frame's sensor noise."""
    return (seed * 0x9E3779B1 + frame * 0x85EBCA77 + 12345) & 0x7FFFFFFF


def _visible(
    pixels: Floats, distance: Floats, depth: NDArray[np.float32], ids: NDArray[np.int32], quads: NDArray[np.int32],
    size: tuple[int, int],
) -> NDArray[np.bool_]:  # fmt: skip
    """Which joints are in the picture with no thing in front of them."""
    height, width = size
    visible = np.zeros(len(pixels), np.bool_)
    for k, (x, y) in enumerate(pixels):
        if not (-0.5 <= x < width - 0.5 and -0.5 <= y < height - 0.5):
            continue
        row, column = int((y + 0.5) * SAMPLES), int((x + 0.5) * SAMPLES)
        number = ids[row, column]
        thing = number >= 0 and quads[number // 2, 2] >= FIRST_OBJECT
        visible[k] = not (thing and depth[row, column] * distance[k] > 1.0)
    return visible


def _check(look: str, seed: int, size: tuple[int, int], identity: int | None, action: str | None, frame: int) -> None:
    look_index(look)
    if action is not None:
        action_named(action)
    if seed < 0:
        raise DposeError(f"negative seed {seed}", "seed", "use 0 or more")
    if len(size) != 2 or not all(16 <= n <= 2048 for n in size):
        raise DposeError(f"cannot render {size}", "size", "give (height, width) between 16 and 2048 pixels")
    if identity is not None and identity < 0:
        raise DposeError(f"negative identity {identity}", "identity", "use 0 or more")
    if frame < 0:
        raise DposeError(f"negative frame {frame}", "frame", "use 0 or more")


def render(
    look: str,
    seed: int,
    size: tuple[int, int] = (128, 96),
    identity: int | None = None,
    action: str | None = None,
    frame: int = 0,
) -> Scene:
    """Render one person; the same arguments give the same picture.

    Args:
        look: `studio` or `ward`.
        seed: Names the scene: room, light, camera, pose, and who it is unless `identity` says so.
        size: (height, width) in pixels.
        identity: Who it is, >= 0; by default one of the people the seed's split may show.
        action: One of `ACTIONS`, from its beginning; by default the seed draws one, and a moment of it.
        frame: Frames since then, twelve a second. Everything but the person stands still.

    Raises:
        DposeError: unknown look or action, a negative number, or a size outside 16 to 2048.
    """
    _check(look, seed, size, identity, action, frame)
    return _draw(_stage(look, seed, size, identity, action), size, seed, frame)


def clip(
    look: str,
    seed: int,
    action: str | None,
    frames: int,
    size: tuple[int, int] = (128, 96),
    identity: int | None = None,
) -> list[Scene]:
    """A short film: `frames` frames of one person's action in one room; each equals `render` with that frame.

    Raises:
        DposeError: as `render`, or `frames` is not positive.
    """
    _check(look, seed, size, identity, action, 0)
    if frames < 1:
        raise DposeError(f"a clip of {frames} frames", "frames", "ask for at least one")
    stage = _stage(look, seed, size, identity, action)
    return [_draw(stage, size, seed, frame) for frame in range(frames)]
