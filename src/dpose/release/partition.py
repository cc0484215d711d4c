"""Sums of pixels over the cells of a public partition, and how much a neighbouring picture can change them.

    operator = BlockSums(height=1080, width=1920, block=16)
    sums = operator.apply(picture)                      # (8160, 1) integers
    bound = operator.sensitivity(Neighbours.of_pixels(16, "picture"))
    picture = operator.adjoint(means)

This is pixelization, whose second stage may choose the partition from what the first released. Cells at the right and
lower edges are smaller where the block does not divide the picture; nothing is padded, so every pixel is counted
exactly once. That is the whole proof: a pixel lies in one cell, and a neighbour that changes m pixels changes the sums
by at most `peak` for each of their values (docs/proofs/pixelization.md). How large the cells are does not matter for
the L1 norm.

The loops that touch every pixel: sums of blocks and of cells, and blocks painted back. Integers only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpose.jit import kernel, without_numba
from dpose.privacy.neighbours import BOX, Neighbours
from dpose.release.grid import is_tensor, largest_fill, most_overlap, products
from dpose.release.operators import Sensitivity

if TYPE_CHECKING:
    from torch import Tensor


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
def _sum_blocks(flat: NDArray[Any], block: int, channels: int, column: NDArray[Any], out: NDArray[np.int64]) -> None:
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
    flat: NDArray[Any], rows: NDArray[np.int64], columns: NDArray[np.int64], channels: int, out: NDArray[np.int64]
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


Picture = TypeVar("Picture", NDArray[Any], "Tensor")
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class BlockSums:
    """Sums over b x b blocks, ragged at the right and lower edges.

    Attributes:
        height: Height of the picture, pixels.
        width: Width of the picture, pixels.
        block: b, pixels.
        channels: Values a pixel has.
        peak: The largest value, 255 or 65535; the smallest is 0.

    Raises:
        ValueError: a number is below 1.
    """

    height: int
    width: int
    block: int
    channels: int = 1
    peak: int = 255

    def __post_init__(self) -> None:
        if min(self.height, self.width, self.block, self.channels, self.peak) < 1:
            raise ValueError(f"sizes must be at least 1: {self}")

    @property
    def rows(self) -> int:
        """Rows of blocks."""
        return -(-self.height // self.block)

    @property
    def columns(self) -> int:
        """Columns of blocks."""
        return -(-self.width // self.block)

    @cached_property
    def areas(self) -> NDArray[np.int64]:
        """Pixels in each cell, (cells,), in the order of `apply`."""
        return np.outer(_sides(self.height, self.block), _sides(self.width, self.block)).reshape(-1)

    def apply(self, picture: Picture) -> Picture:
        """Sums of the cells.

        Args:
            picture: uint8 or uint16, (H, W) or (H, W, C); an array, or a tensor on any device.

        Returns:
            int64, (rows * columns, C): row after row of blocks, on the picture's device.

        Raises:
            ValueError: another shape or type.
        """
        pixels = _checked(self, picture)
        if is_tensor(pixels):
            return _tensor_sums(pixels, self).reshape(-1, self.channels)
        return block_sums(pixels, self.block).reshape(-1, self.channels)

    def adjoint(self, values: Picture) -> Picture:
        """Each pixel takes its cell's value.

        Args:
            values: (rows * columns, C), for any C.

        Returns:
            (H, W, C), of the values' type, on their device.
        """
        grid = values.reshape(self.rows, self.columns, -1)
        if is_tensor(grid):
            tall = grid.repeat_interleave(self.block, 0)[: self.height]
            return tall.repeat_interleave(self.block, 1)[:, : self.width].contiguous()
        return paint_blocks(grid, self.height, self.width, self.block)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that `apply` changes between neighbours.

        **Guarantee.** Neighbours: pictures that differ in at most m pixels, of any values; with scope "clip", clips
        that differ in at most m pixels of all frames together, with this operator applied to each; with scope
        "frame", one frame of a clip in which every frame may differ in m pixels. Sensitivity: each of the m pixels
        lies in one cell and moves each of its C sums by at most `peak`, so m * C * peak in L1 norm. In L2 norm the
        worst neighbour fills the largest cells first: C * peak^2 * (m_1^2 + m_2^2 + ...), m_i pixels in the i-th
        largest cell. With scope `BOX`, one frame of a clip in which a box at any place may differ: peak * C * W * H in
        L1 norm, and in L2 norm the place where the box fills cells most; the row and the column of it can be chosen
        apart, since what it has in common with a cell is a product.
        """
        if neighbours.scope == BOX:
            assert neighbours.box is not None
            wide = (min(neighbours.box[0], self.width), np.append(np.arange(self.columns) * self.block, self.width))
            tall = (min(neighbours.box[1], self.height), np.append(np.arange(self.rows) * self.block, self.height))
            squares = most_overlap(wide[1], wide[0]) * most_overlap(tall[1], tall[0])
            return Sensitivity(
                Fraction(self.peak * self.channels * wide[0] * tall[0]),
                Fraction(self.peak**2 * self.channels * squares),
            )
        rows, columns = (Counter(_sides(length, self.block).tolist()) for length in (self.height, self.width))
        return _fill(products(rows, columns), neighbours, self.channels, self.peak)


