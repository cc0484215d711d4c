"""Per-unit gradients and their clipped sum: the one place where private data meet the parameters.

    sums = clipped_sum(loss, params, (pictures, labels), Clip(1.0))       # loss(params, picture, label), of one unit

A unit's gradient is clipped to L2 norm C over all parameters together; the clipped gradients of a batch are summed.
Everything that leaves this module for the optimizer goes through that sum, and `clipped_sum` returns nothing else: no
loss, no norm, no share clipped.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves, tree_map_only

from dpose.errors import DposeError
from dpose.training.bookkeeping import Bookkeeping, total_norms
from dpose.training.clip import Clip, PreClipping
from dpose.training.grad_sample import Params as Params
from dpose.training.grad_sample import UnitLoss, Units, track
from dpose.training.kernels import for_device
from dpose.training.layers import OwnConvolutions
from dpose.units import Task, UnitBatch, is_mixed, pad_units

Way = Literal["fast", "plain", "only fast"]
"""How per-unit gradients are computed. "plain": `vmap(grad(...))`, the definition itself, for whatever `vmap` knows.
"fast": one backward pass for all units, known layers by rules of their own (`dpose.training.layers`), the same numbers
up to rounding; where it cannot tell, it takes the plain way by itself. "only fast": a RuntimeError there."""

CLIP_MARGIN = 1e-5
"""Clip to C * (1 - CLIP_MARGIN), so that float32 rounding in norm and scaling, about 1e-6 of both, does not push
a unit's contribution over C. It would be dropped: that none is over C is for the grid to see to, exactly."""


def trainable_params(model: torch.nn.Module) -> Params:
    """The parameters that require gradients, by name, detached from autograd (they share storage)."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def unit_loss(task: Task, model: torch.nn.Module) -> UnitLoss:
    """The loss of one unit of a `UnitBatch`: the weighted mean over its V views, without padding (weight 0)."""

    def loss(params: Mapping[str, Tensor], inputs: Tensor, targets: Mapping[str, Tensor], weights: Tensor) -> Tensor:
        with OwnConvolutions(depthwise=False):
            per_view = _of_shape(task.loss(model, params, inputs, targets), (len(weights),))
        share = weights.to(per_view.dtype)
        return (per_view * share).sum() / share.sum()

    return loss


def _of_shape(loss: object, shape: tuple[int, ...]) -> Tensor:
    """A loss that is one number for each view, (V,), or for the unit, ()."""
    if isinstance(loss, Tensor) and loss.shape == shape:
        return loss
    had = f"has the shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"is a {type(loss).__name__}"
    code, fix = "loss-not-per-view", "return one number a view: reduction='none'"
    if not shape:
        code, fix = "loss-not-scalar", "return one number a unit: .sum() or .mean()"
    raise DposeError(code, f"the loss {had}, not {shape}", fix=fix)


def per_unit_gradients(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch, way: Way = "fast", room: int | None = None
) -> Params:
    """The gradient of every unit's loss: each tensor (U, *parameter shape).

    Memory grows with U times the number of trainable parameters; `clipped_sum` is fed micro-batches for that reason.
    With `room` the batch is computed among empty units, in the shape of a micro-batch of so many views.
    """
    loss, units = unit_loss(task, model), len(batch)
    if room:
        batch = pad_units(batch, max(units, room // batch.weights.shape[1]))
    book = _book(loss, params, batch.parts, is_mixed(task), products=False) if way == "fast" else None
    found = book.gradients(params) if book else _by_vmap(loss, params, batch.parts)
    return {name: value[:units] for name, value in found.items()} if len(batch) > units else found


def _by_vmap(loss: UnitLoss, params: Params, units: Units) -> Params:
    return dict(vmap(grad(loss), in_dims=(None, *(0 for _ in units)))(params, *units))


def unit_norms(gradients: Params) -> Tensor:
    """Each unit's L2 norm (U,) over all tensors together; a unit whose norm is not finite contributes nothing."""
    return total_norms([for_device(g.device).square_norms(g.flatten(1)) for g in gradients.values()])


def clip_scales(norms: Tensor, clip: Clip) -> Tensor:
    """Factors (U,) with which gradients of these norms (U,) keep to `clip.bound`; 0 for a norm that is not finite."""
    longest = clip.norm * (1 - CLIP_MARGIN)
    scales = torch.clamp(longest / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)
    if clip.normalised:
        scales = scales / clip.norm
    return torch.where(norms.isfinite(), scales, torch.zeros_like(scales))


