"""The loops that touch every pixel: sums of blocks and of cells, and blocks painted back. Integers only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.jit import kernel, without_numba


def block_sums(pixels: NDArray[Any], block: int) -> NDArray[np.int64]:
    """Sums over blocks, each channel apart; blocks at the right and lower edges may be smaller.

    Args:
        pixels: uint8 or uint16, (H, W, C).
        block: Side of a block, >= 1.

    Returns:
        int64, (ceil(H / block), ceil(W / block), C).
    """
    height, width, channels = pixels.shape
    rows, columns = -(-height // block), -(-width // block)
    # the narrowest type that a column of one block cannot overflow: four times as fast as the widest
    tall = min(block, height) * np.iinfo(pixels.dtype).max
    narrow = np.uint16 if tall < 1 << 16 else np.uint32 if tall < 1 << 32 else np.uint64
    flat = np.ascontiguousarray(pixels).reshape(height, width * channels)
    if without_numba(pixels.size):
        tops, lefts = np.arange(rows) * block, np.arange(columns) * block
        lines = np.add.reduceat(flat, tops, axis=0, dtype=narrow).reshape(rows, width, channels)
        return np.add.reduceat(lines, lefts, axis=1, dtype=np.int64)
    out = np.zeros((rows, columns, channels), np.int64)
    _sum_blocks(flat, block, channels, np.zeros(width * channels, narrow), out)
    return out


def paint_blocks(values: NDArray[Any], height: int, width: int, block: int) -> NDArray[Any]:
    """Every pixel takes the value of its block.

    Args:
        values: (rows, columns, C).
        height: Height of the picture, pixels.
        width: Width of the picture, pixels.
        block: Side of a block.

    Returns:
        (H, W, C), of the values' type.
    """
    out = np.empty((height, width * values.shape[2]), values.dtype)
    _paint(np.ascontiguousarray(values), block, out)
    return out.reshape(height, width, values.shape[2])


@kernel
def _sum_blocks(
    flat: NDArray[Any], block: int, channels: int, column: NDArray[Any], out: NDArray[np.int64]
) -> None:
    height, width = flat.shape
    for row in range(out.shape[0]):
        y, bottom = row * block, min((row + 1) * block, height)
        column[:] = 0
        while y + 4 <= bottom:  # four lines at a time: the columns are read and written a quarter as often
            a, b, c, d = flat[y], flat[y + 1], flat[y + 2], flat[y + 3]
            for x in range(width):
                column[x] += a[x] + b[x] + c[x] + d[x]
            y += 4
        while y < bottom:
            line = flat[y]
            for x in range(width):
                column[x] += line[x]
            y += 1
        for cell in range(out.shape[1]):
            start = cell * block * channels
            part = column[start : min(start + block * channels, width)]
            if channels == 1:
                total = np.int64(0)
                for x in range(len(part)):
                    total += np.int64(part[x])
                out[row, cell, 0] = total
            else:
                for channel in range(channels):
                    total = np.int64(0)
                    for x in range(channel, len(part), channels):
                        total += np.int64(part[x])
                    out[row, cell, channel] = total


@kernel
def _paint(values: NDArray[Any], block: int, out: NDArray[Any]) -> None:
    height, width = out.shape
    channels = values.shape[2]
    for row in range(values.shape[0]):
        top = row * block
        first = out[top]
        for cell in range(values.shape[1]):
            start = cell * block * channels
            stop = min(start + block * channels, width)
            if channels == 1:
                first[start:stop] = values[row, cell, 0]
            else:
                for x in range(start, stop, channels):
                    for channel in range(channels):
                        first[x + channel] = values[row, cell, channel]
        for y in range(top + 1, min(top + block, height)):
            out[y] = first


@kernel
def sum_cells(
    flat: NDArray[Any],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    channels: int,
    out: NDArray[np.int64],
) -> None:
    """Add sums of cells to `out`, (rows, columns, channels), from the pixels of a frame, (H, W * channels)."""
    width = flat.shape[1]
    line = np.zeros(width, np.int64)
    for row in range(out.shape[0]):
        line[:] = 0
        for y in range(rows[row], rows[row + 1]):
            for x in range(width):
                line[x] += flat[y, x]
        for column in range(out.shape[1]):
            for channel in range(channels):
                total = np.int64(0)
                for x in range(columns[column] + channel, columns[column + 1], channels):
                    total += line[x]
                out[row, column, channel] = total
