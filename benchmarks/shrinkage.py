"""Shrinkage towards the first weights by a factor from what was released: post-processing that cost more than it gave.

    tau = noise_in_weights(optimizer, bound)          # from the plan alone: no data
    shrunk = shrink(released, first, tau, "tensors")

What a linear optimizer makes of Gaussian noise is Gaussian noise of a known size: in w = s - sum_t c_t (g_t + z_t) the
noise has the standard deviation tau = |c| sigma C / (q n) in every number. Were the g_t fixed, w - s would be
N(mu, tau^2 I), and the factor a = max(0, 1 - (d - 2) tau^2 / |w - s|^2) would have a smaller mean squared error than 1
whatever mu is (James and Stein 1961; for released sums Balle and Wang 2018, section 4). Two things are not so here.
g_t is taken where earlier noise has moved the weights: where the loss bends, it undoes part of that noise, so that
less than tau is left and the factor is too small. And squared error is not the loss: noise in flat directions weighs as
much in |w - s| as in others, and does no harm. `choose_settings.py --after` shows what comes of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.training.optim import OptimizerConfig, weight_average
from dpose.training.plan import BoundPlan

SHRINKAGES = ("none", "whole", "tensors")


def noise_in_weights(optimizer: OptimizerConfig, bound: BoundPlan) -> float:
    """The standard deviation of the noise in each released weight, were gradients the same whatever was added before.

    The released weights are w = s - sum_t c_t (g_t + z_t), with numbers c_t of schedule, momentum and weight
    average: they are found by letting the optimizer itself step T numbers, of which number t has a gradient at step t
    alone. z_t has the standard deviation sigma C / (q n) in every coordinate.

    Args:
        optimizer: As configured.
        bound: The plan.

    Raises:
        DposeError: the noise of the method's update is not alike in all coordinates; or the optimizer does not add up
            gradients by fixed numbers.
    """
    plan = bound.plan
    if not (plan.kind.private and plan.kind.auditable):
        raise DposeError(
            "method-unsupported",
            f"{plan.method} does not hand over the noised sum as it is",
            "shrinkage",
            "take dp-sgd",
        )
    once, twice, still = (_moved(optimizer, bound, gradient) for gradient in (1.0, 2.0, 0.0))
    if still.any() or not torch.allclose(twice, 2 * once, rtol=1e-6, atol=0.0):
        raise DposeError(
            "optimizer-unsupported",
            f"{optimizer.name} moves weights by more than fixed multiples of gradients",
            "shrinkage",
            "take sgd without weight decay",
        )
    return bound.noise_stddev / bound.divisor * float(once.norm())


def _moved(optimizer: OptimizerConfig, bound: BoundPlan, gradient: float) -> Tensor:
    """How far each of T numbers is moved, the number t of which has `gradient` at step t and 0 at all others."""
    numbers = torch.nn.Parameter(torch.ones(bound.steps, dtype=torch.float64))
    built, schedule = optimizer.build([numbers], bound.steps)
    plan, followed = bound.plan, {"": numbers.data}
    average = weight_average(followed, plan.ema_decay, plan.average_last, bound.steps)
    for step in range(bound.steps):
        numbers.grad = torch.zeros_like(numbers)
        numbers.grad[step] = gradient
        built.step()
        schedule.step()
        if average:
            average.update(followed)
    return (average.values if average else followed)[""] - 1


def factor(way: Tensor, tau: float) -> float:
    """The positive part of 1 - (d - 2) tau^2 / |way|^2 (James and Stein 1961); 1 for fewer than 3 numbers."""
    length = float(way.double().square().sum())
    return max(0.0, 1 - (way.numel() - 2) * tau**2 / length) if way.numel() > 2 and length else 1.0


def shrink(released: dict[str, Tensor], first: dict[str, Tensor], tau: float, kind: str) -> dict[str, Tensor]:
    """The weights on the way from `first` to `released`.

    **Guarantee.** Post-processing: of the released weights, of first weights that were there before and of the plan.

    Args:
        released: The run's weights by name.
        first: What it began with, by the same names.
        tau: As `noise_in_weights`.
        kind: "none", "whole" (one factor) or "tensors" (one for each).
    """
    ways = {name: value - first[name] for name, value in released.items()}
    if kind == "none":
        return released
    if kind == "whole":
        one = factor(torch.cat([way.flatten() for way in ways.values()]), tau)
        return {name: first[name] + one * way for name, way in ways.items()}
    return {name: first[name] + factor(way, tau) * way for name, way in ways.items()}
