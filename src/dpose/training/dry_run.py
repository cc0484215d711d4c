"""Before the first step: what it would refuse is refused, and the micro-batch is fitted to the machine.

The account is charged before the first step and steps are reserved before they sample, as they must be. So whatever
would be refused in the first step, whatever the data are, has to be refused before: a run's parts are put together
once, and one gradient of random pictures is taken. How many views fit in memory at once is measured on empty pictures.

Units must not know each other. The proof needs that a unit's contribution is the same whichever other units were
sampled (docs/proofs/dp-sgd.md). A matrix product of another shape may add up in another order. In float32 that moves a
gradient by 3e-7 of itself. In bfloat16 the difference turns last bits over, layer after layer, and the gradient moves
by up to half a percent: that of every unit of a micro-batch, because one was in it or not. So a private step has
micro-batches of one shape alone (`Loader.micro_batches`, padded), and `check_units_apart` looks whether that is enough
on this machine.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from dpose.errors import DposeError
from dpose.training.arithmetic import same_bits, shifted
from dpose.training.clip import Clip, PreClipping
from dpose.training.closed_form import SecondMoment
from dpose.training.gradients import Params, clipped_sum, mean_gradient, measured_gradients, trainable_params, unit_loss
from dpose.training.graph import ReplayedSums
from dpose.training.guards import only_gradients
from dpose.training.kept import room_on
from dpose.training.optim import OptimizerConfig
from dpose.training.preclipping import Scales, stand_in
from dpose.training.public_view import PUBLIC
from dpose.training.reproducibility import no_repeat, repeatable
from dpose.training.step import StepInputs, clipped_part, open_parts, private_task
from dpose.units import MAX_VIEWS, Task, UnitBatch, UnitDataset, View, is_mixed, most_views, pad_units, view_bucket

LARGEST = {"cpu": 32, "cuda": 256}
"""Bounds chosen for the CPU, where 16 to 32 views gained nothing clear; the one for GPUs is not yet measured."""
SHARE = 0.5
"""Share that a micro-batch may take of a device's free memory, or of half of the machine's."""
_BLOCK = 256
_ALONE = "--set microbatch_size=1 takes one unit at a time"


def dry_run(inputs: StepInputs, public: UnitDataset | None, optimizer: OptimizerConfig) -> None:
    """Refuse what the first step would refuse. Nothing is written; the model and torch's generators stay as they are.

    The noise of `inputs` must be used nowhere else. One unit is read, for its shapes only.
    """
    model, bound, plan = inputs.model, inputs.bound, inputs.bound.plan
    kind = plan.kind
    if is_mixed(inputs.task) and kind.private and kind.public_views and plan.private_loss == "residual":
        raise DposeError(
            "precision-unsupported",
            "the residual loss has no passes in bfloat16",
            f"{plan.method}, private_loss residual",
            "leave precision out, or take the private loss plain",
        )
    optimizer.build([p for p in model.parameters() if p.requires_grad], bound.steps)
    with open_parts(inputs, public) as parts:
        private = parts.private
        if private is None:
            return
        params = trainable_params(model)
        like = _check_collate(private.task, private.loader.unit(inputs.example, 0))
        batch = random_units(like, 1, 1).to(next(iter(params.values())).device)
        with torch.random.fork_rng(), warnings.catch_warnings(), only_gradients(model, bits=True):
            warnings.simplefilter("ignore")  # the first step tells
            clipped_part(private, params, batch)
            _check_depends(private.task, model, batch)


def _check_collate(task: Task, views: Sequence[View]) -> UnitBatch:
    """A unit's batch; refused where it is another beside another unit, here the same one with other pixel numbers."""
    pair = [views, [replace(view, image=255 - np.asarray(view.image)) for view in views]]
    both, alone = task.collate(pair), [task.collate([unit]) for unit in pair]
    for place, one in enumerate(alone):
        parts, own = ([*sorted(b.targets.items()), ("inputs", b.inputs), ("weights", b.weights)] for b in (both, one))
        for (name, part), (_, expected) in zip(parts, own, strict=True):
            if not same_bits(part[place : place + 1], expected):
                raise DposeError(
                    "collate-mixes-units",
                    "what collate makes of a unit depends on the other units of the batch",
                    name,
                    "let it treat each unit by itself, without means over the batch or random numbers",
                )
    return alone[0]


