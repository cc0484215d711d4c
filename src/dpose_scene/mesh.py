"""Surfaces: grids of points swept along the skeleton, boxes, and draped cloth, in one buffer of quads.

Everything visible is a *patch*: a grid of rows x columns of points whose cells are quads. A limb is a patch
whose rows are elliptical rings; a box is six patches of one cell; a blanket is a height field.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import scene_kernel
from dpose_scene.skeleton import FRAME, JOINT

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

SEGMENTS: dict[str, int] = {}
"""Names of the stretches of the body that rings are placed on."""


def _segment_table() -> Ints:
    rows = {
        "pelvis": ("pelvis", "lumbar", "pelvis"),
        "abdomen": ("lumbar", "thorax", "abdomen"),
        "chest": ("thorax", "thorax", "chest"),
        "neck": ("thorax", "upper_neck", "neck"),
        "head": ("upper_neck", "upper_neck", "head"),
    }
    for s in "rl":
        rows |= {
            f"{s}_girdle": ("thorax", f"{s}_shoulder", "chest"),
            f"{s}_upper_arm": (f"{s}_shoulder", f"{s}_elbow", f"{s}_upper_arm"),
            f"{s}_forearm": (f"{s}_elbow", f"{s}_wrist", f"{s}_forearm"),
            f"{s}_hand": (f"{s}_wrist", f"{s}_fingers", f"{s}_hand"),
            f"{s}_hip": ("pelvis", f"{s}_hip", "pelvis"),
            f"{s}_thigh": (f"{s}_hip", f"{s}_knee", f"{s}_thigh"),
            f"{s}_shank": (f"{s}_knee", f"{s}_ankle", f"{s}_shank"),
            f"{s}_foot": (f"{s}_ankle", f"{s}_ankle", f"{s}_foot"),
        }
    table = np.array([(JOINT[a], JOINT[b], FRAME[f]) for a, b, f in rows.values()], np.int32)
    SEGMENTS.update({name: i for i, name in enumerate(rows)})
    SEGMENTS["skirt"] = len(rows)  # between both thighs
    SEGMENTS["hem"] = len(rows) + 1  # between both shanks
    return table


SEGMENT_TABLE: Ints = _segment_table()

UP, FORWARD = 1, 2
"""Axes of the segment's frame for a ring's second radius."""


class Ring(NamedTuple):
    """One elliptical cross-section, placed on a segment of the body.

    Attributes:
        segment: One of `SEGMENTS`.
        t: Position along it, 0 at its first joint and 1 at its second.
        x: Offset to the left in the segment's frame, metres; `y` up and `z` forward likewise.
        y: See `x`.
        z: See `x`.
        across: Radius at right angles to `towards`, metres.
        along: Radius in the direction `towards`, metres.
        material: Row of the palette.
        v: Texture coordinate along the tube, metres.
        towards: `UP` or `FORWARD`.
    """

    segment: str
    t: float
    x: float
    y: float
    z: float
    across: float
    along: float
    material: int
    v: float
    towards: int = FORWARD


class Tubes(NamedTuple):
    """The rings of a body as arrays: what `sweep` reads.

    Attributes:
        rings: (R, 10) float64, a `Ring` a row, its segment by number.
        tubes: (T, 4) int32: first ring, rings, sides, part.
    """

    rings: Floats
    tubes: Ints


def pack_tubes(tubes: list[tuple[list[Ring], int]], first_part: int = 1) -> Tubes:
    """Make the arrays of a list of (rings, sides)."""
    rows = [(SEGMENTS[r.segment], *r[1:]) for rings, _ in tubes for r in rings]
    table, start = [], 0
    for part, (rings, sides) in enumerate(tubes):
        table.append((start, len(rings), sides, first_part + part))
        start += len(rings)
    return Tubes(np.array(rows, np.float64), np.array(table, np.int32).reshape(-1, 4))


class Mesh(NamedTuple):
    """The buffers of a scene's surfaces; `sizes` holds how many vertices and quads are in use.

    Attributes:
        points: (V, 3) world positions, metres.
        normals: (V, 3).
        uv: (V, 2) texture coordinates.
        quads: (Q, 5) int32: first vertex, columns of its patch, material, part, two-sided.
        sizes: (2,) int64.
    """

    points: Floats
    normals: Floats
    uv: Floats
    quads: Ints
    sizes: NDArray[np.int64]


def tube_sizes(tubes: Ints) -> tuple[int, int]:
    """Numbers of vertices and quads that `sweep` appends for `tubes` (T, 4)."""
    rings, sides = tubes[:, 1], tubes[:, 2]
    return int((rings * (sides + 1)).sum()), int(((rings - 1) * sides).sum())


def empty_mesh(vertices: int, quads: int) -> Mesh:
    """Allocate empty buffers of this size; the kernels that append do not check it."""
    return Mesh(
        np.empty((vertices, 3)),
        np.empty((vertices, 3)),
        np.empty((vertices, 2)),
        np.empty((quads, 5), np.int32),
        np.zeros(2, np.int64),
    )


@scene_kernel
def _patch_quads(mesh: Mesh, start: int, rows: int, columns: int, material: int, part: int, two: int) -> None:
    q = mesh.sizes[1]
    for r in range(rows - 1):
        for c in range(columns - 1):
            mesh.quads[q, 0] = start + r * columns + c
            mesh.quads[q, 1] = columns
            mesh.quads[q, 2] = material
            mesh.quads[q, 3] = part
            mesh.quads[q, 4] = two
            q += 1
    mesh.sizes[1] = q
    mesh.sizes[0] = start + rows * columns


@scene_kernel
def _patch_normals(mesh: Mesh, start: int, rows: int, columns: int, closed: bool, centres: Floats) -> None:
    """Normals of a grid by central differences; `centres` (rows, 3) determine a closed tube's outside."""
    p = mesh.points
    for r in range(rows):
        above, below = min(r + 1, rows - 1), max(r - 1, 0)
        for c in range(columns):
            left, right = c - 1, c + 1
            if closed:
                left = columns - 2 if c == 0 else left
                right = 1 if c == columns - 1 else right
            else:
                left, right = max(left, 0), min(right, columns - 1)
            i = start + r * columns + c
            a, b = start + r * columns + right, start + r * columns + left
            d, e = start + above * columns + c, start + below * columns + c
            ux, uy, uz = p[a, 0] - p[b, 0], p[a, 1] - p[b, 1], p[a, 2] - p[b, 2]
            vx, vy, vz = p[d, 0] - p[e, 0], p[d, 1] - p[e, 1], p[d, 2] - p[e, 2]
            nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
            if closed:
                ox, oy, oz = p[i, 0] - centres[r, 0], p[i, 1] - centres[r, 1], p[i, 2] - centres[r, 2]
                if nx * ox + ny * oy + nz * oz < 0.0:
                    nx, ny, nz = -nx, -ny, -nz
            n = 1.0 / math.sqrt(nx * nx + ny * ny + nz * nz + 1e-18)
            mesh.normals[i, 0], mesh.normals[i, 1], mesh.normals[i, 2] = nx * n, ny * n, nz * n


