"""The sums of a private step that take its time, written once for each kind of device.

    kernels = get("cpu")                            # or "gpu", or "reference": torch's own operations, on any device
    kernels = for_device(rows.device)               # what steps take
    kernels.truncate_sum(rows, factors, totals, squares)

Each kind is a module with a value `KERNELS`. Integers are the same from all of them for equal float gradients;
floating-point results differ by rounding. In every one a unit is summed by itself, so that its result has the same bits
whatever the other units are and wherever in the batch it stands.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Name = Literal["reference", "cpu", "gpu"]
Ints = tuple[int, ...]

BITS = 24
"""A unit's contribution has at most 2^24 steps in any coordinate: each is a float32 number without a fraction."""
MOST, TOO_LARGE = float(1 << BITS), float((1 << BITS) + 2)
"""The most steps of a coordinate, and what stands for more of them: its square alone is above every bound."""


class Kernels(Protocol):
    """What each kind of device has."""

    def depthwise(self, x: Tensor, gradient: Tensor, size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
        """Each unit's gradient of a depthwise convolution's weights, (U, O, 1, *size).

        Args:
            x: (U, V, C, height, width), floating point.
            gradient: The gradient of the output, (U, V, O, rows, columns); O is a multiple m of C, and output channel o
                reads input channel o // m.
            size: Rows and columns of the kernel, as in the next three.
            stride: Of the convolution.
            padding: Zeros on each side.
            dilation: Between the kernel's points.
        """

    def norm_slopes(self, x: Tensor, gradient: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
        """Each unit's gradients of a normalisation's weights and biases, (U, P) both.

        Args:
            x: (U, T, P), what was normalised at each of T places; floating point.
            gradient: The gradient of the output, of the same shape.
            mean: (U, T), what was subtracted at each place.
            rstd: (U, T), by which it was then multiplied.
        """

    def square_norms(self, rows: Tensor) -> Tensor:
        """The squared L2 norm of each row of (U, P), (U,), with an error below 1e-6 of it in float32."""

    def truncate_sum(self, rows: Tensor, factors: Tensor, totals: Tensor, squares: Tensor) -> None:
        """Add each unit's factor * row, truncated toward zero, to `totals`, and its square to `squares`.

        Args:
            rows: (U, P) float32 or float64; where the factor is 0, anything.
            factors: (U,) of the same type, in steps of the grid. Where it is not 0, a number that is not finite or has
                more than `MOST` steps counts as `TOO_LARGE`.
            totals: (P,) int64, in steps; added to.
            squares: (U,) float64, in squared steps; added to. Exact up to 2^53.
        """

    def take_back(self, rows: Tensor, factors: Tensor, totals: Tensor, within: Tensor) -> None:
        """Subtract from `totals` what `truncate_sum` added of each unit that is not `within`, (U,) bool.

        Rows are read where there is such a unit, and not otherwise.
        """


@cache
def get(name: Name) -> Kernels:
    """The kernels of that name.

    Raises:
        ValueError: there are none.
    """
    if name not in ("reference", "cpu", "gpu"):
        raise ValueError(f"no kernels are called {name!r}")
    kernels: Kernels = importlib.import_module(f"{__name__}.{name}").KERNELS
    return kernels


def for_device(device: torch.device) -> Kernels:
    """The kernels that steps take on `device`."""
    if device.type == "cpu":
        return get("cpu")
    return get("gpu" if device.type == "cuda" and _compiles() else "reference")


@cache
def _compiles() -> bool:
    """Whether kernels of a GPU can be compiled; said once where they cannot."""
    if importlib.util.find_spec("triton") is None:
        slower = "sums and depthwise gradients are torch's, and no step is captured, since sums ask the processor"
        warnings.warn(f"a GPU is slower without the package triton: {slower}", stacklevel=3)
        return False
    return True
