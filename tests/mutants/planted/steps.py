"""Faults of the training step: its sample, gradients, clipping, noise and divisor, and what is computed on the way."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from mutants.planted.patches import Patches, Planted

# ---------------------------------------------------------------------------------------- sampling


def with_bound(change: Callable[[Any, int], dict[str, Any]]) -> Callable[[Patches], None]:
    """A step that has other constants than the accountant; they are made of its own and of how many units there are."""

    def other(engine: Any) -> Any:
        fields = change(engine.bound, len(engine.loader.dataset))
        return replace(engine, bound=replace(engine.bound, **fields))

    return lambda patch: patch.argument("dpose.training.step:private_gradient", "inputs", other)


def at_rate(bound: Any, rate: float) -> dict[str, Any]:
    """Another sampling rate beside the same divisor, which is the product of both."""
    return {"sampling_rate": min(1.0, rate), "n": bound.divisor / min(1.0, rate)}


def keyed_by_the_place(patch: Patches) -> None:
    """Units' draws are told apart by the place in the sample: another unit's presence moves them."""

    class Placed:
        def __init__(self, noise: Any, place: int) -> None:
            self.noise, self.place = noise, place

        def stream(self, purpose: Any, step: int, context: bytes) -> Any:
            return self.noise.stream(purpose, step, self.place.to_bytes(8, "big") + context[8:])

    places: dict[int, int] = {}

    def units(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, indices: Sequence[int], *args: Any, **kw: Any) -> Iterator[Any]:
            places.clear()
            places.update({int(index): place for place, index in enumerate(indices)})
            return original(self, indices, *args, **kw)

        return called

    def unit(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, index: int, step: int) -> Any:
            loader = copy.copy(self)
            loader.noise = Placed(self.noise, places.get(index, 0))
            return original(loader, index, step)

        return called

    patch.replace("dpose.training.loader:Loader.units", units)
    patch.replace("dpose.training.loader:Loader.unit", unit)


def share_by_place(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda sample, ranks, numbers=None: original(
            sample, ranks, {int(unit): place for place, unit in enumerate(sample)}
        )

    patch.replace("dpose.training.step:_share", make)


def share_without_numbers(patch: Patches) -> None:
    patch.argument("dpose.training.step:_share", "numbers", lambda _: None)


SAMPLE = (
    Planted(
        "sampling rate 2 % higher in the step than in the event",
        with_bound(lambda bound, _: at_rate(bound, 1.02 * bound.sampling_rate)),
        ("training/test_passed.py::test_sampler_clipping_and_noise_get_what_is_accounted",),
    ),
    Planted(
        "the true n under add-or-remove: in the sampling rate",
        with_bound(lambda bound, n: at_rate(bound, bound.plan.expected_batch_size / n)),
        ("training/test_passed.py::test_sampler_clipping_and_noise_get_what_is_accounted",),
    ),
    Planted(
        "the true n under add-or-remove: in the divisor",
        with_bound(lambda _, n: {"n": n}),
        ("training/test_passed.py::test_the_divisor_is_the_plans_and_not_the_samples",),
    ),
    Planted(
        "augmentation keyed by the place in the sample",
        keyed_by_the_place,
        ("training/test_passed.py::test_augmentation_goes_with_the_unit_and_not_with_its_place",),
    ),
    Planted(
        "a run of several processes: whose a unit is depends on what was drawn",
        share_by_place,
        ("training/test_passed.py::test_processes_share_the_sample_and_one_adds_the_noise",),
    ),
    Planted(
        "a run of several processes: copies move later units to processes that have not read them",
        share_without_numbers,
        ("training/test_passed.py::test_processes_share_the_sample_and_one_adds_the_noise",),
    ),
)


# ---------------------------------------------------------------------------------------- before the clip


def norm_as_it_was(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def measurable(loss: Any, params: Any, units: Any, way: Any, transform: Any, mixed: Any) -> Any:
            book = original(loss, params, units, way, transform, mixed)
            if transform is not None:
                book.norms = original(loss, params, units, way, None, mixed).norms
            return book

        return measurable

    patch.seen_by("dpose.training.gradients", "_measurable", make, within="clipped_sum")


def noise_shared(patch: Patches) -> None:
    def shared(engine: Any, params: Any) -> Any:
        if engine.transform is None:
            return engine
        few, many = (sum(value.numel() for value in one.values()) for one in (engine.transform.like(params), params))
        event = engine.bound.event
        event = replace(event, sigma=event.sigma * math.sqrt(few / many))
        return replace(engine, bound=replace(engine.bound, event=event))

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda engine, params, *args, **kw: original(shared(engine, params), params, *args, **kw)

    patch.replace("dpose.training.step:private_gradient", make)


def noise_behind_the_way_back(patch: Patches) -> None:
    """Sums of coefficients stay without noise; what they are mapped back to gets it."""
    step = importlib.import_module("dpose.training.step")
    patch.get("dpose.training.step:add_gaussian")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def private_gradient(engine: Any, params: Any, *args: Any, **kw: Any) -> Any:
            if engine.transform is None or not engine.ranks.first:
                return original(engine, params, *args, **kw)
            noise: list[Any] = []
            # what adds noise by now: a test may have exchanged it
            add = step.add_gaussian
            with mock.patch.object(step, "add_gaussian", lambda sums, *rest: noise.extend(rest) or sums):
                mean = original(engine, params, *args, **kw)
            divisor = engine.bound.divisor
            noisy = add({name: value.double() * divisor for name, value in mean.items()}, *noise)
            return {name: (value / divisor).to(params[name]) for name, value in noisy.items()}

        return private_gradient

    patch.replace("dpose.training.step:private_gradient", make)


def fitted_on_the_run(patch: Patches) -> None:
    """The loader of public units loads the run's own."""
    own: list[Any] = []

    def opened(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(inputs: Any, *args: Any, **kw: Any) -> Any:
            own[:] = [inputs.loader.dataset]
            return original(inputs, *args, **kw)

        return called

    def loader(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda task, units, noise, threads, label: original(
            task, own[0] if label == b"public" else units, noise, threads, label
        )

    patch.replace("dpose.training.step:open_parts", opened)
    patch.seen_by("dpose.training.step", "Loader", loader)


def less_the_mean(patch: Patches) -> None:
    patch.result(
        "dpose.training.preclipping:Coefficients.each",
        lambda found, *_: {name: value - value.mean(0) for name, value in found.items()},
    )


PRECLIPPING = (
    Planted(
        "before the clip: the norm is that of the gradient as it was",
        norm_as_it_was,
        ("training/test_preclipping.py::test_the_sum_is_of_gradients_transformed_and_then_clipped",),
    ),
    Planted(
        "before the clip: the noise of all parameters shared by fewer coefficients",
        noise_shared,
        ("training/test_preclipping.py::test_the_step_noises_the_transformed_sum_once_and_maps_back",),
    ),
    Planted(
        "before the clip: the way back goes before the noise",
        noise_behind_the_way_back,
        ("training/test_preclipping.py::test_the_step_noises_the_transformed_sum_once_and_maps_back",),
    ),
    Planted(
        "before the clip: fitted on the units of the run",
        fitted_on_the_run,
        ("training/test_preclipping.py::test_the_transform_is_of_public_units_and_released_weights",),
    ),
    Planted(
        "before the clip: coefficients less the batch's mean",
        less_the_mean,
        ("training/test_preclipping.py::test_the_sum_is_of_gradients_transformed_and_then_clipped",),
    ),
)


# ---------------------------------------------------------------------------------------- sums and averages


def taken_for_frozen(patch: Patches) -> None:
    """Whatever stands beside a parameter is taken for a frozen weight."""
    patch.replace(
        "dpose.training.grad_sample:_Uses._is_tracked", lambda _: lambda self, call: id(call.x) not in self._names
    )


def first_view_alone(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, gradient, *rest: original(x[:, :1].copy(), gradient[:, :1].copy(), *rest)

    patch.replace("dpose.training.kernels.cpu:_depthwise", make)


def two_threads_alike(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def over_units(sums: Callable[..., None], units: int, *arrays: Any) -> None:
            return original(lambda *given: sums(*given[:-1], units), units, *arrays)

        return over_units

    patch.replace("dpose.training.kernels.cpu:over_units", make)


def one_step_more(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def update(self: Any, params: Any) -> None:
            before = self.before
            self.before = None if before is None else before - 1
            original(self, params)
            self.before = before

        return update

    patch.replace("dpose.training.optim:WeightAverage.update", make)


SUMS = (
    Planted(
        "weights made of a parameter are taken for frozen ones",
        taken_for_frozen,
        ("training/test_layers.py::test_known_uses_do_not_fall_back",),
    ),
    Planted(
        "a depthwise convolution's gradient is that of the first view",
        first_view_alone,
        ("training/test_layers.py::test_every_layer_is_as_in_the_plain_way",),
    ),
    Planted(
        "two threads sum the same units",
        two_threads_alike,
        ("training/test_kernels.py::test_depthwise_gradients_are_those_of_each_unit_alone",),
    ),
    Planted(
        "a tail averages one step more",
        one_step_more,
        ("training/test_optim.py::test_a_tail_is_the_mean_of_the_last_weights",),
    ),
)

STEPS = (*SAMPLE, *PRECLIPPING, *SUMS)
