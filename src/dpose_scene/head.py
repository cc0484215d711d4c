"""Heads: skull, ears, nose, hair styles and what a face wears."""

from __future__ import annotations

from dataclasses import dataclass

from dpose_scene.anatomy import BodyShape
from dpose_scene.draws import Draws
from dpose_scene.materials import FACE, HAIR, HAT, SKIN
from dpose_scene.mesh import FORWARD, UP, Ring

Tube = tuple[list[Ring], int]

GLASSES, BEARD, STUBBLE, MASK, LIPSTICK, BALD, BUZZ = 1, 2, 4, 8, 16, 32, 64
"""Flags of a face, as the shader reads them."""

_SKULL = (
    # height above the upper neck, forward offset, half width, half depth
    (-0.012, 0.058, 0.001, 0.001),
    (-0.006, 0.056, 0.033, 0.031),
    (0.010, 0.046, 0.050, 0.048),
    (0.032, 0.032, 0.061, 0.064),
    (0.060, 0.020, 0.068, 0.080),
    (0.092, 0.012, 0.0735, 0.090),
    (0.125, 0.006, 0.077, 0.096),
    (0.158, 0.001, 0.079, 0.099),
    (0.188, -0.003, 0.074, 0.093),
    (0.210, -0.005, 0.062, 0.078),
    (0.226, -0.005, 0.042, 0.052),
    (0.235, 0.0, 0.001, 0.001),
)


@dataclass(frozen=True)
class HeadWords:
    """A head's looks in words, and the shader's flags."""

    style: str
    glasses: bool
    beard: bool
    flags: int


def skull(head: float) -> list[Ring]:
    """The head's own rings, scaled by `head`."""
    return [Ring("head", 0.0, 0.0, y * head, z * head, a * head, b * head, FACE, y, FORWARD) for y, z, a, b in _SKULL]


def _features(h: float, feminine: float) -> list[Tube]:
    nose = [
        Ring("head", 0.0, 0.0, y * h, z * h, a * h, b * h, FACE, y)
        for y, z, a, b in (
            (0.070, 0.098, 0.004, 0.004),
            (0.075, 0.100, 0.0145, 0.016),
            (0.086, 0.100, 0.0125, 0.016),
            (0.104, 0.096, 0.0085, 0.011),
            (0.124, 0.094, 0.006, 0.007),
            (0.132, 0.092, 0.002, 0.002),
        )
    ]
    tubes: list[Tube] = [(nose, 6)]
    for side in (-1.0, 1.0):
        ear = [
            Ring("head", 0.0, side * 0.077 * h, y * h, -0.004 * h, 0.011 * h * k, 0.021 * h * k, SKIN, y)
            for y, k in ((0.070, 0.1), (0.076, 0.6), (0.094, 0.85), (0.116, 1.0), (0.130, 0.8), (0.137, 0.1))
        ]
        tubes.append((ear, 6))
    return tubes


def _cap_of_hair(h: float, thick: float, back: float, low: float, material: int) -> list[Ring]:
    """A shell over the skull from height `low` up, shifted back so that the face stands out of it."""
    rings = []
    for y, z, a, b in _SKULL:
        if y < low:
            continue
        up = (y - low) / (0.235 - low)
        grow = thick * (0.75 + 0.5 * up)
        rings.append((y + 0.6 * grow * up, z - back, a + grow * 0.8, b + grow * 0.6))
    y, z, a, b = rings[0]
    rings = [(y - 0.012, z, a * 0.55, b * 0.55), *rings]
    y, z, _, _ = rings[-1]
    rings[-1] = (y, z, 0.012, 0.014)
    rings.append((y + 0.003, z, 0.001, 0.001))
    return [Ring("head", 0.0, 0.0, y * h, z * h, a * h, b * h, material, y) for y, z, a, b in rings]


def _ball(h: float, y: float, z: float, r: float, material: int, stretch: float = 1.0) -> list[Ring]:
    return [
        Ring("head", 0.0, 0.0, (y + k * r * stretch) * h, z * h, w * r * h, w * r * h, material, y + k * r)
        for k, w in ((-1.0, 0.05), (-0.85, 0.55), (-0.45, 0.9), (0.0, 1.0), (0.45, 0.9), (0.85, 0.55), (1.0, 0.05))
    ]


def _curtain(h: float, length: float, material: int, wide: float = 1.0) -> list[Ring]:
    """Hair that hangs behind the head and neck down to `length` below the skull's base."""
    rows = [
        (0.175, -0.020, 0.060, 0.070),
        (0.140, -0.030, 0.082, 0.076),
        (0.090, -0.036, 0.086, 0.070),
        (0.040, -0.044, 0.084, 0.060),
        (-0.010, -0.050, 0.082, 0.050),
    ]
    y = -0.055
    while y > -length:
        rows.append((y, -0.058 - 0.12 * max(0.0, -y - 0.05), 0.080, 0.040))
        y -= 0.05
    rows += [(-length, -0.062 - 0.12 * max(0.0, length - 0.05), 0.068, 0.030), (-length - 0.012, -0.066, 0.001, 0.001)]
    return [Ring("head", 0.0, 0.0, y * h, z * h, a * wide * h, b * h, material, y) for y, z, a, b in rows]


