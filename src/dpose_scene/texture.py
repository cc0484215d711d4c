"""Procedural textures: small functions of a position, compiled into the shader."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import scene_kernel

_SIDE = 64
_TABLE: NDArray[np.float32] = np.random.default_rng(20).random((_SIDE, _SIDE)).astype(np.float32)


@scene_kernel
def lattice(i: int, j: int, seed: int) -> float:
    """A number in [0, 1) that looks random, for a point of the integer lattice."""
    return float(_TABLE[(i + 29 * seed) & 63, (j + 13 * seed) & 63])


@scene_kernel
def noise(x: float, y: float, seed: int) -> float:
    """Smooth noise in [0, 1] with a feature size of one."""
    fx, fy = math.floor(x), math.floor(y)
    i, j = int(fx) + 29 * seed, int(fy) + 13 * seed
    u, v = x - fx, y - fy
    u, v = u * u * (3.0 - 2.0 * u), v * v * (3.0 - 2.0 * v)
    i0, i1, j0, j1 = i & 63, (i + 1) & 63, j & 63, (j + 1) & 63
    a, b, c, d = _TABLE[i0, j0], _TABLE[i1, j0], _TABLE[i0, j1], _TABLE[i1, j1]
    return float(a + u * (b - a) + v * (c - a) + u * v * (a - b - c + d))


@scene_kernel
def wave(x: float) -> float:
    """A triangle between 0 and 1 with period 1."""
    f = x - math.floor(x)
    return 2.0 * f if f < 0.5 else 2.0 - 2.0 * f


@scene_kernel
def cloth_pattern(kind: int, u: float, v: float) -> float:
    """Share of a cloth's second colour at (u, v), in periods of the pattern; kinds: `materials.PATTERNS`."""
    if kind == 1:
        return 1.0 if wave(v) > 0.58 else 0.0
    if kind == 2:
        return 1.0 if wave(u * 2.0) > 0.78 else 0.0
    if kind == 3:
        a = 0.5 if wave(u) > 0.5 else 0.0
        b = 0.5 if wave(v) > 0.5 else 0.0
        return a + b
    if kind == 4:
        du, dv = wave(u) - 0.5, wave(v) - 0.5
        return 1.0 if du * du + dv * dv < 0.05 else 0.0
    if kind == 5:
        return 0.45 * noise(u * 6.0, v * 6.0, 3)
    if kind == 6:
        return 1.0 if math.floor(v * 0.42 + 0.1) % 2.0 == 0.0 else 0.0
    if kind == 7:
        return 1.0 if noise(u * 1.3, v * 1.3, 5) > 0.6 else 0.0
    if kind == 8:
        return 1.0 if noise(u * 2.2, v * 2.2, 9) > 0.66 else 0.0
    return 0.0


@scene_kernel
def wall_pattern(kind: int, u: float, v: float) -> float:
    """Share of a wall's second colour.

    Kinds: 0 plain, 1 stripes, 2 panels, 3 bricks, 4 tiles, 5 blotches, 6 two-tone, 7 slats.
    """
    if kind == 1:
        return 1.0 if wave(u) > 0.5 else 0.0
    if kind == 2:
        a, b = wave(u * 0.5), wave(v * 0.5)
        return 1.0 if (a < 0.06 or b < 0.06) else 0.0
    if kind == 3:
        row = math.floor(v * 2.0)
        return 1.0 if (wave(v) < 0.07 or wave((u + 0.5 * row) * 0.5) < 0.05 or wave(v + 0.5) < 0.07) else 0.0
    if kind == 4:
        return 1.0 if (wave(u) < 0.07 or wave(v) < 0.07) else 0.0
    if kind == 5:
        return min(max(2.4 * (0.6 * noise(u, v, 11) + 0.4 * noise(2.3 * u, 2.3 * v, 12)) - 0.7, 0.0), 1.0)
    if kind == 6:
        return 1.0 if v * 1.0 < 2.2 else 0.0
    if kind == 7:
        return 0.7 if wave(v * 2.0) < 0.22 else 0.0
    return 0.0


@scene_kernel
def floor_pattern(kind: int, u: float, v: float) -> float:
    """Share of a floor's second colour.

    Kinds: 0 plain, 1 chequers, 2 planks, 3 carpet, 4 tiles, 5 grass, 6 blotches.
    """
    if kind == 1:
        return float((math.floor(u) + math.floor(v)) & 1)
    if kind == 2:
        row = math.floor(u * 2.0)
        tone = 0.65 * lattice(int(row), math.floor(v * 0.3 + lattice(int(row), 7, 2)), 21)
        seam = 1.0 if wave(u) < 0.05 or wave(u + 0.5) < 0.05 else 0.0
        return max(tone + 0.25 * noise(u * 8.0, v * 0.8, 22), seam)
    if kind == 3:
        return 0.5 * noise(u * 9.0, v * 9.0, 23) + 0.3 * noise(u, v, 24)
    if kind == 4:
        return 1.0 if (wave(u) < 0.06 or wave(v) < 0.06) else 0.0
    if kind == 5:
        return 0.6 * noise(u * 7.0, v * 7.0, 25) + 0.4 * noise(u * 1.5, v * 1.5, 26)
    if kind == 6:
        return noise(u * 1.7, v * 1.7, 27)
    return 0.0
