"""Public linear operators on groups of frames, and how much a neighbouring clip can change what they give.

    operator = make_operator("dct", shape, rows=32, columns=32, groups=8)
    values = operator.apply(total, frames)
    bound = operator.sensitivity(Neighbours.of_pixels(16, "clip"))

A `GridOperator` has a name and stands in `OPERATORS`; a new one is one class and one call of `register_operator`. Sums
over the cells of one picture are `dpose.release.partition`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.neighbours import BOX, Neighbours
from dpose.release.grid import Shape
from dpose.release.planes import Observed

Values = NDArray[Any]


@dataclass(frozen=True)
class Sensitivity:
    """The most that an operator's output changes between neighbours, over all channels together.

    Attributes:
        l1: Change in L1 norm, from above; None if no bound is known: such an operator takes no Laplace noise.
        l2_squared: The square of the most in L2 norm, from above.
    """

    l1: Fraction | None
    l2_squared: Fraction

    def in_l1(self) -> Fraction:
        """`l1`."""
        if self.l1 is None:
            raise DposeError(
                "delta-missing", "this operator takes Gaussian noise alone", "delta", "give a delta above 0"
            )
        return self.l1


class GridOperator(ABC):
    """A linear operator on groups of consecutive frames (often of one frame); a picture is a clip of one frame.

    It acts on the *sum* of a group's frames, and on every group alike, so that a clip of any length is released group
    by group. Everything about it is public. What a new one must have are `apply`, `adjoint` and `sensitivity`; the rest
    is restoration, post-processing of what was released, and bounds on rounding for values that are not whole.

    Attributes:
        shape: The clip's sizes.
        rows: Rows of the operator's grid: cells or cosines down a frame.
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
            """Number of groups of frames."""

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
        """The sensitivity for neighbours of scope `BOX`: here for as many pixels, wherever in the clip they lie."""
        return self.sensitivity(Neighbours.of_pixels(neighbours.m, "clip"))

    def bound_for(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all groups' values together change between neighbours of any scope of a clip."""
        return (self.box_sensitivity if neighbours.scope == BOX else self.sensitivity)(neighbours)

    @property
    def outputs(self) -> int:
        """Values that `apply` gives for a group."""
        return self.rows * self.columns * self.shape.channels

    @property
    def whole(self) -> bool:
        """True if `apply` gives whole numbers, int64, so that nothing is rounded before whole-number noise is added."""
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
        """Values of a group as cells' means and their noise, for `restoration`; None if they are no cells.

        Args:
            values: With noise.
            frames: Number of frames of the group.
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
        """How far a value of `centred` may lie from the true one; needed if values are rounded or clipped.

        Raises:
            NotImplementedError: no bound is known.
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
        about: What the operator keeps, in words.
        drawn: True if it follows from public text that is drawn anew for every release.
        colours: True if luma and chroma may have grids of their own (`colour_planes`); if not, values are taken alike.
    """

    make: MakeOperator
    about: str
    drawn: bool = False
    colours: bool = False


OPERATORS: dict[str, OperatorEntry] = {}
"""Operators by the name that `Projection.operator` and the statement have for them."""


def register_operator(name: str, make: MakeOperator, about: str, *, drawn: bool = False, colours: bool = False) -> None:
    """Put an operator into `OPERATORS`: from then on it is released, stated and verified by this name.

    Args:
        name: A new name.
        make: Makes the operator, by `MakeOperator`'s contract.
        about: What the operator keeps, in words.
        drawn: True if it follows from public text that is drawn anew for every release.
        colours: True if `colour_planes` knows how much it changes where luma and chroma are apart.

    Raises:
        DposeError: the name is taken.
    """
    if name in OPERATORS:
        raise DposeError("operator-exists", "there is an operator of this name already", name, "choose another name")
    OPERATORS[name] = OperatorEntry(make, about, drawn, colours)


def make_operator(name: str, shape: Shape, rows: int, columns: int, groups: int, choice: str = "") -> GridOperator:
    """The operator of this name.

    Args:
        name: One of `OPERATORS`.
        shape: The clip's sizes.
        rows: Cells or cosines down the frame.
        columns: Cells or cosines across the frame.
        groups: Number of groups of frames.
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
