"""The unclothed body as elliptical cross-sections along the skeleton, for any build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dpose_scene.mesh import FORWARD


@dataclass(frozen=True)
class BodyShape:
    """Build of an identity.

    Attributes:
        scale: Body height over 1.76 m.
        heavy: -0.75 thin to 1.1 stout.
        feminine: 0 to 1: hips against shoulders, bust, narrow waist.
        head: Head height over an average adult's.
        build: Build in words.
        elderly: True for grey hair and a slight stoop.
    """

    scale: float
    heavy: float
    feminine: float
    head: float
    build: str
    elderly: bool


class Station(NamedTuple):
    """A cross-section of the bare body.

    Attributes:
        segment: One of `mesh.SEGMENTS`.
        t: Position along the segment.
        x: Offset to the person's left, metres.
        y: Offset upwards.
        z: Offset forwards.
        across: First radius, metres.
        along: Second radius, metres.
        s: Where a garment's end may cut: grows along the limb.
        towards: Axis of the second radius.
    """

    segment: str
    t: float
    x: float
    y: float
    z: float
    across: float
    along: float
    s: float
    towards: int = FORWARD


_ARM = (
    # segment, t, y, z, across, along, s
    ("girdle", 0.30, -0.02, 0.0, 0.015, 0.02, -0.70),
    ("girdle", 0.42, -0.022, 0.0, 0.044, 0.056, -0.58),
    ("girdle", 0.80, -0.016, 0.0, 0.054, 0.060, -0.20),
    ("upper_arm", 0.05, 0.0, 0.0, 0.053, 0.059, 0.05),
    ("upper_arm", 0.18, 0.0, 0.0, 0.050, 0.057, 0.18),
    ("upper_arm", 0.36, 0.0, 0.002, 0.045, 0.051, 0.36),
    ("upper_arm", 0.60, 0.0, 0.003, 0.041, 0.046, 0.60),
    ("upper_arm", 0.85, 0.0, 0.0, 0.037, 0.040, 0.85),
    ("upper_arm", 1.00, 0.0, -0.002, 0.036, 0.039, 1.00),
    ("forearm", 0.12, 0.0, 0.0, 0.038, 0.041, 1.12),
    ("forearm", 0.28, 0.0, 0.002, 0.038, 0.041, 1.28),
    ("forearm", 0.55, 0.0, 0.0, 0.032, 0.034, 1.55),
    ("forearm", 0.82, 0.0, 0.0, 0.025, 0.027, 1.82),
    ("forearm", 0.98, 0.0, 0.0, 0.021, 0.026, 1.98),
)

_LEG = (
    # segment, t, x outwards, z, across, along, s
    ("thigh", -0.10, 0.0, 0.0, 0.03, 0.03, -0.10),
    ("thigh", -0.04, 0.0, 0.0, 0.070, 0.078, -0.04),
    ("thigh", 0.06, 0.0, -0.002, 0.086, 0.092, 0.06),
    ("thigh", 0.22, -0.002, 0.0, 0.083, 0.089, 0.22),
    ("thigh", 0.45, -0.004, 0.006, 0.071, 0.077, 0.45),
    ("thigh", 0.70, -0.004, 0.006, 0.058, 0.063, 0.70),
    ("thigh", 0.88, -0.002, 0.004, 0.051, 0.057, 0.88),
    ("thigh", 1.00, 0.0, 0.004, 0.049, 0.056, 1.00),
    ("shank", 0.10, 0.0, 0.000, 0.046, 0.051, 1.10),
    ("shank", 0.27, 0.003, -0.012, 0.050, 0.056, 1.27),
    ("shank", 0.45, 0.002, -0.012, 0.046, 0.051, 1.45),
    ("shank", 0.70, 0.0, -0.005, 0.034, 0.038, 1.70),
    ("shank", 0.90, 0.0, -0.003, 0.029, 0.034, 1.90),
    ("shank", 1.03, 0.0, -0.006, 0.030, 0.037, 2.03),
    ("shank", 1.12, 0.0, -0.006, 0.020, 0.025, 2.12),
)


def arm(shape: BodyShape, side: str) -> list[Station]:
    """The right (`r`) or left (`l`) arm from inside the shoulder to the wrist."""
    s = shape.scale
    out = []
    for segment, t, y, z, across, along, where in _ARM:
        fat = 1.0 + 0.22 * shape.heavy * min(1.0, max(0.35, 1.5 - 0.6 * where)) - 0.10 * shape.feminine
        out.append(Station(f"{side}_{segment}", t, 0.0, y * s, z * s, across * s * fat, along * s * fat, where))
    return out


def leg(shape: BodyShape, side: str) -> list[Station]:
    """The right or left leg from inside the hip to below the ankle."""
    s, out_sign = shape.scale, -1.0 if side == "r" else 1.0
    out = []
    for segment, t, x, z, across, along, where in _LEG:
        fat = 1.0 + 0.20 * shape.heavy * min(1.0, max(0.3, 1.3 - 0.5 * where))
        fat *= 1.0 + 0.05 * (shape.feminine - 0.5) * max(0.0, 1.0 - where)
        out.append(
            Station(f"{side}_{segment}", t, out_sign * x * s, 0.0, z * s, across * s * fat, along * s * fat, where)
        )
    return out


def torso(shape: BodyShape) -> list[Station]:
    """The trunk from the crotch (s = 0) over the waist (s = 1) to the base of the neck (s = 2)."""
    s, fat, fem = shape.scale, shape.heavy, shape.feminine
    hips = 0.96 + 0.08 * fem + 0.12 * fat
    waist = 1.03 - 0.13 * fem + 0.24 * fat
    belly = 1.0 - 0.06 * fem + 0.42 * max(fat, 0.0) + 0.12 * min(fat, 0.0)
    chest = 1.04 - 0.12 * fem + 0.12 * fat
    bust = 0.030 * max(0.0, fem - 0.3) * (1.0 + 0.5 * fat)
    push = 0.035 * max(fat, 0.0)
    rows = (
        # segment, t, y, z, across, along, s
        ("pelvis", 0.0, -0.128, 0.000, 0.001, 0.001, 0.0),
        ("pelvis", 0.0, -0.115, 0.000, 0.060, 0.060, 0.05),
        ("pelvis", 0.0, -0.085, -0.004, 0.118 * hips, 0.088, 0.15),
        ("pelvis", 0.0, -0.030, -0.010, 0.170 * hips, 0.112 * hips, 0.35),
        ("pelvis", 0.0, 0.040, -0.004 + 0.4 * push, 0.161 * hips, 0.104 * belly, 0.60),
        ("pelvis", 0.0, 0.100, push, 0.146 * waist, 0.095 * belly, 0.85),
        ("abdomen", 0.06, 0.0, push, 0.138 * waist, 0.091 * belly, 1.0),
        ("abdomen", 0.28, 0.0, 0.002 + 0.7 * push, 0.139 * waist, 0.095 * belly, 1.25),
        ("chest", 0.0, -0.200, 0.006 + 0.3 * push, 0.147 * chest, 0.105 * (0.5 + 0.5 * belly), 1.45),
        ("chest", 0.0, -0.130, 0.008 + bust, 0.158 * chest, 0.112 + bust, 1.60),
        ("chest", 0.0, -0.075, 0.004 + 0.4 * bust, 0.160 * chest, 0.104, 1.72),
        ("chest", 0.0, -0.030, -0.004, 0.148 * chest, 0.088, 1.82),
        ("chest", 0.0, 0.004, -0.010, 0.120 * chest, 0.070, 1.90),
        ("chest", 0.0, 0.034, -0.012, 0.086, 0.060, 1.96),
        ("chest", 0.0, 0.066, -0.008, 0.052, 0.050, 2.0),
    )
    return [
        Station(seg, t, 0.0, y * s, z * s, across * s, along * s, where) for seg, t, y, z, across, along, where in rows
    ]


def neck(shape: BodyShape) -> list[Station]:
    """The neck, from inside the trunk into the head."""
    s = shape.scale * (1.06 - 0.16 * shape.feminine + 0.12 * shape.heavy)
    rows = ((0.0, -0.008, 0.050), (0.35, -0.004, 0.054), (0.7, 0.0, 0.051), (1.0, 0.004, 0.050), (1.3, 0.0, 0.046))
    return [Station("neck", t, 0.0, 0.0, z * s, r * s, r * 1.06 * s, t) for t, z, r in rows]


def hand(shape: BodyShape, side: str) -> list[list[Station]]:
    """Palm with fingers, and the thumb."""
    s, inwards = shape.scale * (1.0 - 0.06 * shape.feminine), 1.0 if side == "r" else -1.0
    palm = (
        (-0.06, 0.0, 0.020, 0.025),
        (0.10, 0.0, 0.020, 0.031),
        (0.26, 0.0, 0.019, 0.040),
        (0.46, 0.002, 0.017, 0.042),
        (0.58, 0.006, 0.014, 0.039),
        (0.76, 0.014, 0.012, 0.034),
        (0.90, 0.024, 0.010, 0.027),
        (0.97, 0.030, 0.001, 0.001),
    )
    thumb = (
        (0.06, 0.018, 0.012),
        (0.20, 0.036, 0.014),
        (0.38, 0.052, 0.012),
        (0.52, 0.058, 0.009),
        (0.57, 0.059, 0.001),
    )
    seg = f"{side}_hand"
    return [
        [Station(seg, t, inwards * x * s, 0.0, 0.0, a * s, b * s, t) for t, x, a, b in palm],
        [Station(seg, t, inwards * 0.008 * s, 0.0, z * s, r * s, r * s, t) for t, z, r in thumb],
    ]
