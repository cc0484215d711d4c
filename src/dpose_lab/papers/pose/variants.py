"""The recipe with one thing changed: the rows of an ablation. A new row is an entry in `VARIANTS`.

A variant is a function of the recipe's configuration at the row's budget, so that it stays what it says when the
recipe changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpose.runs.config import RunConfig

Change = Callable[[RunConfig], dict[str, Any]]


@dataclass(frozen=True)
class Variant:
    """A change of the recipe.

    Attributes:
        name: Name on the command line and in file names.
        title: Title in tables.
        why: Question that the row answers, in one line.
        change: Function from the recipe's configuration to the settings, by names of `RunConfig`, that replace its own;
            {} if there is nothing to change.
    """

    name: str
    title: str
    why: str
    change: Change


def _passes(share: float) -> Change:
    def change(recipe: RunConfig) -> dict[str, Any]:
        if recipe.plan.steps:
            return {"plan": {"steps": math.ceil(recipe.plan.steps * share)}}
        return {"plan": {"epochs": recipe.plan.epochs * share}}

    return change


def _batch(share: float) -> Change:
    def change(recipe: RunConfig) -> dict[str, Any]:
        plan = recipe.plan
        # as many passes: with a given number of steps, a smaller batch takes more of them
        steps = {"steps": math.ceil(plan.steps / share)} if plan.steps else {}
        return {"plan": {"expected_batch_size": max(1, round(plan.expected_batch_size * share)), **steps}}

    return change


def _rate(factor: float) -> Change:
    return lambda recipe: {"optimizer": {"lr": recipe.optimizer.lr * factor}}


def _normalise(recipe: RunConfig) -> dict[str, Any]:
    # at C = 1 there is nothing to divide by
    return {} if recipe.plan.clip_norm == 1 else {"plan": {"normalise": not recipe.plan.normalise}}


_ALL = (
    Variant(
        "quarter-passes",
        "a quarter of the passes",
        "whether fewer, quieter steps would do: the budget is shared among fewer",
        _passes(1 / 4),
    ),
    Variant("half-passes", "half the passes", "the same, less far", _passes(1 / 2)),
    Variant(
        "quarter-batch",
        "a quarter of the batch",
        "whether large batches earn their time: as many passes in four times the steps",
        _batch(1 / 4),
    ),
    Variant(
        "no-averaging",
        "no weight averaging",
        "whether the average of the weights hides noise of the last steps",
        lambda _: {"plan": {"ema_decay": 0.0}},
    ),
    Variant("lr-times-3", "learning rate x 3", "whether the recipe stops short of what noise allows", _rate(3.0)),
    Variant("lr-third", "learning rate / 3", "whether noise moves the weights too far", _rate(1 / 3)),
    Variant(
        "finetune",
        "strategy finetune",
        "whether the last stage and the head, their large matrices with them, bear the noise better",
        lambda _: {"model": {"strategy": "finetune"}},
    ),
    Variant(
        "full",
        "strategy full",
        "whether training all layers is worth the noise on more parameters",
        lambda _: {"model": {"strategy": "full"}},
    ),
    Variant(
        "four-views",
        "four augmented views of a picture",
        "whether the mean of several views is a better gradient to clip: more time, no more noise",
        lambda _: {"plan": {"augmentation_multiplicity": 4}, "augment": "private"},
    ),
    Variant(
        "tenth-clip",
        "a tenth of C",
        "whether short gradients should count as much as long ones: more of them are clipped",
        lambda recipe: {"plan": {"clip_norm": recipe.plan.clip_norm / 10}},
    ),
    Variant(
        "normalise",
        "division by C, the other way",
        "whether clipped gradients divided by C suit the optimizer better than as they are",
        _normalise,
    ),
    Variant(
        "untempered",
        "the start's logits as they are",
        "whether a start that is too sure of itself costs anything",
        lambda recipe: {"model": {"temperature": 1.0}} if recipe.model.temperature else {},
    ),
    Variant(
        "projected",
        "pdp-sgd",
        "whether noise outside a subspace of public gradients can be left out",
        lambda _: {"plan": {"method": "pdp-sgd"}},
    ),
    Variant(
        "scaled",
        "scaled-sgd",
        "whether gradients scaled by public moments before the clip spend its length better",
        lambda _: {"plan": {"method": "scaled-sgd"}},
    ),
)

VARIANTS: Mapping[str, Variant] = {variant.name: variant for variant in _ALL}


def changes(recipe: RunConfig, variant: RunConfig) -> list[str]:
    """List the settings that differ, such as "plan.epochs: 8 to 2"."""
    one, other = _flat(recipe.to_dict()), _flat(variant.to_dict())
    return [
        f"{name}: {_text(one.get(name))} to {_text(other.get(name))}"
        for name in dict.fromkeys((*one, *other))
        # the data's path is on this machine, and stands in the notes
        if one.get(name) != other.get(name) and not name.startswith("data.")
    ]


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    settings = {}
    for key, value in values.items():
        inner = _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
        settings.update(inner)
    return settings


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
