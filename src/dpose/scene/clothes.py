"""Clothes: garments as rings over the bare body's, a little further out, with a hem where they end."""

from __future__ import annotations

from dataclasses import dataclass

from dpose.scene.anatomy import Shape, Station, arm, hand, leg, neck, torso
from dpose.scene.draws import Draws
from dpose.scene.materials import (
    BOTTOM,
    HAT,
    LEGWEAR,
    SHOE,
    SKIN,
    SKIRT,
    SOCK,
    SOLE,
    TOP,
    TRIM,
    Colour,
    Palette,
)
from dpose.scene.mesh import UP, Ring

Tube = tuple[list[Ring], int]

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
    """What a person wears, in numbers.

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


def _ring(station: Station, extra: float, material: int, v: float) -> Ring:
    return Ring(
        *station[:5], station.across + extra, station.along + extra, material, v, station.towards
    )


def _between(a: Station, b: Station, s: float) -> Station:
    """The cross-section at `s` between two neighbours, on the segment of the nearer one."""
    share = (s - a.s) / (b.s - a.s)
    base = a if a.segment == b.segment or share < 0.5 else b
    t = a.t + share * (b.t - a.t) if a.segment == b.segment else base.t
    mixed = (p + share * (q - p) for p, q in zip(a[2:7], b[2:7], strict=True))
    return Station(base.segment, t, *mixed, s, base.towards)


def cover(
    stations: list[Station], end: float, extra: float, flare: float, cloth: int, bare: int, length: float
) -> list[Ring]:
    """Rings of a limb that is covered up to `end` (`Station.s`) and bare beyond.

    Args:
        stations: The bare limb.
        end: Where the garment ends.
        extra: Distance of the cloth from the skin, metres.
        flare: How much more of it there is at the hem.
        cloth: The garment's material.
        bare: What shows beyond.
        length: Metres for one unit of `s`, for the texture.
    """
    rings: list[Ring] = []
    first = stations[0].s
    for previous, station in zip([None, *stations[:-1]], stations, strict=True):
        if previous is not None and previous.s < end <= station.s:
            hem = _between(previous, station, end)
            rings.append(_ring(hem, extra + flare, cloth, (end - first) * length))
            rings.append(_ring(hem, -0.1 * hem.across, bare, (end - first) * length))
            if station.s - end < 0.04:
                continue
        covered = station.s < end
        share = (station.s - first) / (end - first) if covered else 0.0
        off = extra + flare * share * share if covered else 0.0
        closing = previous is None or station is stations[-1]
        rings.append(_ring(station, 0.0 if closing else off, cloth if covered else bare, (station.s - first) * length))
    return rings


def _shoe(shape: Shape, side: str, material: int, extra: float) -> list[Tube]:
    s = shape.scale * (1.0 - 0.05 * shape.feminine)
    rows = (
        # forward, height of the middle above the sole, half width, half height
        (-0.070, 0.030, 0.008, 0.010),
        (-0.064, 0.032, 0.025, 0.026),
        (-0.040, 0.040, 0.033, 0.038),
        (0.000, 0.044, 0.035, 0.042),
        (0.040, 0.037, 0.038, 0.035),
        (0.085, 0.029, 0.043, 0.027),
        (0.130, 0.024, 0.045, 0.022),
        (0.168, 0.019, 0.036, 0.017),
        (0.190, 0.016, 0.012, 0.010),
    )
    base = -0.078 * s
    return [
        (
            [
                Ring(f"{side}_foot", 0.0, 0.0, base + y * s, z * s, a * s + extra, b * s + extra, material, z, UP)
                for z, y, a, b in rows
            ],
            10,
        )
    ]


def draw_outfit(draws: Draws, shape: Shape, gown: bool) -> Outfit:
    """What this person puts on."""
    woman = shape.feminine > 0.5
    if gown:
        return Outfit(
            "hospital gown", "gown", draws.uniform(0.75, 0.98), 0.0, draws.uniform(0.85, 1.3), 0.022, 0.0, 0.0,
            draws.chance(0.6),
        )  # fmt: skip
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
    loose = {"hoodie": 0.020, "jacket": 0.018, "sweater": 0.014, "tank top": 0.005}.get(top, draws.uniform(0.006, 0.014))
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
        draws.weighted({0.95: 1.2, 0.45: 2.0, 0.3: 1.2}) if bottom not in ("dress",) else 0.9,
        draws.chance(0.06),
    )


def _colours(draws: Draws, outfit: Outfit, palette: Palette, gown: bool) -> dict[str, str]:
    """Fill the palette with cloth and say what it is."""
    names = list(CLOTH)
    top, second = draws.choice(names), draws.choice(names)
    bottom, shoe = draws.choice(TROUSERS), draws.choice(("white", "black", "brown", "grey", "red", "navy", "charcoal"))
    if draws.chance(0.25):
        bottom = draws.choice(names)
    pattern = draws.weighted(
        {"plain": 5.0, "stripes": 1.6, "checks": 1.2, "blocks": 0.8, "heather": 0.9, "dots": 0.5, "print": 1.0, "pinstripes": 0.5}
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
        BOTTOM, CLOTH[bottom], CLOTH[second], draws.weighted({"plain": 6.0, "heather": 1.0, "checks": 0.5}), 0.07, "cloth", folds
    )
    skirt_of = top if outfit.bottom in ("dress", "gown") else bottom
    skirt_pattern = pattern if skirt_of == top else draws.choice(("plain", "plain", "checks", "dots"))
    palette.set(SKIRT, CLOTH[skirt_of], CLOTH[second], skirt_pattern, size, "cloth", folds)
    palette.set(SHOE, CLOTH[shoe], CLOTH["white"], kind="shoe", gloss=0.15)
    palette.set(SOLE, CLOTH["white"])
    palette.set(SOCK, CLOTH[draws.choice(("white", "black", "grey", second))])
    palette.set(TRIM, CLOTH[second])
    palette.set(HAT, CLOTH[draws.choice(names)], folds=0.3)
    palette.set(LEGWEAR, CLOTH[draws.choice(("black", "charcoal", "navy", "burgundy"))])
    words = {"top": f"{top} {outfit.top}" if pattern == "plain" else f"{top} {pattern} {outfit.top}"}
    words["bottom"] = {"dress": "dress", "gown": "gown"}.get(outfit.bottom, f"{bottom} {outfit.bottom}")
    words["shoes"] = "barefoot" if outfit.barefoot else shoe
    return words


def _trunk(shape: Shape, outfit: Outfit) -> list[Tube]:
    """The torso: cloth of the bottom below, of the top above, and a loose top's tail over the hips."""
    extra = outfit.loose
    low = SKIRT if outfit.skirt else BOTTOM
    rings: list[Ring] = []
    s = shape.scale
    for k, st in enumerate(torso(shape)):
        top = st.s >= min(outfit.tail, 0.95)
        off = 0.0 if k == 0 or st.s > 1.95 else extra if top else 0.008
        if top and st.s < 1.3 and outfit.tail < 0.9:
            off += 0.010  # an untucked top hangs from the chest
        rings.append(_ring(st, off, TOP if top else low, st.s * 0.31 * s))
        if not top and k + 1 < len(torso(shape)) and torso(shape)[k + 1].s >= min(outfit.tail, 0.95):
            hem = _between(st, torso(shape)[k + 1], min(outfit.tail, 0.95))
            rings.append(_ring(hem, 0.006, low, hem.s * 0.31 * s))
            rings.append(_ring(hem, extra + (0.014 if outfit.tail < 0.9 else 0.004), TOP, hem.s * 0.31 * s))
    tubes: list[Tube] = [(rings, 16)]
    bare_neck = [_ring(st, 0.0, SKIN, 0.3 + 0.1 * st.s) for st in neck(shape)]
    tubes.append((bare_neck, 10))
    if outfit.top in ("shirt", "polo", "jacket", "hoodie"):
        thick = 0.018 if outfit.top == "hoodie" else 0.008
        collar = [
            Ring("neck", t, 0.0, 0.0, z * s, (r + thick) * s, (r + thick) * 1.06 * s, TOP, 0.62 + 0.05 * t)
            for t, z, r in ((-0.1, -0.01, 0.052), (0.18, -0.012, 0.058), (0.42, -0.014, 0.055), (0.44, -0.014, 0.040))
        ]
        tubes.append((collar, 12))
    return tubes


