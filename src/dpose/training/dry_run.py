"""Before the first step: what it would refuse is refused, and the micro-batch is fitted to the machine.

The account is charged before the first step and steps are reserved before they sample, as they must be. So whatever
would be refused in the first step, whatever the data are, has to be refused before: a run's parts are put together
once, and one gradient of random pictures is taken. How many views fit in memory at once is measured on empty pictures.
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
from dpose.training.arithmetic import same_bits
from dpose.training.batch_invariance import check_units_apart, random_units
from dpose.training.clip import Clip, PreClipping
from dpose.training.closed_form import SecondMoment
from dpose.training.gradients import clipped_sum, mean_gradient, trainable_params, unit_loss
from dpose.training.guards import only_gradients
from dpose.training.kept import room_on
from dpose.training.optim import OptimizerConfig
from dpose.training.preclipping import Scales, stand_in
from dpose.training.public_view import PUBLIC
from dpose.training.reproducibility import no_repeat, repeatable
from dpose.training.step import StepInputs, clipped_part, open_parts, private_task
from dpose.units import Task, UnitBatch, UnitDataset, View, is_mixed, most_views

LARGEST = {"cpu": 32, "cuda": 256}
"""Bounds chosen for the CPU, where 16 to 32 views gained nothing clear; the one for GPUs is not yet measured."""
SHARE = 0.5
"""Share that a micro-batch may take of a device's free memory, or of half of the machine's."""


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
