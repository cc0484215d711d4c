"""The colour of a surface before light falls on it: cloth patterns, faces, necklines, hair."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.jit import scene_kernel
from dpose_scene.materials import FACE, FIRST_OBJECT, SKIN, TOP, TRIM
from dpose_scene.texture import cloth_pattern, noise

Floats = NDArray[np.float64]
RGB = tuple[float, float, float]


@scene_kernel
def _oval(x: float, y: float, cx: float, cy: float, rx: float, ry: float, soft: float) -> float:
    """1 inside an ellipse, 0 outside, with a soft edge."""
    d = math.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2)
    return min(max((1.0 - d) / soft + 0.5, 0.0), 1.0)


@scene_kernel
def _face(r: float, g: float, b: float, palette: Floats, u: float, v: float) -> RGB:
    """Paint a face.

    u is the angle around the head over 2 pi (0.25 in front), v the height over the chin in an adult's metres.
    """
    flags = int(palette[FACE, 11])
    x = (u - 0.25) * 2.0 * math.pi
    hr, hg, hb = palette[FACE, 3], palette[FACE, 4], palette[FACE, 5]
    ax = abs(x)
    # warm cheeks and nose
    blush = 0.28 * (_oval(ax, v, 0.62, 0.072, 0.42, 0.028, 1.2) + 0.6 * _oval(ax, v, 0.0, 0.085, 0.22, 0.02, 1.2))
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


@scene_kernel
def _torso(r: float, g: float, b: float, palette: Floats, u: float, v: float) -> RGB:
    """Necklines, buttons, open jackets and prints on the trunk; v is the height over the crotch, metres."""
    flags = int(palette[TOP, 11])
    x = (u - 0.25) * 2.0 * math.pi
    ax = abs(x)
    s = v / 0.31
    if flags & 2 and ax < 0.36 + 0.16 * (s - 1.4):
        r, g, b = palette[TRIM, 0], palette[TRIM, 1], palette[TRIM, 2]
        if ax < 0.05 * (s - 1.0):
            r, g, b = 0.8 * r, 0.8 * g, 0.8 * b
    if flags & 4 and ax < 0.035:
        r, g, b = 0.72 * r, 0.72 * g, 0.72 * b
    if flags & 32 and ax < 0.5 and 1.42 < s < 1.66 and noise(x * 7.0 + 3.0, s * 16.0, 31) > 0.42:
        r, g, b = palette[TOP, 3], palette[TOP, 4], palette[TOP, 5]
    if flags & 8 and s < 1.06:
        r, g, b = 0.02, 0.015, 0.01
    neck = 1.90 - (0.22 if flags & 1 else 0.05) * max(0.0, 1.0 - ax / (0.5 if flags & 1 else 0.9))
    if flags & 16:
        neck = 1.80
    if (s > neck and ax < 2.0) or s > 1.93:
        r, g, b = palette[SKIN, 0], palette[SKIN, 1], palette[SKIN, 2]
    elif s > neck - 0.035 and ax < 2.0:
        r, g, b = 0.75 * r, 0.75 * g, 0.75 * b
    return r, g, b


@scene_kernel
def albedo(material: int, palette: Floats, u: float, v: float) -> RGB:
    """Colour of a material of the palette (32, 12) at texture coordinates u, v; linear light."""
    kind, pattern = int(palette[material, 8]), int(palette[material, 6])
    r, g, b = palette[material, 0], palette[material, 1], palette[material, 2]
    if kind == 2:
        return _face(r, g, b, palette, u, v)
    if kind == 0 or kind == 3:
        girth = 0.9 if kind == 3 else 0.5
        if material >= FIRST_OBJECT:
            girth = 1.0
        if pattern > 0:
            k = cloth_pattern(pattern, u * girth / palette[material, 7], v / palette[material, 7])
            r, g, b = (
                r + k * (palette[material, 3] - r),
                g + k * (palette[material, 4] - g),
                b + k * (palette[material, 5] - b),
            )
        if palette[material, 9] > 0.0:  # folds: brighter and darker creases
            fold = 1.0 + palette[material, 9] * 0.5 * (noise(u * girth * 9.0 + v * 5.0, v * 14.0, 17) - 0.5)
            r, g, b = r * fold, g * fold, b * fold
        if kind == 3:
            return _torso(r, g, b, palette, u, v)
    elif kind == 4:
        if 0.64 < u < 0.86:
            r, g, b = palette[material, 3], palette[material, 4], palette[material, 5]
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
        k = cloth_pattern(pattern, u / palette[material, 7], v / palette[material, 7])
        r, g, b = (
            r + k * (palette[material, 3] - r),
            g + k * (palette[material, 4] - g),
            b + k * (palette[material, 5] - b),
        )
    return r, g, b
