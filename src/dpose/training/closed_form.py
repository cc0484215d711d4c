"""Training in one step: a linear layer's weights, solved from one noised sum over all units.

    gradient = sources.noised()                        # q = 1, one step: clipped gradients of all units, summed, noised
    weights = model.head.solve(gradient, stddev, n)    # post-processing

At weights of 0 the gradient of a squared loss is the statistic of a linear regression, so that nothing else of the data
is needed to solve it. Releasing such statistics with noise: Vu and Slavkovic 2009, Sheffet 2017, "Differentially
private ordinary least squares"; their shrinkage: Wang 2018, "Revisiting differentially private linear regression"
(AdaSSP), whose second moment is private, where here it is that of public units.

**Guarantee.** That of `dpose.training.step.private_gradient` at a sampling rate of 1 with one step: the Gaussian
mechanism on the sum of clipped gradients. The solution reads the noised sum, settings and public data alone
(docs/proofs/dp-head.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpose.errors import DposeError

if TYPE_CHECKING:
    from torch import Tensor

    from dpose.training.clip import Params

FEWEST_DIRECTIONS = 4


@runtime_checkable
class Solvable(Protocol):
    """A layer whose weights are solved from the mean gradient at weights of 0."""

    def solve(self, gradient: Tensor, stddev: float, units: int) -> Tensor:
        """Return the weights.

        Args:
            gradient: The noised mean gradient, of the weights' shape.
            stddev: Standard deviation of the noise on each of its coordinates.
            units: Number of units, public.
        """


def solved(sources: Any) -> Params:
    """Make the step of a method that solves a layer (`dpose.training.step.GradientSources`).

    Returns:
        What a step of plain gradient descent at rate 1 subtracts from weights of 0 to arrive at the solution.
    """
    bound = sources.bound
    ((name, gradient),) = sources.noised().items()
    layer = solvable(sources.inputs.model)
    # sums of clipped gradients are in units of C where they are normalised
    unit = bound.plan.clip_norm if bound.plan.normalise else 1.0
    stddev = unit * bound.noise_stddev / bound.divisor
    return {name: -layer.solve(unit * gradient, stddev, bound.n)}


def solvable(model: Any) -> Solvable:
    """Return the model's layer that can be solved.

    Raises:
        DposeError: the model has none.
    """
    head = getattr(model, "head", None)
    if not isinstance(head, Solvable):
        raise DposeError(
            "model-without-correction",
            "has no linear correction that could be solved",
            type(model).__name__,
            "give model.directions, or choose another method",
        )
    return head


def directions_for(units: int, sigma: float, most: int) -> int:
    """Return how many directions a correction gets: a power of two near sqrt(n / sigma) / 2.

    A direction costs noise that grows as the norm of all of them together does, and the later ones say less. The rule
    reads public numbers alone.
    """
    power = math.floor(0.5 + math.log2(max(math.sqrt(units / sigma) / 2, 1)))
    return min(most, max(FEWEST_DIRECTIONS, 1 << power))
