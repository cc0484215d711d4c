"""Per-unit gradients and their clipped sum: the one place where private data meets the parameters.

A unit's gradient is the weighted mean of its views' gradients. It is clipped to L2 norm C over all trainable
parameters together; the clipped gradients of a batch are summed. Everything that leaves this module for the
optimizer goes through that sum, and `clipped_sum` returns nothing else: no loss, no norm, no share clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import grad, vmap

from dpose.units import Task, UnitBatch

Params = dict[str, Tensor]
UnitLoss = Callable[[Mapping[str, Tensor], Tensor, Mapping[str, Tensor], Tensor], Tensor]

CLIP_MARGIN = 1e-5
"""Clip to C * (1 - CLIP_MARGIN), so that float32 rounding in the norm, the scaling and the sum cannot push a
unit's contribution over C. The rounding is about 1e-6 relative; the margin costs nothing measurable."""


def trainable_params(model: torch.nn.Module) -> Params:
    """The parameters that require gradients, by name, detached from autograd (they share storage)."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def unit_loss(task: Task, model: torch.nn.Module) -> UnitLoss:
    """The loss of one unit: the weighted mean over its V views, padding (weight 0) left out."""

    def loss(
        params: Mapping[str, Tensor], inputs: Tensor, targets: Mapping[str, Tensor], weights: Tensor
    ) -> Tensor:
        per_view = task.loss(model, params, inputs, targets)
        share = weights.to(per_view.dtype)
        return (per_view * share).sum() / share.sum()

    return loss


def per_unit_gradients(task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch) -> Params:
    """The gradient of every unit's loss: each tensor (U, *parameter shape).

    Memory grows with U times the number of trainable parameters; `clipped_sum` is fed micro-batches for that reason.
    """
    per_unit = vmap(grad(unit_loss(task, model)), in_dims=(None, 0, 0, 0))
    return dict(per_unit(params, batch.inputs, batch.targets, batch.weights))


def clip_scales(gradients: Params, clip_norm: float, *, normalise: bool = False) -> Tensor:
    """The factor (U,) by which each unit's gradient is multiplied so that its L2 norm is at most `clip_norm`.

    A unit whose gradient is not finite gets 0. With `normalise` the factors are divided by `clip_norm`: the
    clipped gradients then have norm at most 1 whatever C is, and C no longer scales the optimizer's step.
    """
    norms = torch.stack([_square_norms(g.flatten(1)) for g in gradients.values()]).sum(0).sqrt()
    bound = clip_norm * (1 - CLIP_MARGIN)
    scales = torch.clamp(bound / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    if normalise:
        scales = scales / clip_norm
    return torch.where(norms.isfinite(), scales, torch.zeros_like(scales))


def clipped_sum(
    task: Task,
    model: torch.nn.Module,
    params: Params,
    batch: UnitBatch,
    clip_norm: float,
    *,
    normalise: bool = False,
) -> Params:
    """The sum over units of their clipped gradients; each tensor has its parameter's shape.

    **Guarantee.** Taking a unit out of the batch, or zeroing it out, changes the result by at most
    `sensitivity(clip_norm, normalise)` in L2 norm over all tensors together; replacing a unit, by at most twice that.
    It holds for any number of views, any weights, any labels and for gradients that are not finite (they count
    as zero). No noise is added here: the result is private and must not leave the step un-noised.
    """
    gradients = per_unit_gradients(task, model, params, batch)
    scales = clip_scales(gradients, clip_norm, normalise=normalise)
    dropped = scales == 0
    if bool(dropped.any()):
        # 0 * inf is nan: a unit that is dropped must be zeroed, not scaled
        for gradient in gradients.values():
            gradient[dropped] = 0
    return {
        name: (scales.to(gradient.dtype) @ gradient.flatten(1)).view(gradient.shape[1:])
        for name, gradient in gradients.items()
    }


def sensitivity(clip_norm: float, normalise: bool) -> float:
    """The L2 bound on one unit's contribution to `clipped_sum`."""
    return 1.0 if normalise else clip_norm


def mean_gradient(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch
) -> tuple[Params, Tensor]:
    """The mean over units of their gradients and of their losses, without a bound: for data nobody needs protected.

    Equal to the mean of `per_unit_gradients`, at the cost of one ordinary backward pass.
    """
    units, views = batch.weights.shape
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    per_view = task.loss(
        model,
        leaves,
        batch.inputs.flatten(0, 1),
        {name: t.flatten(0, 1) for name, t in batch.targets.items()},
    )
    share = batch.weights.to(per_view.dtype)
    share = share / share.sum(1, keepdim=True)
    loss = (per_view.view(units, views) * share).sum() / units
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True)), loss.detach()


_BLOCK = 2048


def _square_norms(rows: Tensor) -> Tensor:
    """The squared L2 norm of each row, (U,), in blocks.

    `vector_norm` over a whole row adds a million squares one after the other: in float32 an error of 2e-5, more than
    `CLIP_MARGIN`. Over blocks it is below 1e-6, in one pass and without the copy that squaring makes.
    """
    whole = rows.shape[1] - rows.shape[1] % _BLOCK
    squares: Tensor = torch.linalg.vector_norm(rows[:, whole:], dim=1).square()
    if whole:
        blocks: Tensor = rows[:, :whole].reshape(len(rows), -1, _BLOCK)
        squares = squares + torch.linalg.vector_norm(blocks, dim=2).square().sum(1)
    return squares
