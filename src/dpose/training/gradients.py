"""Per-unit gradients and their clipped sum: the one place where private data meets the parameters.

A unit's gradient is the weighted mean of its views' gradients. It is clipped to L2 norm C over all trainable
parameters together; the clipped gradients of a batch are summed. Everything that leaves this module for the
optimizer goes through that sum, and `clipped_sum` returns nothing else: no loss, no norm, no share clipped.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad, vmap

from dpose.errors import DposeError
from dpose.training.bookkeeping import Bookkeeping, square_norms, total_norms
from dpose.training.clip import Clip, PreClipping
from dpose.training.grad_sample import Params as Params
from dpose.training.grad_sample import UnitLoss, track
from dpose.training.plain_conv import OwnConvolutions
from dpose.units import Task, UnitBatch, is_mixed

Way = Literal["fast", "plain"]
"""How per-unit gradients are found. "plain": `vmap(grad(...))`, the definition itself, for whatever `vmap` knows.
"fast": one backward pass for all units, known layers by rules of their own (`dpose.training.layers`), the same numbers
up to rounding; where it cannot tell, it takes the plain way by itself."""

CLIP_MARGIN = 1e-5
"""Clip to C * (1 - CLIP_MARGIN), so that float32 rounding in norm and scaling, about 1e-6 of both, does not push
a unit's contribution over C. It would be dropped: that none is over C is for the grid to see to, exactly."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

KEPT_BLOCK = 32 * 2**20
"""Blocks up to this size, in bytes, are kept; larger ones go back to the kernel as before, so that a
gigabyte of gradients leaves no holes."""
KEPT_FREE = 1024 * 2**20
"""Free memory at the end of the heap, in bytes, above which it goes back after all."""


def trainable_params(model: torch.nn.Module) -> Params:
    """The parameters that require gradients, by name, detached from autograd (they share storage)."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def unit_loss(task: Task, model: torch.nn.Module) -> UnitLoss:
    """The loss of one unit: the weighted mean over its V views, padding (weight 0) left out."""

    def loss(
        params: Mapping[str, Tensor], inputs: Tensor, targets: Mapping[str, Tensor], weights: Tensor
    ) -> Tensor:
        with OwnConvolutions(depthwise=False):
            per_view = task.loss(model, params, inputs, targets)
        share = weights.to(per_view.dtype)
        return (per_view * share).sum() / share.sum()

    return loss


def per_unit_gradients(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch, way: Way = "fast"
) -> Params:
    """The gradient of every unit's loss: each tensor (U, *parameter shape).

    Memory grows with U times the number of trainable parameters; `clipped_sum` is fed micro-batches for that reason.

    Args:
        task: Gives the loss.
        model: In the mode that it trains in; nothing is written into it.
        params: The trainable parameters by name.
        batch: The units.
        way: See `Way`.
    """
    book = _book(task, model, params, batch, products=False) if way == "fast" else None
    if book:
        return book.gradients(params)
    per_unit = vmap(grad(unit_loss(task, model)), in_dims=(None, 0, 0, 0))
    return dict(per_unit(params, batch.inputs, batch.targets, batch.weights))


def unit_norms(gradients: Params) -> Tensor:
    """Each unit's L2 norm (U,) over all tensors together; a unit whose norm is not finite contributes nothing."""
    return total_norms([square_norms(g.flatten(1)) for g in gradients.values()])


