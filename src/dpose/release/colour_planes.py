"""Any named operator on luma and chroma apart: one grid for luma, a coarser one for both chromas, one noise for all.

operator = make_planes("block", shape, (32, 32, 64), Colour.of("ycc", 3, gaussian=True), factor=2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.neighbours import Neighbours
from dpose.release.colour import Colour, Row, as_rgb
from dpose.release.grid import Shape
from dpose.release.operators import GridOperator, Sensitivity, Values, make_operator
from dpose.release.planes import Observed, Plane
from dpose.release.projections import MIDDLE, PEAK, BlockMeans, Separable, rounded_up

ERRORS = (1.0, 1 / 6, 1 / 4)
"""What squared errors of Y, Co and Cg weigh in the mean of R's, G's and B's: R = Y - Cg/2 + Co/2, G = Y + Cg/2 and
B = Y - Cg/2 - Co/2."""


@dataclass(frozen=True)
class ColourPlanes(GridOperator):
    """An operator on each of a colour's combinations.

    Attributes:
        shape: The clip's sizes.
        colour: The combinations.
        factor: How many times as coarse chroma's grid is.
        planes: The operator of each combination, of one channel.
    """

    shape: Shape
    colour: Colour
    factor: int
    planes: tuple[GridOperator, ...]

    @property
    def rows(self) -> int:
        """Down a frame, luma's."""
        return self.planes[0].rows

    @property
    def columns(self) -> int:
        """Across a frame, luma's."""
        return self.planes[0].columns

    @property
    def groups(self) -> int:
        """Number of groups of frames."""
        return self.planes[0].groups

    @property
    def outputs(self) -> int:
        """Values of a group, all combinations'."""
        return sum(plane.outputs for plane in self.planes)

    @property
    def whole(self) -> bool:
        """True if they are whole numbers, as the planes' are."""
        return all(plane.whole for plane in self.planes)

    def apply(self, total: Values, frames: int) -> Values:
        """Luma's values, then each chroma's."""
        combined = total.astype(np.int64) @ np.array(self.colour.rows, np.int64).T
        parts = [plane.apply(combined[:, :, k : k + 1], frames) for k, plane in enumerate(self.planes)]
        return np.concatenate(parts)

    def adjoint(self, values: Values, frames: int) -> Values:
        """The transposed operator, (H, W, C)."""
        parts = zip(self.planes, self._split(values), self.colour.rows, strict=True)
        return np.asarray(sum(plane.adjoint(part, frames) * np.array(row) for plane, part, row in parts))

    def level(self, values: Values, frames: int) -> Values:
        """Each plane's own."""
        parts = zip(self.planes, self._split(values), strict=True)
        return np.concatenate([plane.level(part, frames) for plane, part in parts])

    def observed(self, values: Values, frames: int, sigma: float) -> Observed | None:
        """The planes' own, in gray levels of luma and chroma."""
        planes = []
        for plane, part, scale in zip(self.planes, self._split(values), self.colour.scales, strict=True):
            seen = plane.observed(part, frames, sigma)
            if seen is None:
                return None
            (one,) = seen.planes
            size = np.float32(scale)
            planes.append(Plane(one.levels / size, one.deviation / size, one.block))
        shape = self.shape
        return Observed(tuple(planes), self.colour.name, shape.height, shape.width, shape.peak, even=True)

    def picture(self, level: Values) -> NDArray[np.float32]:
        """Gray levels of R, G and B, (H, W, C); luma alone in all of them where there is no chroma."""
        parts = zip(self.planes, self._split(level), self.colour.scales, strict=True)
        shown = np.concatenate([plane.picture(part) / scale for plane, part, scale in parts], axis=2)
        if len(self.planes) == 1:
            return np.asarray(shown.repeat(self.shape.channels, axis=2), np.float32)
        return np.asarray(as_rgb(shown), np.float32)

    def noise(self, sigma: float) -> float:
        """Gray levels a pixel, the mean of R's, G's and B's, before values are cut off at black and white."""
        parts = zip(self.planes, self.colour.scales, ERRORS, strict=False)
        return math.sqrt(sum(weight * (plane.noise(sigma) / scale) ** 2 for plane, scale, weight in parts))

    def blur(self, frames: int) -> float:
        """Blur of the worst plane."""
        return max(plane.blur(frames) for plane in self.planes)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all values of all combinations change between neighbours.

        **Guarantee.** Neighbours: as for the planes' operator. Sums over cells: `Colour.joint`, as each of luma's cells
        lies in one of chroma's; also for scope `BOX`. Projections: N is the largest sum of squares of all combinations
        of a pixel, and n the largest that one pixel gives after projection, over all changes of it; orthonormal rows
        make nothing larger, so that N takes the place of 3 and n / N that of c^2 (docs/proofs/video.md).

        Raises:
            ValueError: no bound is known for such an operator.
        """
        near, far = self.planes[0], self.planes[-1]
        if isinstance(near, BlockMeans) and isinstance(far, BlockMeans):
            return self.colour.joint(near.bound_for(neighbours), far.bound_for(neighbours))
        if not (isinstance(near, Separable) and isinstance(far, Separable)):
            raise ValueError(f"no bound for luma and chroma of {type(near).__name__}")
        norms = [plane.column_norm for plane in self.planes if isinstance(plane, Separable)]
        whole, _ = self.colour.change_squared
        one = max(
            sum(
                (norm * sum(n * d for n, d in zip(row, change, strict=True))) ** 2
                for norm, row in zip(norms, self.colour.rows, strict=True)
            )
            for change in product((-1, 1), repeat=self.colour.channels)
        )
        return Sensitivity(None, rounded_up(PEAK**2 * whole * near.change(neighbours, math.sqrt(one / whole))))

    def box_sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The sensitivity for neighbours of scope `BOX`."""
        return self.sensitivity(neighbours)

    def _split(self, values: Values) -> list[Values]:
        ends = np.cumsum([plane.outputs for plane in self.planes])[:-1]
        return list(np.split(np.asarray(values), ends))


def make_planes(
    name: str, shape: Shape, grid: tuple[int, int, int], colour: Colour, factor: int, choice: str = ""
) -> GridOperator:
    """The operator of this name: of the values as they are, or of luma and chroma.

    Args:
        name: One of `OPERATORS`.
        shape: The clip's sizes.
        grid: Rows, columns and groups; luma's.
        colour: What is released of a pixel.
        factor: How many times as coarse chroma's grid is.
        choice: Public text that a drawn operator follows from.

    Raises:
        ValueError: unknown name, or a grid that does not fit, or that chroma's does not divide.
    """
    rows, columns, groups = grid
    if not colour.times:
        return make_operator(name, shape, rows, columns, groups, choice)
    if colour.chroma and (rows % factor or columns % factor):
        raise ValueError(f"a grid of {rows} x {columns} cannot be {factor} times as coarse")
    one = replace(shape, channels=1)
    planes = []
    for number, row in enumerate(colour.rows):
        n = factor if number else 1
        planes.append(_plane(make_operator(name, one, rows // n, columns // n, groups, choice), row))
    return ColourPlanes(shape, colour, factor, tuple(planes))


def _plane(operator: GridOperator, row: Row) -> GridOperator:
    """For a combination of values, whose middle is not that of one value."""
    if not isinstance(operator, Separable):
        return operator
    return replace(operator, middle=MIDDLE * sum(row), reach=MIDDLE * sum(map(abs, row)))
