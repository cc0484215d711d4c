"""How well somebody is found again: ranks, CMC, mean average precision, what guessing finds, intervals over people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval.

    Attributes:
        value: As measured.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """As JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Found:
    """What a search of the gallery found, query by query.

    Attributes:
        rank: (Q,) place of the first picture of the right person, from 1.
        precision: (Q,) average precision of the whole ranking.
    """

    rank: Ints
    precision: Floats

    def cmc(self, most: int) -> Floats:
        """Cumulative match characteristic: the share of queries answered within the first 1, 2, ... `most` places."""
        return np.asarray([(self.rank <= k).mean() for k in range(1, most + 1)], np.float64)


def search(similarity: Floats, gallery: Ints, queries: Ints, seed: int = 0) -> Found:
    """Rank the gallery for every query.

    Equal similarities are put in a random order: an embedding that is the same for everybody finds what guessing finds.

    Args:
        similarity: (Q, G), higher is nearer.
        gallery: (G,) who is shown.
        queries: (Q,) who is looked for; each is in the gallery.
        seed: Of the order of equals.

    Raises:
        ValueError: somebody who is looked for is not in the gallery.
    """
    order = np.random.default_rng(seed).permutation(len(gallery))
    places = order[np.argsort(-similarity[:, order], axis=1, kind="stable")]
    right = gallery[places] == queries[:, None]
    if not right.any(1).all():
        raise ValueError("a query is of somebody who is not in the gallery")
    precision = np.cumsum(right, axis=1) / np.arange(1, len(gallery) + 1)
    return Found(right.argmax(1) + 1, (precision * right).sum(1) / right.sum(1))


def chance_within(k: int, size: int, right: int) -> float:
    """The probability that a random ranking has one of `right` pictures among the first k of `size`."""
    return 1.0 - comb(size - right, min(k, size)) / comb(size, min(k, size))


def chance_precision(size: int, right: int) -> float:
    """The expected average precision of a random ranking of `size` pictures, `right` of them of the right person."""
    places = np.arange(1, size + 1)
    others = (right - 1) / (size - 1) if size > 1 else 0.0
    return float(np.mean((1 + (places - 1) * others) / places))


def mean_over_people(values: Floats, people: Ints, seed: int = 0) -> Interval:
    """A mean over pictures, with a bootstrap over people: pictures of one person stand or fall together.

    Args:
        values: (N,) one a picture.
        people: (N,) who is shown.
        seed: Of the resampling.
    """
    _, index = np.unique(people, return_inverse=True)
    sums, counts = np.bincount(index, values), np.bincount(index)

    def mean(weights: Floats) -> float:
        return float((sums * weights).sum() / (counts * weights).sum())

    return over_people(mean, len(sums), seed, span=(float(values.min()), float(values.max())))


def drawn(rng: np.random.Generator, count: int, resamples: int) -> Floats:
    """How often each of `count` was drawn when as many are drawn with replacement, (resamples, count)."""
    return rng.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)


def over_people(
    statistic: Callable[[Floats], float],
    people: int,
    seed: int = 0,
    resamples: int = RESAMPLES,
    span: tuple[float, float] = (0.0, 1.0),
) -> Interval:
    """A percentile bootstrap over people, centred: a statistic that grows when people repeat does not move it.

    Args:
        statistic: From how often each person was drawn, (people,), to the number.
        people: How many there are.
        seed: Of the resampling.
        resamples: How often to draw.
        span: What the statistic may be; a draw on which it has no value gives nan.
    """
    draws = drawn(np.random.default_rng(seed), people, resamples)
    values = [value for value in map(statistic, draws) if not np.isnan(value)]
    measured = statistic(np.ones(people))
    if not values:
        return Interval(measured, *span)
    low, high = np.clip(np.percentile(values, [2.5, 97.5]) + measured - np.mean(values), *span)
    return Interval(measured, float(low), float(high))
