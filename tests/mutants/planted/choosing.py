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
        lambda _: (
            lambda events, law, delta, relation: max(
                epsilon([event], delta, relation, rdp) for event in events
            )
        ),
        "Tuning.by_side",
    )


def _smaller_side(patch: Patches) -> None:
    zero_out = patch.get("dpose.privacy.accounting:Relation").ZERO_OUT
    patch.replace(
        "dpose.privacy.tuning:Tuning.epsilon",
        lambda _: lambda self, delta, relation=zero_out: min(self.by_side(delta, relation)),
    )


def _cheaper_curve(patch: Patches) -> None:
    curve = patch.get("dpose.privacy.tuning:selection_curve")
    patch.replace(
        "dpose.privacy.tuning:Tuning.curve",
        lambda _: (
            lambda self: self._told(np.minimum(curve(self.events, self.law), curve((self.score,), self.law)))
        ),
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
    Planted("choosing: one trial is charged for all", _one_trial_for_all, ()),
    Planted("choosing: the smaller of two sides is claimed", _smaller_side, ()),
    Planted("choosing: both sides pay what the cheaper one costs", _cheaper_curve, ()),
    Planted(
        "choosing: a setting costs what settings cost on average",
        lambda patch: patch.replace(
            "dpose.privacy.tuning:selection_curve",
            lambda original: lambda events, law: np.mean([original((one,), law) for one in events], axis=0),
        ),
        (),
    ),
    Planted(
        "choosing: a fixed number of trials",
        lambda patch: patch.replace(
            "dpose.privacy.trial_law:_poisson", lambda _: lambda mean, stream: int(mean)
        ),
        (),
    ),
    Planted(
        "choosing: geometric whatever eta is",
        lambda patch: patch.replace("dpose.privacy.trial_law:TrialLaw.draw", _geometric),
        (),
    ),
    Planted(
        "choosing: a score without noise",
        lambda patch: patch.argument(
            "dpose.runs.trial_score:noised_trial_score",
            "stream",
            lambda _: SimpleNamespace(gaussian=lambda shape, scale: np.zeros(shape)),
        ),
        (),
    ),
    Planted(
        "choosing: a person on both sides",
        lambda patch: patch.seen_by("dpose.privacy.sides", "KnownPictures", lambda _: type("Nobody", (), {})),
        (),
    ),
    Planted(
        "choosing: one that goes on begins another",
        lambda patch: patch.seen_by(
            "dpose.runs.tune", "kept_key", lambda _: lambda *args, **kw: None, "tune_runs"
        ),
        (),
    ),
    Planted(
        "choosing: nothing is charged",
        lambda patch: patch.seen_by(
            "dpose.runs.tune", "reserve_all", lambda _: lambda *args, **kw: None, "tune_runs"
        ),
        (),
    ),
    Planted(
        "choosing: one side is charged and the other not",
        lambda patch: patch.seen_by(
            "dpose.runs.tune",
            "reserve_all",
            lambda original: lambda entries, *rest: original(entries[:1], *rest),
            "tune_runs",
        ),
        (),
    ),
    Planted(
        "choosing: what lost stays",
        lambda patch: patch.seen_by(
            "dpose.runs.tune", "_clear", lambda _: lambda *args, **kw: None, "_finish"
        ),
        (),
    ),
    Planted(
        "choosing: what is watched may be scored units",
        lambda patch: _checked_on_one_side(patch, "check_not_watched"),
        (),
    ),
    Planted(
        "choosing: what is public may be scored units",
        lambda patch: _checked_on_one_side(patch, "check_disjoint"),
        (),
    ),
)
