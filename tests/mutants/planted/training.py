"""Faults of training: first weights, what is charged and compared, draws, averages, sums over units."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from mutants.planted.patches import Patches, Planted

# ---------------------------------------------------------------------------------------- draws and what is charged


def coins_ignored(patch: Patches) -> None:
    patch.argument(
        "dpose.training.canaries:GradientCanaries.view",
        "self",
        lambda canaries: replace(canaries, included=[True] * len(canaries)),
    )


def seeded_as_bounded(patch: Patches) -> None:
    def charged(charge: Any, folder: Any, bound: Any, *_: Any, **__: Any) -> Any:
        return replace(charge, events=(bound.event,) if bound.event else ())

    patch.result("dpose.training.charging:run_charge", charged)


def account_unheard(patch: Patches) -> None:
    patch.argument(
        "dpose.training.charging:_check_had_none", "known", lambda known: [replace(entry, ledger="") for entry in known]
    )


def no_weights(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def drawn_at(self: Any) -> bytes:
            params, self.params = self.params, {}
            try:
                return original(self)
            finally:
                self.params = params

        return drawn_at

    patch.replace("dpose.training.run:Run._drawn_at", make)


def card_of_a_seed(patch: Patches) -> None:
    kind = patch.get("dpose.privacy.statement:Kind")

    def claimed(statement: Any) -> Any:
        if statement is None or statement.kind is kind.NONE:
            return statement
        other = copy.copy(statement)
        object.__setattr__(other, "kind", kind.PRIVATE)
        return other

    patch.argument("dpose.training.folder:front_matter", "statement", claimed)


def by_content_alone(patch: Patches) -> None:
    patch.seen_by("dpose.training.guards", "KnownPictures", lambda _: type("Nobody", (), {}))


def true_n_in_the_plan(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def bind(self: Any, n: int, limit: int | None = None) -> Any:
            if self.nominal_units is None:
                return original(self, n, limit)
            return replace(original(replace(self, nominal_units=n), n), plan=self)

        return bind

    patch.replace("dpose.training.plan:TrainingPlan.bind", make)


DRAWS = (
    Planted(
        "canaries: coins are ignored in training",
        coins_ignored,
        ("audits/test_claim.py::test_a_model_without_its_noise_is_refuted",),
    ),
    Planted(
        "training: draws do not depend on the surroundings",
        lambda patch: patch.seen_by(
            "dpose.training.resume", "json.dumps", lambda _: lambda *_, **__: "", within="go_on"
        ),
        ("training/test_copies.py::test_draws_depend_on_the_surroundings",),
    ),
    Planted(
        "training: draws do not depend on the weights",
        no_weights,
        ("training/test_copies.py::test_draws_depend_on_all_that_a_sum_is_computed_at",),
    ),
    Planted(
        "training: a seeded run is charged as bounded",
        seeded_as_bounded,
        ("training/test_first_weights.py::test_so_are_those_of_a_seeded_run",),
    ),
    Planted(
        "training: a missing ledger that the account alone tells of is a blank sheet",
        account_unheard,
        ("training/test_copies.py::test_a_missing_ledger_is_refused",),
    ),
    Planted(
        "a card's metadata claim what a seed does not guarantee",
        card_of_a_seed,
        ("pose/test_hub.py::test_a_card_claims_in_its_metadata_what_the_statement_guarantees_and_no_more",),
    ),
    Planted(
        "guards: what is watched is compared by content alone",
        by_content_alone,
        ("training/test_guards.py::test_a_near_copy_is_refused",),
    ),
    Planted(
        "the true n under add-or-remove: in the plan",
        true_n_in_the_plan,
        ("training/test_plan.py::test_add_or_remove_never_uses_the_true_number",),
    ),
)


# ---------------------------------------------------------------------------------------- first weights


def seen_by_name(patch: Patches) -> None:
    """Those that come with dpose are asked all the same: they are known before."""
    checked: list[Any] = []

    def shipped(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            found = original(*args)
            checked[:] = [found and found.learnt]
            return found

        return called

    def check(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(learnt: Any, *args: Any) -> None:
            if any(learnt is one for one in checked):
                original(learnt, *args)

        return called

    patch.seen_by("dpose.training.first_weights", "from_shipped", shipped, within="inherited")
    patch.seen_by("dpose.training.first_weights", "check_unseen", check, within="inherited")


def forgets_the_first(patch: Patches) -> None:
    patch.argument("dpose.training.trained_on:learnt_by_run", "start", lambda start: replace(start, datasets=()))


def unknown_is_nothing(patch: Patches) -> None:
    patch.argument("dpose.training.trained_on:conditions_of", "learnt", lambda learnt: replace(learnt, known=True))


def shipped_gives_nothing(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return cache(lambda folder: {k: replace(one, given=()) for k, one in original(folder).items()})

    patch.replace("dpose.training.first_weights:_shipped", make)


def chain_gives_nothing(patch: Patches) -> None:
    asked: list[str] = []

    def inherited(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(first: Any, *args: Any, **kw: Any) -> Any:
            asked[:] = [first.digest]
            return original(first, *args, **kw)

        return called

    def shipped(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(digest: str, unit: str) -> Any:
            found = original(digest, unit)
            return found if found is None or digest in asked else replace(found, conditions=())

        return called

    patch.replace("dpose.training.first_weights:inherited", inherited)
    patch.seen_by("dpose.training.first_weights", "from_shipped", shipped, within="inherited")


def saved_again_are_others(patch: Patches) -> None:
    patch.argument("dpose.training.first_weights:inherited", "again", lambda _: None)


def one_step_as_a_batch(patch: Patches) -> None:
    patch.seen_by(
        "dpose.training.plan",
        "calibrate",
        lambda original: lambda *args, **kw: original(*args, **{**kw, "expected_batch_size": 1}),
        within="TrainingPlan.bind",
    )


def noise_of_another_method(patch: Patches) -> None:
    shared = patch.get("dpose.privacy.noise:Purpose").NOISE
    patch.seen_by("dpose.training.step", "Purpose.STATISTIC", lambda _: shared)


def two_sums_at_the_price_of_one(patch: Patches) -> None:
    patch.seen_by(
        "dpose.training.plan",
        "calibrate",
        lambda original: lambda *args, **kw: original(*args, **{**kw, "steps": 1}),
        within="TrainingPlan.bind",
    )


def second_moment_not_clipped(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def part(inputs: Any, params: Any, batch: Any, *more: Any) -> Any:
            found = original(inputs, params, batch, *more)
            twice = type(inputs.task).__name__ == "SecondMoment"
            return {name: 2 * value for name, value in found.items()} if twice else found

        return part

    patch.replace("dpose.training.step:clipped_part", make)


def directions_of_private_people(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        from dpose.runs import build

        def corrected(config: Any, model: Any, units: int, public: Any) -> Any:
            return original(config, model, units, build.open_units(config, model.config))

        return corrected

    patch.seen_by("dpose.runs.pose", "corrected", make)


def _public_units_unsaid(patch: Patches) -> None:
    def make(original: Any) -> Any:
        return property(lambda self: not self.kind.solves and original.fget(self))

    patch.replace("dpose.training.plan:TrainingPlan.fits_public", make)


def _uncopied(own: Any) -> Any:
    """As if each entry of the data were a unit."""
    return replace(own, identity=replace(own.identity, units=len(own.source)))


ONE_STEP = (
    Planted(
        "dp-head: a step over all units is accounted for as one over a sample",
        one_step_as_a_batch,
        ("training/test_closed_form.py::test_every_unit_is_in_the_sum_whatever_the_batch_size_says",),
    ),
    Planted(
        "dp-head: its noise is drawn from the stream of another method's",
        noise_of_another_method,
        ("training/test_closed_form.py::test_its_noise_has_a_purpose_of_its_own_and_is_drawn_once",),
    ),
    Planted(
        "adassp-head: two sums are accounted for as one",
        two_sums_at_the_price_of_one,
        ("training/test_closed_form.py::test_both_sums_are_bound_beforehand_as_one_event",),
    ),
    Planted(
        "adassp-head: a unit's second moment moves the sum by twice the bound",
        second_moment_not_clipped,
        ("training/test_closed_form.py::test_one_unit_moves_the_sum_by_c_and_another_in_its_place_by_two",),
    ),
    Planted(
        "a sum that a method keeps and that comes out otherwise when it is taken again is used",
        lambda patch: patch.nothing("dpose.training.run:Run._method_state", {}),
        ("training/test_closed_form.py::test_a_kept_sum_that_comes_out_otherwise_is_not_used",),
    ),
    Planted(
        "a file of weights that was saved again is one of which nothing is known",
        lambda patch: patch.replace("dpose.tensors:digest_of_tensors", lambda _: lambda file: ""),
        ("training/test_first_weights.py::test_so_are_those_that_another_program_saved_again",),
    ),
    Planted(
        "what a run that failed has learnt stays in the caller's model",
        lambda patch: patch.replace(
            "dpose.training.trainer:_weights_put_back", lambda _: lambda model: contextlib.nullcontext()
        ),
        (
            "training/test_first_weights.py::test_of_a_run_that_fails_no_weights_are_left_that_the_account_does_not_know",
        ),
    ),
    Planted(
        "subspace-sgd: coefficients have another shape than the one that was tried",
        lambda patch: patch.replace(
            "dpose.training.subspace:Subspace.filled", lambda _: lambda subspace, rows: subspace
        ),
        ("training/test_preclipping.py::test_a_subspace_of_fewer_directions_computes_in_the_shape_that_was_tried",),
    ),
    Planted(
        "dp-head: the public units that its directions are fitted on are neither checked nor stated",
        _public_units_unsaid,
        ("runs/test_dp_head.py::test_a_run_adds_up_and_verifies",),
    ),
    Planted(
        "dp-head: how often a picture was copied shapes the released model",
        lambda patch: patch.seen_by(
            "dpose.runs.pose",
            "protect",
            lambda original: lambda data, *rest, **more: _uncopied(original(data, *rest, **more)),
        ),
        ("runs/test_dp_head.py::test_how_often_a_picture_was_copied_shapes_nothing",),
    ),
    Planted(
        "dp-head: directions are fitted on private people",
        directions_of_private_people,
        ("runs/test_dp_head.py::test_what_is_fitted_knows_public_people_alone",),
    ),
)

FIRST_WEIGHTS = (
    Planted(
        "first weights: what they have seen by name is protected all the same",
        seen_by_name,
        ("runs/test_seen.py::TestRefused::test_the_trainer_itself_refuses_whoever_calls_it",),
    ),
    Planted(
        "first weights: a run forgets what its own first weights have seen",
        forgets_the_first,
        ("training/test_trained_on.py::TestTold::test_a_run_passes_on_what_its_first_weights_saw",),
    ),
    Planted(
        "first weights: what nobody knows is not taken as given",
        unknown_is_nothing,
        ("training/test_trained_on.py::TestFollows::test_conditions_name_what_is_known_and_what_is_not",),
    ),
    Planted(
        "first weights: nothing is taken as given of those that come with dpose",
        shipped_gives_nothing,
        (
            "training/test_first_weights.py::test_of_weights_that_come_with_dpose_their_own_statement_says_what_is_taken_as_given",
        ),
    ),
    Planted(
        "first weights: nothing is taken as given of those that come with dpose at the end of a chain",
        chain_gives_nothing,
        (
            "training/test_first_weights.py::test_of_weights_that_come_with_dpose_their_own_statement_says_what_is_taken_as_given",
        ),
    ),
    Planted(
        "first weights: data that were saved again are other data",
        saved_again_are_others,
        (
            "runs/test_tasks.py::test_first_weights_that_learnt_from_copies_or_people_count_as_those_that_learnt_from_the_pictures",
        ),
    ),
)

TRAINING = (*DRAWS, *FIRST_WEIGHTS, *ONE_STEP)
