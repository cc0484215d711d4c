"""How many views fit in memory at once: found before training, on empty pictures, and then recorded."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping

import torch
from torch import Tensor

from dpose.training.clip import Clip
from dpose.training.gradients import clipped_sum, mean_gradient, trainable_params
from dpose.units import Task, UnitBatch

LARGEST = {"cpu": 32, "cuda": 256}
"""Bounds chosen for the CPU, where 16 to 32 views gained nothing clear; the one for GPUs is not yet measured."""
SHARE = 0.5
"""Share of the free memory that a micro-batch may take."""


def fit_microbatch_size(task: Task, model: torch.nn.Module, like: UnitBatch, *, clipped: bool = True) -> int:
    """The largest power of two of views whose gradient fits in memory, at most `LARGEST`.

    The probe runs on zeros of the shape of `like`, and on a copy of the model: nothing of the data decides, and running
    statistics see no empty picture.

    Args:
        task: The task.
        model: On its device, in training mode.
        like: One unit, for the shapes only.
        clipped: Whether gradients are made per unit and clipped; a plain mean needs less, and allows BatchNorm.
    """
    device = next(model.parameters()).device
    probed, one = copy.deepcopy(model), _zeros(like, device)
    per_view, free = (
        _cuda_cost(task, probed, one, clipped) if device.type == "cuda" else _cpu_cost(task, probed, one)
    )
    fitting = max(1, int(SHARE * free / max(1, per_view)))
    return int(min(LARGEST.get(device.type, 16), 2 ** (fitting.bit_length() - 1)))


def _zeros(like: UnitBatch, device: torch.device, units: int = 1) -> UnitBatch:
    def empty(t: Tensor) -> Tensor:
        return torch.zeros((units, 1, *t.shape[2:]), dtype=t.dtype, device=device)

    return UnitBatch(
        empty(like.inputs),
        {name: empty(t) for name, t in like.targets.items()},
        torch.ones((units, 1), device=device),
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
            clipped_sum(task, model, params, batch, Clip(1.0))
        else:
            mean_gradient(task, model, params, batch)
        peaks.append(torch.cuda.max_memory_allocated(device) - before)
    return max(1, (peaks[1] - peaks[0]) // 4), torch.cuda.mem_get_info(device)[0]


def _cpu_cost(task: Task, model: torch.nn.Module, one: UnitBatch) -> tuple[int, int]:
    """Activations kept for one view, counted as autograd saves them, and its own copy of the gradient."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    params: Mapping[str, Tensor] = {
        name: p.clone().requires_grad_() for name, p in trainable_params(model).items()
    }
    weights = {p.untyped_storage().data_ptr() for p in [*params.values(), *model.parameters()]}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        task.loss(model, params, one.inputs[0], {k: v[0] for k, v in one.targets.items()}).sum()
    activations = sum(size for pointer, size in kept.items() if pointer not in weights)
    gradient = sum(p.numel() * p.element_size() for p in params.values())
    # twice: the backward pass holds gradients of activations, the clip a masked copy of the gradient
    return 2 * (activations + gradient), _free_memory()


def _free_memory() -> int:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
