"""The loop over all per-unit gradients that truncates, measures and sums them, read once (`dpose.training.grid`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.jit import kernel

_WIDE = 4096
"""Coordinates at a time: their sums stay in the processor's cache."""
_DEEP = 64
"""Units whose sum of integers up to 2^24 + 2 fits in 32 bits."""
_MOST = 16777216.0
_TOO_LARGE = 16777218.0


def _add_truncated(
    rows: NDArray[Any],
    factors: NDArray[Any],
    totals: NDArray[np.int64],
    squares: NDArray[np.float64],
    begin: int,
    end: int,
) -> None:
    """Add trunc(factor * row) of every row to `totals` and its squared norm to `squares`; see `Grid.add`.

    Args:
        rows: (U, P) float32 or float64, each row contiguous.
        factors: (U,) of the same type; a row with factor 0 is not read.
        totals: (P,), added to.
        squares: (U,), added to.
        begin: The first column.
        end: Behind the last one.
    """
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
