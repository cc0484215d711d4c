"""From surfaces to samples: projection and a z-buffer of triangle numbers, four samples a pixel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import inlined, scene_kernel
from dpose_scene.mesh import Mesh

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int32]

SAMPLES = 2
"""Samples along each side of a pixel."""

NEAR = 0.25
"""Triangles with a corner closer to the camera than this are dropped, metres."""


@scene_kernel
def project_vertices(mesh: Mesh, camera: Floats, screen: Floats) -> None:
    """Screen position of every vertex, in samples, and its closeness 1 / depth (0 behind the camera).

    Args:
        mesh: Read.
        camera: (15,) position (3), rotation rows right, down, forward (9), focal length, cx, cy in pixels.
        screen: (V, 3), written.
    """
    for i in range(mesh.sizes[0]):
        x = mesh.points[i, 0] - camera[0]
        y = mesh.points[i, 1] - camera[1]
        z = mesh.points[i, 2] - camera[2]
        depth = camera[9] * x + camera[10] * y + camera[11] * z
        if depth < NEAR:
            screen[i, 2] = 0.0
            continue
        closeness = 1.0 / depth
        u = (camera[3] * x + camera[4] * y + camera[5] * z) * closeness * camera[12] + camera[13]
        v = (camera[6] * x + camera[7] * y + camera[8] * z) * closeness * camera[12] + camera[14]
        screen[i, 0] = (u + 0.5) * SAMPLES - 0.5
        screen[i, 1] = (v + 0.5) * SAMPLES - 0.5
        screen[i, 2] = closeness


@scene_kernel
def project_light(mesh: Mesh, light: Floats, screen: Floats) -> None:
    """Project vertices in the light's parallel view: texels, and height towards the light.

    Args:
        mesh: Read.
        light: (14,) centre (3), axes across, down, towards the light (9), texels a metre, half the map in
            texels.
        screen: (V, 3), written.
    """
    for i in range(mesh.sizes[0]):
        x = mesh.points[i, 0] - light[0]
        y = mesh.points[i, 1] - light[1]
        z = mesh.points[i, 2] - light[2]
        screen[i, 0] = (light[3] * x + light[4] * y + light[5] * z) * light[12] + light[13]
        screen[i, 1] = (light[6] * x + light[7] * y + light[8] * z) * light[12] + light[13]
        screen[i, 2] = light[9] * x + light[10] * y + light[11] * z + 100.0  # positive: 0 means empty


_SLACK = 1e-6  # samples; a sample on the edge between two triangles belongs to both rather than to neither


@inlined
def _clip(value: float, inverse: float, low: float, high: float) -> tuple[float, float]:
    """The part of [low, high] where value + x / inverse >= 0."""
    root = -value * inverse
    if inverse > 0.0:
        low = max(low, root)
    else:
        high = min(high, root)
    return low, high


@scene_kernel
def fill_quads(mesh: Mesh, screen: Floats, depth: Singles, ids: Ints) -> None:
    """Draw every quad that faces the view or is two-sided: the closest triangle of each sample.

    Args:
        mesh: Read; triangle k of quad q has number 2 q + k.
        screen: (V, 3) from `project_vertices`; larger third coordinate is closer.
        depth: (h, w), written: closeness; must come zeroed.
        ids: (h, w), written: triangle numbers; must come filled with -1.
    """
    height, width = depth.shape
    for q in range(mesh.sizes[1]):
        v0, columns, two = mesh.quads[q, 0], mesh.quads[q, 1], mesh.quads[q, 4]
        for k in range(2):
            a = v0 + k
            b = v0 + 1 + k * columns
            c = v0 + columns
            az, bz, cz = screen[a, 2], screen[b, 2], screen[c, 2]
            if az <= 0.0 or bz <= 0.0 or cz <= 0.0:
                continue
            ax, ay = screen[a, 0], screen[a, 1]
            bx, by, cx, cy = screen[b, 0] - ax, screen[b, 1] - ay, screen[c, 0] - ax, screen[c, 1] - ay
            area = bx * cy - cx * by
            if two == 0 and area >= 0.0:
                continue
            if abs(area) < 1e-9:
                continue
            left = max(math.ceil(ax + min(0.0, min(bx, cx))), 0)
            right = min(math.floor(ax + max(0.0, max(bx, cx))), width - 1)
            top = max(math.ceil(ay + min(0.0, min(by, cy))), 0)
            bottom = min(math.floor(ay + max(0.0, max(by, cy))), height - 1)
            if left > right or top > bottom:
                continue
            inverse = 1.0 / area
            b_x, b_y, c_x, c_y = cy * inverse, -cx * inverse, -by * inverse, bx * inverse
            dz_b, dz_c = bz - az, cz - az
            number = 2 * q + k
            a_x = -b_x - c_x
            dz = b_x * dz_b + c_x * dz_c
            # 1 / slope of each barycentric coordinate along a row; a level edge gets a huge one
            b_run, c_run, a_run = 1.0 / (b_x + 1e-12), 1.0 / (c_x + 1e-12), 1.0 / (a_x + 1e-12)
            for y in range(top, bottom + 1):
                py, px = y - ay, left - ax
                wb = px * b_x + py * b_y
                wc = px * c_x + py * c_y
                z = az + wb * dz_b + wc * dz_c
                # where the row enters and leaves the triangle
                low, high = _clip(wb, b_run, 0.0, float(right - left))
                low, high = _clip(wc, c_run, low, high)
                low, high = _clip(1.0 - wb - wc, a_run, low, high)
                first, step = np.float32(z), np.float32(dz)
                for x in range(math.ceil(low - _SLACK), math.floor(high + _SLACK) + 1):
                    here = first + np.float32(x) * step
                    if here > depth[y, left + x]:
                        depth[y, left + x] = here
                        ids[y, left + x] = number
