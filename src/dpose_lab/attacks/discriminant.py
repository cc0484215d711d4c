"""Closed-form learning from descriptors: directions that separate people, and scores of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose_lab.attacks.appearance import Descriptors
from dpose_lab.stats import Floats, Ints

DIRECTIONS = 30
RIDGE = 0.1
"""Regularisation added to the variances, as a share of their mean."""
HELD_OUT = 4
"""Every n-th person is held out to choose thresholds."""


@dataclass(frozen=True)
class DescriptorProjection:
    """A linear map of descriptors to vectors in which pictures of one person lie together.

    Attributes:
        mean: (D,).
        matrix: (D, K).
    """

    mean: Floats
    matrix: Floats

    def __call__(self, descriptors: Descriptors) -> Floats:
        """Project descriptors to vectors of length 1, (N, K)."""
        projected = (descriptors - self.mean) @ self.matrix
        return np.asarray(projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-12))

    def arrays(self) -> dict[str, Floats]:
        """The arrays to store in a file."""
        return {"mean": self.mean, "matrix": self.matrix}

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> DescriptorProjection:
        """Rebuild from stored arrays."""
        return cls(arrays["mean"], arrays["matrix"])


def learn_people(descriptors: Descriptors, people: Ints) -> DescriptorProjection:
    """Fisher's linear discriminant: directions in which people differ more than pictures of one person do.

    Args:
        descriptors: (N, D) of public people.
        people: (N,) numbers of the people shown; some occur several times.
    """
    mean = descriptors.mean(0)
    names, index, counts = np.unique(people, return_inverse=True, return_counts=True)
    centred = descriptors - mean
    centres = np.zeros((len(names), descriptors.shape[1]))
    np.add.at(centres, index, centred)
    centres /= counts[:, None]
    rest = centred - centres[index]
    within, between = rest.T @ rest / len(rest), centres.T @ centres / len(names)
    level = RIDGE * np.trace(within) / len(within) + 1e-12
    variances, axes = np.linalg.eigh(within + level * np.eye(len(within)))
    white = axes / np.sqrt(variances)
    spread, turned = np.linalg.eigh(white.T @ between @ white)
    spread, turned = spread[::-1][:DIRECTIONS], turned[:, ::-1][:, :DIRECTIONS]
    # means of few pictures differ by chance alone: subtract that part of the spread
    weight = np.sqrt(np.maximum(spread - 1 / counts.mean(), 1e-3))
    return DescriptorProjection(mean, white @ turned * weight)


@dataclass(frozen=True)
class Scorer:
    """A linear map of descriptors to a score for each attribute: above 0 means present.

    Attributes:
        mean: (D,).
        matrix: (D, A).
        shift: (A,) subtracted, so that 0 is the threshold.
    """

    mean: Floats
    matrix: Floats
    shift: Floats

    def __call__(self, descriptors: Descriptors) -> Floats:
        """Scores of descriptors, (N, A)."""
        return np.asarray((descriptors - self.mean) @ self.matrix - self.shift)

    def arrays(self) -> dict[str, Floats]:
        """The arrays to store in a file."""
        return {"mean": self.mean, "matrix": self.matrix, "shift": self.shift}

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> Scorer:
        """Rebuild from stored arrays."""
        return cls(arrays["mean"], arrays["matrix"], arrays["shift"])


def learn_attributes(descriptors: Descriptors, labels: NDArray[np.bool_], people: Ints) -> Scorer:
    """Ridge regression; the threshold of each attribute gives the best F1 on public people it was not fitted to.

    Args:
        descriptors: (N, D) of public people.
        labels: (N, A).
        people: (N,) numbers of the people shown.
    """
    _, index = np.unique(people, return_inverse=True)
    fitted = index % HELD_OUT != 0
    mean = descriptors[fitted].mean(0)
    given = descriptors[fitted] - mean
    wanted = labels[fitted] - labels[fitted].mean(0)
    moments = given.T @ given / len(given)
    level = RIDGE * np.trace(moments) / len(moments) + 1e-12
    matrix = np.linalg.solve(moments + level * np.eye(len(moments)), given.T @ wanted / len(given))
    scores = (descriptors[~fitted] - mean) @ matrix
    shift = [best_threshold(score, truth) for score, truth in zip(scores.T, labels[~fitted].T, strict=True)]
    return Scorer(mean, matrix, np.asarray(shift))


def best_threshold(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """The threshold with the highest F1 of "above it": halfway between two scores, or below all of them.

    Args:
        scores: (N,).
        truth: (N,).
    """
    falling = np.sort(scores)[::-1]
    hits = np.cumsum(truth[np.argsort(-scores, kind="stable")])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + max(int(truth.sum()), 1))
    best = int(f1.argmax())
    lower = falling[best + 1] if best + 1 < len(falling) else falling[best] - 2e-9
    return float((falling[best] + lower) / 2)
