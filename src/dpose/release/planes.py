"""What a release shows, as numbers: noisy means of cells in gray levels, and how noisy they are. All of it public.

It stands between the mechanism, which makes it, and restoration, which sees nothing else. Colour is R, G, B, or luma
and two differences of colours, which are linear in R, G, B and, times 4, 1 and 2, whole numbers:

    Y = (R + 2G + B) / 4  in 0..peak,      Co = R - B,  Cg = (2G - R - B) / 2  in -peak..peak.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CHANNELS = {"grey": 1, "rgb": 3, "ycc": 3}
"""How many planes there are of each kind of colour."""


@dataclass(frozen=True)
class Plane:
    """Released means of cells.

    Attributes:
        levels: float32, (rows, columns), gray levels; neither clipped nor rounded.
        deviation: float32, (rows, columns), the standard deviation of the noise in `levels`.
        block: The cells' side in pixels. The last row and column may be smaller. Where cells of two sizes were
            released it is the smaller, and a large cell's level is repeated, with its own deviation.

    Raises:
        ValueError: the shapes differ.
    """

    levels: NDArray[np.float32]
    deviation: NDArray[np.float32]
    block: int

    def __post_init__(self) -> None:
        if self.levels.ndim != 2 or self.levels.shape != self.deviation.shape or self.block < 1:
            raise ValueError(f"{self.levels.shape} levels, {self.deviation.shape} deviations")


@dataclass(frozen=True)
class Observed:
    """What was released of one picture or one group of frames.

    Attributes:
        planes: One (grey), or three: R, G, B ("rgb") or Y, Co, Cg ("ycc"); each has cells of its own size.
        colour: "grey", "rgb" or "ycc".
        height: Pixels.
        width: Pixels.
        peak: The largest value, 255 or 65535.
        even: True if the cells divide the frame evenly instead, their sides differing by at most one pixel; `block`
            is then the largest side.

    Raises:
        ValueError: the planes do not cover these sizes.
    """

    planes: tuple[Plane, ...]
    colour: str
    height: int
    width: int
    peak: int = 255
    even: bool = False

    def __post_init__(self) -> None:
        if len(self.planes) != CHANNELS.get(self.colour):
            raise ValueError(f"{len(self.planes)} planes of {self.colour}")
        for plane in self.planes:
            cells = (-(-self.height // plane.block), -(-self.width // plane.block))
            if not self.even and plane.levels.shape != cells:
                raise ValueError(f"{plane.levels.shape} cells of {plane.block} for {self.height} x {self.width}")
