"""Clipped sums of micro-batches by replaying one recorded computation: a private step on a GPU without its launches.

    replayed = ReplayedSums(compute, model, Captures(), grid.steps)
    replayed.begin(params, transform)              # once a step
    replayed.add(batch)                            # for every micro-batch
    totals = replayed.totals()

A micro-batch of one number of views has one shape whatever was sampled, so that its thousands of launches can be
recorded once, as a CUDA graph, and replayed. A replay reads and writes the addresses that were recorded. So everything
that changes is copied into buffers of fixed addresses before it: weights, the transform's tensors, the micro-batch.
What is not copied, frozen weights and buffers of the model, is held to its addresses, and recorded anew where they are
others.

**Guarantee.** That of `compute`, which is what is recorded. A replay sees no unit of another micro-batch: all of it is
overwritten before a replay, and after it every unit is emptied (weight 0), so that it adds nothing if it is replayed
again. Totals begin at zero with every step, for an empty sample too. Recording runs on empty units. Copies and replays
follow one another on one stream; a batch that is still being copied keeps its memory (torch's pinned blocks wait for
the copy), or one unit's numbers could stand in another's place.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpose.training.clip import Params, PreClipping
from dpose.units import UnitBatch

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs a function once or more, and returns what does the same again."""

_WARM_UP = 3


class Compute(Protocol):
    """What is recorded: a micro-batch's clipped sum, without a question to the host."""

    def __call__(self, params: Params, batch: UnitBatch, transform: PreClipping | None, *, only_fast: bool) -> Params:
        """float64 sums by name, on the grid; with `only_fast` RuntimeError where the plain way would be taken."""


@runtime_checkable
class FittedTransform(Protocol):
    """A transform that a replay can follow from one fit to the next."""

    def tensors(self) -> Params:
        """All that changes from fit to fit and its results depend on; what else it holds is recorded as it is."""

    def with_tensors(self, tensors: Params) -> PreClipping:
        """The same transform, made of these."""


class FromHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what copies from the host's memory: a graph would copy again, where other numbers lie by then.

    Numbers that are no tensors, and those of a tensor without dimensions, become part of the graph.
    """

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **kwargs or {})
        aten, read = torch.ops.aten, [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        copies = func in (aten.copy_.default, aten._to_copy.default)
        host = func is aten.lift_fresh.default or any(t.is_cpu and (t.ndim or copies) for t in read)
        there = (t.device.type for t in (*read, *tree_leaves(found)) if isinstance(t, torch.Tensor))
        if host and self._device in there:
            raise RuntimeError(f"{func} copies numbers from the host")
        return found


class Captures:
    """Records CUDA graphs, which share one pool of memory: only one of them runs at a time."""

    def __init__(self) -> None:
        # a pool lives as long as one of its graphs does
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """See `Record`. Kernels are compiled and chosen before anything is captured.

        Raises:
            RuntimeError: `run` does what a graph cannot hold.
        """
        beside: Any = torch.cuda.Stream  # without types
        beside = beside()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            with FromHost("cuda"):
                run()
            for _ in range(_WARM_UP - 1):
                run()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        pool = next((other.pool() for other in self._graphs), None)
        # the outer one: a capture that fails leaves its own stream the current one
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, pool=pool):
            run()
        self._graphs.add(graph)
        return graph.replay


def recorder(device: torch.device) -> Record | None:
    """How a run's micro-batches are recorded on `device`; None where they are computed call by call."""
    return Captures() if device.type == "cuda" else None


@dataclass(frozen=True)
class _Program:
    place: UnitBatch
    replay: Callable[[], None]


