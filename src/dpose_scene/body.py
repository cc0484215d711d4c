"""Identities: proportions, skin, hair, face and clothes of a person, drawn from an identity number alone."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpose_scene.anatomy import BodyShape
from dpose_scene.clothes import dress
from dpose_scene.draws import Draws
from dpose_scene.head import draw_head
from dpose_scene.materials import FACE, HAIR, SKIN, Colour, Palette
from dpose_scene.mesh import Tubes, pack_tubes
from dpose_scene.skeleton import BONE, BONES

Floats = NDArray[np.float64]

_STREAM = 7001  # names the identities' random stream

SKINS: dict[str, Colour] = {
    "porcelain": (0.96, 0.84, 0.77),
    "fair": (0.93, 0.76, 0.66),
    "beige": (0.87, 0.68, 0.54),
    "olive": (0.77, 0.58, 0.43),
    "tan": (0.67, 0.47, 0.33),
    "brown": (0.52, 0.35, 0.24),
    "deep": (0.38, 0.25, 0.175),
    "ebony": (0.29, 0.185, 0.135),
}
HAIRS: dict[str, Colour] = {
    "black": (0.10, 0.085, 0.08),
    "dark brown": (0.20, 0.125, 0.085),
    "brown": (0.34, 0.215, 0.13),
    "chestnut": (0.45, 0.24, 0.13),
    "blond": (0.80, 0.62, 0.36),
    "red": (0.62, 0.26, 0.11),
    "grey": (0.58, 0.57, 0.56),
    "white": (0.87, 0.86, 0.84),
}


@dataclass(frozen=True)
class Body:
    """A person's shape and looks, ready for the renderer.

    Attributes:
        identity: Number that the body is drawn from.
        bones: (14,) lengths, metres, in the order of `BONES`.
        tubes: The surface as rings on the skeleton; the first tube of the head is the bare skull.
        skull: First and last + 1 vertex of the bare skull in the surface that `mesh.sweep` makes.
        palette: (32, 12) materials of the person; see `materials.Palette`.
        attributes: Description of the person, as a witness would give it.
        arm_spread: Least angle between arms and trunk, radians.
    """

    identity: int
    bones: Floats
    tubes: Tubes
    skull: tuple[int, int]
    palette: Floats
    attributes: dict[str, str]
    arm_spread: float


def _vary(colour: Colour, draws: Draws, amount: float) -> Colour:
    h, s, v = colorsys.rgb_to_hsv(*colour)
    h = (h + draws.uniform(-0.4, 0.4) * amount) % 1.0
    s = min(max(s + draws.uniform(-1, 1) * amount, 0.0), 1.0)
    v = min(max(v + draws.uniform(-1, 1) * amount, 0.03), 0.97)
    return colorsys.hsv_to_rgb(h, s, v)


def _proportions(draws: Draws) -> tuple[BodyShape, Floats, str]:
    """Shape, bone lengths and a word for the age."""
    woman = draws.chance(0.5)
    age = draws.weighted({"child": 0.08, "young": 0.42, "middle-aged": 0.32, "elderly": 0.18})
    height = draws.normal(0.065) + (1.64 if woman else 1.77)
    heavy = min(max(draws.normal(0.30) + (0.12 if age == "middle-aged" else 0.0), -0.75), 1.1)
    feminine = draws.uniform(0.7, 1.0) if woman else draws.uniform(0.0, 0.25)
    if age == "child":
        height, feminine, heavy = draws.uniform(1.18, 1.5), 0.4, heavy * 0.5
    scale = height / 1.76
    bones = np.array(list(BONES.values())) * scale * (1.0 + 0.02 * draws.normals(len(BONES)))
    legs = draws.normal(0.025)
    bones[[BONE["thigh"], BONE["shank"]]] *= 1.0 + legs
    bones[[BONE["lumbar"], BONE["spine"]]] *= 1.0 - legs
    bones[BONE["shoulder_half"]] *= (1.04 - 0.14 * feminine) * (1.0 + 0.05 * heavy)
    bones[BONE["hip_half"]] *= 0.97 + 0.07 * feminine
    # heads vary less than bodies: a child's is nearly an adult's
    head = (0.45 * scale + 0.55) * draws.uniform(0.98, 1.06)
    bones[BONE["head"]] = BONES["head"] * head
    build = "slim" if heavy < -0.2 else "stout" if heavy > 0.42 else "average"
    return BodyShape(scale, heavy, feminine, head, build, age == "elderly"), bones, age


@lru_cache(maxsize=4096)
def body_of(identity: int, gown: bool) -> Body:
    """The person of this number, in their own clothes or in a hospital gown; the same every time."""
    draws = Draws(_STREAM, identity)
    shape, bones, age = _proportions(draws)
    skin = draws.choice(list(SKINS))
    hair = draws.choice(("black", "dark brown") if skin in ("brown", "deep", "ebony") else tuple(HAIRS)[:6])
    if shape.elderly:
        hair = draws.choice(("grey", "white"))
    skin_rgb, hair_rgb = _vary(SKINS[skin], draws, 0.025), _vary(HAIRS[hair], draws, 0.03)
    head, face = draw_head(draws, shape, shape.elderly, age == "child")
    palette = Palette()
    palette.set(SKIN, skin_rgb, kind="skin", gloss=0.10)
    palette.set(HAIR, hair_rgb, kind="hair", gloss=0.28)
    palette.set(FACE, skin_rgb, hair_rgb, kind="face", gloss=0.10, flags=face.flags)
    tubes, clothing = dress(draws, shape, gown, palette)
    before = sum(len(rings) * (sides + 1) for rings, sides in tubes)
    skull_rings, skull_sides = head[0]
    attributes = {
        "build": shape.build,
        "age": age,
        "height": "tall" if shape.scale > 1.02 else "short" if shape.scale < 0.92 else "medium",
        "skin": skin,
        "hair": face.style if face.style in ("bald", "headscarf") else f"{hair}, {face.style}",
        **clothing,
        "glasses": "yes" if face.glasses else "no",
        "beard": "yes" if face.beard else "no",
    }
    return Body(
        identity,
        bones,
        pack_tubes([*tubes, *head]),
        (before, before + len(skull_rings) * (skull_sides + 1)),
        palette.table,
        attributes,
        0.03 + 0.10 * max(shape.heavy, 0.0),
    )
