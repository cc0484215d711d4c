"""Recipes: settings that were chosen on data that no result is reported on; docs/lab/results.md says which, and when.

dpose train --data lspet:ROOT:private --recipe recommended --epsilon 8 --delta 1e-5 --out runs/best
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """Settings by the names of `dpose.runs.config.RunConfig`; what the user says goes before them.

    Attributes:
        private: Of the private run.
        public: Of a run before it on public data alone, which gives the private run its first weights.
        temperature: What the logits of weights from the public run are divided by before the private one: they have
            seen few pictures often, and are too sure of others (`dpose.pose.heads.temper`).
        quiet_epsilon: Below it the learning rate falls with the root of epsilon: what noise alone moves the weights by
            grows with it, and at small budgets that is most of what moves them.
        chosen_on: What was read to choose it, by the kind of data; for the statements of runs on such data.
    """

    private: Values
    public: Values
    temperature: float
    quiet_epsilon: float
    chosen_on: Mapping[str, str] = field(default_factory=dict)

    def at(self, epsilon: float | None) -> dict[str, Any]:
        """The private run's settings at a budget; None if the noise is given instead."""
        share = 1.0 if epsilon is None else min(1.0, math.sqrt(max(epsilon, 0.0) / self.quiet_epsilon))
        optimizer = {**self.private["optimizer"], "lr": self.private["optimizer"]["lr"] * share}
        return {**self.private, "optimizer": optimizer}


RECOMMENDED = Recipe(
    private={
        "model": {"strategy": "light"},
        "plan": {"method": "dp-sgd", "epochs": 12.0, "expected_batch_size": 2048, "ema_decay": 0.9},
        "optimizer": {"name": "adamw", "lr": 3e-3, "options": {"weight_decay": 0.0}},
        "augment": "none",
    },
    public={
        "model": {"strategy": "full"},
        "plan": {"method": "non-private", "steps": 1800, "expected_batch_size": 64, "ema_decay": 0.998},
        "optimizer": {"name": "adamw", "lr": 1e-3},
        "augment": "public",
    },
    temperature=1.5,
    quiet_epsilon=8.0,
    chosen_on={
        "lspet": "the settings of the recipe, which were chosen by the scores of a few dozen trainings on pictures "
        "7001 to 8000 of LSPET's private split, read without noise: what they tell of those is in no epsilon"
    },
)

RECIPES: Mapping[str, Recipe] = {"recommended": RECOMMENDED}


def filled_in(values: dict[str, Any], below: Values) -> dict[str, Any]:
    """`values`, with what `below` has where they say nothing, part by part."""
    both = dict(values)
    for key, value in below.items():
        given = both.get(key)
        if given is None:
            both[key] = value
        elif isinstance(value, Mapping) and isinstance(given, dict):
            both[key] = filled_in(given, value)
    return both