def _tail(h: float, length: float) -> list[Ring]:
    rows = [(0.168, -0.100, 0.012, 0.012), (0.160, -0.118, 0.022, 0.020), (0.13, -0.132, 0.028, 0.024)]
    rows += [
        (0.06, -0.138, 0.026, 0.022),
        (0.0, -0.136, 0.022, 0.018),
        (-length, -0.128, 0.008, 0.008),
        (-length - 0.006, -0.127, 0.001, 0.001),
    ]
    return [Ring("head", 0.0, 0.0, y * h, z * h, a * h, b * h, HAIR, y) for y, z, a, b in rows]


def _brim(h: float, material: int) -> list[Ring]:
    """A cap's peak: a flat tube pointing forward."""
    rows = (
        (0.055, 0.172, 0.060, 0.006),
        (0.095, 0.170, 0.068, 0.006),
        (0.130, 0.164, 0.056, 0.005),
        (0.150, 0.160, 0.030, 0.003),
        (0.158, 0.159, 0.001, 0.001),
    )
    return [Ring("head", 0.0, 0.0, y * h, z * h, a * h, b * h, material, z, UP) for z, y, a, b in rows]


def draw_head(draws: Draws, shape: BodyShape, elderly: bool, child: bool) -> tuple[list[Tube], HeadWords]:
    """A head's tubes, skull first, and its words."""
    fem, h = shape.feminine, shape.head
    if fem > 0.5 or (child and draws.chance(0.4)):
        weights = {"bob": 3.0, "long": 4.0, "ponytail": 3.0, "bun": 2.2, "afro": 1.0, "headscarf": 1.2, "side": 1.0}
        weights |= {"short": 1.2, "cap": 0.4}
    else:
        weights = {
            "short": 5.0,
            "buzz": 1.8,
            "side": 2.5,
            "bald": 1.3 + 1.5 * elderly,
            "afro": 0.8,
            "cap": 1.4,
            "long": 0.4,
        }
    if child:
        weights.pop("bald", None)
    style = draws.weighted(weights)
    tubes: list[Tube] = [(skull(h), 14), *_features(h, fem)]
    flags = {"bald": BALD, "headscarf": BALD, "buzz": BUZZ}.get(style, 0)
    low = 0.085
    if style == "short":
        tubes.append((_cap_of_hair(h, draws.uniform(0.008, 0.016), 0.016, low, HAIR), 12))
    elif style == "side":
        tubes.append((_cap_of_hair(h, draws.uniform(0.016, 0.026), 0.018, 0.07, HAIR), 12))
    elif style == "bob":
        tubes += [
            (_cap_of_hair(h, 0.016, 0.018, low, HAIR), 12),
            (_curtain(h, draws.uniform(0.02, 0.05), HAIR, 1.08), 12),
        ]
    elif style == "long":
        tubes += [(_cap_of_hair(h, 0.013, 0.018, low, HAIR), 12), (_curtain(h, draws.uniform(0.13, 0.26), HAIR), 12)]
    elif style == "ponytail":
        tubes += [(_cap_of_hair(h, 0.009, 0.017, low, HAIR), 12), (_tail(h, draws.uniform(0.05, 0.13)), 8)]
    elif style == "bun":
        tubes += [(_cap_of_hair(h, 0.009, 0.017, low, HAIR), 12)]
        tubes.append((_ball(h, draws.choice((0.12, 0.235)), -0.095, 0.042, HAIR), 10))
    elif style == "afro":
        tubes.append((_cap_of_hair(h, draws.uniform(0.035, 0.060), 0.034, 0.075, HAIR), 12))
    elif style == "headscarf":
        tubes.append((_cap_of_hair(h, 0.014, 0.018, 0.06, HAT), 12))
        tubes.append((_curtain(h, 0.09, HAT, 1.04), 12))
    elif style == "cap":
        tubes.append((_cap_of_hair(h, 0.007, 0.018, low, HAIR), 12))
        tubes.append((_cap_of_hair(h, 0.016, 0.004, 0.158, HAT), 12))
        tubes.append((_brim(h, HAT), 8))
    glasses = draws.chance(0.42 if elderly else 0.2) and not child
    beard = fem < 0.5 and not child and draws.chance(0.32)
    stubble = fem < 0.5 and not child and not beard and draws.chance(0.3)
    flags |= GLASSES * glasses | BEARD * beard | STUBBLE * stubble
    flags |= LIPSTICK * (fem > 0.5 and not child and draws.chance(0.5))
    flags |= MASK * (not child and draws.chance(0.04))
    return tubes, HeadWords(style, glasses, beard, flags)