def _skirt(shape: Shape, outfit: Outfit, gown: bool) -> Tube:
    s, fat = shape.scale, 1.0 + 0.2 * shape.heavy
    rows: list[Ring] = []
    flare = 0.05 if gown else 0.035
    steps = [0.0, 0.12, 0.3, 0.5, 0.75, 1.0]
    ends = [e for e in steps if e < min(outfit.skirt, 1.0)] + [min(outfit.skirt, 1.0)]
    rows.append(Ring("pelvis", 0.0, 0.0, 0.11 * s, 0.0, 0.13 * s, 0.09 * s, SKIRT, 0.0))
    rows.append(Ring("pelvis", 0.0, 0.0, 0.06 * s, 0.0, 0.172 * s * fat, 0.116 * s * fat, SKIRT, 0.05))
    for t in ends:
        thick = (0.098 - 0.035 * t) * fat * s + 0.012 + flare * t
        rows.append(Ring("skirt", max(t, 0.04), 0.0, 0.0, 0.0, thick, thick + 0.012, SKIRT, 0.12 + 0.43 * t))
    if outfit.skirt > 1.0:
        rows += [
            Ring("hem", t, 0.0, 0.0, 0.0, 0.078 * s + flare, 0.09 * s + flare, SKIRT, 0.55 + 0.43 * t)
            for t in (0.12, outfit.skirt - 1.0 + 0.08)
        ]
    last = rows[-1]
    rows.append(last._replace(across=last.across * 0.8, along=last.along * 0.8))
    rows.append(last._replace(across=0.0, along=0.0, material=SKIRT, t=last.t - 0.1))
    return rows, 16