@scene_kernel
def sweep(mesh: Mesh, rings: Floats, tubes: Ints, segments: Ints, joints: Floats, frames: Floats) -> None:
    """Append the surface of every tube of a body in a pose.

    Args:
        mesh: Written.
        rings: (R, 10), see `Tubes`.
        tubes: (T, 4), see `Tubes`.
        segments: `SEGMENT_TABLE`.
        joints: (23, 3) from forward kinematics.
        frames: (17, 3, 3) from forward kinematics.
    """
    hips = 0.5 * (joints[13] + joints[18])
    knees = 0.5 * (joints[14] + joints[19])
    ankles = 0.5 * (joints[15] + joints[20])
    for tube in range(tubes.shape[0]):
        first, count, sides, part = tubes[tube, 0], tubes[tube, 1], tubes[tube, 2], tubes[tube, 3]
        centres, towards, wide = np.empty((count, 3)), np.empty((count, 3)), np.zeros(count)
        for k in range(count):
            ring = rings[first + k]
            segment, t, axis = int(ring[0]), ring[1], int(ring[9])
            if segment < segments.shape[0]:
                a, b, f = segments[segment, 0], segments[segment, 1], segments[segment, 2]
                for i in range(3):
                    centres[k, i] = (
                        joints[a, i]
                        + t * (joints[b, i] - joints[a, i])
                        + frames[f, i, 0] * ring[2]
                        + frames[f, i, 1] * ring[3]
                        + frames[f, i, 2] * ring[4]
                    )
                    towards[k, i] = frames[f, i, axis]
            else:  # a skirt: its rings hold both legs, so they widen with the distance between them
                below = segment - segments.shape[0]
                side = np.empty(3)
                for i in range(3):
                    if below == 0:
                        centres[k, i] = hips[i] + t * (knees[i] - hips[i])
                        side[i] = (1.0 - t) * (joints[18, i] - joints[13, i]) + t * (joints[19, i] - joints[14, i])
                    else:
                        centres[k, i] = knees[i] + t * (ankles[i] - knees[i])
                        side[i] = (1.0 - t) * (joints[19, i] - joints[14, i]) + t * (joints[20, i] - joints[15, i])
                wide[k] = 0.5 * math.sqrt(side[0] ** 2 + side[1] ** 2 + side[2] ** 2)
                axial = knees - hips if below == 0 else ankles - knees
                towards[k, 0] = axial[1] * side[2] - axial[2] * side[1]
                towards[k, 1] = axial[2] * side[0] - axial[0] * side[2]
                towards[k, 2] = axial[0] * side[1] - axial[1] * side[0]
                sign = 0.0
                for i in range(3):
                    sign += towards[k, i] * (frames[11, i, 2] + frames[14, i, 2])
                if sign < 0:
                    for i in range(3):
                        towards[k, i] = -towards[k, i]
        start, columns = mesh.sizes[0], sides + 1
        for k in range(count):
            ring = rings[first + k]
            lo, hi = max(k - 1, 0), min(k + 1, count - 1)
            tx, ty, tz = (
                centres[hi, 0] - centres[lo, 0],
                centres[hi, 1] - centres[lo, 1],
                centres[hi, 2] - centres[lo, 2],
            )
            n = 1.0 / math.sqrt(tx * tx + ty * ty + tz * tz + 1e-18)
            tx, ty, tz = tx * n, ty * n, tz * n
            bx, by, bz = towards[k, 0], towards[k, 1], towards[k, 2]
            d = bx * tx + by * ty + bz * tz
            bx, by, bz = bx - d * tx, by - d * ty, bz - d * tz
            n = 1.0 / math.sqrt(bx * bx + by * by + bz * bz + 1e-18)
            bx, by, bz = bx * n, by * n, bz * n
            ax, ay, az = by * tz - bz * ty, bz * tx - bx * tz, bx * ty - by * tx
            across, along = ring[5] + wide[k], ring[6]
            for c in range(columns):
                angle = 2.0 * math.pi * c / sides
                ca, sa = across * math.cos(angle), along * math.sin(angle)
                i = start + k * columns + c
                mesh.points[i, 0] = centres[k, 0] + ca * ax + sa * bx
                mesh.points[i, 1] = centres[k, 1] + ca * ay + sa * by
                mesh.points[i, 2] = centres[k, 2] + ca * az + sa * bz
                mesh.uv[i, 0] = c / sides
                mesh.uv[i, 1] = ring[8]
        q = mesh.sizes[1]
        _patch_quads(mesh, start, count, columns, 0, part, 0)
        for k in range(count - 1):  # a band has the material of the ring it starts from
            for _ in range(sides):
                mesh.quads[q, 2] = int(rings[first + k, 7])
                q += 1
        _patch_normals(mesh, start, count, columns, True, centres)


