"""Units must not know each other: what must hold of a machine for a private step, checked before the first one.

The proof needs that a unit's contribution is the same whichever other units were sampled (docs/proofs/dp-sgd.md). A
matrix product of another shape may add up in another order. In float32 that moves a gradient by 3e-7 of itself. In
bfloat16 the difference turns last bits over, layer after layer, and the gradient moves by up to half a percent: that of
every unit of a micro-batch, because one was in it or not. So a private step has micro-batches of one shape alone
(`Loader.micro_batches`, padded), and `check_units_apart` looks whether that is enough on this machine.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.training.arithmetic import same_bits, shifted
from dpose.training.clip import PreClipping
from dpose.training.gradients import Params, measured_gradients, trainable_params
from dpose.training.graph import ReplayedSums
from dpose.units import MAX_VIEWS, Task, UnitBatch, is_mixed, pad_units, view_bucket

_BLOCK = 256
_ALONE = "--set microbatch_size=1 takes one unit at a time"


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
