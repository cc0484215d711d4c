"""Training by solving: a linear layer's weights, from one noised sum over all units, or from two.

    gradient = sources.noised()                        # q = 1, one step: clipped gradients of all units, summed, noised
    weights = model.head.solve(gradient, stddev, n)    # post-processing

    moment = sources.noised(SecondMoment(task))        # the first of two such steps: the features' second moment
    weights = model.head.solve(gradient, stddev, n, moment)

At weights of 0 the gradient of a squared loss is the statistic of a linear regression, so that nothing else of the data
is needed to solve it. Releasing such statistics with noise: Vu and Slavkovic 2009, Sheffet 2017, "Differentially
private ordinary least squares"; their shrinkage: Wang 2018, "Revisiting differentially private linear regression"
(AdaSSP): its second moment is private, which is the way of two sums; with one sum it is that of public units.

**Guarantee.** That of `dpose.training.step.private_gradient` at a sampling rate of 1 with one step or two: the Gaussian
mechanism on each sum of clipped gradients, both of them one event. The solution reads noised sums, settings and public
data alone (docs/proofs/dp-head.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpose.errors import DposeError
from dpose.units import WrappedTask

if TYPE_CHECKING:
    from torch import Tensor

    from dpose.training.clip import Params

FEWEST_DIRECTIONS, PEOPLE_A_DIRECTION = 4, 8


@runtime_checkable
class Solvable(Protocol):
    """A layer whose weights are solved from the mean gradient at weights of 0."""

    def solve(self, gradient: Tensor, stddev: float, units: int, moment: Tensor | None = None) -> Tensor:
        """Return the weights.

        Args:
            gradient: The noised mean gradient, of the weights' shape.
            stddev: Standard deviation of the noise on each of its coordinates.
            units: Number of units, public.
            moment: The noised mean gradient of `moment`, with noise of its own of the same deviation; None if the
                features' second moment is that of public units.
        """

    def moment(self, outputs: Any) -> Tensor:
        """Return a loss of each of V views, (V,), whose gradient at any weights is its features' second moment."""


class SecondMoment(WrappedTask):
    """A task whose gradients are the second moments of the features that a layer is solved from."""

    def loss(self, model: Any, params: Mapping[str, Tensor], inputs: Tensor, targets: object) -> Tensor:
        """The layer's `Solvable.moment` of each of V views, (V,)."""
        from torch.func import functional_call

        moment: Tensor = model.head.moment(functional_call(model, dict(params), (inputs,)))
        return moment


def solved(sources: Any) -> Params:
    """Make a step of a method that solves a layer (`dpose.training.step.GradientSources`).

    Of two steps the first keeps the noised second moment, and the features' public numbers that it is of, and changes
    nothing.

    Returns:
        What a step of plain gradient descent at rate 1 subtracts from weights of 0 to arrive at the solution.
    """
    bound, inputs = sources.bound, sources.inputs
    layer, two = solvable(inputs.model), bound.plan.kind.solves > 1
    public = list(inputs.model.head.named_buffers(recurse=False)) if two else []
    # sums of clipped gradients are in units of C where they are normalised
    unit = bound.plan.clip_norm if bound.plan.normalise else 1.0
    if two and not sources.state:
        found = inputs.ranks.from_first(sources.noised(task=SecondMoment(inputs.task)))
        sources.state = {**found, **{name: value.clone() for name, value in public}}
        return {name: 0 * moment for name, moment in found.items()}
    for name, value in public:  # fitted again elsewhere they may differ, and both sums are of the same features
        value.copy_(sources.state[name])
    ((name, gradient),) = sources.noised().items()
    stddev = unit * bound.noise_stddev / bound.divisor
    moment = {"moment": unit * sources.state[name]} if sources.state else {}
    return {name: -layer.solve(unit * gradient, stddev, bound.n, **moment)}


def check_solvable(model: Any, trained: Params) -> None:
    """Refuse a model whose layer cannot be solved: the sum is that of a regression at weights of 0 and of them alone.

    Args:
        model: The model.
        trained: Its parameters that are trained.
    """
    solvable(model)
    if len(trained) != 1 or any(bool(weights.any()) for weights in trained.values()):
        raise DposeError(
            "correction-not-alone",
            "trains other weights than those of a fresh correction, which a solution would take for 0",
            type(model).__name__,
            "make it by with_correction and apply_strategy(model, 'head')",
        )


def solvable(model: Any) -> Solvable:
    """Return the model's layer that can be solved."""
    head = getattr(model, "head", None)
    if not isinstance(head, Solvable):
        raise DposeError(
            "model-without-correction",
            "has no linear correction that could be solved",
            type(model).__name__,
            "give model.directions, or choose another method",
        )
    return head


def directions_for(units: int, sigma: float, most: int, public: int | None = None) -> int:
    """Return how many directions a correction gets: a power of two near sqrt(n / sigma) / 2.

    A direction costs noise that grows as the norm of all of them together does, and the later ones say less. The rule
    reads public numbers alone.

    Args:
        units: n.
        sigma: The noise multiplier.
        most: More are never given.
        public: The number of public units whose second moment stands for that of the units: it is known in few
            directions where they are few, so each direction needs `PEOPLE_A_DIRECTION`. None where it is private.
    """
    power = math.floor(0.5 + math.log2(max(math.sqrt(units / sigma) / 2, 1)))
    if public is not None:
        power = min(power, math.floor(math.log2(max(public / PEOPLE_A_DIRECTION, 1))))
    return min(most, max(FEWEST_DIRECTIONS, 1 << power))
