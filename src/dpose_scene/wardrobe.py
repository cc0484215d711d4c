"""Garments: their lengths, colours and patterns."""

from __future__ import annotations

from dataclasses import dataclass

from dpose_scene.anatomy import BodyShape
from dpose_scene.draws import Draws
from dpose_scene.materials import BOTTOM, HAT, LEGWEAR, SHOE, SKIRT, SOCK, TOP, TRIM, Colour, Palette

CLOTH: dict[str, Colour] = {
    "white": (0.93, 0.93, 0.91),
    "cream": (0.90, 0.85, 0.74),
    "light grey": (0.68, 0.69, 0.70),
    "grey": (0.43, 0.44, 0.46),
    "charcoal": (0.20, 0.21, 0.23),
    "black": (0.085, 0.085, 0.095),
    "navy": (0.10, 0.14, 0.30),
    "blue": (0.16, 0.34, 0.70),
    "sky": (0.50, 0.70, 0.88),
    "teal": (0.08, 0.45, 0.47),
    "green": (0.16, 0.46, 0.24),
    "olive": (0.38, 0.40, 0.20),
    "mint": (0.62, 0.83, 0.72),
    "yellow": (0.93, 0.76, 0.24),
    "mustard": (0.74, 0.54, 0.14),
    "orange": (0.90, 0.46, 0.14),
    "red": (0.76, 0.14, 0.15),
    "burgundy": (0.42, 0.08, 0.14),
    "pink": (0.93, 0.62, 0.70),
    "magenta": (0.72, 0.18, 0.48),
    "purple": (0.40, 0.24, 0.56),
    "lilac": (0.72, 0.64, 0.84),
    "brown": (0.40, 0.26, 0.17),
    "beige": (0.76, 0.66, 0.52),
}
TROUSERS = ("navy", "charcoal", "black", "grey", "blue", "beige", "brown", "olive", "light grey", "burgundy")

V_NECK, OPEN_JACKET, BUTTONS, BELT, BARE_SHOULDERS, LOGO = 1, 2, 4, 8, 16, 32
"""Flags of a torso, as the shader reads them."""


@dataclass(frozen=True)
class Outfit:
    """Outfit of a person, in numbers.

    Attributes:
        top: Word for the top.
        bottom: Word for the bottom.
        sleeve: Where sleeves end along the arm (`Station.s`); below 0 there are none.
        leg: Where trousers end along the leg.
        skirt: Where a skirt ends (0 none, 1 knee, 2 ankle).
        loose: How far cloth stands off the body, metres.
        wide: How much wider the trousers' legs are, metres.
        tail: Where the top ends on the trunk (`Station.s`).
        barefoot: No shoes.
    """

    top: str
    bottom: str
    sleeve: float
    leg: float
    skirt: float
    loose: float
    wide: float
    tail: float
    barefoot: bool


def draw_outfit(draws: Draws, shape: BodyShape, gown: bool) -> Outfit:
    """Draw the outfit of a person."""
    woman = shape.feminine > 0.5
    if gown:
        return Outfit(
            "hospital gown",
            "gown",
            draws.uniform(0.75, 0.98),
            0.0,
            draws.uniform(0.85, 1.3),
            0.022,
            0.0,
            0.0,
            draws.chance(0.6),
        )
    bottom = draws.weighted(
        {"trousers": 5.0, "shorts": 2.2, "skirt": 1.6 * woman, "dress": 1.6 * woman, "leggings": 0.2 + 1.0 * woman}
    )
    top = draws.weighted(
        {"t-shirt": 4.0, "shirt": 2.0, "sweater": 2.2, "tank top": 1.2, "jacket": 1.6, "hoodie": 1.2, "polo": 1.0}
    )
    sleeve = {
        "t-shirt": draws.uniform(0.45, 0.75),
        "polo": draws.uniform(0.5, 0.8),
        "shirt": draws.weighted({0.8: 1.0, 1.55: 0.8, 1.94: 2.2}),
        "sweater": 1.95,
        "hoodie": 1.95,
        "jacket": 1.96,
        "tank top": -0.16,
    }[top]
    if bottom == "dress":
        top, sleeve = "dress", draws.weighted({-0.16: 1.2, 0.5: 2.0, 1.5: 0.7, 1.92: 0.6})
    loose = {"hoodie": 0.020, "jacket": 0.018, "sweater": 0.014, "tank top": 0.005}.get(
        top, draws.uniform(0.006, 0.014)
    )
    ends = {
        "trousers": draws.weighted({2.02: 5.0, 1.82: 0.7}),
        "shorts": draws.uniform(0.45, 0.95),
        "leggings": draws.weighted({1.95: 2.0, 1.5: 1.0}),
    }
    skirt = draws.uniform(0.55, 1.6) if bottom in ("skirt", "dress") else 0.0
    wide = {"trousers": draws.uniform(0.006, 0.026), "shorts": draws.uniform(0.008, 0.026), "leggings": 0.002}
    return Outfit(
        top,
        bottom,
        sleeve,
        ends.get(bottom, 0.0),
        skirt,
        loose,
        wide.get(bottom, 0.0),
        draws.weighted({0.95: 1.2, 0.45: 2.0, 0.3: 1.2}) if bottom not in ("dress", "skirt") else 0.95,
        draws.chance(0.06),
    )


