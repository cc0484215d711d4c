"""Tests of a public pose model on released pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseModel
from dpose.release.config import Pixelization
from dpose.release.grid import Shape
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind
from dpose.units import UnitDataset, View, WrappedUnits
from dpose_lab.papers.experiment import Values
from dpose_lab.papers.pose.testing import people
from dpose_lab.papers.quality.measure import noise_of
from dpose_lab.stats import Floats, over_people

SHOWN: Mapping[str, str] = {"none": "painted", "learned": "restored"}
"""Restorations by key, with their names in tables."""
MODEL = "nano"
RESAMPLES = 1000


def public_model() -> PoseModel:
    """Load the model with its public weights, on the fastest device."""
    return load_model(find_model(MODEL)).to("cuda" if torch.cuda.is_available() else "cpu")


def crops_config(epsilon: int, m: int, restore: str) -> Pixelization:
    """Configuration of `dpose pixelize --epsilon E --neighbours pixels:M --restore HOW`."""
    return Pixelization.of(epsilon, m, restore=restore)


class ReleasedCrops(WrappedUnits):
    """Released units: each view is a picture of its own, with noise from a seed.

    A view is the same release however often it is loaded: the noise depends on the unit's name and the view's index.

    Args:
        dataset: Originals, not augmented.
        config: Configuration of the releases.
        seed: Seed of the noise.
    """

    def __init__(self, dataset: UnitDataset, config: Pixelization, seed: int) -> None:
        super().__init__(dataset)
        self.config, self.seed = config, seed
        self._held: dict[int, list[View]] = {}

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """Load and release the unit's views."""
        if index not in self._held:
            views, name = self.dataset.load(index, rng), self.unit_id(index)
            self._held[index] = [
                replace(
                    view,
                    image=self.plan(*view.image.shape[:2]).release(view.image, noise_of(self.seed, name, k)).picture(),
                )
                for k, view in enumerate(views)
            ]
        return self._held[index]

    def plan(self, height: int, width: int) -> PixelizationPlan:
        """Plan for crops of this size."""
        bound = bind(self.config, Shape.of(height, width, 3))
        assert isinstance(bound, PixelizationPlan)
        return bound


def pckh_by_group(model: PoseModel, units: UnitDataset, seed: int, group: Callable[[str], str] = str) -> dict[str, Any]:
    """Measure PCKh@0.5 with a bootstrap interval over groups of units.

    Args:
        model: Model with joints of MPII.
        units: Units that are not augmented, with MPII's joints.
        seed: Seed of the bootstrap.
        group: Function from a unit's name to its group's name; by default every unit is its own group.

    Returns:
        pckh (an `Interval` as JSON), people.
    """
    everyone = people(model, units)
    correct, scored = everyone.correct_joints()
    names = np.unique([group(name) for name in everyone.names], return_inverse=True)[1]
    sums = [np.bincount(names, part).astype(np.float64) for part in (correct, scored)]

    def share(weights: Floats) -> float:
        return float((sums[0] * weights).sum() / max((sums[1] * weights).sum(), 1))

    return {"pckh": over_people(share, len(sums[0]), seed, RESAMPLES).to_dict(), "people": len(correct)}


def evaluated(settings: Values, units: UnitDataset, seed: int) -> Values:
    """Test the public model on units, released by `settings`: `epsilon`, `m`, `restore`; {} for the originals."""
    model = public_model()
    if not settings:
        return {**pckh_by_group(model, units, seed), "block": 0}
    released = ReleasedCrops(units, crops_config(**settings), seed)
    side = released.plan(*model.config.input_size).config.side
    return {**pckh_by_group(model, released, seed), "block": side}