def clipped_sum(
    loss: UnitLoss,
    params: Params,
    units: Units,
    clip: Clip | float,
    *,
    microbatch_size: int | None = 32,
    way: Way = "fast",
    transform: PreClipping | None = None,
    mixed: bool = False,
) -> Params:
    """The sum over units of their clipped gradients; each tensor has its parameter's shape, in float64.

    >>> import torch
    >>> def loss(params, x, y):
    ...     return (params["w"] @ x - y).square()
    >>> x, y = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([1.0, 1.0])
    >>> sums = clipped_sum(loss, {"w": torch.zeros(2)}, (x, y), 0.5)
    >>> round(float(sums["w"].norm()), 4)
    0.5

    **Guarantee.** Unit: one entry of the first dimension of `units`. Neighbours: batches that differ in one unit, which
    is taken out, zeroed out or replaced. Sensitivity: they move the result by at most `clip.sensitivity(relation)` in
    L2 norm over all tensors together: C for one unit taken out or zeroed out, 2C for one replaced (of C divided by C
    where the clip normalises). It holds for any loss, any labels, for gradients that are not finite (they count as
    zero), and for both ways. It is exact, not up to rounding: every unit's clipped gradient is truncated on an integer
    grid, its norm is checked in integers, and integers are summed (`dpose.training.clip.Grid`). Noise: none is added
    here; the result is private and must not leave the step before `add_noise`. Public: parameters, `clip`, shapes.

    Two things are the caller's to see to. `loss` of one unit reads no other unit (no normalisation across a batch). And
    a unit's gradient has the same bits whatever else is in its micro-batch: micro-batches have one shape here, whatever
    was sampled; that rows do not meet in this machine's kernels is what `dpose.train` checks before its first step
    (`dpose.training.dry_run`).

    Args:
        loss: The loss of one unit at some parameters, a number: `loss(params, *one)` where `one` is an entry of each of
            `units`. It runs under `torch.func.vmap`.
        params: The parameters to train, by name, float32 or float64.
        units: What `loss` takes besides parameters: tensors, or dictionaries of them, with the units in their first
            dimension. There may be none.
        clip: The bound on each unit's gradient; a number C stands for `Clip(C)`.
        microbatch_size: Units are computed so many at a time; the last micro-batch is filled with zeros that count as
            nothing. None: all at once, in a shape that the caller keeps the same.
        way: See `Way`.
        transform: A linear map of each unit's gradient before it is clipped (`dpose.training.preclipping`); the sum
            then has the shapes of transformed gradients.
        mixed: Whether the loss runs under autocast.

    Raises:
        DposeError: the loss runs under autocast and `mixed` does not say so; it is not one number, or cannot be
            computed for each unit by itself; parts of `units` differ in length; or another argument is wrong.
    """
    count = _checked(params, units, microbatch_size, way)
    clip = clip if isinstance(clip, Clip) else Clip(clip)
    like = transform.like(params) if transform else params
    device = next(iter(params.values())).device
    totals: Params = {}
    whole = count and microbatch_size in (None, count)

    def number(*given: Params | Tensor) -> Tensor:
        return _of_shape(loss(*given), ())

    for batch, present in [(units, None)] if whole else _micro_batches(units, microbatch_size or 1):
        try:
            book = _measurable(number, params, batch, way, transform, mixed)
        except RuntimeError as error:
            if way != "only fast" and (known := _why_not(error)):
                raise known from None
            raise
        # an autocast around this would round products of factors, and norms
        with torch.autocast(device.type, enabled=False):
            scales = clip_scales(book.norms(), clip)
            sums = book.sums(scales if present is None else scales * present, clip.grid, like)
        for name, value in sums.items():  # of whole steps: exact
            totals[name] = totals[name] + value if name in totals else value
    return totals or {name: torch.zeros_like(p, dtype=torch.float64) for name, p in like.items()}


def _checked(params: Params, units: Units, microbatch_size: int | None, way: Way) -> int:
    """How many units there are, in every part: with a longer one labels from outside the sample would enter."""
    if not params:
        raise DposeError("params-empty", "there are no parameters to take gradients of", "params")
    if microbatch_size is not None and microbatch_size < 1:
        raise DposeError(
            "microbatch-too-small", "a micro-batch has one unit at least", f"microbatch_size {microbatch_size}"
        )
    if way not in get_args(Way):
        raise DposeError("way-unknown", f"is none of {', '.join(get_args(Way))}", f"way {way!r}")
    parts = tree_leaves(units)
    if not parts or not all(isinstance(part, Tensor) and part.dim() for part in parts):
        raise DposeError("units-not-tensors", "a part is no tensor with the units in its first dimension", "units")
    first, *others = map(len, parts)
    for count in others:
        if count != first:
            what = f"the inputs have {first} units, another part {count}"
            raise DposeError("units-differ-in-number", what, "units", "index both with the sample")
    return first


_CAUSES = (
    (
        "randomness error mode",
        "model-draws-random",
        "the forward pass draws random numbers, as of dropout, so that one unit would change others",
        "train a model that draws none: F.dropout(x, 0.0), no noise on what it computes",
    ),
    (
        "mutate a captured Tensor",
        "model-stores-state",
        "the forward pass stores what it saw, as batch normalisation does",
        "train a model whose forward pass stores nothing",
    ),
    (
        "support saved tensor hooks",
        "model-checkpoints-activations",
        "gradients of single units cannot be taken through torch's checkpointing",
        "call the layers themselves; a smaller micro-batch saves memory",
    ),
    (
        "stateless API can't be used with nn.DataParallel",
        "model-in-data-parallel",
        "gradients of single units cannot be taken of a DataParallel",
        "pass model.module",
    ),
    (
        "stateless API can't be used with Jitted",
        "model-is-scripted",
        "gradients of single units cannot be taken of a scripted model",
        "pass the model that was scripted",
    ),
)
"""What torch says of a model without gradients of single units; a code, words and a way out of our own."""


