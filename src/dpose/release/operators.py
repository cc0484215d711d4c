"""Public linear operators, and how much a neighbouring picture or clip can change what they give.

    operator = BlockSums(height=1080, width=1920, block=16)
    sums = operator.apply(picture)                      # (8160, 1) integers
    bound = operator.sensitivity(Neighbours(Relation.REPLACE, m=16, scope="picture"))
    picture = operator.adjoint(means)

There are two families. Cells (`BlockSums`, `RegionSums`) sum pixels of each frame over a public partition: this is
pixelization, whose second stage may choose the partition from what the first released. A `GridOperator` acts on
groups of frames, has a name, and stands in `OPERATORS`; a new one is one class and one call of `register_operator`.

Cells at the right and lower edges are smaller where the block does not divide the picture; nothing is padded, so every
pixel is counted exactly once. That is the whole proof: a pixel lies in one cell, and a neighbour that changes m pixels
changes the sums by at most `peak` for each of their values (docs/proofs/pixelization.md). How large the cells are does
not matter for the L1 norm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.neighbours import BOX, Neighbours
from dpose.release.boxes import most_overlap
from dpose.release.grid import Shape, largest_fill, products
from dpose.release.kernels import block_sums, paint_blocks
from dpose.release.planes import Observed
from dpose.tensors import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

Picture = TypeVar("Picture", NDArray[Any], "Tensor")
Mask = NDArray[np.bool_]
Values = NDArray[Any]

ONE_FRAME = "one frame"
"""The scope of neighbours that differ in m pixels of one frame; m is all of them where a whole frame is replaced."""


@dataclass(frozen=True)
class Sensitivity:
    """The most that an operator's output changes between neighbours, over all channels together.

    Attributes:
        l1: In L1 norm, from above; None where nobody has bounded it, and Laplace noise cannot be had.
        l2_squared: The square of the most in L2 norm, from above.
    """

    l1: Fraction | None
    l2_squared: Fraction

    def in_l1(self) -> Fraction:
        """`l1`.

        Raises:
            DposeError: nobody has bounded it.
        """
        if self.l1 is None:
            raise DposeError("this operator takes Gaussian noise alone", "delta", "give a delta above 0")
        return self.l1


class GridOperator(ABC):
    """A linear operator on groups of consecutive frames (often of one frame); a picture is a clip of one frame.

    It acts on the *sum* of a group's frames, and on every group alike, so that a clip of any length is released group
    by group. Everything about it is public. What a new one must have are `apply`, `adjoint` and `sensitivity`; the rest
    is restoration, post-processing of what was released, and bounds on rounding for values that are not whole.

    Attributes:
        shape: The clip's sizes.
        rows: Of its grid: cells, cosines or whatever it has down a frame.
        columns: Across a frame.
        groups: How many groups the frames are divided into (`grid.even_edges`).
    """

    if TYPE_CHECKING:
        # fields or properties of the classes below; a property here would be the default of a field there

        @property
        def shape(self) -> Shape:
            """The clip's sizes."""

        @property
        def rows(self) -> int:
            """Down a frame."""

        @property
        def columns(self) -> int:
            """Across a frame."""

        @property
        def groups(self) -> int:
            """Of frames."""

    @abstractmethod
    def apply(self, total: Values, frames: int) -> Values:
        """Values of a group, (outputs,).

        Args:
            total: The sum of the group's frames, whole numbers, (H, W, C).
            frames: How many they are.
        """

    @abstractmethod
    def adjoint(self, values: Values, frames: int) -> Values:
        """The transposed operator: what each frame of the group gets, (H, W, C)."""

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all groups' values together change between neighbours.

        Their scope is "clip" (m pixels of all frames together; also a picture's), "frame" (of every frame) or
        `ONE_FRAME` (of any one frame).
        """

    def box_sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """As `sensitivity`, for neighbours of scope `BOX`: here as many pixels, wherever in the clip they lie."""
        return self.sensitivity(Neighbours(neighbours.relation, neighbours.m, "clip"))

    def bound_for(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all groups' values together change between neighbours of any scope of a clip."""
        return (self.box_sensitivity if neighbours.scope == BOX else self.sensitivity)(neighbours)

    @property
    def outputs(self) -> int:
        """Values that `apply` gives for a group."""
        return self.rows * self.columns * self.shape.channels

    @property
    def whole(self) -> bool:
        """Whether `apply` gives whole numbers, int64, so that nothing is rounded before whole-number noise is added."""
        return True

    @property
    def unit(self) -> float:
        """What `apply`'s values are divided by to give an operator of norm at most 1."""
        return 1.0

    def centred(self, values: Values, frames: int) -> Values:
        """The same values over `unit`; what a norm is measured on."""
        return np.asarray(values / self.unit)

    def uncentred(self, values: Values, frames: int) -> Values:
        """The inverse of `centred`."""
        return np.asarray(values * self.unit)

    def level(self, values: Values, frames: int) -> Values:
        """The values of a frame that stands for the group, so that groups can be blended."""
        return np.asarray(values / frames)

    def picture(self, level: Values) -> NDArray[np.float32]:
        """A frame in gray levels, (H, W, C), from what `level` gave. Post-processing.

        Every pixel takes the mean of the cell that it lies in: exact for sums over a partition.
        """
        return np.asarray(self.adjoint(level / self._weights, 1), np.float32)

    def observed(self, values: Values, frames: int, sigma: float) -> Observed | None:
        """Values of a group as cells' means and their noise, for `restoration`; None where they are no cells.

        Args:
            values: With noise.
            frames: Of the group.
            sigma: The noise's standard deviation on `values`.
        """
        return None

    def noise(self, sigma: float) -> float:
        """Gray levels that noise of `sigma` on each value puts on a pixel of `picture`, root mean square.

        Before values are cut off at black and white. Drawn once, with noise that has nothing to do with any release.
        """
        frames = max(1, self.shape.frames // self.groups)
        drawn = np.random.default_rng(0).normal(0, sigma, self.outputs)
        nothing = self.picture(self.level(np.zeros(self.outputs), frames))
        return float(np.sqrt(np.mean((self.picture(self.level(drawn, frames)) - nothing) ** 2)))

    def blur(self, frames: int) -> float:
        """How far a value of `centred` may lie from the true one; asked for where values are rounded or clipped.

        Raises:
            NotImplementedError: nobody has bounded it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no bound on what floating point rounds off")

    @cached_property
    def _weights(self) -> Values:
        shape = self.shape
        white = np.ones((shape.height, shape.width, shape.channels), np.int64)
        return np.maximum(self.apply(white, 1), 1)


MakeOperator = Callable[[Shape, int, int, int, str], GridOperator]
"""From a shape, rows, columns, groups and public text to the operator. Given an operator's own rows, columns and
groups, it makes the same operator again: they stand in the statement, and `dpose verify` makes it from them."""


@dataclass(frozen=True)
class OperatorEntry:
    """An operator in the registry.

    Attributes:
        make: Makes it.
        about: What it keeps, in words.
        drawn: Whether it follows from public text that is drawn anew for every release.
        colours: Whether luma and chroma may have grids of their own (`colour_planes`); if not, values are taken alike.
    """

    make: MakeOperator
    about: str
    drawn: bool = False
    colours: bool = False


OPERATORS: dict[str, OperatorEntry] = {}
"""Operators by the name that `ReleaseConfig.operator` and the statement have for them."""


def register_operator(
    name: str, make: MakeOperator, about: str, *, drawn: bool = False, colours: bool = False
) -> None:
    """Put an operator into `OPERATORS`: from then on it is released, told, and verified by this name.

    Args:
        name: A new name.
        make: As `MakeOperator` says.
        about: What it keeps, in words.
        drawn: Whether it follows from public text that is drawn anew for every release.
        colours: Whether `colour_planes` knows how much it changes where luma and chroma are apart.

    Raises:
        ValueError: the name is taken.
    """
    if name in OPERATORS:
        raise ValueError(f"there is an operator {name!r} already")
    OPERATORS[name] = OperatorEntry(make, about, drawn, colours)


def make_operator(
    name: str, shape: Shape, rows: int, columns: int, groups: int, choice: str = ""
) -> GridOperator:
    """The operator of this name.

    Args:
        name: Of `OPERATORS`.
        shape: The clip's sizes.
        rows: Cells or cosines down the frame.
        columns: Cells or cosines across the frame.
        groups: Of frames.
        choice: Public text that a drawn operator follows from.

    Raises:
        ValueError: unknown name, or a grid that does not fit.
    """
    check_grid(shape, rows, columns, groups)
    if name not in OPERATORS:
        raise ValueError(f"no operator {name!r}")
    return OPERATORS[name].make(shape, rows, columns, groups, choice)


def check_grid(shape: Shape, rows: int, columns: int, groups: int) -> None:
    """Refuse a grid that is finer than the clip.

    Raises:
        ValueError: it is.
    """
    for count, most in ((rows, shape.height), (columns, shape.width), (groups, shape.frames)):
        if not 1 <= count <= most:
            raise ValueError(f"a grid of {rows} x {columns} in {groups} groups does not fit {shape}")


@dataclass(frozen=True)
class BlockSums:
    """Sums over b x b blocks, ragged at the right and lower edges.

    Attributes:
        height: Of the picture, pixels.
        width: Of the picture, pixels.
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
            wide = (
                min(neighbours.box[0], self.width),
                np.append(np.arange(self.columns) * self.block, self.width),
            )
            tall = (
                min(neighbours.box[1], self.height),
                np.append(np.arange(self.rows) * self.block, self.height),
            )
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
        height: Of the picture, pixels.
        width: Of the picture, pixels.
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
        source: NDArray[np.int64] = (
            blocks.repeat(n, 0).repeat(n, 1)[: self.fine.rows, : self.fine.columns].reshape(-1)
        )
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
    clip, m = neighbours.scope == "clip", neighbours.m
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
        raise ValueError(
            f"expected {wanted} with values to {operator.peak}, got {kind} {tuple(pixels.shape)}"
        )
    return pixels


def _tensor_sums(pixels: Tensor, operator: BlockSums) -> Tensor:
    import torch

    # zeros add nothing to a sum: unlike the papers' mirrored pixels they count nobody twice
    below = operator.rows * operator.block - operator.height
    right = operator.columns * operator.block - operator.width
    whole = torch.nn.functional.pad(pixels.to(torch.int64), (0, 0, 0, right, 0, below))
    shape = (operator.rows, operator.block, operator.columns, operator.block, operator.channels)
    return whole.reshape(shape).sum(dim=(1, 3))