def dress(draws: Draws, shape: Shape, gown: bool, palette: Palette) -> tuple[list[Tube], dict[str, str]]:
    """The clothed body below the head: tubes, and words for what it wears. Fills the palette's cloth."""
    outfit = draw_outfit(draws, shape, gown)
    words = _colours(draws, outfit, palette, gown)
    skin = palette.table[SKIN].copy()
    tubes = _trunk(shape, outfit)
    tights = outfit.skirt > 0 and not gown and draws.chance(0.4)
    for side in "rl":
        wide = 0.022 if gown else 0.0
        tubes.append(
            (cover(arm(shape, side), outfit.sleeve, outfit.loose * 0.8, wide + 0.006, TOP, SKIN, 0.29), 10)
        )
        tubes += [([_ring(st, 0.0, SKIN, st.t) for st in part], sides) for part, sides in zip(hand(shape, side), (8, 6), strict=True)]
        bare = LEGWEAR if tights else SKIN
        end = outfit.leg if not outfit.skirt else -0.5
        rings = cover(leg(shape, side), end, 0.006 + 0.3 * outfit.wide, outfit.wide, BOTTOM, bare, 0.43)
        if not outfit.barefoot and not tights:  # socks show between hem and shoe
            rings = [r._replace(material=SOCK) if r.material == SKIN and r.segment.endswith("shank") and r.t >= 0.85 else r for r in rings]
        tubes.append((rings, 12))
        tubes += _shoe(shape, side, SHOE, -0.004 if outfit.barefoot else 0.0)
    if outfit.skirt:
        tubes.append(_skirt(shape, outfit, gown))
    if outfit.barefoot:
        palette.table[SHOE] = skin
    return tubes, words
