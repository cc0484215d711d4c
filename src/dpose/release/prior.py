"""How large pictures' waves are, by their length: a public prior from which cells are chosen, and never from a picture.

    Channel((LUMA,), block=12, deviation=9.0).mse(side=480)          # expected, in squared gray levels

Natural pictures have much power in long waves and little in short ones: A f^-alpha for f waves a pixel. A and alpha
were fitted once, for luma and both chromas, to public photographs and rendered pictures that `tools/
measure_spectrum.py` lists; no picture that releases are evaluated on is among them, and none that anybody releases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