class ReplayedSums:
    """The totals of a step's micro-batches, each replayed in the program of its shape.

    Args:
        compute: What is recorded.
        model: Whose frozen weights and buffers `compute` reads.
        record: `Captures()`; a function that returns `run` itself stands in for it where there is no GPU.
        steps: From numbers on the grid to whole steps of it, int64 (`Grid.steps`).
    """

    def __init__(
        self, compute: Compute, model: torch.nn.Module, record: Record, steps: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self._compute, self._model, self._record, self._steps = compute, model, record, steps
        self._refused = False
        self.close()

    @property
    def how(self) -> str:
        """How micro-batches are computed, for what a key is bound to."""
        return "call by call, from fixed buffers" if self._refused else "captured and replayed"

    def close(self) -> None:
        """Let go of all programs and buffers."""
        self._layout: object = None
        self._programs: dict[object, _Program] = {}
        self._params: Params = {}
        self._totals = torch.zeros(0, dtype=torch.int64)
        self._like: Params = {}
        self._transform: PreClipping | None = None
        self._tensors: Params = {}

    def takes(self, transform: PreClipping | None) -> bool:
        """Whether it can follow this transform."""
        return transform is None or isinstance(transform, FittedTransform)

    def begin(self, params: Params, transform: PreClipping | None) -> None:
        """Begin a step at these weights, with this transform: totals are zero."""
        own: Params = transform.tensors() if isinstance(transform, FittedTransform) else {}
        layout = (type(transform), _shapes(params), _shapes(own), _held_at(self._model, params))
        if layout != self._layout:
            self.close()
            self._layout = layout
            self._params, self._tensors = ({n: torch.empty_like(t) for n, t in g.items()} for g in (params, own))
            self._like = transform.like(params) if transform else params
            count, device = sum(t.numel() for t in self._like.values()), next(iter(params.values())).device
            self._totals = torch.zeros(count, dtype=torch.int64, device=device)
        for places, values in ((self._params, params), (self._tensors, own)):
            if places:  # all in one call: a GPU copies faster than a processor asks it to
                torch._foreach_copy_(list(places.values()), [values[name] for name in places])
        # made of the buffers, which hold the transform's numbers by now
        self._transform = transform.with_tensors(self._tensors) if isinstance(transform, FittedTransform) else None
        self._totals.zero_()

    def add(self, batch: UnitBatch) -> None:
        """Add the clipped gradients of a micro-batch's units to the totals."""
        values = _named(batch)
        key = tuple((name, t.shape, t.dtype) for name, t in values)
        if key not in self._programs:
            self._programs[key] = self._recorded(batch)
        program = self._programs[key]
        for (_, place), (_, value) in zip(_named(program.place), values, strict=True):
            # a copy out of pinned memory is waited for by no one but what comes behind it on the device
            from_host = place.is_cuda and not value.is_cuda
            place.copy_(value.pin_memory() if from_host else value, non_blocking=True)
        program.replay()
        _empty(program.place)

    def check(self, batch: UnitBatch) -> bool:
        """Whether the totals, of `batch` alone since `begin`, are what its call gives; if not, record no more."""
        if self._refused:
            return True
        called = self._compute(self._params, batch, self._transform, only_fast=False)
        right = torch.equal(self._totals, self._flat(called))
        if not right:
            self._programs.clear()
            self._refuse("a replay adds up something else than what was recorded")
        return right

    def totals(self) -> Params:
        """The sums since `begin`, int64, in steps of the grid. Private until they are noised."""
        parts = torch.split(self._totals.clone(), [t.numel() for t in self._like.values()])
        return {name: part.view(self._like[name].shape) for name, part in zip(self._like, parts, strict=True)}

    def _recorded(self, batch: UnitBatch) -> _Program:
        place = _empty_like(batch, next(iter(self._params.values())).device)

        def run(*, only_fast: bool = True) -> None:
            part = self._compute(self._params, place, self._transform, only_fast=only_fast)
            self._totals.add_(self._flat(part))

        if not self._refused:
            try:
                return _Program(place, self._record(run))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._refuse(str(error))
        return _Program(place, lambda: run(only_fast=False))

    def _flat(self, part: Params) -> torch.Tensor:
        """Side by side: some hundred parameters would be some hundred calls."""
        return self._steps(torch.cat([part[name].flatten() for name in self._like]))

    def _refuse(self, why: str) -> None:
        self._refused = True
        warnings.warn(f"steps are computed call by call, more slowly: {why}", stacklevel=4)


def _held_at(model: torch.nn.Module, params: Params) -> list[object]:
    """Where in memory all that is not trained lies, and how: an address may come back with another shape."""
    held = (*model.named_parameters(), *model.named_buffers())
    return [(t.data_ptr(), t.shape, t.stride(), t.dtype) for name, t in held if name not in params]


def _named(batch: UnitBatch) -> list[tuple[str, torch.Tensor]]:
    """All tensors, in one order whatever that of the targets is: two of them may have one shape."""
    return [("", batch.inputs), *sorted(batch.targets.items()), ("", batch.weights)]


def _empty_like(batch: UnitBatch, device: torch.device) -> UnitBatch:
    """A micro-batch of that shape, of empty units, in memory of its own."""
    targets = {name: torch.zeros_like(t, device=device) for name, t in batch.targets.items()}
    inputs, weights = (torch.zeros_like(t, device=device) for t in (batch.inputs, batch.weights))
    return UnitBatch(inputs, targets, weights)


def _shapes(tensors: Params) -> list[object]:
    return [(name, t.shape, t.stride(), t.dtype, t.device) for name, t in tensors.items()]


def _empty(place: UnitBatch) -> None:
    """Empty every unit, and leave numbers that would show in whatever read them."""
    for tensor in tree_leaves(place.parts):
        tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
    place.weights.zero_()
