"""How large cells are unless their size is given: those of the least expected error under the public prior.

    choose_cells(Pixelization.of(2, "pixels:16"), Shape.of(480, 640, 3)).block        # dpose.release.pixelization
    choose_grid(Projection.of(8, "1e-5", colour="ycc"), Shape(280, 480, 640, 3)).grid

Budget, neighbours, sizes, colour and restoration go in, all of them public. No picture does, so that the choice costs
nothing.

How large pictures' waves are, by their length: a public prior from which cells are chosen, and never from a picture.

    Channel((LUMA,), block=12, deviation=9.0).mse(side=480)          # expected, in squared gray levels

Natural pictures have much power in long waves and little in short ones: A f^-alpha for f waves a pixel. A and alpha
were fitted once, for luma and both chromas, to public photographs and rendered pictures that `tools/
measure_spectrum.py` lists; no picture that releases are evaluated on is among them, and none that anybody releases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.gaussian import largest_mu
from dpose.release.colour import FACTORS, Colour
from dpose.release.colour_planes import ERRORS, make_planes
from dpose.release.config import Projection, ReleaseConfig
from dpose.release.grid import Shape

Floats = NDArray[np.float64]

Spectrum = tuple[tuple[float, float], ...]
"""A sum of powers A f^-alpha: squared gray levels (of 255) for each square wave a pixel."""

LUMA: Spectrum = ((12.6, 2.47),)
ORANGE: Spectrum = ((1.52, 2.97),)
GREEN: Spectrum = ((0.444, 2.79),)
"""Spectra of Y, Co and Cg as `planes` has them."""
STILL, SPEED = 0.319, 0.71
"""Motion in films: the share of power that never moves, and how far the rest moves in a frame, pixels."""

_NODES, _ALIASES = 12, 2
_REACH = 0.5


@dataclass(frozen=True)
class Channel:
    """One value a pixel, known by the noisy means of its cells.

    Attributes:
        spectrum: Spectrum of the value.
        block: Side of a cell, pixels; need not be whole.
        deviation: Deviation of the noise on a cell's mean, gray levels (of 255).
        frames: Frames that a cell is long.
    """

    spectrum: Spectrum
    block: float
    deviation: float
    frames: int = 1

    def mse(self, side: int, *, restored: bool = True) -> float:
        """The expected squared error a pixel, squared gray levels.

        Restored: of the best linear restoration. Cells sample the picture, so that a wave of frequency v a pixel is
        seen together with those of v + k / block; the best guess of all of them leaves the integral over v of

            sum of S - sum of S^2 H^2 / (sum of S H^2 + N),

        H the mean over a cell of a wave of that length and N = deviation^2 block^2 the noise's power. Painted: what
        the means leave out, and the noise.

        Args:
            side: The picture's longer side: there are no longer waves.
            restored: True if it is restored; painted as it is otherwise.
        """
        total = _total(self.spectrum, side)
        kept, passed = _seen(self.spectrum, self.block, self.deviation, self.frames, side)
        return total - kept if restored else total - passed + self.deviation**2


@lru_cache(maxsize=4096)
def _seen(spectrum: Spectrum, block: float, deviation: float, frames: int, side: int) -> tuple[float, float]:
    """How much of a value's variance the best restoration keeps, and how much the cells' true means have."""
    nyquist = min(_REACH, 1 / (2 * block))
    places, weights = _axis(nyquist, side)
    shifts = np.arange(-_ALIASES, _ALIASES + 1) / block
    # (places, aliases) along each axis; the plane is their product
    axis = np.abs(places[:, None] + shifts[None, :])
    through = np.sinc(block * axis) ** 2 / np.sinc(np.minimum(axis, _REACH)) ** 2
    through[axis > _REACH] = 0
    high, wide = axis[:, :, None, None], axis[None, None, :, :]
    length = np.hypot(high, wide)
    power = _power(spectrum, length, side) * _together(length, frames)
    passed = through[:, :, None, None] * through[None, None, :, :]
    seen = (power * passed).sum(axis=(1, 3))
    best = (power**2 * passed).sum(axis=(1, 3)) / (seen + deviation**2 * block**2)
    area = 4 * weights[:, None] * weights[None, :]
    return float((best * area).sum()), float((seen * area).sum())


@lru_cache(maxsize=64)
def _total(spectrum: Spectrum, side: int) -> float:
    places, weights = _axis(_REACH, side, 3 * _NODES)
    power = _power(spectrum, np.hypot(places[:, None], places[None, :]), side)
    return float((4 * weights[:, None] * weights[None, :] * power).sum())


def _axis(top: float, side: int, nodes: int = _NODES) -> tuple[Floats, Floats]:
    """Places from 0 to `top` and their weights: one for waves longer than the picture, the others evenly in octaves."""
    low = min(1 / (2 * side), top / 2)
    x, w = np.polynomial.legendre.leggauss(nodes)
    span = np.log(top / low) / 2
    places = low * np.exp(span * (x + 1))
    return np.concatenate([[0.0], places]), np.concatenate([[low], w * span * places])


def _power(spectrum: Spectrum, length: Floats, side: int) -> Floats:
    capped = np.maximum(length, 1 / (2 * side))
    return np.asarray(sum(size * capped**-slope for size, slope in spectrum))


def _together(length: Floats, frames: int) -> Floats:
    """How alike so many frames in a row are: the mean correlation of two of them, a wave at a time."""
    apart = np.arange(1, frames)
    pairs = 2 * (frames - apart) / frames**2
    moving = np.exp(-2 * np.pi * SPEED * length[..., None] * apart)
    return np.asarray(STILL + (1 - STILL) * (1 / frames + (pairs * moving).sum(axis=-1)))


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
        (choice for choice in choices if error(choice) <= good), key=lambda choice: (choice.block, -error(choice))
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
        noise = math.sqrt(bound.l2_squared) / mu if mu else math.sqrt(2) * float(bound.in_l1() / config.epsilon)
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


def expected_choice(colour: Colour, shape: Shape, block: float, factor: int, frames: int, noise: float) -> Choice:
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
    spectra = (LUMA, ORANGE, GREEN)
    if colour.name == "rgb":
        mixed = tuple((a * w, slope) for spectrum, w in zip(spectra, ERRORS, strict=True) for a, slope in spectrum)
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
    lines = ["expected PSNR in dB, by a public prior on pictures (no picture was looked at): restored; painted"]
    for choice in shown:
        bar = "#" * (1 + round((BAR - 1) * (choice.psnr - low) / max(high - low, 1e-9)))
        long = f", {choice.frames:>2} frames" if max(c.frames for c in shown) > 1 else ""
        mark = " <- taken" if (choice.block, choice.factor, choice.frames) == taken else ""
        lines.append(
            f"block {round(choice.block):>3}, chroma x{choice.factor}{long}: {choice.psnr:5.1f}; "
            f"{decibels(choice.painted):5.1f} {bar}{mark}"
        )
    return lines