@dataclass(frozen=True)
class RegionSums:
    """Sums over b x b blocks where the mask is False and over their (b/n) x (b/n) parts where it is True.

    The partition of seed 002, Algorithm 3, with ragged edges in place of padding. The mask must be public: given from
    outside, or computed from what was released already.

    Attributes:
        height: Height of the picture, pixels.
        width: Width of the picture, pixels.
        block: b, pixels.
        subdivide: n; b = n * s_b.
        mask: (rows, columns) of blocks; True where the region is complex.
        channels: Values a pixel has.
        peak: The largest value.

    Raises:
        ValueError: b is not divisible by n, or the mask has another shape.
    """

    height: int
    width: int
    block: int
    subdivide: int
    mask: Mask = field(repr=False)
    channels: int = 1
    peak: int = 255

    def __post_init__(self) -> None:
        if self.subdivide < 1 or self.block % self.subdivide:
            raise ValueError(f"a block of {self.block} cannot be divided into {self.subdivide}")
        if self.mask.shape != (self.coarse.rows, self.coarse.columns) or self.mask.dtype != np.bool_:
            raise ValueError(
                f"the mask must be bool, ({self.coarse.rows}, {self.coarse.columns}), "
                f"not {self.mask.dtype} {self.mask.shape}"
            )

    @cached_property
    def coarse(self) -> BlockSums:
        """The blocks, all of them."""
        return BlockSums(self.height, self.width, self.block, self.channels, self.peak)

    @cached_property
    def fine(self) -> BlockSums:
        """The parts, all of them."""
        return BlockSums(self.height, self.width, self.block // self.subdivide, self.channels, self.peak)

    @cached_property
    def _complex(self) -> Mask:
        n = self.subdivide
        return self.mask.repeat(n, 0).repeat(n, 1)[: self.fine.rows, : self.fine.columns].reshape(-1)

    @property
    def simple(self) -> int:
        """How many cells are whole blocks; they come first."""
        return int((~self.mask).sum())

    @cached_property
    def areas(self) -> NDArray[np.int64]:
        """Pixels in each cell, (cells,), in the order of `apply`."""
        return np.concatenate([self.coarse.areas[~self.mask.reshape(-1)], self.fine.areas[self._complex]])

    def apply(self, picture: Picture) -> Picture:
        """Sums of the cells: whole blocks first, then the parts of the others, each row after row.

        Args:
            picture: As for `BlockSums.apply`.

        Returns:
            int64, (cells, C), on the picture's device.
        """
        coarse, fine = self.coarse.apply(picture), self.fine.apply(picture)
        if is_tensor(coarse):
            import torch

            where, parts = (torch.from_numpy(m).to(coarse.device) for m in (~self.mask, self._complex))
            return torch.cat([coarse[where.reshape(-1)], fine[parts]])
        return np.concatenate([coarse[~self.mask.reshape(-1)], fine[self._complex]])

    def places(self) -> NDArray[np.int64]:
        """Which cell each part of a block lies in, by its place in `apply`'s order: (all parts,), row after row."""
        n, simple = self.subdivide, self.simple
        blocks = np.zeros(self.mask.shape, np.int64)
        blocks[~self.mask] = np.arange(simple)
        source: NDArray[np.int64] = blocks.repeat(n, 0).repeat(n, 1)[: self.fine.rows, : self.fine.columns].reshape(-1)
        source[self._complex] = simple + np.arange(int(self._complex.sum()))
        return source

    def adjoint(self, values: Picture) -> Picture:
        """Each pixel takes its cell's value.

        Args:
            values: (cells, C), in the order of `apply`.

        Returns:
            (H, W, C), of the values' type, on their device.
        """
        source = self.places()
        if is_tensor(values):
            import torch

            return self.fine.adjoint(values[torch.from_numpy(source).to(values.device)])
        return self.fine.adjoint(values[source])

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that `apply` changes between neighbours.

        **Guarantee.** As for `BlockSums.sensitivity`: whole blocks and parts of the other blocks are one partition, so
        a pixel still lies in exactly one cell, however large. With scope `BOX` it is that of undivided blocks, from
        above: dividing a cell divides what a box has in common with it, and squares of parts add up to less.
        """
        if neighbours.scope == BOX:
            return self.coarse.sensitivity(neighbours)
        return _fill(Counter(self.areas.tolist()), neighbours, self.channels, self.peak)


Cells = BlockSums | RegionSums


def _fill(areas: Counter[int], neighbours: Neighbours, channels: int, peak: int) -> Sensitivity:
    """`areas` counts the cells by their size; under scope "clip" there are as many of each as anyone needs."""
    clip, m = neighbours.scope == "clip", neighbours.count
    changed = m if clip else min(m, sum(area * count for area, count in areas.items()))
    squares = largest_fill(dict.fromkeys(areas, m) if clip else areas, changed)
    return Sensitivity(Fraction(peak * channels * changed), Fraction(peak * peak * channels * squares))


def _sides(length: int, block: int) -> NDArray[np.int64]:
    sides = np.full(-(-length // block), block, np.int64)
    sides[-1] = length - block * (len(sides) - 1)
    return sides


def _checked(operator: BlockSums, picture: Picture) -> Picture:
    pixels = picture.reshape(*picture.shape, 1) if picture.ndim == 2 else picture
    wanted = (operator.height, operator.width, operator.channels)
    kind = str(pixels.dtype).removeprefix("torch.")
    if tuple(pixels.shape) != wanted or kind != {255: "uint8", 65535: "uint16"}.get(operator.peak):
        raise ValueError(f"expected {wanted} with values to {operator.peak}, got {kind} {tuple(pixels.shape)}")
    return pixels


def _tensor_sums(pixels: Tensor, operator: BlockSums) -> Tensor:
    import torch

    # zeros add nothing to a sum: unlike the papers' mirrored pixels they count no pixel twice
    below = operator.rows * operator.block - operator.height
    right = operator.columns * operator.block - operator.width
    whole = torch.nn.functional.pad(pixels.to(torch.int64), (0, 0, 0, right, 0, below))
    shape = (operator.rows, operator.block, operator.columns, operator.block, operator.channels)
    return whole.reshape(shape).sum(dim=(1, 3))
