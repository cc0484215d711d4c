"""Rendering of a person in a room, as a picture with exact labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose_scene.aids import check_aid
from dpose_scene.bedding import COLUMNS, ROWS, add_blanket
from dpose_scene.jit import scene_kernel
from dpose_scene.looks import look_index
from dpose_scene.materials import FIRST_OBJECT
from dpose_scene.mesh import SEGMENT_TABLE, Mesh, add_boxes, empty_mesh, sweep, tube_sizes
from dpose_scene.motion import action_named
from dpose_scene.raster import SAMPLES, fill_quads, project_light, project_vertices
from dpose_scene.room import paint_room
from dpose_scene.sensor import develop
from dpose_scene.shader import shade
from dpose_scene.skeleton import JOINT, KEYPOINT_ROWS
from dpose_scene.stage import SHADOW_MAP, SceneStage, build_stage, posed

Floats = NDArray[np.float64]

_BED_PART, _BOX_PART = 900, 1000
_PALMS = np.array([[JOINT[f"{side}_{name}"] for name in ("wrist", "fingers")] for side in "rl"])
_SOLES = np.array([JOINT[f"{side}_{name}"] for side in "rl" for name in ("toe", "heel")])
ON_FLOOR = 0.1
"""Metres: a foot whose toe and heel are lower stands on the floor."""


@dataclass(frozen=True)
class Scene:
    """A picture of one person, with its labels.

    Attributes:
        image: uint8 (H, W, 3) RGB.
        keypoints: float32 (16, 2) x, y in pixels, MPII's order; the centre of the top-left pixel is (0, 0),
            left and right are the person's own.
        visible: bool (16,): inside the picture and not hidden by a thing in front (bedding, furniture). A
            joint that only the person's own body hides counts as visible, as annotators mark it.
        head_box: float32 (4,) x0, y0, x1, y1 tight around the skull, chin to crown, in pixels.
        mask: bool (H, W): pixels at least half covered by the visible person.
        identity: Number of the person.
        attributes: Description of the person; the same in every picture of this identity and look.
        action: Action of the person.
        frame: Number of the frame.
        aid: One of `AIDS`, or None.
        of_ward: Of the right and the left palm, and of the middle of the soles: float32 (3, 2) and bool (3,), as
            keypoints and visible. The soles' is visible only if both feet stand on the floor.
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
    of_ward: tuple[NDArray[np.float32], NDArray[np.bool_]]
    aid: str | None = None


def _surfaces(stage: SceneStage, joints: Floats, frames: Floats) -> Mesh:
    """The person, the furniture and the bedding."""
    tubes = stage.body.tubes
    vertices, quads = tube_sizes(tubes.tubes)
    vertices, quads = vertices + 24 * len(stage.boxes), quads + 6 * len(stage.boxes)
    if stage.blanket is not None:
        vertices, quads = vertices + ROWS * COLUMNS, quads + (ROWS - 1) * (COLUMNS - 1)
    mesh = empty_mesh(vertices, quads)
    sweep(mesh, tubes.rings, tubes.tubes, SEGMENT_TABLE, joints, frames)
    add_boxes(mesh, stage.boxes, _BOX_PART)
    if stage.blanket is not None:
        add_blanket(mesh, stage.blanket, joints, _BED_PART)
    return mesh


def _draw(stage: SceneStage, size: tuple[int, int], seed: int, frame: int) -> Scene:
    height, width = size
    joints, frames = posed(stage.body, stage.motion, stage.support, frame)
    mesh = _surfaces(stage, joints, frames)
    camera = stage.camera.array()
    screen, sun = np.empty_like(mesh.points), np.empty_like(mesh.points)
    project_vertices(mesh, camera, screen)
    depth = np.zeros((SAMPLES * height, SAMPLES * width), np.float32)
    ids = np.full(depth.shape, -1, np.int32)
    fill_quads(mesh, screen, depth, ids)
    project_light(mesh, stage.light_axes, sun)
    sun_depth = np.zeros((SHADOW_MAP, SHADOW_MAP), np.float32)
    fill_quads(mesh, sun, sun_depth, np.empty((SHADOW_MAP, SHADOW_MAP), np.int32))
    cover = cv2.blur((sun_depth > 0).astype(np.float32), (5, 5))
    radiance = np.empty((height, width, 3), np.float32)
    mask = np.empty((height, width), np.bool_)
    paint_room(camera, stage.room, stage.light, stage.light_axes, cover, ids, radiance)
    shade(mesh, screen, ids, depth, sun, sun_depth, stage.palette, stage.light, camera, radiance, mask)
    palms, soles = (joints[_PALMS].mean(1), joints[_SOLES])
    points = np.concatenate([joints[KEYPOINT_ROWS], palms, soles.mean(0, keepdims=True)])
    pixels, distance = stage.camera.project(points)
    visible = np.empty(len(pixels), np.bool_)
    _visible(pixels, distance, depth, ids, mesh.quads, visible)
    visible[-1] &= bool((soles[:, 1] < ON_FLOOR).all())
    named = len(KEYPOINT_ROWS)
    skull, _ = stage.camera.project(mesh.points[slice(*stage.body.skull)])
    return Scene(
        image=develop(radiance, stage.sensor, _grain_seed(seed, frame)),
        keypoints=pixels[:named].astype(np.float32),
        visible=visible[:named],
        of_ward=(pixels[named:].astype(np.float32), visible[named:]),
        head_box=np.concatenate([skull.min(axis=0), skull.max(axis=0)]).astype(np.float32),
        mask=mask,
        identity=stage.body.identity,
        attributes=dict(stage.body.attributes),
        action=stage.motion.action,
        frame=frame,
    )