def _why_not(error: RuntimeError) -> DposeError | None:
    """Why a model has no gradients of single units, where it is known; None for what torch is to say itself."""
    said = str(error)
    for text, code, what, fix in _CAUSES:
        if text in said:
            return DposeError(code, what, fix=fix)
    # written into a tensor that lacks the dimension of units; any other shape is a mistake, whose line torch names
    in_place = re.match(r"output with shape \[(.+)\] doesn't match the broadcast shape \[\d+, \1\]", said)
    if in_place or said.startswith("vmap:"):
        torchs = " ".join(said.removeprefix("vmap:").split(". ")[0].split())
        return DposeError(
            "model-not-unit-by-unit",
            f"the forward pass or loss cannot be computed for each unit by itself ({torchs})",
            fix="let it use no .item() and write to nothing in place, as recurrent layers of torch do",
        )
    return None


def _micro_batches(units: Units, size: int) -> Iterator[tuple[Units, Tensor]]:
    """`size` units at a time, filled with zeros, and which of them are there."""

    def filled(t: Tensor, first: int) -> Tensor:
        part = t[first : first + size]
        return torch.cat([part, part.new_zeros((size - len(part), *part.shape[1:]))])

    some = tree_leaves(units)[0]
    for first in range(0, len(some), size):
        batch = tree_map_only(Tensor, partial(filled, first=first), units)
        yield batch, torch.arange(size, device=some.device) < len(some) - first


def measured_gradients(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch, transform: PreClipping | None = None
) -> tuple[Params, Tensor]:
    """What `clipped_sum` truncates: each unit's gradient (U, *parameter shape), and the norm (U,) it goes by."""
    book = _measurable(unit_loss(task, model), params, batch.parts, "fast", transform, is_mixed(task))
    with torch.autocast(batch.weights.device.type, enabled=False):
        return book.each(transform.like(params) if transform else params), book.norms()


def mean_gradient(task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch) -> tuple[Params, Tensor]:
    """The mean over units of their gradients and of their losses, without a bound: for public data.

    Empty units (`dpose.units.pad_units`) count as none; one at least must not be empty.

    Equal to the mean of `per_unit_gradients`, at the cost of one ordinary backward pass.
    """
    units, views = batch.weights.shape
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    with OwnConvolutions(depthwise=True):
        per_view = task.loss(
            model, leaves, batch.inputs.flatten(0, 1), {name: t.flatten(0, 1) for name, t in batch.targets.items()}
        )
    per_view = _of_shape(per_view, (units * views,))
    share = batch.weights.to(per_view.dtype)
    share = share / share.sum(1, keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
    weighted = torch.where(share > 0, per_view.view(units, views), 0) * share
    loss = weighted.sum() / batch.present.sum()
    # a parameter that the loss does not reach has a gradient of zeros, as in the private step
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True)), loss.detach()


def _measurable(
    loss: UnitLoss, params: Params, units: Units, way: Way, transform: PreClipping | None, mixed: bool
) -> Bookkeeping:
    only = way == "only fast"
    book = None if way == "plain" else _book(loss, params, units, mixed, products=transform is None, only=only)
    if book is None and only:
        raise RuntimeError("per-unit gradients cannot be taken the fast way")
    if book and not transform:
        return book
    gradients = book.gradients(params) if book else _by_vmap(loss, params, units)
    if transform:
        with torch.autocast(next(iter(params.values())).device.type, enabled=False):
            gradients = transform.each(gradients)
    like = transform.like(params) if transform else params
    count = len(tree_leaves(units)[0])
    book = Bookkeeping({name: p.shape for name, p in like.items()}, count, products=False)
    for name in list(gradients):
        book.add(name, gradients.pop(name))
    return book


def _book(
    loss: UnitLoss, params: Params, units: Units, mixed: bool, *, products: bool, only: bool = False
) -> Bookkeeping | None:
    """Per-unit gradients the fast way; None, or an error with `only`, where only the plain way is known to be right."""
    first = next(iter(params.values()))
    if any(p.dtype not in (torch.float32, torch.float64) for p in params.values()):
        return None
    if torch.is_autocast_enabled(first.device.type):
        return None
    # norms are taken of exact products: not where the sum's own product would be rounded to a shorter type; and on a
    # GPU products would be multiplied out twice, for the sum and for the units that are taken back
    exact = first.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
    try:
        book = track(loss, params, units, products=products and exact)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        # of the loss itself, and then the plain way raises it again, or of something that only this way cannot do, such
        # as a torch whose inner functions take other arguments
        if only:
            raise RuntimeError(str(error)) from error
        warnings.warn(f"per-unit gradients are taken the plain, slower way: {error}", stacklevel=3)
        return None
    if book and book.mixed and not mixed:
        raise DposeError(
            "precision-not-declared",
            "the loss runs under autocast and does not say so",
            fix='give the task an attribute precision = "bf16", for which steps are padded and checked',
        )
    return book
