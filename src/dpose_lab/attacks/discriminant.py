"""What an attacker learns from descriptors in closed form: what tells people apart, and what tells attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.stats import Floats, Ints
from dpose_lab.attacks.appearance import Descriptors

DIRECTIONS = 30
RIDGE = 0.1
"""Added to the variances, as a share of their mean."""
HELD_OUT = 4
"""Every so-manieth person chooses thresholds and is not learnt from."""


@dataclass(frozen=True)
class DescriptorProjection:
    """Descriptors to vectors in which pictures of one person lie together.

    Attributes:
        mean: (D,).
        matrix: (D, K).
    """

    mean: Floats
    matrix: Floats

    def __call__(self, descriptors: Descriptors) -> Floats:
        """(N, K), each of length 1."""
        found = (descriptors - self.mean) @ self.matrix
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))

    def arrays(self) -> dict[str, Floats]:
        """For a file."""
        return {"mean": self.mean, "matrix": self.matrix}

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> DescriptorProjection:
        """From a file."""
        return cls(arrays["mean"], arrays["matrix"])


def learn_people(descriptors: Descriptors, people: Ints) -> DescriptorProjection:
    """Fisher's linear discriminant: directions in which people differ more than pictures of one person do.

    Args:
        descriptors: (N, D) of public people.
        people: (N,) who is shown; some several times.
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
    # the means of few pictures differ by chance alone: what is left of the spread beyond that
    weight = np.sqrt(np.maximum(spread - 1 / counts.mean(), 1e-3))
    return DescriptorProjection(mean, white @ turned * weight)


@dataclass(frozen=True)
class Scorer:
    """Descriptors to a score for each attribute: above 0 means there.

    Attributes:
        mean: (D,).
        matrix: (D, A).
        shift: (A,) subtracted, so that 0 is the threshold.
    """

    mean: Floats
    matrix: Floats
    shift: Floats

    def __call__(self, descriptors: Descriptors) -> Floats:
        """(N, A)."""
        return np.asarray((descriptors - self.mean) @ self.matrix - self.shift)

    def arrays(self) -> dict[str, Floats]:
        """For a file."""
        return {"mean": self.mean, "matrix": self.matrix, "shift": self.shift}

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> Scorer:
        """From a file."""
        return cls(arrays["mean"], arrays["matrix"], arrays["shift"])


def learn_attributes(descriptors: Descriptors, labels: NDArray[np.bool_], people: Ints) -> Scorer:
    """Ridge regression; the threshold of each attribute gives the best F1 on public people it was not fitted to.

    Args:
        descriptors: (N, D) of public people.
        labels: (N, A).
        people: (N,) who is shown.
    """
    _, index = np.unique(people, return_inverse=True)
    kept = index % HELD_OUT != 0
    mean = descriptors[kept].mean(0)
    given = descriptors[kept] - mean
    wanted = labels[kept] - labels[kept].mean(0)
    moments = given.T @ given / len(given)
    level = RIDGE * np.trace(moments) / len(moments) + 1e-12
    matrix = np.linalg.solve(moments + level * np.eye(len(moments)), given.T @ wanted / len(given))
    scores = (descriptors[~kept] - mean) @ matrix
    shift = [best_threshold(score, truth) for score, truth in zip(scores.T, labels[~kept].T, strict=True)]
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