def _grain_seed(seed: int, frame: int) -> int:
    """A seed for a frame's sensor noise."""
    return (seed * 0x9E3779B1 + frame * 0x85EBCA77 + 12345) & 0x7FFFFFFF


@scene_kernel
def _visible(
    pixels: Floats,
    distance: Floats,
    depth: NDArray[np.float32],
    ids: NDArray[np.int32],
    quads: NDArray[np.int32],
    visible: NDArray[np.bool_],
) -> None:
    """Flags of joints that are in the picture with no thing in front of them."""
    height, width = depth.shape
    for k in range(len(pixels)):
        x, y = (pixels[k, 0] + 0.5) * SAMPLES, (pixels[k, 1] + 0.5) * SAMPLES
        visible[k] = 0.0 <= x < width and 0.0 <= y < height
        if visible[k]:
            row, column = int(y), int(x)
            number = ids[row, column]
            thing = number >= 0 and quads[number >> 1, 2] >= FIRST_OBJECT
            visible[k] = not (thing and depth[row, column] * distance[k] > 1.0)


def _check(
    look: str,
    seed: int,
    size: tuple[int, int],
    identity: int | None,
    action: str | None,
    frame: int,
    aid: str | None = None,
) -> None:
    look_index(look)
    if action is not None:
        action_named(action)
    if aid is not None:
        check_aid(aid, action_named(action).support if action else "drawn action")
    if seed < 0:
        raise DposeError("seed-negative", f"negative seed {seed}", "seed", "use 0 or more")
    if len(size) != 2 or not all(16 <= n <= 2048 for n in size):
        raise DposeError(
            "size-out-of-range", f"cannot render {size}", "size", "give (height, width) between 16 and 2048 pixels"
        )
    if identity is not None and identity < 0:
        raise DposeError("identity-negative", f"negative identity {identity}", "identity", "use 0 or more")
    if frame < 0:
        raise DposeError("frame-negative", f"negative frame {frame}", "frame", "use 0 or more")


def render_person(
    look: str,
    seed: int,
    size: tuple[int, int] = (128, 96),
    identity: int | None = None,
    action: str | None = None,
    frame: int = 0,
    aid: str | None = None,
) -> Scene:
    """Render one person; the same arguments give the same picture.

    Args:
        look: `studio` or `ward`.
        seed: Seed of the scene: room, light, camera, pose, and the identity unless `identity` is given.
        size: (height, width) in pixels.
        identity: Number of the person, >= 0; by default one of the people that the seed's split may show.
        action: One of `ACTIONS`, from its beginning; by default the seed draws one, and a moment of it.
        frame: Frames since then, twelve a second. Everything but the person stands still.
        aid: One of `AIDS`, for an action of those who use it; all else stays as it is without.
    """
    _check(look, seed, size, identity, action, frame, aid)
    scene = _draw(build_stage(look, seed, size, identity, action, aid), size, seed, frame)
    return replace(scene, aid=aid)


def moments(look: str, seed: int, action: str, frames: Iterable[int], size: tuple[int, int]) -> Iterator[Scene]:
    """One person's action in one room at any frames, twelve a second; before frame 0 an action has not begun."""
    _check(look, seed, size, None, action, 0)
    stage = build_stage(look, seed, size, None, action)
    for frame in frames:
        yield _draw(stage, size, seed, frame)


def clip(
    look: str,
    seed: int,
    action: str | None,
    frames: int,
    size: tuple[int, int] = (128, 96),
    identity: int | None = None,
) -> list[Scene]:
    """A short film: `frames` frames of one person's action in one room; each equals `render_person` with that frame."""
    _check(look, seed, size, identity, action, 0)
    if frames < 1:
        raise DposeError("frames-not-positive", f"a clip of {frames} frames", "frames", "ask for at least one")
    stage = build_stage(look, seed, size, identity, action)
    return [_draw(stage, size, seed, frame) for frame in range(frames)]
