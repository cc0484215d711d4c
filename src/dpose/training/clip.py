"""What bounds each unit's gradient before the sum, how far one unit can then move the sum, and the sum's integer grid.

    clip = Clip(1.0)
    totals, squares = torch.zeros(width, dtype=torch.int64), torch.zeros(units, dtype=torch.float64)
    clip.grid.add(rows, factors, totals, squares)         # trunc(factor * row / step), one row a unit
    allowed = clip.grid.within(squares)                   # in exact arithmetic

Sums of floating-point numbers are rounded, by more the more there are, and what is rounded away depends on all of
them: taking one unit out can then move the sum by more than that unit's norm. Sums of integers are exact, in whatever
order, in however many micro-batches and processes they are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dpose.privacy.neighbours import Relation
from dpose.training.kernels import BITS, for_device

if TYPE_CHECKING:
    from torch import Tensor

Params: TypeAlias = "dict[str, Tensor]"
"""Tensors by the names of a model's parameters."""

UNITS = 1 << 29
"""Sums of up to so many units fit in the 53 bits of a float64; a private plan has no more."""


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

        As `dpose.training.kernels.Kernels.truncate_sum`, with factors that are no steps. `totals` mean nothing before
        units that turn out not to be `within` are taken back.
        """
        for_device(rows.device).truncate_sum(rows, self._scaled(rows, factors), totals, squares)

    def take_back(self, rows: Tensor, factors: Tensor, totals: Tensor, within: Tensor) -> None:
        """Subtract from `totals` what `add` put there of each unit that is not `within`: exact, for sums are whole."""
        for_device(rows.device).take_back(rows, self._scaled(rows, factors), totals, within)

    def within(self, squares: Tensor) -> Tensor:
        """Which units (U,) keep the bound; not a number does not."""
        return squares <= float(self.most)

    def _scaled(self, rows: Tensor, factors: Tensor) -> Tensor:
        return (factors.double() / self.step).to(rows.dtype)

    def values(self, totals: Tensor) -> Tensor:
        """The same as real numbers, float64, exact for sums of up to `UNITS` units; on a CPU if need be."""
        place = totals.cpu() if totals.device.type == "mps" else totals
        return place.double() * self.step

    def steps(self, values: Tensor) -> Tensor:
        """The inverse of `values`: int64. What lies off the grid goes to the nearest point of it."""
        return (values.double() / self.step).round().long()


@dataclass(frozen=True)
class Clip:
    """The bound of one unit's gradient, the sensitivity of the sum, and the grid of the sum.

    Attributes:
        norm: The clipping norm C: a longer gradient is scaled down to this L2 norm.
        normalised: Whether clipped gradients are divided by C, so that C does not scale the optimizer's step.
    """

    norm: float
    normalised: bool = False

    @property
    def bound(self) -> float:
        """The L2 norm that one unit's contribution to the sum has at most: `Event.sensitivity`."""
        return 1.0 if self.normalised else self.norm

    def sensitivity(self, relation: Relation) -> float:
        """How far the sum moves between neighbours at most, in L2 norm.

        **Guarantee.** A unit that is zeroed out, added or removed takes its contribution with it: `bound`. One that is
        replaced also brings another: twice that. Accountants double it themselves (docs/proofs/dp-sgd.md).
        """
        return 2 * self.bound if relation is Relation.REPLACE else self.bound

    @property
    def grid(self) -> Grid:
        """The integer grid of the sum: a contribution that is rounded to it has norm `bound` at most, exactly."""
        return Grid.of(self.bound)


class PreClipping(Protocol):
    """A linear map of per-unit gradients before the clip, and its way back (`dpose.training.preclipping`)."""

    def each(self, gradients: Params) -> Params:
        """The transformed gradient (U, ...) of each unit's (U, *parameter shape); of each unit alone."""

    def like(self, params: Params) -> Params:
        """Tensors of the shapes of one transformed gradient."""

    def back(self, noised: Params) -> Params:
        """From a noised transformed gradient to one of the parameters. Post-processing."""
