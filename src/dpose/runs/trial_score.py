"""The score of a trial: the mean over units of the unit's share of what it asks for that was found, and noise on it."""

from __future__ import annotations

import math
from typing import Any

import torch

from dpose.privacy.accounting import Event
from dpose.privacy.noise import AesNoise, Key, Stream
from dpose.training.loader import Loader
from dpose.units import CanonicalUnits, Task, UnitDataset, View, WrappedUnits


def noised_trial_score(
    task: Task, model: torch.nn.Module, units: UnitDataset, event: Event, stream: Stream, threads: int = 2
) -> float:
    """The mean of `unit_shares` with Gaussian noise.

    **Guarantee.** Neighbours: zero-out of one unit, with a public number n of units. Sensitivity: a share lies in
    [0, 1] and a unit that contributes nothing has share 0, so the mean moves by at most 1/n. Noise: N(0, (sigma/n)^2),
    sigma of the event. Post-processing: which trial is best.

    Args:
        task: Gives the metric.
        model: On its device.
        units: Private units that the model has not learnt from.
        event: One release with q = 1; its sensitivity is at least 1/n.
        stream: A stream that nothing else draws from.
        threads: Threads that decode.

    Raises:
        ValueError: the event's sensitivity is below 1/n.
    """
    shares = unit_shares(task, model, units, threads)
    if event.sensitivity * len(units) < 1 - 1e-12:
        raise ValueError(f"a mean over {len(units)} units moves by more than {event.sensitivity}")
    mean = math.fsum(shares) / len(units)
    return mean + float(stream.gaussian(1, event.sigma * event.sensitivity)[0])


@torch.no_grad()
def unit_shares(task: Task, model: torch.nn.Module, units: UnitDataset, threads: int = 2) -> list[float]:
    """Of every unit by itself what the task's metric gives for its views, in [0, 1]; 0 where there is nothing to find.

    Each is computed in a batch of its own: the last bits of a product may depend on what else is in a batch, and then a
    unit would move the shares of others.

    Args:
        task: Gives the metric.
        model: On its device; used in evaluation mode and left as it was.
        units: Scored without augmentation.
        threads: Threads that decode.
    """
    device = next(model.parameters()).device
    # nothing that matters is drawn: views are canonical, and of very many the same ones are taken each time
    loader = Loader(task, _Canonical(units), AesNoise(Key.from_seed(0)), threads)
    training = model.training
    model.train()
    model.eval()
    shares = []
    try:
        for views in loader.units(range(len(units)), 0):
            batch = task.collate([views])
            there = (batch.weights > 0).flatten()
            metric = task.metric()
            targets = {name: values.flatten(0, 1)[there] for name, values in batch.targets.items()}
            metric.update(model(batch.inputs.flatten(0, 1)[there].to(device)), targets)
            shares.append(_share(metric.compute().to_dict()))
    finally:
        model.train(training)
        loader.close()
    return shares


def _share(result: dict[str, Any]) -> float:
    """The main number of a result as a share; whatever a metric says, it lies in [0, 1]."""
    value = result["columns"][result["main"]]
    if value is None or not math.isfinite(value):
        return 0.0
    return min(1.0, max(0.0, float(value) / (100 if result.get("unit") == "%" else 1)))


class _Canonical(WrappedUnits):
    """The same units with canonical views, where they have some."""

    def load(self, index: int, rng: Any) -> list[View]:
        if isinstance(self.dataset, CanonicalUnits):
            return self.dataset.canonical(index)
        return self.dataset.load(index, rng)
