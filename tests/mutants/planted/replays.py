"""Faults of what is replayed on a GPU: stale buffers, units that stay, noise of another step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mutants.planted.patches import Patches, Planted

GRAPH = "training/test_graph.py::"


def stale(what: str) -> Callable[[Patches], None]:
    """Buffers are filled at the first step alone."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(self: Any, params: Any, transform: Any) -> None:
            before = {name: value.clone() for name, value in getattr(self, what).items()}
            original(self, params, transform)
            held = getattr(self, what)
            for name, value in before.items():
                if name in held and held[name].shape == value.shape:
                    held[name].copy_(value)

        return begin

    return lambda patch: patch.replace("dpose.training.graph:ReplayedSums.begin", make)


def totals_that_stay(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(self: Any, params: Any, transform: Any) -> None:
            before = self._totals.clone()
            original(self, params, transform)
            if len(before) == len(self._totals):
                self._totals += before

        return begin

    patch.replace("dpose.training.graph:ReplayedSums.begin", make)


def draws_by_place(patch: Patches) -> None:
    """The generator of a unit is that of its place in the sample."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def batches(self: Any, kept: Any, indices: Any, *given: Any, **named: Any) -> Any:
            real, places = self._generator, {index: place for place, index in enumerate(indices)}
            self._generator = lambda index, step: real(places.get(index, index), step)
            return original(self, kept, indices, *given, **named)

        return batches

    patch.replace("dpose.training.loader:Loader._kept_batches", make)


def by_place(batch: Any) -> list[Any]:
    return [("", batch.inputs), *(("", t) for t in batch.targets.values()), ("", batch.weights)]


def recorded_on_units(patch: Patches) -> None:
    patch.replace("dpose.training.graph:_empty_like", lambda original: lambda batch, device: batch)


def noise_of_the_step_before(patch: Patches) -> None:
    """What a thread has drawn is kept for the next step, too."""
    kept: list[Any] = []

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def take(self: Any, *given: Any) -> Any:
            kept.extend([list(original(self, *given))] if not kept else [])
            return iter([noise.clone() for noise in kept[0]])

        return take

    patch.replace("dpose.privacy.gaussian_noise:DrawnAhead.take", make)


def next_steps_noise(patch: Patches) -> None:
    """The stream of the next step is opened, too, before this step's update is known."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(inputs: Any, params: Any, step: int, chain: bytes = b"", *more: Any) -> Any:
            purpose = patch.get("dpose.privacy.noise:Purpose").NOISE
            inputs.noise.stream(purpose, step + 1, inputs.context + chain)
            return original(inputs, params, step, chain, *more)

        return called

    patch.replace("dpose.training.step:private_gradient", make)


REPLAYS = (
    Planted(
        "a replay reads the weights of the step before",
        stale("_params"),
        (f"{GRAPH}test_steps_that_are_replayed_are_todays_to_the_last_bit",),
    ),
    Planted(
        "a replay reads the subspace or the scales of the fit before",
        stale("_tensors"),
        (f"{GRAPH}test_steps_that_are_replayed_are_todays_to_the_last_bit",),
    ),
    Planted(
        "totals go on from the step before",
        totals_that_stay,
        (f"{GRAPH}test_an_empty_sample_has_totals_of_zero_whatever_was_before",),
    ),
    Planted(
        "buffers keep their units after a replay",
        lambda patch: patch.nothing("dpose.training.graph:_empty"),
        (f"{GRAPH}test_buffers_hold_no_unit_after_a_replay",),
    ),
    Planted(
        "warm-up and capture run on a micro-batch of units", recorded_on_units, (f"{GRAPH}test_recording_adds_no_unit",)
    ),
    Planted(
        "the plain way is recorded",
        lambda patch: patch.argument("dpose.training.step:clipped_part", "way", lambda _: "fast"),
        (f"{GRAPH}test_the_plain_way_is_never_recorded",),
    ),
    Planted(
        "frozen weights that moved are read where they were",
        lambda patch: patch.result("dpose.training.graph:_held_at", lambda found, *_: [0 for _ in found]),
        (f"{GRAPH}test_frozen_weights_that_are_elsewhere_are_recorded_anew",),
    ),
    Planted(
        "units are looked at call by call alone, and not in what steps replay",
        lambda patch: patch.nothing("dpose.training.dry_run:_adds_up", True),
        (f"{GRAPH}test_units_are_seen_to_be_apart_in_what_steps_replay",),
    ),
    Planted(
        "a replay that does nothing passes the check",
        lambda patch: patch.nothing("dpose.training.graph:ReplayedSums.check"),
        (f"{GRAPH}test_a_replay_that_adds_up_something_else_is_not_taken",),
    ),
    Planted(
        "buffers are filled by the place of a target, not by its name",
        lambda patch: patch.constant("dpose.training.graph:_named", by_place),
        (f"{GRAPH}test_targets_are_known_by_their_names",),
    ),
    Planted(
        "noise drawn ahead serves the next step, too",
        noise_of_the_step_before,
        (f"{GRAPH}test_steps_that_are_replayed_are_todays_to_the_last_bit",),
    ),
    Planted(
        "the next step's noise is drawn before this step's update is known",
        next_steps_noise,
        (f"{GRAPH}test_a_replayed_step_draws_its_own_noise_and_no_other_steps",),
    ),
    Planted(
        "a key goes on whether steps are captured or not",
        lambda patch: patch.constant("dpose.training.trainer:CALL_BY_CALL", "captured and replayed"),
        (f"{GRAPH}test_a_killed_run_that_replays_goes_on_under_its_key_and_not_call_by_call",),
    ),
    Planted(
        "what is drawn for a unit whose picture is kept follows its place in the sample",
        draws_by_place,
        ("training/test_kept.py::test_a_units_views_do_not_depend_on_what_else_is_sampled",),
    ),
    Planted(
        "a unit whose picture is kept comes a second time from a processor",
        lambda patch: patch.result("dpose.training.loader:_parted", lambda found, indices, _: (found[0], indices)),
        ("training/test_kept.py::test_every_unit_of_a_sample_comes_once_kept_or_not",),
    ),
    Planted(
        "a unit whose picture is not kept has other pixels",
        lambda patch: patch.result(
            "dpose.training.kept:KeptPictures.brought",
            lambda found, *_: (found[0], [(person, part[:-9]) for person, part in found[1]]),
        ),
        ("training/test_kept.py::test_a_units_views_are_the_same_whether_it_is_kept_or_not",),
    ),
    Planted(
        "pictures are kept whatever the limit",
        lambda patch: patch.argument("dpose.training.kept:keep_pictures", "limit", lambda _: 1 << 40),
        ("training/test_kept.py::test_what_is_kept_follows_the_order_of_the_units_up_to_the_limit",),
    ),
    Planted(
        "a key goes on whether pictures are kept or not",
        lambda patch: patch.constant("dpose.training.trainer:KEPT", "left out"),
        ("training/test_kept.py::test_a_run_with_kept_pictures_says_so_in_what_its_key_is_bound_to",),
    ),
    Planted(
        "units over the bound stay in the sum",
        lambda patch: patch.nothing("dpose.training.clip:Grid.take_back"),
        ("training/test_grid.py",),
    ),
)