def clip_scales(norms: Tensor, clip: Clip) -> Tensor:
    """Factors (U,) with which gradients of these norms (U,) keep to `clip.bound`; 0 for a norm that is not finite."""
    longest = clip.norm * (1 - CLIP_MARGIN)
    scales = torch.clamp(longest / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    if clip.normalised:
        scales = scales / clip.norm
    return torch.where(norms.isfinite(), scales, torch.zeros_like(scales))


def clipped_sum(
    task: Task,
    model: torch.nn.Module,
    params: Params,
    batch: UnitBatch,
    clip: Clip,
    *,
    way: Way = "fast",
    transform: PreClipping | None = None,
) -> Params:
    """The sum over units of their clipped gradients; each tensor has its parameter's shape, in float64.

    With a `transform` (`dpose.training.preclipping`) each unit's gradient is transformed before it is clipped, and the
    sum has the shapes of transformed gradients.

    **Guarantee.** Taking a unit out of the batch, zeroing it out or replacing it changes the result by at most
    `clip.sensitivity(relation)` in L2 norm over all tensors together. It holds for any number of views, any weights,
    any labels, for gradients that are not finite (they count as zero), and for both ways. It is exact, not up to
    rounding: every unit's clipped gradient is truncated on an integer grid, its norm is checked in integers, and
    integers are summed (`dpose.training.grid.Grid`). It needs that a unit's gradient has the same bits whatever else
    is in the batch (`batch_invariance`). No noise is added here: the result must not leave the step un-noised.
    """
    keep_freed_memory()
    book = _measurable(task, model, params, batch, way, transform)
    # an autocast around this would round products of factors, and norms
    with torch.autocast(batch.weights.device.type, enabled=False):
        scales = clip_scales(book.norms(), clip)
        like = transform.like(params) if transform else params
        return book.sums(scales, clip.grid, like)


def measured_gradients(
    task: Task,
    model: torch.nn.Module,
    params: Params,
    batch: UnitBatch,
    transform: PreClipping | None = None,
) -> tuple[Params, Tensor]:
    """What `clipped_sum` truncates: each unit's gradient (U, *parameter shape), and the norm (U,) it goes by."""
    book = _measurable(task, model, params, batch, "fast", transform)
    with torch.autocast(batch.weights.device.type, enabled=False):
        return book.each(transform.like(params) if transform else params), book.norms()


def mean_gradient(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch
) -> tuple[Params, Tensor]:
    """The mean over units of their gradients and of their losses, without a bound: for data nobody needs protected.

    Equal to the mean of `per_unit_gradients`, at the cost of one ordinary backward pass.
    """
    units, views = batch.weights.shape
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    with OwnConvolutions(depthwise=True):
        per_view = task.loss(
            model,
            leaves,
            batch.inputs.flatten(0, 1),
            {name: t.flatten(0, 1) for name, t in batch.targets.items()},
        )
    share = batch.weights.to(per_view.dtype)
    share = share / share.sum(1, keepdim=True)
    loss = (per_view.view(units, views) * share).sum() / units
    # a parameter that the loss does not reach has a gradient of zeros, as in the private step
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True)), loss.detach()


def _measurable(
    task: Task,
    model: torch.nn.Module,
    params: Params,
    batch: UnitBatch,
    way: Way,
    transform: PreClipping | None,
) -> Bookkeeping:
    like, book = params, None
    if transform:
        gradients, like = per_unit_gradients(task, model, params, batch, way), transform.like(params)
        with torch.autocast(batch.weights.device.type, enabled=False):
            gradients = transform.each(gradients)
    else:
        book = _book(task, model, params, batch, products=True) if way == "fast" else None
        gradients = {} if book else per_unit_gradients(task, model, params, batch, "plain")
    if book is None:
        book = Bookkeeping({name: p.shape for name, p in like.items()}, len(batch), products=False)
        for name in list(gradients):
            book.add(name, gradients.pop(name))
    return book


def _book(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch, *, products: bool
) -> Bookkeeping | None:
    """The batch's per-unit gradients the fast way; None where only the plain way is known to be right."""
    first = next(iter(params.values()))
    if any(p.dtype not in (torch.float32, torch.float64) for p in params.values()):
        return None
    if torch.is_autocast_enabled(first.device.type):
        return None
    # norms are taken of exact products: not where the sum's own product would be rounded to a shorter type
    exact = first.device.type != "mps" and torch.get_float32_matmul_precision() == "highest"
    try:
        book = track(unit_loss(task, model), params, batch, products=products and exact)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        # of the loss itself, and then the plain way raises it again, or of something that only this way cannot do, such
        # as a torch whose inner functions take other arguments
        warnings.warn(f"per-unit gradients are taken the plain, slower way: {error}", stacklevel=3)
        return None
    if book and book.mixed and not is_mixed(task):
        raise DposeError(
            "precision-not-declared",
            "the loss runs under autocast and does not say so",
            task.name,
            'give the task an attribute precision = "bf16", for which steps are padded and checked',
        )
    return book


@cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep what a step frees for the next one, once for the process; whether it does.

    glibc takes each large block fresh from the kernel and gives it back when it is freed. The kernel then clears every
    page of it again when it is first written, step after step: ten to fifteen thousand page faults for a private step
    of 32 pictures, more than a plain one has, because per-unit gradients are large (docs/performance.md).

    False, and nothing is changed, where the C library is not glibc, or where the environment has settings of its own
    for it (any of MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_MAX_, GLIBC_TUNABLES).
    """
    if sys.platform != "linux" or any(name in os.environ for name in _MALLOC_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_FREE))
