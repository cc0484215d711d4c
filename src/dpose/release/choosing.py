"""How large cells are where nobody fixed it: the least expected error under the public prior, for the noise they get.

    config = choose_cells(ReleaseConfig.of(2, "pixels:16", "auto", colour=None), Shape.of(480, 640, 3))
    config.block, config.chroma

Budget, neighbours, sizes and colour go in, all of them public. No picture does, so that the choice costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.release import prior
from dpose.release.colour import FACTORS, Colour, settle_colour
from dpose.release.config import ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.prior import Channel, Spectrum
from dpose.release.regions import PrivateRegions

SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128)
"""Blocks to choose from, pixels."""
BAR = 40
"""Characters of the longest bar of a curve."""
_PEAK = 255

Deviation = Callable[[float], tuple[float, ...]]


@dataclass(frozen=True)
class Choice:
    """Cells that could be taken.

    Attributes:
        block: Side of luma's, pixels.
        factor: How many times as wide chroma's are; 1 where there are none.
        frames: How many frames they are long.
        mse: The expected squared error of the best linear restoration, squared gray levels of 255.
        painted: The same without restoration.
    """

    block: float
    factor: int
    frames: int
    mse: float
    painted: float

    @property
    def psnr(self) -> float:
        """Of the restored picture, decibels."""
        return decibels(self.mse)


def choose_cells(config: ReleaseConfig, shape: Shape) -> ReleaseConfig:
    """The config with colour, block and chroma's cells settled.

    Args:
        config: Of pixelization.
        shape: The picture's or clip's sizes.

    Raises:
        DposeError: luma and chroma are asked for of a grey picture, or no block can be divided as asked for.
    """
    colour = settle_colour(config.colour, shape.channels)
    asked = replace(config, colour=colour, chroma=config.chroma if colour == "ycc" else None)
    if asked.settled:
        return asked
    best = min(cell_choices(asked, shape), key=lambda choice: choice.mse)
    return replace(
        asked, block=int(best.block), chroma=best.factor if colour == "ycc" else None, chosen=True
    )


def cell_choices(config: ReleaseConfig, shape: Shape) -> tuple[Choice, ...]:
    """All blocks and chroma cells that could be taken, and what is expected of them.

    Raises:
        DposeError: as `choose_cells`.
    """
    share = config.regions.share if isinstance(config.regions, PrivateRegions) else Fraction(1)
    bare = replace(
        config,
        epsilon=config.epsilon * share,
        block=None,
        regions=None,
        subdivide=1,
        colour=settle_colour(config.colour, shape.channels),
        chosen=False,
    )
    least = min(shape.height, shape.width)
    sides = [side for side in SIDES if side <= least and side % config.subdivide == 0]
    if config.block is not None:
        sides = [config.block]
    if not sides:
        raise DposeError(
            f"no block of at most {least} pixels can be divided into {config.subdivide} parts", "subdivide"
        )
    return _cell_choices(bare, shape, tuple(sides))


@lru_cache(maxsize=256)
def _cell_choices(config: ReleaseConfig, shape: Shape, sides: tuple[int, ...]) -> tuple[Choice, ...]:
    from dpose.release.pixelization import PixelizationPlan

    found = []
    for side in sides:
        for factor in _factors(config):
            plan = PixelizationPlan.of(
                replace(config, block=side, chroma=factor if config.colour == "ycc" else None), shape
            )
            noise = math.sqrt(plan.stages[0].variance) * _PEAK / shape.peak
            found.append(expected(plan.colour, shape, side, factor, 1, noise))
    return tuple(found)


def _factors(config: ReleaseConfig) -> tuple[int, ...]:
    return FACTORS if config.colour == "ycc" and config.chroma is None else (config.chroma or 1,)


def expected(
    colour: Colour, shape: Shape, block: float, factor: int, frames: int, noise: float
) -> Choice:
    """What is expected of cells that get so much noise.

    Args:
        colour: What is summed.
        shape: The picture's or clip's sizes.
        block: Side of luma's cells, pixels.
        factor: How many times as wide chroma's are.
        frames: How many frames both are long.
        noise: Standard deviation of the noise on a sum, for values to 255.
    """
    side, restored, painted = max(shape.height, shape.width), 0.0, 0.0
    for spectrum, scale, width, weight in _channels(colour, block, factor):
        deviation = noise / (scale * width**2 * frames)
        channel = Channel(spectrum, width, deviation, frames)
        restored += weight * channel.mse(side)
        painted += weight * channel.mse(side, restored=False)
    return Choice(block, factor, frames, restored, painted)


def _channels(colour: Colour, block: float, factor: int) -> list[tuple[Spectrum, int, float, float]]:
    """Each sum's spectrum, scale and cell, and what its error weighs in the mean of R's, G's and B's.

    R = Y - Cg/2 + Co/2, G = Y + Cg/2 and B = Y - Cg/2 - Co/2: their squares have 1 of Y, 1/4 of Cg and 1/6 of Co.
    """
    weights = (1.0, 1 / 6, 1 / 4)
    spectra = (prior.LUMA, prior.ORANGE, prior.GREEN)
    if colour.name == "rgb":
        mixed = tuple((a * w, slope) for spectrum, w in zip(spectra, weights, strict=True) for a, slope in spectrum)
        return [(mixed, 1, block, 1.0)]
    cells = (block, block * factor, block * factor)
    return list(zip(spectra, colour.scales, cells, weights, strict=False))


def decibels(mse: float) -> float:
    """PSNR of a squared error, for values to 255."""
    return 10 * math.log10(_PEAK**2 / max(mse, 1e-9))


def curve_lines(choices: tuple[Choice, ...], taken: Any) -> list[str]:
    """Expected PSNR by block, with chroma's best cells for each, and which was taken: a few lines with bars.

    Args:
        choices: All that could be taken.
        taken: (block, factor, frames) of what was.
    """
    best: dict[float, Choice] = {}
    for choice in choices:
        if choice.block not in best or choice.mse < best[choice.block].mse:
            best[choice.block] = choice
    for choice in choices:
        if (choice.block, choice.factor, choice.frames) == taken:
            best[choice.block] = choice
    shown = sorted(best.values(), key=lambda choice: choice.block)
    high, low = max(c.psnr for c in shown), min(c.psnr for c in shown)
    lines = ["expected PSNR in dB, by a public prior on pictures (no picture was looked at): restored; painted"]
    for choice in shown:
        bar = "#" * (1 + round((BAR - 1) * (choice.psnr - low) / max(high - low, 1e-9)))
        long = f", {choice.frames} frames" if choice.frames > 1 else ""
        mark = " <- taken" if (choice.block, choice.factor, choice.frames) == taken else ""
        lines.append(
            f"block {choice.block:>4g}, chroma x{choice.factor}{long}: {choice.psnr:5.1f}; "
            f"{decibels(choice.painted):5.1f} {bar}{mark}"
        )
    return lines
