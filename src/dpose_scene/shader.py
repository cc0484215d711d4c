"""From samples to light: shading and shadows, one pixel at a time, in linear light."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.albedo import RGB, albedo
from dpose_scene.jit import inlined, scene_kernel
from dpose_scene.materials import FIRST_OBJECT
from dpose_scene.mesh import Mesh

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int32]


@inlined
def _shadow(x: float, y: float, h: float, depth: Singles, bias: float) -> float:
    """Share of light that arrives at texel (x, y) and height h: four neighbours, weighted."""
    lit = 1.0
    i, j = int(y), int(x)
    if y >= 0.0 and x >= 0.0 and i + 1 < depth.shape[0] and j + 1 < depth.shape[1]:
        a, b, level = y - i, x - j, h + bias
        above = (1.0 - b if depth[i, j] < level else 0.0) + (b if depth[i, j + 1] < level else 0.0)
        below = (1.0 - b if depth[i + 1, j] < level else 0.0) + (b if depth[i + 1, j + 1] < level else 0.0)
        lit = above + a * (below - above)
    return lit


@inlined
def _hidden(here: float, there: float, scale: float) -> float:
    """Share of the sky that a point at closeness `there` hides from a point at closeness `here`."""
    ahead = (there - here) * scale  # metres towards the camera
    hidden = 0.0
    if 0.03 < ahead < 0.5:
        hidden = min((ahead - 0.03) * 14.0, 1.0) * (1.0 - ahead * 2.0)
    return hidden


@inlined
def _openness(depth: Singles, y: int, x: int, reach: int) -> float:
    """1, or less where something just in front hides a part of the sky: limbs darken what they pass over."""
    here = depth[y, x]
    above = depth[max(y - reach, 0), x]
    below = depth[min(y + reach, depth.shape[0] - 1), x]
    left = depth[y, max(x - reach, 0)]
    right = depth[y, min(x + reach, depth.shape[1] - 1)]
    # nearly every pixel has nothing in front of it: four comparisons, and no division
    if max(max(above, below), max(left, right)) <= here:
        return 1.0
    scale = 1.0 / (here * here)
    hidden = _hidden(here, above, scale) + _hidden(here, below, scale)
    hidden += _hidden(here, left, scale) + _hidden(here, right, scale)
    return 1.0 - 0.13 * hidden


@inlined
def _surface(
    number: int,
    sx: float,
    sy: float,
    mesh: Mesh,
    screen: Floats,
    sun: Floats,
    depth: Singles,
    palette: Floats,
    light: Floats,
    view: Floats,
) -> RGB:
    """Radiance of triangle `number` at sample position (sx, sy).

    `view` (6,) is the direction to the camera and the one halfway between it and the light: the view is nearly
    parallel, so one direction does for all.
    """
    q, k = number >> 1, number & 1
    v0, columns, material = mesh.quads[q, 0], mesh.quads[q, 1], mesh.quads[q, 2]
    a, b, c = v0 + k, v0 + 1 + k * columns, v0 + columns
    ax, ay = screen[a, 0], screen[a, 1]
    bx, by, cx, cy = screen[b, 0] - ax, screen[b, 1] - ay, screen[c, 0] - ax, screen[c, 1] - ay
    inverse = 1.0 / (bx * cy - cx * by)
    px, py = sx - ax, sy - ay
    wb = min(max((px * cy - cx * py) * inverse, -0.2), 1.2)
    wc = min(max((bx * py - by * px) * inverse, -0.2), 1.2)
    wa = (1.0 - wb - wc) * screen[a, 2]
    wb, wc = wb * screen[b, 2], wc * screen[c, 2]
    n = 1.0 / (wa + wb + wc)
    wa, wb, wc = wa * n, wb * n, wc * n
    nx = wa * mesh.normals[a, 0] + wb * mesh.normals[b, 0] + wc * mesh.normals[c, 0]
    ny = wa * mesh.normals[a, 1] + wb * mesh.normals[b, 1] + wc * mesh.normals[c, 1]
    nz = wa * mesh.normals[a, 2] + wb * mesh.normals[b, 2] + wc * mesh.normals[c, 2]
    n = 1.0 / math.sqrt(nx * nx + ny * ny + nz * nz + 1e-12)
    nx, ny, nz = nx * n, ny * n, nz * n
    u = wa * mesh.uv[a, 0] + wb * mesh.uv[b, 0] + wc * mesh.uv[c, 0]
    v = wa * mesh.uv[a, 1] + wb * mesh.uv[b, 1] + wc * mesh.uv[c, 1]
    red, green, blue = albedo(material, palette, u, v)
    facing = nx * view[0] + ny * view[1] + nz * view[2]
    if facing < 0.0:
        nx, ny, nz, facing = -nx, -ny, -nz, -facing
    lambert = nx * light[0] + ny * light[1] + nz * light[2]
    lit = 0.0
    if lambert > -0.25:
        lx = wa * sun[a, 0] + wb * sun[b, 0] + wc * sun[c, 0]
        ly = wa * sun[a, 1] + wb * sun[b, 1] + wc * sun[c, 1]
        lh = wa * sun[a, 2] + wb * sun[b, 2] + wc * sun[c, 2]
        lit = 0.8 * (lambert + 0.25) * (1.0 - light[16] + light[16] * _shadow(lx, ly, lh, depth, 0.05))
    up = 0.5 + 0.5 * ny
    away = 1.0 - facing
    bonus = away * away * away * light[12] * (0.2 + 0.3 * up)
    shine = 0.3 * bonus
    if palette[material, 10] > 0.0:
        dot = max(nx * view[3] + ny * view[4] + nz * view[5], 0.0)
        dot *= dot
        dot *= dot
        dot *= dot
        shine += palette[material, 10] * dot * dot * lit
    edge = 0.72 + 0.28 * min(facing * 2.2, 1.0)  # grazing surfaces see less of the sky
    key, sky, ground = edge * lit + bonus, edge * up, edge * (1.0 - up)
    return (
        red * (light[3] * key + light[6] * sky + light[9] * ground) + shine * light[3],
        green * (light[4] * key + light[7] * sky + light[10] * ground) + shine * light[4],
        blue * (light[5] * key + light[8] * sky + light[11] * ground) + shine * light[5],
    )


@scene_kernel
def _directions(light: Floats, camera: Floats) -> Floats:
    """(6,) unit vectors towards the camera, and halfway between camera and light."""
    view = np.empty(6)
    for k in range(3):
        view[k] = -camera[9 + k]
        view[3 + k] = light[k] + view[k]
    n = 1.0 / math.sqrt(view[3] ** 2 + view[4] ** 2 + view[5] ** 2 + 1e-9)
    for k in range(3, 6):
        view[k] *= n
    return view


@scene_kernel
def shade(
    mesh: Mesh,
    screen: Floats,
    ids: Ints,
    depth: Singles,
    sun: Floats,
    sun_depth: Singles,
    palette: Floats,
    light: Floats,
    camera: Floats,
    image: Singles,
    mask: NDArray[np.bool_],
) -> None:
    """Draw every surface over the picture of the empty room, in linear light.

    Args:
        mesh: The scene.
        screen: (V, 3) from `project`.
        ids: (2 H, 2 W) from `fill`.
        depth: (2 H, 2 W) from `fill`.
        sun: (V, 3) from `project_light`.
        sun_depth: (S, S) heights towards the light, from `fill`.
        palette: (32, 12) materials.
        light: (17,) direction to the light (3), its colour (3), light from above (3), from below (3), rim
            strength, unused (3), strength of shadows.
        camera: (15,) see `project`.
        image: (H, W, 3), read and written: pixels that surfaces cover in part keep that share of the room.
        mask: (H, W), written: whether the person covers at least half of the pixel.
    """
    height, width = mask.shape
    reach = max(2, height // 24)
    view = _directions(light, camera)
    parts, weights = np.empty(4, np.int32), np.empty(4)
    for i in range(height):
        for j in range(width):
            n0, n1, n2, n3 = (
                ids[2 * i, 2 * j],
                ids[2 * i, 2 * j + 1],
                ids[2 * i + 1, 2 * j],
                ids[2 * i + 1, 2 * j + 1],
            )
            if n0 & n1 & n2 & n3 == -1:
                mask[i, j] = False
                continue
            person = 0
            empty = 0.0
            whole = False
            weights[1], weights[2], weights[3] = 0.0, 0.0, 0.0
            if n0 >= 0 and n1 >= 0 and n2 >= 0 and n3 >= 0:
                part = mesh.quads[n0 >> 1, 3]
                whole = (
                    mesh.quads[n1 >> 1, 3] == part and mesh.quads[n2 >> 1, 3] == part and mesh.quads[n3 >> 1, 3] == part
                )
            if whole:  # one look at the middle of the pixel is enough
                weights[0] = 1.0
                person = 4 if mesh.quads[n0 >> 1, 2] < FIRST_OBJECT else 0
            else:
                weights[0] = 0.0
                for k in range(4):
                    number = ids[2 * i + (k >> 1), 2 * j + (k & 1)]
                    if number < 0:
                        empty += 0.25
                        continue
                    parts[k] = mesh.quads[number >> 1, 3]
                    if mesh.quads[number >> 1, 2] < FIRST_OBJECT:
                        person += 1
                    # the first sample of a part stands for all of its samples in this pixel
                    first = k
                    for earlier in range(k):
                        if weights[earlier] > 0.0 and parts[earlier] == parts[k]:
                            first = earlier
                    weights[first] += 0.25
            mask[i, j] = person >= 2
            r, g, b = empty * image[i, j, 0], empty * image[i, j, 1], empty * image[i, j, 2]
            for k in range(4):
                if weights[k] > 0.0:
                    y, x = 2 * i + (k >> 1), 2 * j + (k & 1)
                    sx, sy = (2.0 * j + 0.5, 2.0 * i + 0.5) if whole else (float(x), float(y))
                    dr, dg, db = _surface(ids[y, x], sx, sy, mesh, screen, sun, sun_depth, palette, light, view)
                    weight = weights[k] * _openness(depth, y, x, reach)
                    r, g, b = r + weight * dr, g + weight * dg, b + weight * db
            image[i, j, 0], image[i, j, 1], image[i, j, 2] = r, g, b
