"""The operators that dpose names: block means, a low-pass, a randomised projection; how much neighbours change them.

    shape = Shape(frames=64, height=240, width=320, channels=3)
    operator = make_operator("block", shape, rows=32, columns=32, groups=64)
    values = operator.apply(frame, 1)
    bound = operator.sensitivity(Neighbours.of_pixels(16, "clip")).l2_squared

They act on each channel alone. docs/proofs/video.md derives every bound.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.privacy.neighbours import BOX, ONE_FRAME, Neighbours
from dpose.release.grid import (
    Shape,
    blend_gain,
    count_lengths,
    even_edges,
    inverse_squares,
    largest_fill,
    most_overlap,
    most_weight,
    products,
    squares_of,
)
from dpose.release.operators import GridOperator, Sensitivity, Values, check_grid, register_operator
from dpose.release.partition import sum_cells
from dpose.release.planes import Observed, Plane

PEAK = 255
MIDDLE = PEAK / 2
"""Subtracted from every pixel by the projections: a public constant, so that grey becomes nothing."""
ROUNDING = Fraction(1, 10**6)
"""Relative. What is added to a bound that was computed in floating point, far more than its error."""


@dataclass(frozen=True)
class BlockMeans(GridOperator):
    """Sums over cells of a grid in height, width and time; restored as their means, smoothly enlarged.

    Cells differ by at most one pixel or frame a side; nothing is padded, so that every pixel lies in exactly one cell.
    The sums are whole numbers and so can be released with whole-number noise.

    Attributes:
        shape: The clip's sizes.
        rows: Number of rows of cells, at most the height.
        columns: Number of columns of cells, at most the width.
        groups: Number of groups of frames, at most the number of frames.

    Raises:
        ValueError: there are fewer pixels or frames than cells.
    """

    shape: Shape
    rows: int
    columns: int
    groups: int

    def __post_init__(self) -> None:
        check_grid(self.shape, self.rows, self.columns, self.groups)

    @cached_property
    def unit(self) -> float:
        """The root of the largest cell's volume."""
        return math.sqrt(max(self._areas) * max(self._times))

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        return even_edges(self.shape.height, self.rows)

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        return even_edges(self.shape.width, self.columns)

    @cached_property
    def areas(self) -> NDArray[np.int64]:
        """Pixels in each cell of a frame, (rows, columns)."""
        return np.outer(np.diff(self._rows), np.diff(self._columns))

    @cached_property
    def _areas(self) -> Counter[int]:
        return products(count_lengths(self.shape.height, self.rows), count_lengths(self.shape.width, self.columns))

    @cached_property
    def _times(self) -> Counter[int]:
        return count_lengths(self.shape.frames, self.groups)

    def apply(self, total: Values, frames: int) -> Values:
        """Sums of the cells of one group.

        Args:
            total: The sum of the group's frames, whole numbers, (H, W, C).
            frames: How many they are.

        Returns:
            int64, (rows * columns * C,).
        """
        height, width, channels = _checked(self.shape, total).shape
        out = np.zeros((self.rows, self.columns, channels), np.int64)
        flat = np.ascontiguousarray(total).reshape(height, width * channels)
        sum_cells(flat, self._rows, self._columns * channels, channels, out)
        return out.reshape(-1)

    def centred(self, values: Values, frames: int) -> Values:
        """Sums over `unit`, 0 where all pixels have 127.5."""
        return np.asarray((values - MIDDLE * self._volumes(frames)) / self.unit)

    def uncentred(self, values: Values, frames: int) -> Values:
        """Sums again."""
        return np.asarray(values * self.unit + MIDDLE * self._volumes(frames))

    def adjoint(self, values: Values, frames: int) -> Values:
        """Every pixel takes its cell's value, (H, W, C)."""
        grid = np.asarray(values).reshape(self.rows, self.columns, self.shape.channels)
        return grid.repeat(np.diff(self._rows), 0).repeat(np.diff(self._columns), 1)

    def level(self, values: Values, frames: int) -> Values:
        """Means of the cells."""
        return np.asarray(values / self._volumes(frames))

    def observed(self, values: Values, frames: int, sigma: float) -> Observed:
        """Values of a group as cells' means and their noise, by `GridOperator.observed`'s contract."""
        shape, volumes = self.shape, self.areas * frames
        levels = values.reshape(self.rows, self.columns, shape.channels) / volumes[:, :, None]
        noise, side = (sigma / volumes).astype(np.float32), -(-shape.height // self.rows)
        planes = tuple(Plane(levels[:, :, k].astype(np.float32), noise, side) for k in range(shape.channels))
        colour = "rgb" if shape.channels == 3 else "grey"
        return Observed(planes, colour, shape.height, shape.width, shape.peak, even=True)

    def picture(self, level: Values) -> NDArray[np.float32]:
        """The cells' means, enlarged by cubic interpolation. Post-processing."""
        grid = level.reshape(self.rows, self.columns, self.shape.channels).astype(np.float32)
        return _enlarged(grid, self.shape.height, self.shape.width)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all sums change between neighbours, exactly.

        **Guarantee.** Neighbours: clips of the same size that differ in m pixels of all frames together (scope "clip"),
        in m pixels of every frame ("frame"), or in m pixels of one frame ("one frame"). A pixel lies in one cell and
        moves each of its C sums by at most 255. The worst neighbour fills the largest cells first. Scope `BOX`: see
        `box_sensitivity`.
        """
        if neighbours.scope == BOX:
            return self.box_sensitivity(neighbours)
        scope, m, shape = neighbours.scope, neighbours.count, self.shape
        if scope == "clip":
            squares, moved = (largest_fill(products(self._areas, self._times), m), min(m, shape.pixels * shape.frames))
        elif scope == "frame":
            # the same pixels in every frame of a group: their changes add up in one sum
            squares = largest_fill(self._areas, m) * squares_of(self._times)
            moved = min(m, shape.pixels) * shape.frames
        elif scope == ONE_FRAME:
            squares, moved = largest_fill(self._areas, m), min(m, shape.pixels)
        else:
            raise ValueError(f"no neighbours of a clip: {neighbours}")
        return Sensitivity(Fraction(PEAK * shape.channels * moved), Fraction(PEAK**2 * shape.channels * squares))

    def box_sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all sums change between neighbours of scope `BOX`, exactly.

        **Guarantee.** Neighbours: clips that differ in any T frames, in each of them inside a box of W x H pixels at
        any place. The worst has its box at the same place of all T frames, where it fills cells most, and the frames in
        as few groups as hold them, the longest ones: their changes add up in one sum.
        """
        assert neighbours.box is not None
        assert neighbours.frames is not None
        width, height = neighbours.box
        squares = most_overlap(self._columns, width) * most_overlap(self._rows, height)
        squares *= largest_fill(self._times, neighbours.frames)
        moved, channels = neighbours.count, self.shape.channels
        return Sensitivity(Fraction(PEAK * channels * moved), Fraction(PEAK**2 * channels * squares))

    def noise(self, sigma: float) -> float:
        """Gray levels a pixel, before values are cut off at black and white."""
        shape = self.shape
        variance = sigma**2 * inverse_squares(self._areas) * inverse_squares(self._times)
        variance *= _gain(self.rows, shape.height) * _gain(self.columns, shape.width)
        return math.sqrt(variance * blend_gain(shape.frames, self.groups))

    def blur(self, frames: int) -> float:
        """Sums are exact; over `unit` and centred they are off by two roundings."""
        largest = MIDDLE * max(self._areas) * frames / self.unit
        return 4 * largest * float(np.finfo(np.float64).eps)

    def _volumes(self, frames: int) -> NDArray[np.int64]:
        return (self.areas * frames)[:, :, None].repeat(self.shape.channels, 2).reshape(-1)


@dataclass(frozen=True)
class Separable(GridOperator):
    """A projection with orthonormal rows: some cosines down the frame times some cosines across it, on every channel.

    The group's frames are added, over the root of their number, with 127.5 taken off each pixel.

    Attributes:
        shape: The clip's sizes.
        down: (rows, H), orthonormal rows.
        across: (columns, W), orthonormal rows.
        groups: Number of groups of frames.
        signs: +1 or -1 for every value of a frame, int8 (H, W, C), or None for +1 everywhere.
        middle: Taken off each value of a frame.
        reach: The most that a value then differs from 0.
    """

    shape: Shape
    down: NDArray[np.float64]
    across: NDArray[np.float64]
    groups: int
    signs: NDArray[np.int8] | None = None
    middle: float = MIDDLE
    reach: float = MIDDLE

    def __post_init__(self) -> None:
        check_grid(self.shape, self.rows, self.columns, self.groups)

    @property
    def rows(self) -> int:
        """Cosines down the frame."""
        return len(self.down)

    @property
    def columns(self) -> int:
        """Cosines across the frame."""
        return len(self.across)

    @property
    def whole(self) -> bool:
        """Cosines are no whole numbers."""
        return False

    @cached_property
    def column_norm(self) -> float:
        """The largest norm of what one pixel of one frame gives, a gray level high: c."""
        down = np.linalg.norm(self.down, axis=0).max()
        across = np.linalg.norm(self.across, axis=0).max()
        return float(down * across)

    @cached_property
    def _times(self) -> Counter[int]:
        return count_lengths(self.shape.frames, self.groups)

    @cached_property
    def _floats(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.down.astype(np.float32), self.across.astype(np.float32)

    def apply(self, total: Values, frames: int) -> Values:
        """The projection of one group.

        Args:
            total: The sum of the group's frames, whole numbers, (H, W, C).
            frames: How many they are.

        Returns:
            float64, (rows * C * columns,).
        """
        height, width, channels = _checked(self.shape, total).shape
        centred = total.astype(np.float64)
        centred -= self.middle * frames
        if self.signs is not None:
            centred *= self.signs
        tall = (self.down @ centred.reshape(height, width * channels)).reshape(self.rows, width, channels)
        flat = np.ascontiguousarray(tall.transpose(0, 2, 1)).reshape(-1, width)
        return np.asarray((flat @ self.across.T).reshape(-1) / math.sqrt(frames))

    def adjoint(self, values: Values, frames: int) -> Values:
        """The transposed projection, without the grey that `apply` takes off, (H, W, C)."""
        return self._spread(np.asarray(values, np.float32) / np.float32(math.sqrt(frames)))

    def level(self, values: Values, frames: int) -> Values:
        """What a single frame equal to the group's mean would give."""
        return np.asarray(values / math.sqrt(frames))

    def picture(self, level: Values) -> NDArray[np.float32]:
        """The adjoint, with the grey put back. Post-processing, in 32 bits."""
        return self._spread(level.astype(np.float32)) + np.float32(self.middle)

    def _spread(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        shape = self.shape
        down, across = self._floats
        wide = (values.reshape(-1, self.columns) @ across).reshape(self.rows, shape.channels, shape.width)
        flat = np.ascontiguousarray(wide.transpose(0, 2, 1)).reshape(self.rows, -1)
        found = (down.T @ flat).reshape(shape.height, shape.width, shape.channels)
        if self.signs is not None:
            found *= self.signs
        return np.asarray(found)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all values change between neighbours, from above, in L2 norm.

        **Guarantee.** Neighbours: as for `BlockMeans.sensitivity`. The rows are orthonormal, so a change of a frame
        never grows, and c is the largest norm of a column. m pixels of a frame, changed by at most 255 in each of C
        channels that do not mix, move the values by at most 255 sqrt(C) min(sqrt(m), m c). A group of t frames divides
        a change of one frame by sqrt(t), and adds up to sqrt(t) times a change of all of them. Pixels spread over
        groups do no more than pixels in one. Scope `BOX`: see `box_sensitivity`.
        """
        if neighbours.scope == BOX:
            return self.box_sensitivity(neighbours)
        change = self.shape.channels * self.change(neighbours, self.column_norm)
        return Sensitivity(None, rounded_up(PEAK**2 * change))

    def change(self, neighbours: Neighbours, column_norm: float) -> float:
        """The most that one value a pixel changes all that it gives, squared, where it changes by at most 1.

        Args:
            neighbours: As for `sensitivity`.
            column_norm: What a pixel of one frame gives at most.
        """
        if neighbours.scope == BOX:
            assert neighbours.box is not None
            assert neighbours.frames is not None
            return _sparse(math.prod(neighbours.box), column_norm) * self._together(neighbours.frames)
        scope, m, shape = neighbours.scope, neighbours.count, self.shape
        if scope == "clip":
            # a pixel of a shorter group weighs more
            total = min(m, shape.frames * shape.pixels)
            return _sparse(total, column_norm / math.sqrt(min(self._times)))
        if scope == "frame":
            return shape.frames * _sparse(min(m, shape.pixels), column_norm)
        if scope == ONE_FRAME:
            return _sparse(min(m, shape.pixels), column_norm) / min(self._times)
        raise ValueError(f"no neighbours of a clip: {neighbours}")

    def box_sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all values change between neighbours of scope `BOX`, from above, in L2 norm.

        **Guarantee.** Neighbours: as for `BlockMeans.box_sensitivity`. A box of one frame moves the values by at most
        255 sqrt(C) times the smaller of sqrt(W H) and the sum of the norms of its columns, which is a product of one
        sum down and one across it. Frames of a group of t add up, over sqrt(t); T frames do at most min(T, T^2 / t)
        times as much, in squares, as one that stands alone.
        """
        assert neighbours.box is not None
        assert neighbours.frames is not None
        width, height = neighbours.box
        down = most_weight(np.linalg.norm(self.down, axis=0), height)
        across = most_weight(np.linalg.norm(self.across, axis=0), width)
        change = min(float(width * height), (down * across) ** 2) * self._together(neighbours.frames)
        return Sensitivity(None, rounded_up(PEAK**2 * self.shape.channels * change))

    def _together(self, frames: int) -> float:
        """How many times what one frame does that stands alone so many do, in squares: frames of a group add up."""
        return min(frames, frames**2 / min(self._times))

    def noise(self, sigma: float) -> float:
        """Gray levels a pixel, before values are cut off at black and white."""
        share = self.rows * self.columns / self.shape.pixels
        times = sum(count / size for size, count in self._times.items()) / self.groups
        return sigma * math.sqrt(share * times * blend_gain(self.shape.frames, self.groups))

    def blur(self, frames: int) -> float:
        """Rounding in two products of matrices, for any order of summation, from above."""
        terms = self.shape.height + self.shape.width + 8
        sums = np.abs(self.down).sum(1).max() * np.abs(self.across).sum(1).max()
        return float(terms * np.finfo(np.float64).eps * sums * self.reach * math.sqrt(frames))


def low_pass(shape: Shape, rows: int, columns: int, groups: int, _: str = "") -> Separable:
    """The lowest frequencies: `rows` cosines down the frame times `columns` across it."""
    lowest = (cosines(shape.height, np.arange(rows)), cosines(shape.width, np.arange(columns)))
    return Separable(shape, *lowest, groups)


def random_projection(shape: Shape, rows: int, columns: int, groups: int, choice: str) -> Separable:
    """Random signs, then random frequencies, all of which follow from the public text `choice`."""
    seed = hashlib.sha256(choice.encode()).digest()
    rng = np.random.Generator(np.random.Philox(key=np.frombuffer(seed[:16], np.uint64)))
    chosen = [
        cosines(length, np.sort(rng.permutation(length)[:count]))
        for length, count in ((shape.height, rows), (shape.width, columns))
    ]
    signs = (2 * rng.integers(0, 2, (shape.height, shape.width, shape.channels)) - 1).astype(np.int8)
    return Separable(shape, chosen[0], chosen[1], groups, signs)


def cosines(length: int, frequencies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows of the orthonormal discrete cosine transform (DCT-II), (frequencies, length).

    Args:
        length: Length of the line.
        frequencies: Which rows, each from 0 to length - 1.
    """
    places = (2 * np.arange(length) + 1) * np.pi / (2 * length)
    scale = np.where(frequencies == 0, math.sqrt(1 / length), math.sqrt(2 / length))
    return np.asarray(np.cos(np.outer(frequencies, places)) * scale[:, None])


def rounded_up(value: float) -> Fraction:
    """A fraction a little above a bound that was computed in floating point."""
    return Fraction(value) * (1 + ROUNDING)


def _sparse(m: int, column_norm: float) -> float:
    """The squared change by m values of one channel, a gray level each: min(m, m^2 c^2)."""
    return min(float(m), float(m) ** 2 * column_norm**2)


def _gain(cells: int, length: int) -> float:
    """What enlarging one axis leaves of the noise's variance."""
    weights = _enlarged(np.eye(cells, dtype=np.float32)[:, :, None], length, cells)
    return float((weights**2).sum() / length)


def _enlarged(grid: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    large = cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray(large).reshape(height, width, grid.shape[2])


def _checked(shape: Shape, total: Values) -> Values:
    wanted = (shape.height, shape.width, shape.channels)
    if total.shape != wanted or total.dtype.kind not in "ui":
        raise ValueError(f"expected whole numbers {wanted}, got {total.dtype} {total.shape}")
    return total


register_operator(
    "block", lambda shape, *grid: BlockMeans(shape, *grid[:3]), "block means, enlarged smoothly", colours=True
)
register_operator("low-pass", low_pass, "the lowest frequencies", colours=True)
register_operator("random", random_projection, "random signs, then random frequencies", drawn=True, colours=True)
