"""Scores of a model on units whose score may be told: public ones, or held out and named so in the statement."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.progress import Progress

from dpose.privacy.noise import AesNoise, Key
from dpose.training.loader import Loader
from dpose.units import Result, Task, UnitDataset


@torch.no_grad()
def metric_of_views(
    task: Task,
    model: torch.nn.Module,
    dataset: UnitDataset,
    *,
    views_at_once: int = 64,
    threads: int = 2,
    console: Console | None = None,
) -> Result:
    """The task's metric over every view of every unit, one vote a view.

    The model is used in evaluation mode and left as it was.

    Args:
        task: Gives the metric and collates views.
        model: On its device.
        dataset: Units that are not augmented.
        views_at_once: Views in one forward pass.
        threads: Threads that decode.
        console: Where progress goes.
    """
    device = next(model.parameters()).device
    # evaluation draws nothing that matters; a fixed key makes a unit with very many views give the same ones each time
    loader = Loader(task, dataset, AesNoise(Key.from_seed(0)), threads)
    metric = task.metric()
    training = model.training
    # out of and into training mode: some backbones cache tensors in evaluation mode, and weights may have changed
    model.train()
    model.eval()
    try:
        with Progress(console=console, transient=True, disable=not (console or Console()).is_terminal) as bar:
            shown = bar.add_task("evaluating", total=len(dataset))
            for batch in loader.micro_batches(range(len(dataset)), 0, views_at_once):
                there = (batch.weights > 0).flatten()
                inputs = batch.inputs.flatten(0, 1)[there].to(device)
                targets = {name: t.flatten(0, 1)[there] for name, t in batch.targets.items()}
                metric.update(model(inputs), targets)
                bar.advance(shown, len(batch))
    finally:
        model.train(training)
        loader.close()
    return metric.compute()
