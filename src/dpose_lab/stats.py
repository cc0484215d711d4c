"""Intervals: bootstraps over people, and over the images that several runs were tested on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 1000
PAIRED_RESAMPLES = 10_000
AT_ONCE = 500
"""Resamples that are held in memory together."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)


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
        """The values for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


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


def draw_counts(rng: np.random.Generator, count: int, resamples: int) -> Floats:
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

    `scipy.stats.bootstrap` centres no interval, and draws rows of data where here are weights of people: a person who
    is drawn twice is one person with twice the weight, and no pair of two.

    Args:
        statistic: From how often each person was drawn, (people,), to the number.
        people: Their number.
        seed: Of the resampling.
        resamples: How often to draw.
        span: What the statistic may be; a draw on which it has no value gives nan.
    """
    draws = draw_counts(np.random.default_rng(seed), people, resamples)
    values = [value for value in map(statistic, draws) if not np.isnan(value)]
    measured = statistic(np.ones(people))
    if not values:
        return Interval(measured, *span)
    low, high = np.clip(np.percentile(values, [2.5, 97.5]) + measured - np.mean(values), *span)
    return Interval(measured, float(low), float(high))


@dataclass(frozen=True)
class Counts:
    """What one run found of each person of the test set.

    Attributes:
        names: N, of the image that a person is in.
        found: (N,) int64, joints found.
        scored: (N,) int64, joints scored, found or not.
    """

    names: tuple[str, ...]
    found: NDArray[np.int64]
    scored: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Joints found among all joints scored, in percent: `PCKhResult.mean`. nan where none was scored."""
        return float(_percent(self.found.sum(), self.scored.sum()))


@dataclass(frozen=True)
class Difference:
    """The first group's mean over runs minus the second's, in points of percent.

    Attributes:
        points: With the 95 % interval.
        not_above: The share of resamples in which the difference is 0 or less, in [0, 1].
        runs: How many in each group.
        images: How many were resampled.
    """

    points: Interval
    not_above: float
    runs: tuple[int, int]
    images: int


def differences(
    runs: Mapping[Key, Counts],
    pairs: Sequence[tuple[Sequence[Key], Sequence[Key]]],
    *,
    resamples: int = PAIRED_RESAMPLES,
    seed: int = 0,
) -> list[Difference]:
    """The difference between the groups of each pair, by a paired percentile bootstrap (Efron and Tibshirani 1993).

    Each resample draws as many images as there are, with replacement, the same for every run of both groups: an image
    that is hard for all of them moves both means alike. People of one image are drawn together. In each group of two
    runs or more it also draws as many runs as there are, with replacement. Each run's mean is taken of the images
    drawn, and the group's is the mean over the runs drawn.

    **What the interval covers.** The choice of the test images; and, in a group of two runs or more, the randomness of
    training. A group of one run stands for that run alone: how another training with the same settings would end is
    not in the interval. Few runs are drawn too much alike: the bootstrap's variance over k runs is (k - 1) / k of what
    it should be. The choice of the training data is in none of it, nor that several pairs are looked at.

    Args:
        runs: Each run that a pair names; all tested on the same people.
        pairs: Groups by the keys of `runs`, at least one in each.
        resamples: How often to draw.
        seed: Of the resampling. A pair's interval depends on no other pair.

    Returns:
        One for each pair. The value is the difference between the means over all images; nan, with an interval of nan,
        where no joint was scored.

    Raises:
        ValueError: runs were tested on different people.
    """
    if not pairs:
        return []
    several = list(runs.values())
    if any(one.names != several[0].names for one in several[1:]):
        raise ValueError("the runs were tested on different people")
    images, means = _resampled(several, resamples, seed)
    place = {key: column for column, key in enumerate(runs)}
    found = []
    for groups in pairs:
        # a stream of its own: what else is compared, or how often, does not move this interval
        rng = np.random.default_rng([seed, 1])
        mine, theirs = (_over_runs(means[:, [place[key] for key in group]], rng) for group in groups)
        first, second = (statistics.mean(runs[key].mean for key in group) for group in groups)
        apart = mine - theirs
        known = apart[np.isfinite(apart)]
        low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
        found.append(
            Difference(
                Interval(first - second, float(low), float(high)),
                float((known <= 0).mean()) if len(known) else np.nan,
                (len(groups[0]), len(groups[1])),
                images,
            )
        )
    return found


def _resampled(runs: Sequence[Counts], resamples: int, seed: int) -> tuple[int, Floats]:
    """How many images there are; and each run's mean in each resample of them, (resamples, R), in percent."""
    _, image = np.unique(np.asarray(runs[0].names), return_inverse=True)
    found, scored = (
        np.stack([np.bincount(image, counts) for counts in several], axis=1)
        for several in ([run.found for run in runs], [run.scored for run in runs])
    )
    rng = np.random.default_rng([seed, 0])
    parts = []
    for start in range(0, resamples, AT_ONCE):
        draws = draw_counts(rng, len(found), min(AT_ONCE, resamples - start))
        parts.append(_percent(draws @ found, draws @ scored))
    return len(found), np.concatenate(parts)


def _over_runs(means: Floats, rng: np.random.Generator) -> Floats:
    """A group's mean in each resample, (resamples,), from those of its runs, (resamples, R)."""
    resamples, count = means.shape
    if count == 1:
        return means[:, 0]
    result: Floats = (means * draw_counts(rng, count, resamples)).sum(1) / count
    return result


def _percent(part: ArrayLike, whole: ArrayLike) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.asarray(100.0 * np.divide(part, whole, dtype=np.float64))