def choose_colours(draws: Draws, outfit: Outfit, palette: Palette, gown: bool) -> dict[str, str]:
    """Fill the palette with cloth and say what it is."""
    names = list(CLOTH)
    top, second = draws.choice(names), draws.choice(names)
    bottom, shoe = (
        draws.choice(TROUSERS),
        draws.choice(("white", "black", "brown", "grey", "red", "navy", "charcoal")),
    )
    if draws.chance(0.25):
        bottom = draws.choice(names)
    pattern = draws.weighted(
        {
            "plain": 5.0,
            "stripes": 1.6,
            "checks": 1.2,
            "blocks": 0.8,
            "heather": 0.9,
            "dots": 0.5,
            "print": 1.0,
            "pinstripes": 0.5,
        }
    )
    size = draws.uniform(0.05, 0.11)
    folds = draws.uniform(0.5, 1.0)
    if gown:
        top = draws.weighted({"sky": 3.0, "mint": 2.0, "white": 2.0, "lilac": 0.6})
        second, pattern, size = ("blue", "dots", 0.045) if draws.chance(0.5) else ("teal", "checks", 0.06)
        folds = 1.0
    flags = {"shirt": BUTTONS, "polo": BUTTONS, "jacket": OPEN_JACKET, "hospital gown": V_NECK}.get(outfit.top, 0)
    flags |= V_NECK * (outfit.top in ("t-shirt", "dress", "sweater") and draws.chance(0.3))
    flags |= BARE_SHOULDERS * (outfit.sleeve < 0.0)
    flags |= LOGO * (outfit.top in ("t-shirt", "hoodie", "sweater") and pattern == "plain" and draws.chance(0.4))
    flags |= BELT * (outfit.bottom in ("trousers", "shorts") and outfit.tail > 0.9 and draws.chance(0.7))
    palette.set(TOP, CLOTH[top], CLOTH[second], pattern, size, "torso", folds, 0.0, flags)
    palette.set(
        BOTTOM,
        CLOTH[bottom],
        CLOTH[second],
        draws.weighted({"plain": 6.0, "heather": 1.0, "checks": 0.5}),
        0.07,
        "cloth",
        folds,
    )
    skirt_of = top if outfit.bottom in ("dress", "gown") else bottom
    skirt_pattern = pattern if skirt_of == top else draws.choice(("plain", "plain", "checks", "dots"))
    palette.set(SKIRT, CLOTH[skirt_of], CLOTH[second], skirt_pattern, size, "cloth", folds)
    palette.set(SHOE, CLOTH[shoe], CLOTH["white"], kind="shoe", gloss=0.15)
    palette.set(SOCK, CLOTH[draws.choice(("white", "black", "grey", second))])
    palette.set(TRIM, CLOTH[second])
    palette.set(HAT, CLOTH[draws.choice(names)], folds=0.3)
    palette.set(LEGWEAR, CLOTH[draws.choice(("black", "charcoal", "navy", "burgundy"))])
    words = {"top": f"{top} {outfit.top}" if pattern == "plain" else f"{top} {pattern} {outfit.top}"}
    words["bottom"] = {"dress": "dress", "gown": "gown"}.get(outfit.bottom, f"{bottom} {outfit.bottom}")
    words["shoes"] = "barefoot" if outfit.barefoot else shoe
    return words
