"""Same person or two: how well pairs of pictures are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpose.stats import Floats, Interval, Ints, over_people

PAIR_RESAMPLES = 200


@dataclass(frozen=True)
class Pairs:
    """Pairs of pictures, from the likest to the least alike.

    Attributes:
        score: (P,) similarity, falling.
        same: (P,) whether both show one person.
        one: (P,) who is in the first picture, as a number from 0.
        other: (P,) who is in the second.
        people: How many people there are.
    """

    score: Floats
    same: NDArray[np.bool_]
    one: Ints
    other: Ints
    people: int

    @classmethod
    def across(cls, similarity: Floats, first: Ints, second: Ints) -> Pairs:
        """All pairs of one picture of each of two places.

        Args:
            similarity: (A, B).
            first: (A,) who is shown at the first place.
            second: (B,) who is shown at the second.

        Raises:
            ValueError: all pairs are of one kind.
        """
        _, index = np.unique(np.concatenate([first, second]), return_inverse=True)
        one, other = np.meshgrid(index[: len(first)], index[len(first) :], indexing="ij")
        order = np.argsort(-similarity, axis=None, kind="stable")
        one, other = one.ravel()[order], other.ravel()[order]
        same = one == other
        if same.all() or not same.any():
            raise ValueError("pairs of one person and pairs of two are needed")
        return cls(similarity.ravel()[order], same, one, other, int(index.max()) + 1)

    def roc(self) -> tuple[Floats, Floats]:
        """False and true positive rates at every threshold, rising, from 0 to 1; equal scores share a point."""
        return self._roc(np.ones(self.people))

    def auc(self, seed: int = 0) -> Interval:
        """Area under the ROC curve: the probability that a pair of one person looks more alike than one of two."""
        return over_people(lambda weights: _area(*self._roc(weights)), self.people, seed, PAIR_RESAMPLES)

    def found_at(self, false_positives: float, seed: int = 0) -> Interval:
        """The true positive rate at the lowest threshold with at most this rate of false positives."""
        return over_people(partial(self._found_at, false_positives), self.people, seed, PAIR_RESAMPLES)

    def _found_at(self, most: float, weights: Floats) -> float:
        false, true = self._roc(weights)
        return float(true[np.flatnonzero(false <= most)[-1]])

    def _roc(self, weights: Floats) -> tuple[Floats, Floats]:
        """A pair of one person counts as often as the person was drawn, one of two as often as both were."""
        each = np.where(self.same, weights[self.one], weights[self.one] * weights[self.other])
        last = np.append(self.score[1:] != self.score[:-1], True)
        rates = []
        for kind in (~self.same, self.same):
            counted = np.cumsum(each * kind)
            total = counted[-1]
            rates.append(np.append(0.0, counted[last] / total if total else np.full(int(last.sum()), np.nan)))
        return rates[0], rates[1]


def _area(false: Floats, true: Floats) -> float:
    return float((np.diff(false) * (true[1:] + true[:-1]) / 2).sum())