@scene_kernel
def add_boxes(mesh: Mesh, boxes: Floats, first_part: int) -> None:
    """Append boxes, each a row: centre (3), half sizes (3), yaw, tilt about its own x axis, material."""
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
    for k in range(boxes.shape[0]):
        box = boxes[k]
        cy, sy, cx, sx = math.cos(box[6]), math.sin(box[6]), math.cos(box[7]), math.sin(box[7])
        turn = np.array([[cy, sy * sx, sy * cx], [0.0, cx, -sx], [-sy, cy * sx, cy * cx]])
        for face in range(6):
            axis, sign = face // 2, 1.0 - 2.0 * (face % 2)
            a, b = (axis + 1) % 3, (axis + 2) % 3
            if sign < 0:  # swap the in-plane axes so that the outside is always the same way round
                a, b = b, a
            start = mesh.sizes[0]
            for c in range(4):
                local = np.zeros(3)
                local[axis] = sign * box[3 + axis]
                local[a] = corners[c, 0] * box[3 + a]
                local[b] = corners[c, 1] * box[3 + b]
                for i in range(3):
                    mesh.points[start + c, i] = (
                        box[i] + turn[i, 0] * local[0] + turn[i, 1] * local[1] + turn[i, 2] * local[2]
                    )
                    mesh.normals[start + c, i] = sign * turn[i, axis]
                level = 1 if a == 1 else 0
                mesh.uv[start + c, 0] = local[b] if level == 1 else local[a]
                mesh.uv[start + c, 1] = local[a] if level == 1 else local[b]
            _patch_quads(mesh, start, 2, 2, int(box[8]), first_part + 6 * k + face, 0)


@scene_kernel
def add_cloth(mesh: Mesh, heights: Floats, grid: Floats, frame: Floats, material: int, part: int) -> None:
    """Append a cloth that lies on things: a height field over a turned rectangle.

    Args:
        mesh: Written.
        heights: (rows, columns) world heights, metres.
        grid: (4,) x0, x1, z0, z1 of the rectangle in its own axes: columns go from x0 to x1, rows from z0
            to z1.
        frame: (3,) x, z of the rectangle's origin in the world, and its yaw.
        material: Row of the palette.
        part: Number of the part.
    """
    rows, columns = heights.shape
    start = mesh.sizes[0]
    cy, sy = math.cos(frame[2]), math.sin(frame[2])
    for r in range(rows):
        z = grid[2] + (grid[3] - grid[2]) * r / (rows - 1)
        for c in range(columns):
            x = grid[0] + (grid[1] - grid[0]) * c / (columns - 1)
            i = start + r * columns + c
            mesh.points[i, 0] = frame[0] + cy * x + sy * z
            mesh.points[i, 1] = heights[r, c]
            mesh.points[i, 2] = frame[1] - sy * x + cy * z
            mesh.uv[i, 0], mesh.uv[i, 1] = x, z
    _patch_quads(mesh, start, rows, columns, material, part, 1)
    _patch_normals(mesh, start, rows, columns, False, heights)
    for i in range(start, start + rows * columns):
        if mesh.normals[i, 1] < 0:
            for k in range(3):
                mesh.normals[i, k] = -mesh.normals[i, k]
