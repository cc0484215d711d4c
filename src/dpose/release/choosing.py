"""How large cells are unless their size is given: those of the least expected error under the public prior.

    choose_cells(Pixelization.of(2, "pixels:16"), Shape.of(480, 640, 3)).block        # dpose.release.pixelization
    choose_grid(Projection.of(8, "1e-5", colour="ycc"), Shape(280, 480, 640, 3)).grid

Budget, neighbours, sizes, colour and restoration go in, all of them public. No picture does, so that the choice costs
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from dpose.privacy.gaussian import largest_mu
from dpose.release import prior
from dpose.release.colour import FACTORS, Colour
from dpose.release.colour_planes import ERRORS, make_planes
from dpose.release.config import Projection, ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.prior import Channel, Spectrum

SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128)
"""Blocks to choose from, pixels."""
POOLS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Frames of a group to choose from."""
AS_GOOD = 1.001
"""Errors that differ by no more than this factor are one: a thousandth is beyond what any prior can tell."""
FEWEST_CELLS = 8
"""Cells of an operator's grid along the shorter side, unless the grid is given."""
BAR = 20
"""Characters of the longest bar of a curve."""
PEAK = 255
"""The gray level that errors are stated for."""


@dataclass(frozen=True)
class Choice:
    """Cells that could be taken.

    Attributes:
        block: Side of luma's, pixels.
        factor: How many times as wide chroma's are; 1 where there are none.
        frames: How many frames they are long.
        mse: The expected squared error of the best linear restoration, squared gray levels of 255.
        painted: The same without restoration.
        grid: An operator's rows, columns and groups.
    """

    block: float
    factor: int
    frames: int
    mse: float
    painted: float
    grid: tuple[int, int, int] = (0, 0, 0)

    @property
    def psnr(self) -> float:
        """PSNR of the restored picture, decibels."""
        return decibels(self.mse)


def best_choice(choices: Sequence[Choice], *, restored: bool = True, as_good: float = AS_GOOD) -> Choice:
    """The choice with the least expected error; of several as good, one with the widest cells.

    Where noise drowns all but the longest waves, narrow cells are as good as wide ones to the best linear guess, which
    takes means of them. Whatever else restores or looks at them is lost in their noise.

    Args:
        choices: Not empty.
        restored: True if what is released will be restored; painted as it is otherwise, which asks for larger cells.
        as_good: Errors that differ by no more than this factor are one.
    """

    def error(choice: Choice) -> float:
        return choice.mse if restored else choice.painted

    good = as_good * min(map(error, choices))
    return max(
        (choice for choice in choices if error(choice) <= good),
        key=lambda choice: (choice.block, -error(choice)),
    )


def choose_grid(config: Projection, shape: Shape) -> Choice:
    """An operator's grid and frames of a group: as given, and what is left open by the least expected error.

    Args:
        config: A projection whose colour is settled.
        shape: The clip's sizes.
    """
    return best_choice(grid_choices(config, shape))


def grid_choices(config: Projection, shape: Shape) -> tuple[Choice, ...]:
    """All grids that could be taken, and what is expected of block means over them.

    Args:
        config: A projection whose colour is settled.
        shape: The clip's sizes.
    """
    return _grid_choices(replace(config, operator="block", clip_norm=None, clip_segment=False), shape)


@lru_cache(maxsize=256)
def _grid_choices(config: Projection, shape: Shape) -> tuple[Choice, ...]:
    near = config.neighbours.resolved(shape)
    near = replace(near, scope="clip") if shape.still else near
    mu = largest_mu(float(config.epsilon), config.delta) if config.delta else 0.0
    colour = Colour.of(config.colour or "rgb", shape.channels, gaussian=bool(config.delta))
    found = {}
    for grid, factor in _grids(config, shape, colour):
        if (grid, factor) in found:
            continue
        bound = make_planes("block", shape, grid, colour, factor).bound_for(near)
        noise = (
            math.sqrt(bound.l2_squared) / mu if mu else math.sqrt(2) * float(bound.in_l1() / config.epsilon)
        )
        rows, columns, groups = grid
        block = math.sqrt(shape.pixels / (rows * columns))
        one = expected_choice(colour, shape, block, factor, max(1, round(shape.frames / groups)), noise)
        found[grid, factor] = replace(one, grid=grid)
    return tuple(found.values())


