"""Rooms: the floors and walls of each look, and the colours of what stands in them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.draws import Draws
from dpose_scene.materials import (
    BLANKET,
    CHAIR,
    CUSHION,
    FRAME_,
    METAL,
    PILLOW,
    PLAIN,
    SCREEN,
    SHEET,
    WOOD,
    Colour,
    Palette,
    linear,
)

Floats = NDArray[np.float64]

WALLS: dict[str, tuple[Colour, ...]] = {
    "studio": (
        (0.93, 0.92, 0.90),
        (0.86, 0.88, 0.90),
        (0.90, 0.84, 0.76),
        (0.78, 0.85, 0.88),
        (0.95, 0.88, 0.82),
        (0.74, 0.82, 0.74),
        (0.62, 0.70, 0.80),
        (0.85, 0.76, 0.80),
        (0.52, 0.62, 0.66),
        (0.80, 0.62, 0.50),
        (0.96, 0.92, 0.74),
        (0.66, 0.66, 0.70),
    ),
    "ward": (
        (0.72, 0.78, 0.72),
        (0.62, 0.70, 0.74),
        (0.74, 0.70, 0.60),
        (0.50, 0.56, 0.52),
        (0.42, 0.46, 0.54),
        (0.66, 0.58, 0.52),
        (0.36, 0.40, 0.40),
        (0.80, 0.80, 0.76),
    ),
}
FLOORS: dict[str, tuple[Colour, ...]] = {
    "studio": (
        (0.80, 0.66, 0.50),
        (0.70, 0.52, 0.36),
        (0.86, 0.84, 0.80),
        (0.62, 0.62, 0.62),
        (0.55, 0.42, 0.32),
        (0.56, 0.66, 0.44),
        (0.74, 0.74, 0.78),
        (0.78, 0.70, 0.62),
    ),
    "ward": ((0.46, 0.52, 0.50), (0.40, 0.44, 0.50), (0.54, 0.50, 0.42), (0.34, 0.34, 0.36), (0.60, 0.62, 0.58)),
}


def _shade(colour: Colour, factor: float) -> Colour:
    return (min(colour[0] * factor, 1.0), min(colour[1] * factor, 1.0), min(colour[2] * factor, 1.0))


def draw_room(draws: Draws, look: str) -> Floats:
    """(22,) the room's floor and walls.

    Floor pattern, its repeats a metre, colour (3), second colour (3); wall pattern, repeats, colour (3),
    second colour (3); distance of the back wall behind the origin, cosine and sine of its yaw, distance of
    the side wall, height of the skirting board, how fast the light falls off. Metres, linear light.
    """
    room = np.zeros(22)
    floor, wall = draws.choice(FLOORS[look]), draws.choice(WALLS[look])
    contrast = (0.82, 1.2) if look == "studio" else (0.7, 1.25)
    room[0] = draws.choice((0, 1, 2, 2, 3, 4, 5, 6) if look == "studio" else (0, 1, 2, 4, 4, 6))
    room[1] = 1.0 / draws.uniform(0.25, 0.5)
    room[2:5], room[5:8] = linear(floor), linear(_shade(floor, draws.uniform(*contrast) * 0.9))
    room[8] = draws.choice((0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 7) if look == "studio" else (0, 0, 2, 4, 4, 6, 6, 7))
    room[9] = 1.0 / draws.uniform(0.16, 0.55)
    second = _shade(wall, draws.uniform(*contrast)) if draws.chance(0.7) else draws.choice(WALLS[look])
    room[10:13], room[13:16] = linear(wall), linear(second)
    yaw = draws.uniform(-0.9, 0.4)
    room[16], room[17], room[18] = draws.uniform(1.1, 2.6), math.cos(yaw), math.sin(yaw)
    room[19] = draws.uniform(1.2, 3.0)
    room[20] = draws.choice((0.0, 0.08, 0.12))
    room[21] = draws.uniform(0.0, 0.03) if look == "studio" else draws.uniform(0.04, 0.16)
    return room


def furnish_palette(draws: Draws, look: str, table: Floats) -> None:
    """Materials of things, written into rows 16 and up of a palette."""
    palette = Palette()
    ward = look == "ward"
    woods: tuple[Colour, ...] = ((0.62, 0.44, 0.28), (0.42, 0.28, 0.18), (0.80, 0.66, 0.48), (0.26, 0.18, 0.13))
    vivid: tuple[Colour, ...] = (
        (0.75, 0.30, 0.25),
        (0.25, 0.45, 0.65),
        (0.85, 0.70, 0.30),
        (0.35, 0.55, 0.40),
        (0.55, 0.40, 0.60),
        (0.88, 0.86, 0.84),
        (0.30, 0.32, 0.36),
        (0.82, 0.58, 0.48),
    )
    dull: tuple[Colour, ...] = (
        (0.50, 0.54, 0.54),
        (0.66, 0.66, 0.62),
        (0.36, 0.40, 0.44),
        (0.46, 0.42, 0.36),
        (0.30, 0.36, 0.34),
    )
    things = dull if ward else vivid
    palette.set(FRAME_, draws.choice(dull if ward else woods), kind="thing")
    palette.set(
        SHEET, draws.choice(((0.90, 0.90, 0.88), (0.74, 0.82, 0.86), (0.86, 0.86, 0.78))), kind="cloth", folds=0.5
    )
    blanket = draws.choice(
        ((0.40, 0.55, 0.66), (0.82, 0.82, 0.78), (0.50, 0.62, 0.54), (0.66, 0.56, 0.46), (0.56, 0.40, 0.42))
    )
    palette.set(
        BLANKET, blanket, (0.85, 0.85, 0.8), draws.choice(("plain", "plain", "stripes", "checks")), 0.16, "cloth", 0.9
    )
    palette.set(PILLOW, (0.92, 0.92, 0.90), kind="cloth", folds=0.4)
    palette.set(CHAIR, draws.choice(things + woods), kind="thing")
    palette.set(CUSHION, draws.choice(things), kind="cloth", folds=0.3)
    palette.set(WOOD, draws.choice(woods), kind="wood")
    palette.set(
        PLAIN, draws.choice(things), draws.choice(things), draws.choice(("plain", "stripes", "blocks")), 0.3, "thing"
    )
    palette.set(METAL, (0.62, 0.64, 0.66), kind="thing", gloss=0.4)
    palette.set(SCREEN, draws.choice(things), draws.choice(things), "print", 0.25, "thing")
    table[16:] = palette.table[16:]
