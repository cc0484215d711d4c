"""A shadow run: real training on a random part of the units, and a score of each unit by the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from dpose.privacy.protected import declared_copies, label_digest
from dpose.privacy.tradeoff import Floats
from dpose.training.canaries import CanaryTask, Coins, marked_view, view_losses
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.run import Run
from dpose.training.trainer import train
from dpose.units import CanonicalUnits, Task, UnitDataset, View, WrappedUnits
from dpose_lab.audits.lira import logit_scaled

UNITS_AT_ONCE = 64


def shadow_run(
    task: Task,
    model: torch.nn.Module,
    units: UnitDataset,
    included: Coins,
    plan: TrainingPlan,
    out: Path,
    *,
    optimizer: OptimizerConfig | None = None,
    options: RunOptions | None = None,
) -> tuple[Run, Floats]:
    """Train on the units that are in and score all of them.

    A unit that is out stays in the dataset and contributes nothing: zero-out, word for word, and n does not change.
    The run itself is (epsilon, delta)-differentially private as any run of `plan` is. The scores are not: they are
    functions of the private pictures without noise, and must stay where the pictures are.

    Args:
        task: The task.
        model: Model, trained in place.
        units: All units.
        included: (n,), True for units that are in.
        plan: Training plan.
        out: The run folder to make.
        optimizer: Passed to `train`.
        options: Passed to `train`.

    Returns:
        The run, and the logit-scaled score of each unit, (n,).
    """
    run = train(
        CanaryTask(task),
        model,
        private=PresentUnits(units, included),
        plan=plan,
        out=out,
        optimizer=optimizer,
        options=options,
    )
    return run, logit_scaled(unit_losses(task, run.model, units))


class PresentUnits(WrappedUnits):
    """The real units, each of them in or zeroed out (`dpose.units.UnitDataset`): every unit is a canary.

    Args:
        real: The units, copies merged.
        included: (n,), which of them contribute.
    """

    def __init__(self, real: UnitDataset, included: Coins) -> None:
        super().__init__(real)
        self.included = included
        self.selection = getattr(real, "selection", None)

    def copies(self, index: int) -> tuple[str, ...]:
        """The unit's own, whatever its coin."""
        return declared_copies(self.dataset, index)

    def label_digest(self, index: int) -> str:
        """The unit's own and its coin."""
        return f"{label_digest(self.dataset, index)} {bool(self.included[index])}"

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's views, marked as present or not."""
        presence = float(self.included[index])
        return [marked_view(view, presence=presence) for view in self.dataset.load(index, rng)]


def unit_losses(task: Task, model: torch.nn.Module, units: UnitDataset) -> Floats:
    """The weighted mean loss of each unit's un-augmented views, (n,) float64."""
    means = []
    for start in range(0, len(units), UNITS_AT_ONCE):
        views = [_views(units, index) for index in range(start, min(start + UNITS_AT_ONCE, len(units)))]
        owners = np.repeat(np.arange(len(views)), [len(v) for v in views])
        weights = np.array([view.weight for unit in views for view in unit])
        losses = view_losses(task, model, [view for unit in views for view in unit])
        sums = np.bincount(owners, weights * losses, len(views))
        means.append(sums / np.bincount(owners, weights, len(views)))
    return np.concatenate(means)


def _views(units: UnitDataset, index: int) -> list[View]:
    if isinstance(units, CanonicalUnits):
        return units.canonical(index)
    return units.load(index, np.random.default_rng(0))
