"""Random numbers for one scene: a stream of its own, seeded by what names the scene, and no global state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_BLOCK = 128


class Draws:
    """Uniform numbers fetched a block at a time, because one draw from a Generator costs a microsecond.

    Args:
        key: Non-negative integers that name the stream; equal keys give equal streams.
    """

    def __init__(self, *key: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
        self._block: list[float] = []

    def unit(self) -> float:
        """A number in [0, 1)."""
        if not self._block:
            self._block = self._generator.random(_BLOCK).tolist()
        return self._block.pop()

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self.unit()

    def normal(self, sd: float = 1.0) -> float:
        """A Gaussian number, cut at about four standard deviations."""
        return sd * math.sqrt(-2.0 * math.log(1.0 - 0.9997 * self.unit())) * math.cos(math.tau * self.unit())

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.unit() < probability

    def choice(self, items: Sequence[T]) -> T:
        """One of `items`, each as likely."""
        return items[int(self.unit() * len(items))]

    def weighted(self, weights: dict[T, float]) -> T:
        """One key of `weights`, in proportion to its weight."""
        left = self.unit() * sum(weights.values())
        for item, weight in weights.items():
            left -= weight
            if left < 0:
                return item
        return item

    def normals(self, count: int) -> NDArray[np.float64]:
        """`count` Gaussian numbers of unit variance."""
        return self._generator.standard_normal(count)

    def integer(self, high: int) -> int:
        """An integer in [0, high)."""
        return int(self.unit() * high)
