"""The score of a trial: the mean over units of the unit's share of what it asks for that was found, and noise on it."""

from __future__ import annotations

import math
from typing import Any

import torch

from dpose.privacy.events import SampledGaussian
from dpose.privacy.noise import Stream
from dpose.runs.unit_scores import unit_scores
from dpose.units import CanonicalUnits, Task, UnitDataset, View, WrappedUnits


def noised_trial_score(
    task: Task, model: torch.nn.Module, units: UnitDataset, event: SampledGaussian, stream: Stream
) -> float:
    """The mean of `unit_scores` with Gaussian noise.

    **Guarantee.** Neighbours: zero-out of one unit, with a public number n of units. Sensitivity: a share lies in
    [0, 1] and a unit that contributes nothing has share 0, so the mean moves by at most 1/n. Noise: N(0, (sigma/n)^2),
    sigma of the event. Post-processing: which trial is best.

    Args:
        task: Gives the metric.
        model: On its device.
        units: Private units that the model has not learnt from.
        event: One release with q = 1; its sensitivity is at least 1/n.
        stream: A stream that nothing else draws from.

    Raises:
        ValueError: the event's sensitivity is below 1/n.
    """
    shares = unit_scores(task, model, _Canonical(units))
    if event.sensitivity * len(units) < 1 - 1e-12:
        raise ValueError(f"a mean over {len(units)} units moves by more than {event.sensitivity}")
    mean = math.fsum(shares) / len(units)
    return mean + float(stream.gaussian(1, event.sigma * event.sensitivity)[0])


class _Canonical(WrappedUnits):
    """The same units with canonical views, where they have some."""

    def load(self, index: int, rng: Any) -> list[View]:
        if isinstance(self.dataset, CanonicalUnits):
            return self.dataset.canonical(index)
        return self.dataset.load(index, rng)
