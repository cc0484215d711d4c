"""The kernels of a processor, in numba: everything is read once, where the numbers lie, in float32 and float64.

torch sums such products over units as well, and gives a sum a unit only by a call a unit or by copies that lay units
side by side, which took longer than the sums themselves (docs/performance.md). Here a unit is summed by itself, in an
order that its place in the batch and its address in memory do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.jit import kernel
from dpose.training.kernels import MOST as _MOST
from dpose.training.kernels import TOO_LARGE as _TOO_LARGE
from dpose.training.kernels import Ints, Kernels
from dpose.training.kernels.reference import Reference, at_least_float32

_RUN = 32
"""Places whose sum is taken by itself and then added: fewer numbers one after the other, so less is rounded away."""
_PART = 1 << 16
_WIDE = 4096
"""Coordinates at a time: their sums stay in the processor's cache."""
_DEEP = 64
"""Units whose sum of integers up to 2^24 + 2 fits in 32 bits."""


def over_units(sums: Callable[..., None], units: int, *arrays: NDArray[Any]) -> None:
    """Call `sums(*arrays, begin, end)` for all units, some by each of torch's threads."""
    threads = min(torch.get_num_threads(), units)
    if threads <= 1:
        return sums(*arrays, 0, units)
    ends = [units * n // threads for n in range(threads + 1)]
    for _ in pool(threads).map(lambda n: sums(*arrays, ends[n], ends[n + 1]), range(threads)):
        pass


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads for sums, kept."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dpose-sum")


def _add_depthwise(
    x: NDArray[Any], gradient: NDArray[Any], found: NDArray[Any], steps: NDArray[np.int64], begin: int, end: int
) -> None:
    """found[u, k, m, c] += the sum over views and places of gradient[u, v, i, j, c] * x[u, v, i', j', c].

    x (U, V, height, width, C), gradient (U, V, rows, columns, C), found (U, kernel height, kernel width, C); steps (3,
    2): stride, padding and dilation, of rows and of columns. Units from `begin` to before `end`.
    """
    views, height, width, channels = x.shape[1:]
    rows, columns = gradient.shape[2:4]
    high, wide = found.shape[1:3]
    row = np.zeros((high, wide, channels), found.dtype)
    for u in range(begin, end):
        for v in range(views):
            for i in range(rows):
                row[:] = 0
                for j in range(columns):
                    slope = gradient[u, v, i, j]
                    for k in range(high):
                        at = i * steps[0, 0] - steps[1, 0] + k * steps[2, 0]
                        if at < 0 or at >= height:
                            continue
                        for m in range(wide):
                            place = j * steps[0, 1] - steps[1, 1] + m * steps[2, 1]
                            if place < 0 or place >= width:
                                continue
                            value, total = x[u, v, at, place], row[k, m]
                            for c in range(channels):
                                total[c] += slope[c] * value[c]
                found[u] += row


def _add_normalised(
    x: NDArray[Any],
    gradient: NDArray[Any],
    mean: NDArray[Any],
    rstd: NDArray[Any],
    slopes: NDArray[Any],
    shifts: NDArray[Any],
    begin: int,
    end: int,
) -> None:
    """slopes[u, p] += the sum over t of gradient[u, t, p] * (x[u, t, p] - mean[u, t]) * rstd[u, t]; shifts without x.

    x, gradient (U, T, P), mean, rstd (U, T), slopes, shifts (U, P). Units from `begin` to before `end`.
    """
    places, width = x.shape[1:]
    slope, shift = np.zeros(width, slopes.dtype), np.zeros(width, slopes.dtype)
    for u in range(begin, end):
        for first in range(0, places, _RUN):
            slope[:] = 0
            shift[:] = 0
            for t in range(first, min(first + _RUN, places)):
                middle, scale, value, given = mean[u, t], rstd[u, t], x[u, t], gradient[u, t]
                for p in range(width):
                    slope[p] += given[p] * ((value[p] - middle) * scale)
                    shift[p] += given[p]
            slopes[u] += slope
            shifts[u] += shift


def _add_truncated(
    rows: NDArray[Any],
    factors: NDArray[Any],
    totals: NDArray[np.int64],
    squares: NDArray[np.float64],
    begin: int,
    end: int,
) -> None:
    """As `truncate_sum`, from column `begin` to before `end`; a row with factor 0 is not read."""
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


_depthwise, _normalised = kernel(_add_depthwise), kernel(_add_normalised)
# sums of squares are of integers, which have one sum in whatever order: they may be taken side by side
add_truncated = kernel(_add_truncated, fastmath={"reassoc"})


class Processor(Reference):
    """`Kernels` for a processor."""

    def depthwise(self, x: Tensor, gradient: Tensor, size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
        """As in `Kernels`; fastest where tensors are in channels last."""
        x = x.repeat_interleave(gradient.shape[2] // x.shape[2], 2) if gradient.shape[2] > x.shape[2] else x
        places, slopes = (at_least_float32(t).movedim(2, -1).contiguous().numpy() for t in (x, gradient))
        steps = np.array([stride, padding, dilation], np.int64)
        found = np.zeros((len(places), *size, places.shape[-1]), places.dtype)
        over_units(_depthwise, len(places), places, slopes, found, steps)
        return torch.from_numpy(found).movedim(-1, 1).unsqueeze(2)

    def norm_slopes(self, x: Tensor, gradient: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
        """As in `Kernels`."""
        arrays = [at_least_float32(t).contiguous().numpy() for t in (x, gradient, mean, rstd)]
        slopes, shifts = (np.zeros((len(x), x.shape[2]), arrays[0].dtype) for _ in range(2))
        over_units(_normalised, len(x), *arrays, slopes, shifts)
        return torch.from_numpy(slopes), torch.from_numpy(shifts)

    def truncate_sum(self, rows: Tensor, factors: Tensor, totals: Tensor, squares: Tensor) -> None:
        """As in `Kernels`."""
        arrays = rows.contiguous().numpy(), factors.numpy(), totals.numpy()
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


KERNELS: Kernels = Processor()
