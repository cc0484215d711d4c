"""Ablations: the split that settings are chosen on, rows that change nothing, and notes on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.pose.data import SOURCES, DataSpec
from dpose.privacy.ranges import as_given
from dpose.report.results import Table
from dpose.runs.config import RECIPES
from dpose_lab.papers.experiment import GridRequest
from dpose_lab.papers.pose.training_cell import RECOMMENDED, Setup, Training
from dpose_lab.papers.pose.variants import VARIANTS, changes

_UNREAD = ("epochs", "batch_size", "optimizer", "lr", "ema", "augment")
"""Settings of a grid that a recipe replaces by its own."""


def check_options(name: str, request: GridRequest) -> None:
    """Refuse options that an ablation does not read, and tests on another split than the one for choosing."""
    refused = {
        "--methods": request.methods,
        "--strategies": request.strategies,
        "--clip-norms": request.clip_norms,
        "epochs": request.epochs,
        "batch_size": request.batch_size,
        "optimizer": request.optimizer,
        "lr": request.lr,
        "evaluate": request.evaluate,
    }
    for option, value in refused.items():
        if value not in (None, ()):
            raise DposeError(
                "ablation-setting-fixed",
                "an ablation has the recipe's settings, changes one at a time, and is tested on the split for choosing",
                f"{name} {option}",
                "leave it out; --variants chooses rows",
            )
    for variant in request.variants:
        if variant not in VARIANTS:
            raise DposeError(
                "variant-unknown", f"cannot be {variant!r}", "--variants", f"choose from {', '.join(VARIANTS)}"
            )


def choosing_splits(data: DataSpec) -> tuple[DataSpec, DataSpec]:
    """The data to train on and those to test on, neither of which a benchmark reports."""
    splits = data.dataset.choosing
    if not splits:
        known = [name for name, source in SOURCES.items() if source.choosing]
        raise DposeError(
            "split-for-choosing-missing", "has no split to choose settings on", data.name, f"give {' or '.join(known)}"
        )
    train, test = splits
    if data.split not in ("", train):
        raise DposeError(
            "ablation-split-given",
            f"an ablation chooses settings: it trains on {train} and is tested on {test}",
            str(data),
            "leave the split out",
        )
    return replace(data, split=train), replace(data, split=test)


def ablation_settings(setup: Setup) -> dict[str, Any]:
    """Settings that the results depend on: the setup as far as it is read, and the recipe."""
    read = {name: value for name, value in setup.values.items() if name not in _UNREAD}
    return {**read, "recipe": asdict(RECIPES[RECOMMENDED])}


def is_idle(setup: Setup, training: Training, folder: Path) -> bool:
    """True if a variant does not change the recipe."""
    if not training.variant:
        return False
    return setup.config(training, folder) == setup.config(replace(training, variant=""), folder)


def variants_table(setup: Setup, variants: Sequence[str], epsilon: float, folder: Path) -> Table:
    """Table of the question and the change of each variant, at one budget."""
    recipe = Training(RECOMMENDED, "finetune", None, epsilon)
    as_it_is = setup.config(recipe, folder)
    rows = []
    for name in variants:
        changed = changes(as_it_is, setup.config(replace(recipe, variant=name), folder))
        text = "; ".join(changed) or "nothing: the recipe has it so, or it means nothing here; not run"
        rows.append((VARIANTS[name].title, name, VARIANTS[name].why, text))
    title = f"the variants, and what each changes in the recipe (at epsilon {as_given(epsilon)})"
    return Table(title, ("variant", "--variants", "what it asks", "changed"), tuple(rows))


def choosing_notes(setup: Setup) -> tuple[str, ...]:
    """Note on the pictures that settings are chosen on, and the cost to their privacy."""
    train, test = map(DataSpec.parse, (setup.data, setup.evaluate))
    notes = [
        f"this is where settings are chosen: trained on {train.shown}, tested on {test.shown}, which no "
        "benchmark reports; a row that wins here is not yet a result"
    ]
    if test.dataset.rendered:
        notes.append(f"the people of {test.shown} are rendered and stand for private ones: no real person is shown")
    elif not test.public:
        notes.append(
            f"the pictures of {test.shown} are private{_part(test.dataset.within, test.split)}: every "
            "score and interval here is a use of them without noise, outside any guarantee, and so is a setting that "
            "was chosen by it. The statement of each private model lists its scores, and dpose account shows them for "
            "those pictures. If private pictures may not be used so, choose on rendered or public people instead"
        )
    if setup.public:
        notes.append(f"subspaces are fitted on {DataSpec.parse(setup.public).shown}, taken to be public")
    return tuple(notes)


def _part(within: Mapping[str, str], split: str) -> str:
    return f", a part of the {within[split]} split" if split in within else ""
