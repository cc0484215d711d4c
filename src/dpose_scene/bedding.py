"""Bedding: a blanket that takes the shape of the body under it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import scene_kernel
from dpose_scene.materials import BLANKET
from dpose_scene.mesh import Mesh, add_cloth
from dpose_scene.skeleton import JOINT

Floats = NDArray[np.float64]

_DRAPED = np.array(
    [
        (JOINT[a], JOINT[b], r)
        for a, b, r in (
            ("r_hip", "r_knee", 0.085),
            ("l_hip", "l_knee", 0.085),
            ("r_knee", "r_ankle", 0.055),
            ("l_knee", "l_ankle", 0.055),
            ("r_ankle", "r_toe", 0.08),
            ("l_ankle", "l_toe", 0.08),
            ("r_hip", "l_hip", 0.12),
            ("pelvis", "lumbar", 0.125),
            ("lumbar", "thorax", 0.13),
        )
    ]
)


@scene_kernel
def _drape(
    joints: Floats, bones: Floats, grid: Floats, frame: Floats, base: float, scale: float, loose: float, heights: Floats
) -> None:
    rows, columns = heights.shape
    cy, sy = math.cos(frame[2]), math.sin(frame[2])
    for r in range(rows):
        lz = grid[2] + (grid[3] - grid[2]) * r / (rows - 1)
        for c in range(columns):
            lx = grid[0] + (grid[1] - grid[0]) * c / (columns - 1)
            x, z = frame[0] + cy * lx + sy * lz, frame[1] - sy * lx + cy * lz
            best = base + 0.012
            for k in range(bones.shape[0]):
                a, b, radius = int(bones[k, 0]), int(bones[k, 1]), bones[k, 2] * scale + loose
                ax, az, bx, bz = joints[a, 0], joints[a, 2], joints[b, 0], joints[b, 2]
                ex, ez = bx - ax, bz - az
                t = ((x - ax) * ex + (z - az) * ez) / (ex * ex + ez * ez + 1e-9)
                t = min(max(t, 0.0), 1.0)
                y = joints[a, 1] + t * (joints[b, 1] - joints[a, 1])
                d = math.sqrt((x - ax - t * ex) ** 2 + (z - az - t * ez) ** 2)
                h = (
                    y + math.sqrt(radius * radius - d * d)
                    if d < radius * 0.8
                    else y + 0.6 * radius - 0.9 * (d - radius * 0.8)
                )
                best = max(best, h)
            heights[r, c] = best


@dataclass(frozen=True)
class Blanket:
    """Bedding over part of a lying person.

    Attributes:
        frame: (3,) x, z and yaw of the bed.
        grid: (4,) half widths and ends, see `mesh.add_cloth`.
        base: Height of the mattress, metres.
        scale: Body size.
        loose: How far clothes stand off the body, metres.
    """

    frame: Floats
    grid: Floats
    base: float
    scale: float
    loose: float


ROWS, COLUMNS = 22, 19
"""Points of a blanket's grid."""


def add_blanket(mesh: Mesh, blanket: Blanket, joints: Floats, part: int) -> None:
    """Append the blanket as it lies over a body in a pose."""
    heights = np.empty((ROWS, COLUMNS))
    _drape(joints, _DRAPED, blanket.grid, blanket.frame, blanket.base, blanket.scale, blanket.loose, heights)
    add_cloth(mesh, heights, blanket.grid, blanket.frame, BLANKET, part)
