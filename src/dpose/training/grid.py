"""The integer grid on which clipped gradients are summed.

    grid = Grid.of(sensitivity)                      # of a clip: `dpose.training.clip.Clip.grid`
    totals, squares = grid.empty(width, units, device)
    grid.add(rows, factors, totals, squares)         # trunc(factor * row / step), one row a unit
    allowed = grid.within(squares)                   # in exact arithmetic

Sums of floating-point numbers are rounded, by more the more there are, and what is rounded away depends on all of
them: taking one unit out can then move the sum by more than that unit's norm. Sums of integers are exact, in whatever
order, in however many micro-batches and processes they are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.jit import kernel
from dpose.training.unit_sums import pool

BITS = 24
"""A unit's contribution has at most 2^24 steps in any coordinate: each is a float32 number without a fraction."""

UNITS = 1 << 29
"""Sums of up to so many units fit in the 53 bits of a float64."""

_BLOCK = 1 << 20
_PART = 1 << 16
_WIDE = 4096
"""Coordinates at a time: their sums stay in the processor's cache."""
_DEEP = 64
"""Units whose sum of integers up to 2^24 + 2 fits in 32 bits."""
_MOST, _TOO_LARGE = float(1 << BITS), float((1 << BITS) + 2)


@dataclass(frozen=True)
class Grid:
    """Multiples of a step, and how large a unit's contribution may be.

    **Guarantee.** A contribution is a vector of integers q with sum q^2 <= `most`, or nothing: this is checked exactly,
    for integers up to 2^53 are exact in float64, and so are their sums up to there; a sum that passes 2^53 stays above
    it. `most` is the largest integer for which step * sqrt(most) <= sensitivity. So with or without one unit, sums of
    contributions differ by at most the sensitivity in L2 norm, as real numbers and not up to rounding; and by at most
    twice that where a unit is replaced.

    Attributes:
        step: Between neighbouring points, a power of two: multiplying by it rounds nothing.
        most: Bound on the squared norm of a contribution, in steps.
    """

    step: float
    most: int

    @classmethod
    def of(cls, sensitivity: float, bits: int = BITS) -> Grid:
        """The grid with at most 2^`bits` and more than 2^(`bits` - 1) steps in `sensitivity`.

        Raises:
            ValueError: `sensitivity` is not positive and finite.
        """
        if not (math.isfinite(sensitivity) and sensitivity > 0):
            raise ValueError(f"a sensitivity must be positive and finite, not {sensitivity}")
        mantissa, exponent = math.frexp(sensitivity)
        step = math.ldexp(1.0, exponent - (mantissa == 0.5) - bits)
        return cls(step, int((Fraction(sensitivity) / Fraction(step)) ** 2))

    def add(self, rows: Tensor, factors: Tensor, totals: Tensor, squares: Tensor) -> None:
        """Add each unit's factor * row, truncated toward zero on the grid, to `totals`, and its square to `squares`.

        Args:
            rows: (U, P) float32 or float64; where the factor is 0, anything.
            factors: (U,) of the same type. Where it is not 0, a number that is not finite or has more than 2^24
                steps makes the unit's square too large for `within`.
            totals: (P,) int64, in steps; added to. Means nothing if a unit turns out not to be `within`.
            squares: (U,) float64, in steps; added to.
        """
        scaled = (factors.double() / self.step).to(rows.dtype)
        if rows.device.type != "cpu":
            return _add_anywhere(rows, scaled, totals, squares)
        arrays = rows.contiguous().numpy(), scaled.numpy(), totals.numpy()
        width, threads = rows.shape[1], torch.get_num_threads()
        if threads == 1 or width <= _PART:
            add_truncated(*arrays, squares.numpy(), 0, width)
            return

        def part(at: int) -> Tensor:
            found = torch.zeros_like(squares)
            add_truncated(*arrays, found.numpy(), at, min(at + _PART, width))
            return found

        for found in pool(threads).map(part, range(0, width, _PART)):  # exact: in whatever order
            squares += found

    def within(self, squares: Tensor) -> Tensor:
        """Which units (U,) keep the bound; not a number does not."""
        return squares <= float(self.most)

    def values(self, totals: Tensor) -> Tensor:
        """The same as real numbers, float64, exact for sums of up to `UNITS` units; on a CPU if need be."""
        place = totals.cpu() if totals.device.type == "mps" else totals
        return place.double() * self.step

    def steps(self, values: Tensor) -> Tensor:
        """The inverse of `values`: int64. What lies off the grid goes to the nearest point of it."""
        return (values.double() / self.step).round().long()


def _add_anywhere(rows: Tensor, scaled: Tensor, totals: Tensor, squares: Tensor) -> None:
    """`Grid.add` in torch's own operations; the same integers."""
    width = max(1, _BLOCK // max(1, len(rows)))
    for at in range(0, rows.shape[1], width):
        part = rows[:, at : at + width] * scaled[:, None]
        part = torch.where(part.abs() <= _MOST, part, _TOO_LARGE)  # a comparison with nan is false
        part = torch.where(scaled[:, None] == 0, 0.0, part).trunc_()
        totals[at : at + width] += part.long().sum(0)
        exact = part.double() if part.device.type != "mps" else part.cpu().double()
        squares += exact.square_().sum(1).to(squares.device)


def _add_truncated(
    rows: NDArray[Any],
    factors: NDArray[Any],
    totals: NDArray[np.int64],
    squares: NDArray[np.float64],
    begin: int,
    end: int,
) -> None:
    """As `Grid.add`, with factors in steps, from column `begin` to before `end`; a row with factor 0 is not read."""
    units = len(rows)
    for start in range(begin, end, _WIDE):
        stop = min(start + _WIDE, end)
        for first in range(0, units, _DEEP):
            sums = np.zeros(_WIDE, np.int32)
            for u in range(first, min(first + _DEEP, units)):
                factor = factors[u]
                if factor == 0:
                    continue
                row = rows[u, start:stop]
                square = 0.0
                for i in range(len(row)):
                    value = row[i] * factor
                    # nan fails every comparison; a number above the bound makes the square larger than any bound
                    value = value if abs(value) <= _MOST else row.dtype.type(_TOO_LARGE)
                    steps = np.int32(value)
                    sums[i] += steps
                    square += np.float64(steps) * np.float64(steps)
                squares[u] += square
            for i in range(stop - start):
                totals[start + i] += sums[i]


# sums of squares are of integers, which have one sum in whatever order: they may be taken side by side
add_truncated = kernel(_add_truncated, fastmath={"reassoc"})
