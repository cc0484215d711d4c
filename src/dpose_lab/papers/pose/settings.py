"""Each method's own settings in the benchmarks: the strategy "own", one table. A new method is an entry in `OWN`.

Learning rates and optimizers are those of the least loss on LSPET's splits for choosing, of as many rates in SGD and in
AdamW for each method (`benchmarks/choose_settings.py`; docs/lab/results.md says what has not been run), with `nano`;
for other backbones rates are multiplied by one number (`RATES`). Those of `non-private`, which is the ceiling, are of
two rates on the same pictures. No benchmark reports those pictures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpose.runs.config import STRONG as RECIPE
from dpose.runs.config import filled_in, recipe_for

CEILING = "non-private"
"""The ceiling, with settings of its own: a model trained on the private data without protection."""
_SUBSPACE = {"rank": 100, "units": 200, "refresh": 4}
LEAST = 0.0
"""Key of a method's settings at every budget below the other keys, and of methods without a budget."""


def _step(optimizer: str, lr: float) -> dict[str, Any]:
    options = {"momentum": 0.9} if optimizer == "sgd" else {"weight_decay": 0.0}
    return {
        "model": {"strategy": "light"},
        "plan": {"ema_decay": 0.0, "subspace": _SUBSPACE},
        "optimizer": {"name": optimizer, "lr": lr, "options": options},
    }


_HEAD = {"model": {"strategy": "head"}, "plan": {"ema_decay": 0.0}}
_HEADS = {method: {LEAST: _HEAD} for method in ("dp-head", "adassp-head")}
OWN: Mapping[str, Mapping[float, Mapping[str, Any]]] = {
    CEILING: {
        LEAST: {
            "model": {"strategy": "full"},
            "plan": {"epochs": 25.0, "expected_batch_size": 64, "ema_decay": 0.998},
            "optimizer": {"name": "adamw", "lr": 1e-3, "options": {"weight_decay": 0.01}},
            "augment": "public",
        }
    },
    "public-only": {LEAST: _step("adamw", 1e-4)},
    "dp-sgd": {LEAST: _step("sgd", 0.1), 3.0: _step("adamw", 2e-3), 8.0: _step("sgd", 0.5)},
    "pdp-sgd": {LEAST: _step("adamw", 4e-4), 8.0: _step("sgd", 0.5)},
    "fdp-sgd": {LEAST: _step("adamw", 1e-4)},
    "fpdp-sgd": {LEAST: _step("adamw", 1e-4)},
    "subspace-sgd": {LEAST: _step("adamw", 4e-4), 8.0: _step("adamw", 2e-3)},
    "scaled-sgd": {LEAST: _step("adamw", 2e-3)},
    **_HEADS,
}
"""Settings, by names of `RunConfig`, by method and then by the epsilon from which on they hold."""
RATES: Mapping[str, float] = {"lite0": 0.2}
"""Factors of the rates above by backbone, except the ceiling's; 1 for all other backbones.

Chosen with dp-sgd, at two budgets and in two optimizers. The recipe, whose batches are larger, keeps its own rate:
docs/lab/results.md, "Version 2, from `lite0`".
"""

_PEOPLE, _STEPS = 8_000, {LEAST: 36, 1.0: 67, 2.0: 125}
"""The recipe's steps for as many people, by the epsilon from which on."""


def _as_recipe(values: Mapping[str, Any]) -> Mapping[float, Mapping[str, Any]]:
    """The steps of the recipe for 8,000 people, with `values` in place of what it trains and how."""
    found = {}
    for epsilon, steps in _STEPS.items():
        own = RECIPE.at(max(epsilon, RECIPE.quiet_epsilon))
        size = math.ceil(own["plan"]["epochs"] * _PEOPLE / steps)
        plan = {**own["plan"], "expected_batch_size": size}
        del plan["method"]
        found[epsilon] = filled_in(dict(values), {**own, "plan": plan})
    return found


STRONG: Mapping[str, Mapping[float, Mapping[str, Any]]] = {
    CEILING: {
        LEAST: {
            "model": {"strategy": "full"},
            "plan": {"epochs": 6.0, "expected_batch_size": 16, "ema_decay": 0.99},
            "optimizer": {"name": "adamw", "lr": 3e-4, "options": {"weight_decay": 0.0}},
            "augment": "private",
        }
    },
    "dp-sgd": _as_recipe({"model": {"strategy": "finetune"}}),
    "scaled-sgd": _as_recipe({}),
    "subspace-sgd": _as_recipe({"plan": {"subspace": _SUBSPACE}}),
    **_HEADS,
}
"""The same from BlazePose: private methods that train take the recipe's steps, dp-sgd for the papers' strategy."""


def own_table(preset: str) -> Mapping[str, Mapping[float, Mapping[str, Any]]]:
    """The table of a backbone."""
    return STRONG if recipe_for("recommended", preset) is RECIPE else OWN


def own_settings(method: str, epsilon: float | None, preset: str) -> Mapping[str, Any]:
    """A method's own settings at a budget; {} for a method that uses the grid's settings.

    Args:
        method: A name in `METHODS`.
        epsilon: None for methods without a guarantee.
        preset: The backbone.
    """
    known = own_table(preset).get(method, {})
    if not known:
        return {}
    own = known[max(e for e in known if e <= (epsilon or LEAST))]
    if method == CEILING or preset not in RATES or "optimizer" not in own:
        return own
    return {**own, "optimizer": {**own["optimizer"], "lr": own["optimizer"]["lr"] * RATES[preset]}}
