"""A task without pictures: canaries through the real engine in milliseconds a step, for statistics and tests.

The model has one parameter that nothing depends on, a unit is one black pixel, and its loss is zero. What remains is
the mechanism: sampling, per-unit gradients, clip, sum, noise, divisor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpose.training.loader import Loader
from dpose.units import Metric, Unit, UnitBatch, View, pad_views

PIXEL = View(np.zeros((1, 1, 3), np.uint8), {})


class ToyTask:
    """A task whose loss is zero (`dpose.units.Task`)."""

    name = "stand-in"

    def build_model(self, config: Any = None) -> torch.nn.Module:
        """A model with a single weight."""
        return ToyModel()

    def loss(
        self,
        model: torch.nn.Module,
        params: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Mapping[str, Tensor],
    ) -> Tensor:
        """(V,), zero whatever the weight."""
        return 0.0 * params["weight"].expand(len(inputs))

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units into a batch."""
        return pad_views(units)

    def metric(self) -> Metric:
        """Counts nothing."""
        raise NotImplementedError("the stand-in task has nothing to measure")


class ToyModel(torch.nn.Module):
    """One weight, which the output is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(to_dict=dict)

    def forward(self, inputs: Tensor) -> Tensor:
        """(N,), the weight."""
        return self.weight.expand(len(inputs))


class InlineLoader(Loader):
    """Loads units where it is called: handing a pixel to another thread takes longer than making it."""

    def units(self, indices: Sequence[int], step: int, ahead: int = 0) -> Iterator[list[View]]:
        """The units in order."""
        return (self.unit(int(index), step) for index in indices)


class ToyUnits:
    """n units of one black pixel (`dpose.units.UnitDataset`).

    Args:
        count: n.
    """

    unit = Unit.IMAGE

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def unit_id(self, index: int) -> str:
        """A number."""
        return f"unit-{index}"

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Hash of the unit's number."""
        return (hashlib.sha256(str(index).encode()).hexdigest(),)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The pixel."""
        return [PIXEL]
