"""Losses in bfloat16: what must hold for a private step, checked before the first one.

The proof needs that a unit's contribution is the same whichever other units were sampled (docs/proofs/dp-sgd.md). A
matrix product of another shape may add up in another order. In float32 that moves a gradient by 3e-7 of itself. In
bfloat16 the difference turns last bits over, layer after layer, and the gradient moves by up to half a percent: that of
every unit of a micro-batch, because one was in it or not. So a private step in bfloat16 has micro-batches of one shape
alone (`Loader.micro_batches`, padded), and `check_units_apart` looks whether that is enough on this machine.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.training.gradients import per_unit_gradients, trainable_params
from dpose.units import MAX_VIEWS, Task, UnitBatch, pad_units

_FIX = "leave --precision out"


def check_units_apart(task: Task, model: torch.nn.Module, like: UnitBatch, views_at_once: int) -> None:
    """Refuse a machine on which a unit's gradient depends on its place in a micro-batch or on what else is in it.

    The units are of random numbers, in each shape that a micro-batch may have. Each is moved by one place, and then
    has every other one replaced by an empty one; its gradient must stay the same to the last bit.

    Args:
        task: The task.
        model: On its device, in training mode.
        like: One unit, for the shapes only.
        views_at_once: The micro-batch.

    Raises:
        DposeError: gradients differ, or cannot be computed in bfloat16.
    """
    views = 1
    while views <= MAX_VIEWS:
        units = max(1, views_at_once // views)
        if units > 1:
            try:
                apart = _are_apart(task, model, random_units(like, units, views))
            except RuntimeError as error:
                raise DposeError(f"gradients cannot be computed in bfloat16: {error}", fix=_FIX) from error
            if not apart:
                raise DposeError(
                    "in bfloat16 the gradient of a unit depends on the other units of its micro-batch here",
                    f"{units} units of {views} views",
                    _FIX,
                )
        views *= 2


def slow_in_bfloat16(device: torch.device) -> bool:
    """Whether the device is a processor that is known to compute slower in bfloat16 than in float32."""
    known = getattr(torch.cpu, "get_capabilities", None)  # since torch 2.10 or so
    if device.type != "cpu" or known is None:
        return False
    found = known()
    return not any(found.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def _are_apart(task: Task, model: torch.nn.Module, batch: UnitBatch) -> bool:
    params, units = trainable_params(model), len(batch)
    everyone, even = list(range(units)), list(range(0, units, 2))
    moved = [*everyone[1:], 0]
    with (
        warnings.catch_warnings()
    ):  # the plain way is checked like the fast one, and tells of itself in the first step
        warnings.simplefilter("ignore")
        first = per_unit_gradients(task, model, params, batch)
        for other, here, there in (
            (_chosen(batch, moved), moved, everyone),
            (_emptied(batch), even, even),
        ):
            again = per_unit_gradients(task, model, params, other)
            if not all(_same_bits(value[here], again[name][there]) for name, value in first.items()):
                return False
    return True


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
    return UnitBatch(
        batch.inputs[units], {name: t[units] for name, t in batch.targets.items()}, batch.weights[units]
    )


def _emptied(batch: UnitBatch) -> UnitBatch:
    """With an empty unit in every other place."""
    units = len(batch)
    padded = pad_units(batch, 2 * units)
    return _chosen(padded, [u if u % 2 == 0 else units + u for u in range(units)])


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
