"""Materials of surfaces: their numbers, and the table that the shader reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]
"""Red, green and blue in [0, 1], sRGB."""

SKIN, FACE, TOP, BOTTOM, SHOE, HAIR, SOCK, SKIRT, HAND, TRIM, HAT, LEGWEAR, SLEEVE = range(13)
FIRST_OBJECT = 16
"""First material of things; smaller numbers belong to the person."""
FRAME_, SHEET, BLANKET, PILLOW, CHAIR, WOOD, PLAIN, METAL, CUSHION, SCREEN = range(16, 26)
MATERIALS = 32

KINDS = {"cloth": 0, "skin": 1, "face": 2, "torso": 3, "shoe": 4, "hair": 5, "thing": 6, "wood": 7, "hand": 8}
PATTERNS = {
    "plain": 0,
    "stripes": 1,
    "pinstripes": 2,
    "checks": 3,
    "dots": 4,
    "heather": 5,
    "blocks": 6,
    "print": 7,
    "floral": 8,
}
COLUMNS = 12


def linear(colour: Colour) -> Colour:
    """SRGB to linear light."""
    r, g, b = colour
    return _linear(r), _linear(g), _linear(b)


def _linear(value: float) -> float:
    return float(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)


class Palette:
    """The table of materials while it is being filled.

    Columns: colour (3), second colour (3), pattern, pattern size in metres, kind, folds, gloss, flags.
    """

    def __init__(self) -> None:
        self.table: NDArray[np.float64] = np.zeros((MATERIALS, COLUMNS))
        self.table[:, 7] = 1.0

    def set(
        self,
        material: int,
        colour: Colour,
        second: Colour | None = None,
        pattern: str = "plain",
        size: float = 0.06,
        kind: str = "cloth",
        folds: float = 0.0,
        gloss: float = 0.0,
        flags: int = 0,
    ) -> None:
        """Define a material.

        Args:
            material: Its number.
            colour: sRGB.
            second: The pattern's other colour, sRGB (a face: its hair's).
            pattern: One of `PATTERNS`.
            size: The pattern's period, metres.
            kind: One of `KINDS`.
            folds: How strongly cloth wrinkles, 0 to 1.
            gloss: Strength of highlights.
            flags: Flags for the shader of this kind (glasses, beard, neckline).
        """
        first = linear(colour)
        self.table[material] = (
            *first,
            *(linear(second) if second else first),
            PATTERNS[pattern],
            size,
            KINDS[kind],
            folds,
            gloss,
            flags,
        )