def _check_depends(task: Task, model: torch.nn.Module, batch: UnitBatch) -> None:
    """Refuse a loss that depends on none of the parameters: steps would be of noise alone."""
    leaves = {name: p.clone().requires_grad_() for name, p in trainable_params(model).items()}
    with torch.enable_grad():
        loss = task.loss(model, leaves, batch.inputs[0], {name: t[0] for name, t in batch.targets.items()}).sum()
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True) if loss.requires_grad else ()
    if all(gradient is None for gradient in found):
        raise DposeError(
            "loss-without-parameters",
            "the loss depends on none of the parameters that it is given",
            fix="compute it by functional_call(model, params, ...), and detach nothing",
        )


def fit_microbatch(inputs: StepInputs, microbatch_size: int | None, console: Console) -> tuple[int, bool]:
    """The micro-batch of all processes, in views, and whether steps give the same bits again."""
    task, model, place, kind = inputs.task, inputs.model, inputs.ranks, inputs.bound.plan.kind
    fitted = microbatch_size or fit_microbatch_size(task, model, _example(inputs), clipped=kind.private)
    fitted = -place.highest(-fitted)  # the least of all processes'
    differing: list[str] = []
    if kind.private:
        most = inputs.bound.plan.augmentation_multiplicity * most_views(inputs.loader.dataset)
        with console.status("looking whether units stay apart on this machine"):
            like, noised = _example(inputs).to(inputs.device), private_task(inputs)
            if noised is not task:  # which reads a public view beside every picture
                like = replace(like, targets={**like.targets, PUBLIC: like.inputs})
            given = (like, fitted, most, _transform_like(inputs))
            differing = check_units_apart(noised, model, *given, inputs.replayed)
            if kind.solves > 1:
                differing += check_units_apart(SecondMoment(task), model, *given)
    repeats = not place.highest(int(bool(differing) or not repeatable(inputs.device)))
    if kind.private and not repeats:
        console.print(no_repeat(inputs.device, differing), highlight=False)
    return fitted, repeats


def _transform_like(inputs: StepInputs) -> PreClipping | None:
    """What computes as the run's transform does, before there is one; None for none."""
    plan, params = inputs.bound.plan, trainable_params(inputs.model)
    if plan.kind.pre_clipping == "subspace" and plan.subspace.kind != "identity":
        return stand_in(params, plan.subspace.rank)
    if plan.kind.pre_clipping == "scales" and plan.subspace.kind != "identity":
        return Scales({name: torch.ones_like(p) for name, p in params.items()})
    return None


def _example(inputs: StepInputs) -> UnitBatch:
    """One unit, for its shape only."""
    return inputs.task.collate([inputs.loader.unit(inputs.example, 0)])


def fit_microbatch_size(task: Task, model: torch.nn.Module, like: UnitBatch, *, clipped: bool = True) -> int:
    """The largest power of two of views whose gradient fits in memory, at most `LARGEST`.

    The probe runs on zeros of the shape of `like`, and on a copy of the model: nothing of the data decides, and running
    statistics see no empty picture.

    Gradients that are not `clipped` need less, and allow BatchNorm.
    """
    device = next(model.parameters()).device
    probed, one = copy.deepcopy(model), _zeros(like, device)
    per_view, free = _cuda_cost(task, probed, one, clipped) if device.type == "cuda" else _cpu_cost(task, probed, one)
    fitting = max(1, int(SHARE * free / max(1, per_view)))
    return int(min(LARGEST.get(device.type, 16), 2 ** (fitting.bit_length() - 1)))


def _zeros(like: UnitBatch, device: torch.device, units: int = 1) -> UnitBatch:
    def empty(t: Tensor) -> Tensor:
        return torch.zeros((units, 1, *t.shape[2:]), dtype=t.dtype, device=device)

    return UnitBatch(
        empty(like.inputs), {name: empty(t) for name, t in like.targets.items()}, torch.ones((units, 1), device=device)
    )


