"""From samples to light: materials, faces and shadows, one pixel at a time, in linear light."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose.scene.jit import inlined, kernel
from dpose.scene.mesh import Mesh
from dpose.scene.texture import cloth_pattern, noise

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int32]
RGB = tuple[float, float, float]

_SAMPLES = 2
_FIRST_OBJECT = 16


@kernel
def _oval(x: float, y: float, cx: float, cy: float, rx: float, ry: float, soft: float) -> float:
    """1 inside an ellipse, 0 outside, with a soft edge."""
    d = math.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2)
    return min(max((1.0 - d) / soft + 0.5, 0.0), 1.0)


@kernel
def _face(r: float, g: float, b: float, m: Floats, u: float, v: float) -> RGB:
    """Paint a face.

    u is the angle around the head over 2 pi (0.25 in front), v the height over the chin in an adult's metres.
    """
    flags = int(m[11])
    x = (u - 0.25) * 2.0 * math.pi
    hr, hg, hb = m[3], m[4], m[5]
    ax = abs(x)
    # warm cheeks and nose
    blush = 0.28 * (
        _oval(ax, v, 0.62, 0.072, 0.42, 0.028, 1.2) + 0.6 * _oval(ax, v, 0.0, 0.085, 0.22, 0.02, 1.2)
    )
    g *= 1.0 - 0.42 * blush
    b *= 1.0 - 0.42 * blush
    # eye sockets lie in shade
    shade = 1.0 - 0.20 * _oval(ax, v, 0.42, 0.122, 0.36, 0.020, 1.4)
    r, g, b = r * shade, g * shade, b * shade
    if flags & 6:
        # beard: jaw and chin, leaving the mouth
        area = min(max((0.068 - v + 0.02 * max(ax - 0.7, 0.0)) / 0.012, 0.0), 1.0) if ax < 1.45 else 0.0
        area *= 1.0 - 0.9 * _oval(ax, v, 0.0, 0.044, 0.30, 0.006, 0.6)
        area = max(area, _oval(ax, v, 0.0, 0.060, 0.42, 0.007, 0.6))
        k = area * (0.88 if flags & 2 else 0.30)
        r, g, b = r + k * (hr - r), g + k * (hg - g), b + k * (hb - b)
    k = 0.85 * _oval(ax, v, 0.0, 0.045, 0.33, 0.0075, 0.7)
    if flags & 16:
        r, g, b = r + k * (0.48 - r), g + k * (0.06 - g), b + k * (0.08 - b)
    else:
        r, g, b = r + k * (0.62 * r - r), g + k * (0.38 * g - g), b + k * (0.38 * b - b)
    k = 0.75 * _oval(ax, v, 0.0, 0.0445, 0.26, 0.0022, 0.9)
    r, g, b = r * (1 - k), g * (1 - k), b * (1 - k)
    # eyes: white, iris, upper lid; then brows
    k = _oval(ax, v, 0.42, 0.1195, 0.185, 0.0085, 0.5)
    white = min(0.72, 0.28 + 0.62 * r)
    r, g, b = r + k * (white - r), g + k * (0.98 * white - g), b + k * (0.95 * white - b)
    k = _oval(ax, v, 0.42, 0.1195, 0.105, 0.0095, 0.4)
    r, g, b = r + k * (0.03 - r), g + k * (0.022 - g), b + k * (0.018 - b)
    k = 0.8 * _oval(ax, v, 0.42, 0.1280, 0.22, 0.0035, 0.8)
    r, g, b = r + k * (0.04 - r), g + k * (0.03 - g), b + k * (0.03 - b)
    k = 0.85 * _oval(ax, v - 0.018 * (ax - 0.4) * (0.4 - ax), 0.43, 0.1455, 0.27, 0.0055, 0.8)
    r, g, b = r + k * (0.6 * hr - r), g + k * (0.6 * hg - g), b + k * (0.6 * hb - b)
    if flags & 1:
        ring = _oval(ax, v, 0.43, 0.118, 0.36, 0.0215, 0.16) - _oval(ax, v, 0.43, 0.118, 0.26, 0.0145, 0.2)
        bar = 1.0 if (abs(v - 0.124) < 0.004 and (ax > 0.7 or ax < 0.12) and ax < 1.6) else 0.0
        k = 0.92 * min(max(ring, bar), 1.0)
        r, g, b = r + k * (0.02 - r), g + k * (0.02 - g), b + k * (0.025 - b)
    if flags & 8 and ax < 1.35 and v < 0.082 - 0.012 * ax:
        fold = 0.9 + 0.1 * math.cos(v * 600.0)
        r, g, b = 0.42 * fold, 0.62 * fold, 0.72 * fold
    # scalp: hair roots under the hair, stubble of a shaved head
    if not flags & 32:
        line = 0.172 if ax < 0.75 else 0.172 - 0.085 * min((ax - 0.75) / 0.5, 1.0)
        if ax > 1.75:
            line = 0.02
        k = min(max((v - line) / 0.006, 0.0), 1.0)
        if flags & 64:
            k *= 0.72
        r, g, b = r + k * (hr - r), g + k * (hg - g), b + k * (hb - b)
    return r, g, b


@kernel
def _torso(
    r: float, g: float, b: float, m: Floats, skin: Floats, trim: Floats, u: float, v: float, scale: float
) -> RGB:
    """Necklines, buttons, open jackets and prints on the trunk; v is the height over the crotch, metres."""
    flags = int(m[11])
    x = (u - 0.25) * 2.0 * math.pi
    ax = abs(x)
    s = v / 0.31
    if flags & 2 and ax < 0.36 + 0.16 * (s - 1.4):
        r, g, b = trim[0], trim[1], trim[2]
        if ax < 0.05 * (s - 1.0):
            r, g, b = 0.8 * r, 0.8 * g, 0.8 * b
    if flags & 4 and ax < 0.035:
        r, g, b = 0.72 * r, 0.72 * g, 0.72 * b
    if flags & 32 and ax < 0.5 and 1.42 < s < 1.66 and noise(x * 7.0 + 3.0, s * 16.0, 31) > 0.42:
        r, g, b = m[3], m[4], m[5]
    if flags & 8 and s < 1.06:
        r, g, b = 0.02, 0.015, 0.01
    neck = 1.90 - (0.22 if flags & 1 else 0.05) * max(0.0, 1.0 - ax / (0.5 if flags & 1 else 0.9))
    if flags & 16:
        neck = 1.80
    if (s > neck and ax < 2.0) or s > 1.93:
        r, g, b = skin[0], skin[1], skin[2]
    elif s > neck - 0.035 and ax < 2.0:
        r, g, b = 0.75 * r, 0.75 * g, 0.75 * b
    return r, g, b


@kernel
def _albedo(material: int, palette: Floats, u: float, v: float) -> RGB:
    m = palette[material]
    kind, pattern = int(m[8]), int(m[6])
    r, g, b = m[0], m[1], m[2]
    if kind == 2:
        return _face(r, g, b, m, u, v)
    if kind == 0 or kind == 3:
        girth = 0.9 if kind == 3 else 0.5
        if material >= _FIRST_OBJECT:
            girth = 1.0
        if pattern > 0:
            k = cloth_pattern(pattern, u * girth / m[7], v / m[7])
            r, g, b = r + k * (m[3] - r), g + k * (m[4] - g), b + k * (m[5] - b)
        if m[9] > 0.0:  # folds: brighter and darker creases
            fold = 1.0 + m[9] * 0.34 * (
                noise(u * girth * 13.0, v * 9.0, 17) + noise(u * girth * 5.0, v * 22.0, 18) - 1.0
            )
            r, g, b = r * fold, g * fold, b * fold
        if kind == 3:
            return _torso(r, g, b, m, palette[0], palette[9], u, v, 1.0)
    elif kind == 4:
        if 0.64 < u < 0.86:
            r, g, b = m[3], m[4], m[5]
    elif kind == 5:
        k = 1.0 + 0.5 * (noise(u * 34.0, v * 8.0, 19) - 0.5)
        r, g, b = r * k, g * k, b * k
    elif kind == 7:
        k = 1.0 + 0.35 * (noise(u * 4.0, v * 30.0, 20) - 0.5)
        r, g, b = r * k, g * k, b * k
    elif kind == 8:
        if v > 0.55:  # gaps between fingers
            k = math.sin(2.0 * math.pi * u) * 2.0
            gap = abs(k - math.floor(k + 0.5)) if abs(k) < 1.4 else 1.0
            if gap < 0.13:
                r, g, b = 0.62 * r, 0.55 * g, 0.55 * b
    elif kind == 6 and pattern > 0:
        k = cloth_pattern(pattern, u / m[7], v / m[7])
        r, g, b = r + k * (m[3] - r), g + k * (m[4] - g), b + k * (m[5] - b)
    return r, g, b


@kernel
def _shadow(x: float, y: float, h: float, depth: Singles, bias: float) -> float:
    """Share of light that arrives at texel (x, y) and height h: four neighbours, weighted."""
    i, j = math.floor(y), math.floor(x)
    if i < 0 or j < 0 or i + 1 >= depth.shape[0] or j + 1 >= depth.shape[1]:
        return 1.0
    a, b = y - i, x - j
    lit = 0.0
    lit += (1 - a) * (1 - b) * (1.0 if depth[i, j] < h + bias else 0.0)
    lit += (1 - a) * b * (1.0 if depth[i, j + 1] < h + bias else 0.0)
    lit += a * (1 - b) * (1.0 if depth[i + 1, j] < h + bias else 0.0)
    lit += a * b * (1.0 if depth[i + 1, j + 1] < h + bias else 0.0)
    return lit


@kernel
def _nearness(depth: Singles, y: int, x: int, reach: int) -> float:
    """1, or less where something just in front hides a part of the sky: limbs darken what they pass over."""
    rows, columns = depth.shape
    here = depth[y, x]
    hidden = 0.0
    for k in range(4):
        i = y + (reach if k == 0 else -reach if k == 1 else 0)
        j = x + (reach if k == 2 else -reach if k == 3 else 0)
        if 0 <= i < rows and 0 <= j < columns:
            ahead = 1.0 / here - 1.0 / max(depth[i, j], 1e-3)  # metres towards the camera
            if 0.03 < ahead < 0.5:
                hidden += min((ahead - 0.03) * 14.0, 1.0) * (1.0 - ahead * 2.0)
    return 1.0 - 0.13 * hidden


@inlined
def _surface(
    number: int,
    sx: float,
    sy: float,
    mesh: Mesh,
    screen: Singles,
    sun: Singles,
    depth: Singles,
    palette: Floats,
    light: Floats,
    camera: Floats,
) -> RGB:
    """Radiance of triangle `number` at sample position (sx, sy)."""
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
    r, g, blue = _albedo(material, palette, u, v)
    # the view is nearly parallel: one direction for all, towards the camera
    vx, vy, vz = -camera[9], -camera[10], -camera[11]
    facing = nx * vx + ny * vy + nz * vz
    if facing < 0.0:
        nx, ny, nz, facing = -nx, -ny, -nz, -facing
    lambert = nx * light[0] + ny * light[1] + nz * light[2]
    lit = 0.0
    if lambert > -0.25:
        lx = wa * sun[a, 0] + wb * sun[b, 0] + wc * sun[c, 0]
        ly = wa * sun[a, 1] + wb * sun[b, 1] + wc * sun[c, 1]
        lh = wa * sun[a, 2] + wb * sun[b, 2] + wc * sun[c, 2]
        wrapped = (lambert + 0.25) / 1.25
        lit = wrapped * (1.0 - light[16] + light[16] * _shadow(lx, ly, lh, depth, 0.05))
    up = 0.5 + 0.5 * ny
    rim = (1.0 - facing) ** 3 * light[12] * (0.4 + 0.6 * up)
    gloss = palette[material, 10]
    shine = 0.0
    if gloss > 0.0:
        hx, hy, hz = light[0] + vx, light[1] + vy, light[2] + vz
        n = 1.0 / math.sqrt(hx * hx + hy * hy + hz * hz + 1e-9)
        dot = max((nx * hx + ny * hy + nz * hz) * n, 0.0)
        dot *= dot
        dot *= dot
        dot *= dot
        shine = gloss * dot * dot * lit
    er = light[3] * lit + light[6] * up + light[9] * (1.0 - up)
    eg = light[4] * lit + light[7] * up + light[10] * (1.0 - up)
    eb = light[5] * lit + light[8] * up + light[11] * (1.0 - up)
    edge = 0.72 + 0.28 * min(facing * 2.2, 1.0)  # grazing surfaces see less of the sky
    return (
        r * er * edge + (rim * 0.5 * (r + 0.3) + shine) * light[3],
        g * eg * edge + (rim * 0.5 * (g + 0.3) + shine) * light[4],
        blue * eb * edge + (rim * 0.5 * (blue + 0.3) + shine) * light[5],
    )


@kernel
def shade(
    mesh: Mesh,
    screen: Singles,
    ids: Ints,
    depth: Singles,
    sun: Singles,
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
    for i in range(height):
        for j in range(width):
            part, same = -2, True
            person = empty = 0
            for k in range(4):
                number = ids[2 * i + (k >> 1), 2 * j + (k & 1)]
                here = -1
                if number < 0:
                    empty += 1
                else:
                    quad = number >> 1
                    here = mesh.quads[quad, 3]
                    if mesh.quads[quad, 2] < _FIRST_OBJECT:
                        person += 1
                if part != -2 and here != part:
                    same = False
                part = here
            mask[i, j] = person >= 2
            if empty == 4:
                continue
            share = 0.25 * empty
            r, g, b = share * image[i, j, 0], share * image[i, j, 1], share * image[i, j, 2]
            if same:  # one look at the middle of the pixel is enough
                samples, share = 1, 1.0
            else:
                samples, share = 4, 0.25
            for k in range(samples):
                y, x = 2 * i + (k >> 1), 2 * j + (k & 1)
                number = ids[y, x]
                if number >= 0:
                    sx, sy = (2.0 * j + 0.5, 2.0 * i + 0.5) if same else (float(x), float(y))
                    dr, dg, db = _surface(
                        number, sx, sy, mesh, screen, sun, sun_depth, palette, light, camera
                    )
                    dark = share * _nearness(depth, y, x, reach)
                    r, g, b = r + dark * dr, g + dark * dg, b + dark * db
            image[i, j, 0], image[i, j, 1], image[i, j, 2] = r, g, b
