"""Clothes: garments as rings over the bare body's, a little further out, with a hem where they end."""

from __future__ import annotations

from dpose_scene.anatomy import BodyShape, Station, arm, hand, leg, neck, torso
from dpose_scene.draws import Draws
from dpose_scene.materials import BOTTOM, HAND, KINDS, LEGWEAR, SHOE, SKIN, SKIRT, SLEEVE, SOCK, TOP, Palette
from dpose_scene.mesh import UP, Ring
from dpose_scene.wardrobe import Outfit, choose_colours, draw_outfit

Tube = tuple[list[Ring], int]


def _ring(station: Station, extra: float, material: int, v: float) -> Ring:
    return Ring(*station[:5], station.across + extra, station.along + extra, material, v, station.towards)


def _between(a: Station, b: Station, s: float) -> Station:
    """The cross-section at `s` between two neighbours, on the segment of the nearer one."""
    share = (s - a.s) / (b.s - a.s)
    base = a if a.segment == b.segment or share < 0.5 else b
    t = a.t + share * (b.t - a.t) if a.segment == b.segment else base.t
    x, y, z, across, along = (p + share * (q - p) for p, q in zip(a[2:7], b[2:7], strict=True))
    return Station(base.segment, t, x, y, z, across, along, s, base.towards)


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


def _shoe(shape: BodyShape, side: str, material: int, extra: float) -> list[Tube]:
    s = shape.scale * (1.0 - 0.05 * shape.feminine)
    rows = (
        # forward, height of the middle above the sole, half width, half height
        (-0.072, 0.034, 0.001, 0.001),
        (-0.066, 0.037, 0.027, 0.032),
        (-0.040, 0.045, 0.035, 0.044),
        (0.000, 0.049, 0.037, 0.048),
        (0.040, 0.042, 0.040, 0.041),
        (0.085, 0.034, 0.046, 0.033),
        (0.130, 0.029, 0.049, 0.028),
        (0.170, 0.025, 0.043, 0.024),
        (0.194, 0.020, 0.026, 0.018),
        (0.202, 0.018, 0.001, 0.001),
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


def _trunk(shape: BodyShape, outfit: Outfit) -> list[Tube]:
    """The torso: cloth of the bottom below, of the top above, and a loose top's tail over the hips."""
    low = TOP if outfit.bottom in ("dress", "gown") else SKIRT if outfit.skirt else BOTTOM
    extra, end, untucked = outfit.loose, min(outfit.tail, 0.95), outfit.tail < 0.9
    rings: list[Ring] = []
    s, below = shape.scale, None
    for st in torso(shape):
        top = st.s >= end
        if top and below is not None and below.s < end:
            hem = _between(below, st, end)
            rings.append(_ring(hem, 0.006, low, hem.s * 0.31))
            rings.append(_ring(hem, extra + (0.014 if untucked else 0.004), TOP, hem.s * 0.31))
        off = 0.0 if below is None or st.s > 1.95 else extra if top else 0.008
        if top and st.s < 1.3 and untucked:
            off += 0.010  # an untucked top hangs from the chest
        rings.append(_ring(st, off, TOP if top else low, st.s * 0.31))
        below = st
    tubes: list[Tube] = [(rings, 16)]
    bare_neck = [_ring(st, 0.0, SKIN, 0.3 + 0.1 * st.s) for st in neck(shape)]
    tubes.append((bare_neck, 10))
    if outfit.top in ("shirt", "polo", "jacket", "hoodie"):
        thick = 0.018 if outfit.top == "hoodie" else 0.008
        collar = [
            Ring("neck", t, 0.0, 0.0, z * s, (r + thick) * s, (r + thick) * 1.06 * s, SLEEVE, 0.62 + 0.05 * t)
            for t, z, r in ((-0.1, -0.01, 0.052), (0.18, -0.012, 0.058), (0.42, -0.014, 0.055), (0.44, -0.014, 0.040))
        ]
        tubes.append((collar, 12))
    return tubes


def _skirt(shape: BodyShape, outfit: Outfit, gown: bool) -> Tube:
    """A tube from the waist that holds both legs: fitted over the hips, then flaring to its hem."""
    s, fat = shape.scale, 1.0 + 0.16 * shape.heavy
    out = outfit.loose + 0.006 if outfit.bottom in ("dress", "gown") else 0.013
    hips = [st for st in torso(shape) if 0.3 < st.s <= 1.0]
    rows = [_ring(st, out, SKIRT, 0.31 * (1.0 - st.s)) for st in reversed(hips)]
    first = rows[0]
    rows.insert(0, first._replace(across=first.across - out, along=first.along - out))
    flare = 0.055 if gown else 0.04
    end = min(outfit.skirt, 1.0)
    for t in [e for e in (0.12, 0.3, 0.5, 0.75) if e < end - 0.08] + [end]:
        thick = (0.088 - 0.030 * t) * fat * s + 0.012 + flare * t
        rows.append(Ring("skirt", t, 0.0, 0.0, 0.0, thick, thick + 0.014, SKIRT, 0.22 + 0.43 * t))
    if outfit.skirt > 1.0:
        thick = 0.062 * fat * s + flare
        rows += [
            Ring("hem", t, 0.0, 0.0, 0.0, thick, thick + 0.012, SKIRT, 0.65 + 0.43 * t)
            for t in (0.12, outfit.skirt - 1.0 + 0.08)
        ]
    last = rows[-1]
    rows.append(last._replace(across=last.across * 0.8, along=last.along * 0.8))
    rows.append(last._replace(across=0.0, along=0.0, t=last.t - 0.1))
    return rows, 18


def dress(draws: Draws, shape: BodyShape, gown: bool, palette: Palette) -> tuple[list[Tube], dict[str, str]]:
    """The clothed body below the head: tubes, and words for what it wears. Fills the palette's cloth."""
    outfit = draw_outfit(draws, shape, gown)
    words = choose_colours(draws, outfit, palette, gown)
    skin = palette.table[SKIN].copy()
    tubes = _trunk(shape, outfit)
    tights = outfit.skirt > 0 and not gown and draws.chance(0.4)
    for side in "rl":
        wide = 0.022 if gown else 0.0
        tubes.append((cover(arm(shape, side), outfit.sleeve, outfit.loose * 0.8, wide + 0.006, SLEEVE, SKIN, 0.29), 10))
        tubes += [
            ([_ring(st, 0.0, HAND, st.t) for st in part], sides)
            for part, sides in zip(hand(shape, side), (8, 6), strict=True)
        ]
        bare = LEGWEAR if tights else SKIN
        end = outfit.leg if not outfit.skirt else -0.5
        rings = cover(leg(shape, side), end, 0.006 + 0.3 * outfit.wide, outfit.wide, BOTTOM, bare, 0.43)
        if not outfit.barefoot and not tights:  # socks show between hem and shoe
            rings = [
                r._replace(material=SOCK) if r.material == SKIN and r.segment.endswith("shank") and r.t >= 0.85 else r
                for r in rings
            ]
        tubes.append((rings, 12))
        tubes += _shoe(shape, side, SHOE, -0.004 if outfit.barefoot else 0.0)
    if outfit.skirt:
        tubes.append(_skirt(shape, outfit, gown))
    palette.table[SLEEVE] = palette.table[TOP]  # the same cloth without what is painted on a trunk
    palette.table[SLEEVE, 8] = KINDS["cloth"]
    palette.table[HAND] = skin
    palette.table[HAND, 8] = KINDS["hand"]
    if outfit.barefoot:
        palette.table[SHOE] = skin
    return tubes, words