def _grids(config: Projection, shape: Shape, colour: Colour) -> Iterator[tuple[tuple[int, int, int], int]]:
    largest = max(1, min(shape.height, shape.width) // FEWEST_CELLS)
    sides = [side for side in SIDES if side <= largest] if config.k is None else [0]
    pools = [pool for pool in POOLS if pool <= shape.frames] if config.pool is None else [config.pool]
    for factor in factors(config):
        for side in sides:
            if config.k is None:
                rows, columns = (max(1, round(length / side)) for length in (shape.height, shape.width))
            else:
                values = Fraction(len(colour.luma)) + Fraction(len(colour.chroma), factor**2)
                rows, columns = _grid_of(int(config.k / values), shape)
            # each of chroma's cells is a union of luma's
            rows, columns = rows - rows % factor, columns - columns % factor
            if min(rows, columns) > 0:
                for pool in pools:
                    yield (rows, columns, max(1, round(shape.frames / pool))), factor


def _grid_of(cells: int, shape: Shape) -> tuple[int, int]:
    """Rows and columns of nearly square cells, at most so many."""
    ideal = math.sqrt(cells * shape.height / shape.width)
    choices: list[tuple[int, int]] = []
    for rows in (math.floor(ideal), math.ceil(ideal)):
        rows = min(max(1, rows), shape.height, max(1, cells))
        choices.append((rows, min(shape.width, max(1, cells) // rows)))
    return max(choices, key=lambda grid: grid[0] * grid[1])


def factors(config: ReleaseConfig) -> tuple[int, ...]:
    """How many times as wide chroma's cells may be."""
    return FACTORS if config.colour == "ycc" and config.chroma is None else (config.chroma or 1,)


def expected_choice(
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
    """Each sum's spectrum, scale and cell, and what its error weighs in the mean of R's, G's and B's."""
    spectra = (prior.LUMA, prior.ORANGE, prior.GREEN)
    if colour.name == "rgb":
        mixed = tuple(
            (a * w, slope) for spectrum, w in zip(spectra, ERRORS, strict=True) for a, slope in spectrum
        )
        return [(mixed, 1, block, 1.0)]
    cells = (block, block * factor, block * factor)
    return list(zip(spectra, colour.scales, cells, ERRORS, strict=False))


def decibels(mse: float) -> float:
    """PSNR of a squared error, for values to 255."""
    return 10 * math.log10(PEAK**2 / max(mse, 1e-9))


def curve_lines(choices: tuple[Choice, ...], taken: tuple[float, int, int]) -> list[str]:
    """Expected PSNR by block, with chroma's best cells for each, and which was taken: a few lines with bars.

    Args:
        choices: All that could be taken.
        taken: (block, factor, frames) of what was.
    """
    best: dict[int, Choice] = {}
    for choice in sorted(choices, key=lambda c: (c.block, c.factor, c.frames) == taken):
        side = round(choice.block)
        known = best.get(side)
        if known is None or choice.mse < known.mse or (choice.block, choice.factor, choice.frames) == taken:
            best[side] = choice
    shown = [best[side] for side in sorted(best)]
    high, low = max(c.psnr for c in shown), min(c.psnr for c in shown)
    lines = [
        "expected PSNR in dB, by a public prior on pictures (no picture was looked at): restored; painted"
    ]
    for choice in shown:
        bar = "#" * (1 + round((BAR - 1) * (choice.psnr - low) / max(high - low, 1e-9)))
        long = f", {choice.frames:>2} frames" if max(c.frames for c in shown) > 1 else ""
        mark = " <- taken" if (choice.block, choice.factor, choice.frames) == taken else ""
        lines.append(
            f"block {round(choice.block):>3}, chroma x{choice.factor}{long}: {choice.psnr:5.1f}; "
            f"{decibels(choice.painted):5.1f} {bar}{mark}"
        )
    return lines
