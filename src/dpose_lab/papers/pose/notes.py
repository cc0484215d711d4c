"""Notes on a grid for its reader: trainings, data, starting weights and guarantees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpose.pose.data import DataSpec
from dpose.privacy.ranges import as_given
from dpose.training.methods import METHODS
from dpose_lab.papers.experiment import GridRequest, Outcome
from dpose_lab.papers.pose.ablation import choosing_notes
from dpose_lab.papers.pose.benchmarks import Design, Scale
from dpose_lab.papers.pose.printed import Printed
from dpose_lab.papers.pose.settings import RATES, own_table
from dpose_lab.papers.pose.testing import UPRIGHT_RULE
from dpose_lab.papers.pose.training_cell import OWN_SETTINGS, RECOMMENDED, RENDERED, START, Setup


def grid_notes(
    design: Design, request: GridRequest, scale: Scale, setup: Setup, outcomes: Sequence[Outcome]
) -> tuple[str, ...]:
    """All notes of a grid, a line each.

    Args:
        design: Design of the grid.
        request: The user's options.
        scale: Scale at which the grid is run.
        setup: Settings that the trainings share.
        outcomes: Outcomes of all cells.
    """
    core = "--core: " if request.core else ""
    if design.variants:
        notes = [f"{core}{_varied(scale, setup)}", *choosing_notes(setup)]
    else:
        notes = [
            f"{core}{_scale_note(scale, setup)}",
            f"trained on {_shown(setup.data)}, tested on {_shown(setup.evaluate)}; no setting was chosen by scores on "
            "the second",
        ]
    notes.append(_start_note(setup))
    if setup.seed is None:
        notes.append(
            f"private cells draw fresh keys: each holds its own epsilon at delta {as_given(setup.delta)} "
            f"({setup.accountant.upper()}), with statement and ledger in runs/. All of them read the same data: "
            "who sees several sees the composition (dpose account)"
        )
    else:
        notes.append(
            f"everything comes from seed {setup.seed}: the cells can be run again and protect no one, and their "
            "statements say so"
        )
    if not design.variants:
        notes += _on_methods(design, request, scale, setup)
    if request.repeat > 1:
        notes.append(f"means and standard deviations over {request.repeat} trainings")
    if any("upright" in outcome.values for outcome in outcomes):
        notes.append(UPRIGHT_RULE)
    if any(outcome.values.get("metric") == "OKS AP" for outcome in outcomes):
        notes.append(
            "people side by side, upright people and intervals of differences need PCKh: none here, where OKS AP is "
            "the metric"
        )
    return (*notes, *design.notes, *(n for table in design.tables for n in _minded(table)))


def _on_methods(design: Design, request: GridRequest, scale: Scale, setup: Setup) -> list[str]:
    notes = [
        "clipped gradients are added as they are, as the papers print it: C weighs them beside a public gradient. "
        f"{setup.optimizer} "
        + (
            "undoes a common scale, so that C hardly scales its step"
            if "adam" in setup.optimizer.lower()
            else "takes a step in proportion to C"
        )
    ]
    if "public-only" in design.references:
        notes.append(
            "public-only is tested on sharp pictures and on public views; its guarantee and those of fdp-sgd and "
            "fpdp-sgd leave the public views and labels open"
        )
    if setup.public and any(
        method in METHODS and METHODS[method].fitted for method in request.methods or design.methods
    ):
        notes.append(f"subspaces and scales are fitted on {_shown(setup.public)}, taken to be public")
    if OWN_SETTINGS in scale.strategies:
        each = "; ".join(
            f"{method}: {_listed_own(budgets)}"
            for method, budgets in own_table(setup.preset).items()
            if method in (request.methods or (*design.methods, *design.references))
        )
        notes.append(f"{OWN_SETTINGS} takes the place of optimizer, rate and what trains: {each}")
        if setup.preset in RATES:
            factor = RATES[setup.preset]
            notes.append(f"for {setup.preset} rates are multiplied by {factor:g}, but for the ceiling's")
    if setup.temperature and {OWN_SETTINGS, "finetune"} & set(scale.strategies):
        notes.append(_tempered(setup.temperature))
    return notes


def _tempered(temperature: float) -> str:
    return (
        "before the first step of the recipe and of methods at their own settings, but for the ceiling, the start's "
        f"logits are divided by {temperature:g}: it is too sure of pictures that it has not seen. No joint moves by it"
    )


def _listed_own(budgets: Mapping[float, Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{one['optimizer']['name']} {one['optimizer']['lr']:g}{f' from epsilon {least:g} on' if least else ''}"
        if "optimizer" in one
        else "no optimizer"
        for least, one in budgets.items()
    )


def _varied(scale: Scale, setup: Setup) -> str:
    return (
        f"each row but the first ones is the recipe `{RECOMMENDED}` with one thing changed; epsilon "
        f"{_listed(scale.epsilons)}; trained on {_units(setup.limit)}, tested on {_units(setup.tested)}; preset "
        f"{setup.preset}"
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _units(most: int | None) -> str:
    return f"at most {most:,} units" if most else "all units"


def _scale_note(scale: Scale, setup: Setup) -> str:
    return (
        f"strategies {', '.join(scale.strategies)}; epsilon {_listed(scale.epsilons)}; C {_listed(scale.clip_norms)}; "
        f"{setup.epochs:g} epochs over {_units(setup.limit)} in batches of {setup.batch_size}; tested on "
        f"{_units(setup.tested)}; preset {setup.preset}, {setup.optimizer}, learning rate {setup.lr:g}"
    )


def _shown(spec: str) -> str:
    return DataSpec.parse(spec).shown


def _start_note(setup: Setup) -> str:
    if setup.pretrain:
        before, other = ("nothing", f"{RENDERED} and ") if setup.bare else ("the weights that come with dpose", "")
        return (
            f"all strategies but scratch start from a public model that learnt, from {before}, from {other}"
            f"{_shown(setup.pretrain)}, as the recipe's public stage does: the cell called {START}"
        )
    first = Path(setup.init).name if setup.init else f"the public weights of {setup.preset} that come with dpose"
    return f"all strategies but scratch start from {first}, shown as they are in the row of that name"


def _minded(table: Printed) -> tuple[str, ...]:
    return tuple(f"seed {table.name[:3]}, {table.name[4:]}: {note}" for note in table.notes)
