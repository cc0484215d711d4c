"""Colour as whole-number combinations of R, G and B, luma apart from chroma, and how much a pixel can change them.

    ycc = Colour.of("ycc", 3, gaussian=False)
    values = picture @ ycc.matrix.T                    # whole numbers: nothing is rounded, and sums stay exact
    ycc.change_l1, ycc.change_squared                  # of one pixel whose values change by at most 1 each

Y4 = R + 2G + B, Co = R - B and Cg2 = 2G - R - B are linear, so that sums over cells are linear in the pixels: the
lifted YCoCg-R rounds every pixel, which would move a difference of two pixels by up to one more. Each combination is
taken a fixed whole number of times, and then all of them get the same noise: that number is how the budget is split. It
is public, recorded, and the same for every picture. docs/proofs/pixelization.md derives the bounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.release.operators import Sensitivity

COLOURS = ("ycc", "rgb", "grey")
FACTORS = (1, 2, 4)
"""How many times as wide as luma's the cells of chroma may be."""
LUMA, ORANGE, GREEN = (1, 2, 1), (1, 0, -1), (-1, 2, -1)
"""Y4, Co and Cg2 from R, G and B."""
TIMES = {False: (3, 2, 1), True: (5, 7, 5)}
"""How often Y4, Co and Cg2 are taken for Laplace noise, and (True) for Gaussian noise: the more, the less noise. Luma
is as precise as a grey picture's, and chroma has what that leaves over, which costs nothing. How that is shared between
Co and Cg2, and that luma gives up none for them, was settled once by `prior`."""

Row = tuple[int, ...]
_TAKEN = " and ".join(rf"(\d{{1,4}}) x \({part}\)" for part in (r"R \+ 2G \+ B", "R - B", "2G - R - B"))


@dataclass(frozen=True)
class Colour:
    """Which combinations of a pixel's values are summed, luma's over fine cells and chroma's over coarse ones.

    Attributes:
        name: "rgb", "ycc" or "grey".
        channels: Values of a pixel.
        times: How often Y4, Co and Cg2 are taken (grey: Y4 alone); nothing where values are taken as they are.
    """

    name: str
    channels: int
    times: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, channels: int, *, gaussian: bool) -> Colour:
        """The combinations of this name.

        Args:
            name: One of `COLOURS`; a picture of one channel is always grey.
            channels: 1 or 3.
            gaussian: True if noise is Gaussian, whose cost is a sum of squares.
        """
        if channels == 1 or name == "rgb":
            return cls("grey" if channels == 1 else name, channels)
        return cls(name, channels, (1,) if name == "grey" else TIMES[gaussian])

    @classmethod
    def recorded(cls, name: str, text: str) -> Colour:
        """The combinations that `text` wrote.

        Raises:
            ValueError: it is none.
        """
        found = re.fullmatch(_TAKEN if name == "ycc" else _TAKEN.split(" and ")[0], text)
        times = tuple(int(n) for n in found.groups()) if found else ()
        if name not in ("ycc", "grey") or not times or min(times) < 1:
            raise ValueError(f"{text!r} are no combinations of {name}")
        return cls(name, 3, times)

    @property
    def text(self) -> str:
        """The combinations as an archive records them."""
        parts = ("R + 2G + B", "R - B", "2G - R - B")
        return " and ".join(f"{n} x ({part})" for n, part in zip(self.times, parts, strict=False))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The combinations, luma first: whole numbers by which R, G and B (or the one value) are multiplied."""
        if not self.times:
            size = range(self.channels)
            return tuple(tuple(int(i == j) for j in size) for i in size)
        return tuple(tuple(n * part for part in row) for n, row in zip(self.times, (LUMA, ORANGE, GREEN), strict=False))

    @property
    def luma(self) -> tuple[Row, ...]:
        """Those that are summed over the fine cells."""
        return self.rows[:1] if self.times else self.rows

    @property
    def chroma(self) -> tuple[Row, ...]:
        """The combinations that are summed over the coarse cells; empty without chroma."""
        return self.rows[1:] if self.times else ()

    @property
    def scales(self) -> tuple[int, ...]:
        """What a sum is divided by, besides the cell's area, to give gray levels: Y, Co and Cg of `planes`."""
        return tuple(n * one for n, one in zip(self.times, (4, 1, 2), strict=False)) or (1,) * self.channels

    def without_chroma(self) -> Colour:
        """Luma alone, taken as often; the same where there is no chroma."""
        return Colour(self.name, self.channels, self.times[:1])

    @cached_property
    def change_l1(self) -> int:
        """The most that all combinations of one pixel change together, if each of its values changes by at most 1."""
        return max(sum(abs(n) for n in moved) for moved in _moved(self.rows))

    @cached_property
    def change_squared(self) -> tuple[int, int]:
        """The same as a sum of squares; and that of the chromas alone."""
        each = [
            max((sum(n * n for n in moved) for moved in _moved(rows)), default=0) for rows in (self.rows, self.chroma)
        ]
        return each[0], each[1]

    def joint(self, fine: Sensitivity, coarse: Sensitivity) -> Sensitivity:
        """The most that all sums change between neighbours, luma's and chroma's together.

        **Guarantee.** `fine` and `coarse` bound the sums of *one* value a pixel over luma's and over chroma's cells,
        and each of luma's cells lies in one of chroma's. L1: a pixel moves one cell's sum in each combination, by what
        it moves the combination, wherever the cells end. L2: let N be the largest sum of squares of all combinations
        of a pixel and N_c that of the chromas; then D^2 <= (N - N_c) D_fine^2 + N_c D_coarse^2.

        Args:
            fine: Sensitivity of sums over luma's cells.
            coarse: Sensitivity of sums over chroma's cells.
        """
        whole, chroma = self.change_squared
        l1 = None if fine.l1 is None else self.change_l1 * fine.l1
        return Sensitivity(l1, (whole - chroma) * fine.l2_squared + chroma * coarse.l2_squared)


def settle_colour(name: str | None, channels: int, otherwise: str = "ycc") -> str:
    """The colours of a release of pictures with so many channels.

    Args:
        name: One of `COLOURS`, or None for `otherwise`.
        channels: 1 or 3.
        otherwise: What colour pictures have by default.
    """
    if channels == 1:
        if name == "ycc":
            raise DposeError("chroma-of-grey", "a grey picture has no chroma", "colour", "leave it out, or say grey")
        return "grey"
    return name or otherwise


def as_rgb(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Gray levels of R, G and B from Y, Co and Cg, (..., 3)."""
    luma, orange, green = planes[..., 0], planes[..., 1] / 2, planes[..., 2] / 2
    rest = luma - green
    return np.stack([rest + orange, luma + green, rest - orange], axis=-1)


def _moved(rows: Sequence[Row]) -> list[list[int]]:
    """The combinations' changes at the corners of the cube of a pixel's changes, where a convex function is largest."""
    if not rows:
        return []
    corners = product((-1, 1), repeat=len(rows[0]))
    return [[sum(n * d for n, d in zip(row, corner, strict=True)) for row in rows] for corner in corners]
