"""Faults of choosing the best of a random number of trials."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np

from mutants.planted.patches import Patches, Planted


def _one_trial_for_all(patch: Patches) -> None:
    epsilon = patch.get("dpose.privacy.accounting:epsilon")
    rdp = patch.get("dpose.privacy.accounting:Accountant").RDP
    patch.seen_by(
        "dpose.privacy.tuning",
        "selection_epsilon",
        lambda _: lambda events, law, delta, relation: max(epsilon([event], delta, relation, rdp) for event in events),
        "Tuning.by_side",
    )


def _smaller_side(patch: Patches) -> None:
    zero_out = patch.get("dpose.privacy.neighbours:Relation").ZERO_OUT
    patch.replace(
        "dpose.privacy.tuning:Tuning.epsilon",
        lambda _: lambda self, delta, relation=zero_out: min(self.by_side(delta, relation)),
    )


def _cheaper_curve(patch: Patches) -> None:
    curve = patch.get("dpose.privacy.tuning:selection_curve")
    patch.replace(
        "dpose.privacy.tuning:Tuning.curve",
        lambda _: lambda self: self._notes(np.minimum(curve(self.events, self.law), curve((self.score,), self.law))),
    )


def _geometric(original):
    def draw(self, stream):
        if self.shape is None:
            return original(self, stream)
        return original(SimpleNamespace(shape=Fraction(1), gamma=self.gamma), stream)

    return draw


def _checked_on_one_side(patch: Patches, check: str) -> None:
    """`check` of tune_problem gets the training side for all units."""
    split: list = []

    def split_sides(original):
        def called(*args, **kw):
            split.append(original(*args, **kw))
            return split[-1]

        return called

    patch.seen_by("dpose.runs.tune_problem", "split_sides", split_sides)
    patch.seen_by(
        "dpose.runs.tune_problem",
        check,
        lambda original: lambda units, _every, *rest: original(units, split[-1].training, *rest),
        "open_problem",
    )


CHOOSING = (
    Planted(
        "choosing: one trial is charged for all",
        _one_trial_for_all,
        ("privacy/test_tuning.py::test_a_statement_that_claims_one_trial_is_refused",),
    ),
    Planted(
        "choosing: the smaller of two sides is claimed",
        _smaller_side,
        ("privacy/test_tuning.py::test_the_claim_is_the_larger_of_the_two_sides",),
    ),
    Planted(
        "choosing: both sides pay what the cheaper one costs",
        _cheaper_curve,
        ("runs/test_tune.py::test_units_of_several_pictures_are_charged_once_at_the_dearer_side",),
    ),
    Planted(
        "choosing: a setting costs what settings cost on average",
        lambda patch: patch.replace(
            "dpose.privacy.tuning:selection_curve",
            lambda original: lambda events, law: np.mean([original((one,), law) for one in events], axis=0),
        ),
        ("privacy/test_tuning.py::test_a_grid_costs_what_its_dearest_setting_does_at_every_order",),
    ),
    Planted(
        "choosing: a fixed number of trials",
        lambda patch: patch.replace("dpose.privacy.trial_law:_poisson", lambda _: lambda mean, stream: int(mean)),
        ("privacy/test_tuning.py::test_numbers_of_trials_are_drawn_by_their_law",),
    ),
    Planted(
        "choosing: geometric whatever eta is",
        lambda patch: patch.replace("dpose.privacy.trial_law:TrialLaw.draw", _geometric),
        ("privacy/test_tuning.py::test_numbers_of_trials_are_drawn_by_their_law",),
    ),
    Planted(
        "choosing: a score without noise",
        lambda patch: patch.argument(
            "dpose.runs.group_scores:noised_trial_score",
            "stream",
            lambda _: SimpleNamespace(gaussian=lambda shape, scale: np.zeros(shape)),
        ),
        ("runs/test_tune.py::test_the_score_has_the_noise_that_is_paid_for",),
    ),
    Planted(
        "choosing: a person on both sides",
        lambda patch: patch.seen_by("dpose.privacy.tuning", "KnownPictures", lambda _: type("Nobody", (), {})),
        ("runs/test_tune.py::test_sides_share_nobody_and_depend_on_names_alone",),
    ),
    Planted(
        "choosing: one that goes on begins another",
        lambda patch: patch.seen_by("dpose.runs.tune", "kept_key", lambda _: lambda *args, **kw: None, "tune_runs"),
        ("runs/test_tune.py::test_what_was_killed_goes_on_to_the_same_end_at_no_further_cost",),
    ),
    Planted(
        "choosing: nothing is charged",
        lambda patch: patch.seen_by("dpose.runs.tune", "charge_all", lambda _: lambda *args, **kw: None, "tune_runs"),
        ("runs/test_tune.py::test_the_best_trial_becomes_a_run_whose_statement_carries_the_price",),
    ),
    Planted(
        "choosing: one side is charged and the other not",
        lambda patch: patch.seen_by(
            "dpose.runs.tune",
            "charge_all",
            lambda original: lambda entries, *rest: original(entries[:1], *rest),
            "tune_runs",
        ),
        ("runs/test_tune.py::test_the_best_trial_becomes_a_run_whose_statement_carries_the_price",),
    ),
    Planted(
        "choosing: what lost stays",
        lambda patch: patch.seen_by("dpose.runs.tune", "_clear", lambda _: lambda *args, **kw: None, "_finish"),
        ("runs/test_tune.py::test_nothing_is_told_of_what_lost",),
    ),
    Planted(
        "choosing: what is watched may be scored units",
        lambda patch: _checked_on_one_side(patch, "check_not_watched"),
        ("runs/test_tune.py::test_units_of_either_side_are_neither_watched_nor_public",),
    ),
    Planted(
        "choosing: what is public may be scored units",
        lambda patch: _checked_on_one_side(patch, "check_disjoint"),
        ("runs/test_tune.py::test_units_of_either_side_are_neither_watched_nor_public",),
    ),
)
