"""Scores of a model, while it trains and afterwards: of public data, or of held-out ones named so.

While training, the epsilon spent so far stands beside each; those of private data are listed in the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.progress import Progress

from dpose.privacy.accounting import epsilon, epsilon_curve
from dpose.privacy.events import SampledGaussian
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.sections import Query
from dpose.training.loader import Loader
from dpose.training.plan import BoundPlan
from dpose.units import Result, Task, UnitDataset

POINTS = 10
"""Scores in a run, besides the one before its first step."""


@dataclass(frozen=True)
class Validation:
    """Data that are scored while a model trains.

    The scores see the model, whose every step is noised; so of public data they are post-processing. Of held-out
    private data they are releases without noise, outside the guarantee of the run, and the statement lists them.

    Attributes:
        units: Not augmented; none of them among the private ones.
        name: For log and statement.
        public: Whether they are public data.
        task: Scores them, where their labels are others than the run's; the run's own where None.
    """

    units: UnitDataset
    name: str
    public: bool
    task: Task | None = None

    def query(self) -> Query | None:
        """What the statement must list; None for public data."""
        return None if self.public else Query("the model's score while training", self.name, "shown as a curve")


def moments(blocks: Sequence[int]) -> list[int]:
    """After which steps to score: at most `POINTS` of `blocks`, the steps that blocks end with, the last among them."""
    count = min(POINTS, len(blocks))
    return [blocks[round((i + 1) * len(blocks) / count) - 1] for i in range(count)]


def spent_by(bound: BoundPlan, steps: Sequence[int], before: Sequence[SampledGaussian] = ()) -> dict[int, float | None]:
    """Epsilon after each of `steps`; None for a method without guarantee.

    `before` are events that count already: those of runs that the first weights come from.
    """
    if bound.event is None or bound.plan.delta is None:
        return dict.fromkeys(steps)
    plan, event, delta = bound.plan, bound.event, bound.plan.delta
    if before:
        taken = {step: [replace(event, steps=step)] if step else [] for step in steps}
        return {s: epsilon([*e, *before], delta, plan.relation, plan.accountant) for s, e in taken.items()}
    later = [step for step in steps if step]
    curve = epsilon_curve(event, delta, plan.relation, later, plan.accountant)
    after = dict(zip(later, curve, strict=True))
    return {step: after.get(step, 0.0) for step in steps}


@torch.no_grad()
def metric_of_views(
    task: Task,
    model: torch.nn.Module,
    dataset: UnitDataset,
    *,
    microbatch_size: int = 64,
    console: Console | None = None,
) -> Result:
    """The task's metric over every view of every unit, one vote a view.

    The model is used in evaluation mode and left as it was.
    """
    device = next(model.parameters()).device
    # evaluation draws nothing that matters; a fixed key makes a unit with very many views give the same ones each time
    loader = Loader(task, dataset, AesNoise(Key.from_seed(0)))
    metric = task.metric()
    training = model.training
    # out of and into training mode: some backbones cache tensors in evaluation mode, and weights may have changed
    model.train()
    model.eval()
    try:
        with Progress(console=console, transient=True, disable=not (console or Console()).is_terminal) as bar:
            shown = bar.add_task("evaluating", total=len(dataset))
            for batch in loader.micro_batches(range(len(dataset)), 0, microbatch_size):
                there = (batch.weights > 0).flatten()
                inputs = batch.inputs.flatten(0, 1)[there].to(device)
                targets = {name: t.flatten(0, 1)[there] for name, t in batch.targets.items()}
                metric.update(model(inputs), targets)
                bar.advance(shown, len(batch))
    finally:
        model.train(training)
        loader.close()
    return metric.compute()