def _cuda_cost(task: Task, model: torch.nn.Module, one: UnitBatch, clipped: bool) -> tuple[int, int]:
    device = one.inputs.device
    params = trainable_params(model)
    peaks = []
    for units in (2, 6):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        batch = _zeros(one, device, units)
        if clipped:
            loss, mixed = unit_loss(task, model), is_mixed(task)
            clipped_sum(loss, params, batch.parts, Clip(1.0), microbatch_size=None, mixed=mixed)
        else:
            mean_gradient(task, model, params, batch)
        peaks.append(torch.cuda.max_memory_allocated(device) - before)
    return max(1, (peaks[1] - peaks[0]) // 4), torch.cuda.mem_get_info(device)[0] - room_on(device)


def _cpu_cost(task: Task, model: torch.nn.Module, one: UnitBatch) -> tuple[int, int]:
    """Activations kept for one view, counted as autograd saves them, and its own copy of the gradient."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    params: Mapping[str, Tensor] = {name: p.clone().requires_grad_() for name, p in trainable_params(model).items()}
    weights = {p.untyped_storage().data_ptr() for p in [*params.values(), *model.parameters()]}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        task.loss(model, params, one.inputs[0], {k: v[0] for k, v in one.targets.items()}).sum()
    activations = sum(size for pointer, size in kept.items() if pointer not in weights)
    gradient = sum(p.numel() * p.element_size() for p in params.values())
    # twice: the backward pass holds gradients of activations, the clip a masked copy of the gradient
    # of the machine, and not what is free: private pictures may stand in memory already
    return 2 * (activations + gradient), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def check_units_apart(
    task: Task,
    model: torch.nn.Module,
    like: UnitBatch,
    microbatch_size: int,
    most_views: int = MAX_VIEWS,
    transform: PreClipping | None = None,
    replayed: ReplayedSums | None = None,
) -> list[str]:
    """Refuse a machine on which a unit's gradient depends on its place in a micro-batch or on what else is in it.

    The units are of random numbers, in each shape that a micro-batch may have. Each is moved by one place, and then
    has every other one replaced by an empty one; its gradient and the norm that it is clipped by must stay the same to
    the last bit. Then weights and pictures begin elsewhere in memory, in the layout that they have.

    Where steps replay what was recorded, recording takes place here, in all those shapes, and what replays add up is
    looked at as well: whole numbers, so that the sum over all units must be the sum over two halves of them, each among
    empty units, and the same for units in other places. Where it is not what a call by call gives, no step is replayed.

    Of `like` and `transform` the shapes alone matter.

    Returns:
        The parameters, each with the kind of layer that it is of, whose gradients were not the same to the last bit
        wherever in memory numbers began, in the model's order: where there are any, a step cannot be taken again as it
        was.

    Raises:
        DposeError: gradients differ, or cannot be computed in bfloat16.
    """
    views, differing = 1, set[str]()
    while views <= view_bucket(min(most_views, MAX_VIEWS)):
        units = max(1, microbatch_size // views)
        try:
            batch = random_units(like, units, views)
            apart, elsewhere = _look(task, model, batch, transform)
            if replayed and replayed.takes(transform):
                apart &= _adds_up(replayed, trainable_params(model), batch, transform)
        except RuntimeError as error:
            if not is_mixed(task) or isinstance(error, torch.OutOfMemoryError):
                raise
            raise DposeError(
                "precision-unsupported", f"gradients cannot be computed in bfloat16: {error}", fix="leave precision out"
            ) from error
        if not apart:
            kind, fix = ("bfloat16", f"leave precision out; {_ALONE}") if is_mixed(task) else ("float32", _ALONE)
            raise DposeError(
                "units-not-apart",
                f"in {kind} the gradient of a unit depends on the other units of its micro-batch here",
                f"{units} units of {views} views",
                fix,
            )
        differing |= elsewhere
        views *= 2
    return _described(model, differing)


def _described(model: torch.nn.Module, differing: set[str]) -> list[str]:
    """Names of parameters with their layers' kinds, in the model's order; what is no parameter stands last."""
    kinds = {
        f"{place}.{name}" if place else name: type(layer).__name__
        for place, layer in model.named_modules()
        for name, _ in layer.named_parameters(recurse=False)
    }
    found = [f"{name} ({kind})" for name, kind in kinds.items() if name in differing]
    return found + sorted(differing - kinds.keys())


def _look(task: Task, model: torch.nn.Module, batch: UnitBatch, transform: PreClipping | None) -> tuple[bool, set[str]]:
    """Whether units are apart, and the gradients to which it is not all the same where in memory numbers begin."""
    params, units = trainable_params(model), len(batch)
    everyone, even = list(range(units)), list(range(0, units, 2))
    moved = [*everyone[1:], 0]
    with warnings.catch_warnings():
        # the plain way is checked like the fast one, and tells of itself in the first step
        warnings.simplefilter("ignore")
        first = _measured(task, model, params, batch, transform)

        def moves(params: Params, other: UnitBatch, here: list[int], there: list[int]) -> set[str]:
            again = _measured(task, model, params, other, transform)
            return {name for name, value in first.items() if not same_bits(value[here], again[name][there])}

        apart = units == 1 or not (
            moves(params, _chosen(batch, moved), moved, everyone) or moves(params, _emptied(batch), even, even)
        )
        elsewhere = {name: _elsewhere(p) for name, p in params.items()}
        return apart, moves(elsewhere, _shifted(batch), everyone, everyone)


def _adds_up(replayed: ReplayedSums, params: Params, batch: UnitBatch, transform: PreClipping | None) -> bool:
    """Whether replays give every unit one contribution, whatever its place and whatever else is in the micro-batch."""

    def total(of: UnitBatch) -> Params:
        replayed.begin(params, transform)
        replayed.add(of)
        return replayed.totals()

    units = len(batch)
    whole = total(batch)
    if not replayed.check(batch):
        whole = total(batch)
    moved = total(_chosen(batch, [*range(1, units), 0]))
    even, odd = total(_emptied(batch)), total(_emptied(batch, 1))
    return all(
        torch.equal(value, moved[name]) and torch.equal(value, even[name] + odd[name]) for name, value in whole.items()
    )


def _measured(
    task: Task, model: torch.nn.Module, params: Params, batch: UnitBatch, transform: PreClipping | None
) -> Params:
    gradients, norms = measured_gradients(task, model, params, batch, transform)
    return {**gradients, "the norm": norms}


def random_units(like: UnitBatch, units: int, views: int) -> UnitBatch:
    """`units` units of `views` views of random numbers, in the shapes and types of `like` and on its device."""
    numbers = torch.Generator().manual_seed(0)

    def drawn(t: Tensor) -> Tensor:
        shape = (units, views, *t.shape[2:])
        if t.is_floating_point():
            return torch.rand(shape, generator=numbers, dtype=t.dtype)
        if t.dtype == torch.uint8:
            return torch.randint(0, 256, shape, generator=numbers, dtype=t.dtype)
        return torch.zeros(shape, dtype=t.dtype)  # a class that there is

    targets = {name: drawn(t) for name, t in like.targets.items()}
    return UnitBatch(drawn(like.inputs), targets, torch.ones(units, views)).to(like.inputs.device)


def _chosen(batch: UnitBatch, units: list[int]) -> UnitBatch:
    return UnitBatch(batch.inputs[units], {name: t[units] for name, t in batch.targets.items()}, batch.weights[units])


def _emptied(batch: UnitBatch, first: int = 0) -> UnitBatch:
    """With an empty unit in every other place, but for the places `first`, `first` + 2, ..."""
    units = len(batch)
    padded = pad_units(batch, 2 * units)
    return _chosen(padded, [u if u % 2 == first else units + u for u in range(units)])


def _shifted(batch: UnitBatch) -> UnitBatch:
    targets = {name: _elsewhere(t) for name, t in batch.targets.items()}
    return UnitBatch(_elsewhere(batch.inputs), targets, _elsewhere(batch.weights))


def _elsewhere(tensor: Tensor) -> Tensor:
    """The same numbers where memory of its own might begin: on a GPU at a multiple of 256 bytes, as CUDA has it.

    Weights, transforms and micro-batches of steps are tensors of their own there, and kernels choose how they read by
    the last bits of an address.
    """
    return shifted(tensor, _BLOCK // tensor.element_size() if tensor.is_cuda else 1)
