"""The empty room behind the person: a floor, two walls, and the soft shadows of things."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import scene_kernel
from dpose_scene.texture import floor_pattern, wall_pattern

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int32]


@scene_kernel
def _trace_row(y: float, camera: Floats, room: Floats, hits: Singles) -> None:
    """Intersect the rays of a picture row (at height y over focal length) with the room.

    `hits` (6, W) gets the surface (0 floor, 1 back wall, 2 side wall), world x, y, z, and position across
    and along the room's own axes. Free of branches, so that the compiler works on many pixels at once.
    """
    one, focal, cx = np.float32(1.0), np.float32(1.0 / camera[12]), np.float32(camera[13])
    rx, ry, rz = np.float32(camera[3]), np.float32(camera[4]), np.float32(camera[5])
    bx = np.float32(camera[6] * y + camera[9])
    by = np.float32(camera[7] * y + camera[10])
    bz = np.float32(camera[8] * y + camera[11])
    ox, oy, oz = np.float32(camera[0]), np.float32(camera[1]), np.float32(camera[2])
    c, s = np.float32(room[17]), np.float32(room[18])
    floor = one / oy
    back = one / np.float32(room[16] + camera[0] * room[18] + camera[2] * room[17])
    side = one / np.float32(room[19] + camera[0] * room[17] - camera[2] * room[18])
    zero, two, far = np.float32(0.0), np.float32(2.0), np.float32(0.03)
    for j in range(hits.shape[1]):
        x = (np.float32(j) - cx) * focal
        dx, dy, dz = bx + rx * x, by + ry * x, bz + rz * x
        # 1 / distance to each surface: the largest is the nearest
        f = -dy * floor
        a = -(dx * s + dz * c) * back
        b = -(dx * c - dz * s) * side
        near = max(f, max(a, b))
        t = one / max(near, far)
        wx, wy, wz = ox + t * dx, oy + t * dy, oz + t * dz
        hits[0, j] = zero if f >= near else (one if a >= near else two)
        hits[1, j], hits[2, j], hits[3, j] = wx, wy, wz
        hits[4, j], hits[5, j] = wx * c - wz * s, wx * s + wz * c


@scene_kernel
def _texture_row(
    room: Floats, axes: Floats, cover: Singles, above: Ints, below: Ints, hits: Singles, tone: Singles
) -> None:
    """Share of the surface's second colour and of hidden light, for a row: `tone` (2, W).

    `above` and `below` (2 W,) are the row's samples: pixels that surfaces cover wholly are left out.
    """
    floor, wall = int(room[0]), int(room[8])
    floor_scale, wall_scale = room[1], room[9]
    rows, columns = cover.shape
    scale, half = axes[12], axes[13]
    for j in range(hits.shape[1]):
        if above[2 * j] >= 0 and above[2 * j + 1] >= 0 and below[2 * j] >= 0 and below[2 * j + 1] >= 0:
            tone[0, j] = tone[1, j] = 0.0
            continue
        wx, wy, wz = hits[1, j], hits[2, j], hits[3, j]
        if hits[0, j] == 0.0:
            tone[0, j] = floor_pattern(floor, hits[4, j] * floor_scale, hits[5, j] * floor_scale)
        else:
            across = hits[4, j] if hits[0, j] == 1.0 else hits[5, j]
            tone[0, j] = wall_pattern(wall, across * wall_scale, wy * wall_scale)
        x, y, z = wx - axes[0], wy - axes[1], wz - axes[2]
        tx = (axes[3] * x + axes[4] * y + axes[5] * z) * scale + half
        ty = (axes[6] * x + axes[7] * y + axes[8] * z) * scale + half
        hidden = 0.0
        if tx >= 0.0 and ty >= 0.0 and tx < columns - 1.0 and ty < rows - 1.0:
            i, k = int(ty), int(tx)
            a, b = ty - i, tx - k
            hidden = (1.0 - a) * ((1.0 - b) * cover[i, k] + b * cover[i, k + 1])
            hidden += a * ((1.0 - b) * cover[i + 1, k] + b * cover[i + 1, k + 1])
        tone[1, j] = hidden


@scene_kernel
def _light_row(room: Floats, light: Floats, hits: Singles, tone: Singles, row: Singles) -> None:
    """Radiance (W, 3) of a row."""
    c, s = room[17], room[18]
    strength, fall, skirting = np.float32(light[16]), np.float32(room[21]), np.float32(room[20])
    back, side = np.float32(room[16]), np.float32(room[19])
    floor_lambert = np.float32(max(light[1], 0.0))
    back_lambert = np.float32(max(s * light[0] + c * light[2], 0.0))
    side_lambert = np.float32(0.9 * max(c * light[0] - s * light[2], 0.0))
    one, half = np.float32(1.0), np.float32(0.5)
    base = np.empty(15, np.float32)
    for k in range(3):
        base[k], base[3 + k] = room[2 + k], room[5 + k] - room[2 + k]
        base[6 + k], base[9 + k] = room[10 + k], room[13 + k] - room[10 + k]
        base[12 + k] = 0.75 * room[13 + k]
    for j in range(hits.shape[1]):
        which, wx, wy, wz = hits[0, j], hits[1, j], hits[2, j], hits[3, j]
        is_floor = which < half
        is_side = which > np.float32(1.5)
        edge = min(abs(hits[5, j] + back) if is_side else abs(hits[4, j] + side), np.float32(0.6))
        # corners and the foot of a wall see less of the light
        dim = (np.float32(0.78) + np.float32(0.36) * edge) * (
            np.float32(0.82) + np.float32(0.18) * min(wy * np.float32(2.0), one)
        )
        dim = one if is_floor else (np.float32(0.88) * dim if is_side else dim)
        pool = one / (one + fall * (wx * wx + wz * wz))
        lambert = floor_lambert if is_floor else (side_lambert if is_side else back_lambert)
        hidden = tone[1, j] * strength
        lit = lambert * (one - hidden) * pool * dim
        up = (one if is_floor else half) * (np.float32(0.55) + np.float32(0.45) * pool)
        up *= (one - np.float32(0.45) * hidden) * dim
        down = (np.float32(0.0) if is_floor else half) * dim
        k = tone[0, j]
        board = (not is_floor) and wy < skirting
        for n in range(3):
            paint = base[n] + k * base[3 + n] if is_floor else base[6 + n] + k * base[9 + n]
            paint = base[12 + n] if board else paint
            row[j, n] = paint * (
                np.float32(light[3 + n]) * lit + np.float32(light[6 + n]) * up + np.float32(light[9 + n]) * down
            )


@scene_kernel
def paint_room(
    camera: Floats, room: Floats, light: Floats, axes: Floats, cover: Singles, ids: Ints, image: Singles
) -> None:
    """Fill the picture with the empty room, in linear light.

    Args:
        camera: (15,) see `raster.project`.
        room: (22,) see `background.draw_room`.
        light: (17,) see `shader.shade`.
        axes: (14,) the light's view, see `raster.project_light`.
        cover: (S, S) blurred outline of all things, seen from the light, 0 to 1.
        ids: (2 H, 2 W) from `raster.fill`: what surfaces cover need not be painted.
        image: (H, W, 3), written.
    """
    height, width, _ = image.shape
    hits, tone = np.empty((6, width), np.float32), np.empty((2, width), np.float32)
    for i in range(height):
        _trace_row((i - camera[14]) / camera[12], camera, room, hits)
        _texture_row(room, axes, cover, ids[2 * i], ids[2 * i + 1], hits, tone)
        _light_row(room, light, hits, tone, image[i])
