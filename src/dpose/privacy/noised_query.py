"""Sums over private units with exact integer noise: means of scores, pooled scores, and scores of groups of people.

    query = NoisedQuery(Fraction("0.1"))             # the mean of a score in [0, 1] over units, at epsilon 0.1
    query = NoisedQuery(Fraction(1), joints=14)      # joints found of all found and missed, at most 14 a unit
    query = NoisedQuery(Fraction(1), joints=14, groups=GROUPS)      # of each group, and how many it has
    sums = noised_sums(query, values, AesNoise(Key.fresh()))
    ratio_of(query, sums, units=1000)                # value, low, high: post-processing; or shares_of

**Guarantee.** A unit's part of the sums is a function of that unit alone, in whole numbers. The relation says what may
happen to one unit; `NoisedQuery.l1` and `squared_l2` bound how far the sums then move together. Noise is added to the
integers themselves (`dpose.privacy.discrete`), so no floating-point number stands between it and the proof, and all
that comes after reads the noised sums and public numbers. docs/proofs/scores.md derives the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.errors import DposeError
from dpose.privacy.discrete import MAX_SCALE, discrete_gaussian, discrete_laplace
from dpose.privacy.events import ExactEvent, Gaussian, Laplace, SampledGaussian
from dpose.privacy.gaussian import least_variance
from dpose.privacy.gaussian_noise import rounded_gaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import NoiseSource, Purpose, Stream
from dpose.privacy.ranges import as_given, check_delta

GRID = 1 << 20
"""Sums of scores are whole numbers of 1 / GRID: a power of two, so that scaling a score by it rounds nothing."""
CONFIDENCE = 0.95
POINTS = 4096
"""Values of the ratio that are tried before the ends of its interval are found by bisection."""
PARTS = 3
"""Sums of a group: joints found, joints missed, units."""

Sums = tuple[int, ...]
Groups = tuple[tuple[str, tuple[str, ...]], ...]
"""Attributes, and of each the groups that a unit may be in; a unit is in at most one group of an attribute."""


@dataclass(frozen=True)
class NoisedQuery:
    """What is released of private units, between which neighbours, at what price.

    The mean over units is of scores in [0, 1]. Its sum is divided by the number of units, which is public under
    zero-out and replacement; under add-or-remove it is a second sum, noised like the first. The pooled ratio is of two
    sums, of joints found and of joints missed; it needs no number of units. Of groups, which are fixed and public, each
    has these two sums and its number of units; who is in which is private.

    Attributes:
        epsilon: Of this one release; taken exactly.
        delta: None for Laplace noise and pure differential privacy; above 0 for Gaussian noise.
        relation: The neighbouring relation.
        joints: J, the most joints of a unit that count, found and missed together; None for the mean.
        groups: The groups; none for a score of all units together.

    Raises:
        DposeError: a value is out of range, nothing is left at this price, or groups come without `joints`.
    """

    epsilon: Fraction
    delta: float | None = None
    relation: Relation = Relation.ZERO_OUT
    joints: int | None = None
    groups: Groups = ()

    def __post_init__(self) -> None:
        if self.groups and self.joints is None:
            raise DposeError(
                "groups-without-cap",
                "noised groups need a cap on a unit's joints",
                "--groups",
                "give --pooled --joints-per-unit 14",
            )
        if not all(groups for _, groups in self.groups):
            raise DposeError("groups-incomplete", "an attribute has groups", "--groups")
        if self.joints is not None and self.joints < 1:
            raise DposeError(
                "joints-per-unit-too-few", f"a unit must count at least 1 joint, not {self.joints}", "--joints-per-unit"
            )
        if self.delta is not None:
            check_delta(self.delta)
        _ = self.event

    @property
    def names(self) -> tuple[str, ...]:
        """The groups by name, attribute after attribute, in the order of the sums."""
        return tuple(f"{attribute}: {group}" for attribute, groups in self.groups for group in groups)

    @property
    def counts_units(self) -> bool:
        """Whether the number of units is one of the sums: the mean's, where that number is itself protected."""
        return self.joints is None and self.relation is Relation.ADD_REMOVE

    @property
    def grid(self) -> int:
        """What the sums are whole numbers of: 1 / `grid`."""
        return 1 if self.groups else GRID

    @property
    def l1(self) -> int:
        """The most that the sums change between neighbours, in L1 norm and units of 1 / `grid`."""
        return self._moved(self.relation)[0]

    @property
    def squared_l2(self) -> int:
        """The same bound in squared L2 norm."""
        return self._moved(self.relation)[1]

    def _moved(self, relation: Relation) -> tuple[int, int]:
        """How far the sums of this query move for another relation, in L1 norm and in squared L2 norm."""
        if self.joints is None:
            # never twice for anyone who is replaced: both parts lie between nothing and the grid
            sums = 2 if self.counts_units and relation is Relation.ADD_REMOVE else 1
            return sums * self.grid, sums * self.grid**2
        times = 2 if relation is Relation.REPLACE else 1
        if self.groups:
            times *= len(self.groups)
            return times * (self.joints + 1), times * (self.joints**2 + 1)
        return times * self.joints * self.grid, times * (self.joints * self.grid) ** 2

    @property
    def event(self) -> ExactEvent:
        """The release as the accountant sees it: discrete Laplace noise of exactly `epsilon`, or discrete Gaussian.

        Raises:
            DposeError: epsilon is not positive, or too small for the noise's integers.
        """
        return _event(self.epsilon, self.delta, self.l1, self.squared_l2)

    def is_noised_by(self, *events: object) -> bool:
        """Whether events are one release, of noise for exactly this query's sensitivity."""
        (event,) = events if len(events) == 1 else (None,)
        if isinstance(event, Laplace):
            return event.steps == 1 and event.sensitivity == self.l1
        found = event if isinstance(event, Gaussian) else None
        return found is not None and found.steps == 1 and found.sensitivity_squared == self.squared_l2

    @property
    def dearer(self) -> ExactEvent:
        """What `event` is for anyone who is hidden by the relation and anyone who is replaced: the dearer of both.

        The number of units is either public under both or noised.
        """
        event, (l1, squared) = self.event, self._moved(Relation.REPLACE)
        if isinstance(event, Laplace):
            return replace(event, sensitivity=Fraction(max(self.l1, l1)))
        return replace(event, sensitivity_squared=Fraction(max(self.squared_l2, squared)))

    def contributions(self, values: Any) -> NDArray[np.int64]:
        """What each of n units adds to the sums, (n, sums), in whole numbers of 1 / `grid`.

        Args:
            values: For the mean (n,) scores: what is below 0 counts as 0, what is above 1 as 1, nan as 0. For the
                pooled ratio (n, 2) whole numbers, found and missed. For groups two arrays: (n, A) the place in `names`
                of the group that each unit is in by each attribute, -1 for none; and (n, 2) as for the pooled ratio.

        Raises:
            ValueError: a unit counts more than `joints`, a count is negative, or a group is not the attribute's.
        """
        if self.joints is None:
            scores = np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=0.0), 0.0, 1.0)
            parts = [np.rint(scores * GRID).astype(np.int64)]
            if self.counts_units:
                parts.append(np.full(len(scores), GRID, np.int64))
            return np.stack(parts, axis=1)
        counts = np.asarray(values[1] if self.groups else values, np.int64).reshape(-1, 2)
        if (counts < 0).any() or (counts.sum(axis=1) > self.joints).any():
            raise ValueError(f"a unit counts 0 to {self.joints} joints, found and missed together")
        if not self.groups:
            return counts * self.grid
        members = np.asarray(values[0], np.int64).reshape(len(counts), -1)
        ends = np.cumsum([len(groups) for _, groups in self.groups])
        begins = np.append(0, ends[:-1])
        if members.shape[1] != len(ends) or ((members != -1) & ((members < begins) | (members >= ends))).any():
            raise ValueError(f"a unit is in at most one group of each of {len(ends)} attributes")
        added = np.zeros((len(counts), len(self.names), PARTS), np.int64)
        ones = np.column_stack([counts, np.ones(len(counts), np.int64)])
        for column in members.T:
            there = np.flatnonzero(column >= 0)
            added[there, column[there]] = ones[there]
        return added.reshape(len(counts), -1)

    def sums(self, values: Any) -> Sums:
        """The sums over all units, without noise: private."""
        return tuple(int(total) for total in self.contributions(values).sum(axis=0))

    def public(self, unit: str, units: int | None) -> tuple[str, ...]:
        """What stands outside the guarantee, in words; `units` is None if their number is itself protected."""
        number = f"the number of {unit}s, and which of them are copies of one another"
        return (
            "the model, the metric and its threshold",
            "the grid, the scale of the noise and the interval's rule",
            *(() if units is None else (number,)),
        )

    def describe(self, unit: str) -> str:
        """What is summed, what of it is noised and what is released of it, in words."""
        if self.groups:
            return (
                f"of each of {len(self.names)} fixed groups by {' and '.join(name for name, _ in self.groups)}: joints "
                f"found, joints missed (at most {self.joints} of a unit together) and units, each noised; released are "
                "found / (found + missed) and the number of units"
            )
        if self.joints is not None:
            return (
                f"sum of joints found and sum of joints missed, each noised, of at most {self.joints} joints a {unit} "
                "in a fixed order of its own; released is found / (found + missed)"
            )
        of = f"sum over {unit}s of a score in [0, 1] (0 where nothing can be scored)"
        if self.counts_units:
            return f"{of} and the number of {unit}s, noised with half of epsilon each; released is their ratio"
        return f"{of}, noised; released is the sum divided by the public number of {unit}s"


@dataclass(frozen=True)
class NoisedRatio:
    """A score with noise, and where the score without noise lies.

    Attributes:
        value: In [0, 1]; 0.5 where the noise left nothing to divide by.
        low: Lower end of the `CONFIDENCE` interval for the noise: what other people in place of these would score is
            not in it.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@lru_cache(maxsize=64)
def _event(epsilon: Fraction, delta: float | None, l1: int, squared_l2: int) -> ExactEvent:
    if epsilon <= 0:
        raise DposeError("epsilon-not-positive", f"epsilon must be a positive number, not {as_given(epsilon)}")
    if delta is None:
        scale = Fraction(l1) / epsilon
        if scale <= MAX_SCALE:
            return Laplace(scale, Fraction(l1))
    else:
        variance = least_variance(Fraction(squared_l2), float(epsilon), delta)
        if variance <= MAX_SCALE**2:
            return Gaussian(Fraction(variance), Fraction(squared_l2))
    raise DposeError(
        "epsilon-too-small", f"nothing is left of a score at epsilon {as_given(epsilon)}", fix="choose a larger one"
    )


def noised_sums(query: NoisedQuery, values: Any, noise: NoiseSource, step: int = 0) -> Sums:
    """The sums of `query` over all units, each with its own noise: what is released.

    **Guarantee.** Neighbours: data that differ in one unit by `query.relation`, the other units having the same values.
    Sensitivity: `query.l1` or `query.squared_l2`. Noise: that of `query.event`, exact, from a stream that is given out
    once. All arithmetic is on integers.

    Args:
        query: What is asked.
        values: Of each unit, as `NoisedQuery.contributions` takes them.
        noise: Fresh and secret; nothing is guaranteed with one that is seeded.
        step: Keeps several releases with one source apart.

    Raises:
        ValueError: `values` are out of range.
        RuntimeError: the source gave noise for this step before.
    """
    exact, event = query.sums(values), query.event
    stream = noise.stream(Purpose.SCORE, step)
    drawn = (
        discrete_laplace(event.scale, len(exact), stream)
        if isinstance(event, Laplace)
        else discrete_gaussian(event.variance, len(exact), stream)
    )
    return tuple(total + int(added) for total, added in zip(exact, drawn, strict=True))


def noised_mean(scores: NDArray[np.float64], event: SampledGaussian, stream: Stream) -> float:
    """The mean of scores in [0, 1] with Gaussian noise: what each trial of a tuning is judged by.

    **Guarantee.** Neighbours: zero-out of one unit, whose score is then 0, with a public number n of units.
    Sensitivity: 1/n. Noise: N(0, (sigma * sensitivity)^2) of the event. Scores are whole numbers of 1 / `GRID`, their
    sum and its noise too, so that what is released is the Gaussian mechanism's result, rounded
    (docs/proofs/exact-noise.md).

    Args:
        scores: (n,), each in [0, 1].
        event: One release with q = 1; its sensitivity is at least 1/n.
        stream: A stream that nothing else draws from.

    Raises:
        ValueError: a score is out of range, or the event's sensitivity is below 1/n.
    """
    moves = event.sensitivity * len(scores)
    if moves < 1 - 1e-12 or not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError(f"a mean over {len(scores)} scores in [0, 1] moves by more than {event.sensitivity}")
    exact = int(np.rint(scores * GRID).astype(np.int64).sum())
    drawn = int(rounded_gaussian(event.sigma * GRID * max(moves, 1.0), 1, stream)[0])
    return (exact + drawn) / (GRID * len(scores))


def ratio_of(query: NoisedQuery, sums: Sums, units: int | None = None) -> NoisedRatio:
    """The score and its interval, of noised sums and public numbers alone: post-processing.

    The interval holds every ratio r that a test at level 1 - `CONFIDENCE` does not refuse (Fieller 1954). With the true
    sums A and B, r = A / B makes A - r B zero, so the same of the noised sums is noise alone, X - r Y, of a known law.
    For found F and missed M it is (1 - r) F - r M. So r lies in the interval with probability `CONFIDENCE` at least,
    however large the noise is beside B.

    Args:
        query: The mean or the pooled ratio.
        sums: As `noised_sums` gave them.
        units: The public number of units, for the mean where it is public; otherwise None.

    Raises:
        ValueError: the query is of groups, or `units` is missing, or given where the query does not divide by it.
    """
    if query.groups:
        raise ValueError("groups have a share each")
    public = query.joints is None and not query.counts_units
    if public != (units is not None):
        raise ValueError("the number of units is needed where it is public and divided by, and only there")
    event = query.event
    first, second = (float(sums[0]), float(units or 0) * GRID) if public else (float(sums[0]), float(sums[1]))
    below = max(first, 0.0) + max(second, 0.0) if query.joints is not None else second
    value = min(max(first, 0.0) / below, 1.0) if below > 0 else 0.5

    def likely(ratios: NDArray[np.float64]) -> NDArray[np.bool_]:
        ones = np.ones_like(ratios)
        if query.joints is None:
            left, of_first, of_second = first - ratios * second, ones, ratios * (not public)
        else:
            left, of_first, of_second = (1 - ratios) * first - ratios * second, 1 - ratios, ratios
        # the continuous law stands in for the discrete one, which is nearer than a step of the grid to it
        beyond = np.maximum(np.abs(left) - of_first - of_second, 0.0)
        return tail(event, beyond, of_first, of_second) > 1 - CONFIDENCE

    low, high = _span(likely, value)
    rounded = 0.0 if query.joints is not None else 0.5 / GRID
    return NoisedRatio(value, max(low - rounded, 0.0), min(high + rounded, 1.0))


def shares_of(query: NoisedQuery, sums: Sums) -> NDArray[np.float64]:
    """The share of joints found and the number of units of each group, (groups, 2): post-processing of noised sums.

    The share is nan where the noise left nothing to divide by.
    """
    found, missed, units = np.maximum(np.asarray(sums, np.float64).reshape(-1, PARTS), 0).T
    below = found + missed
    share = np.divide(found, below, out=np.full(len(query.names), np.nan), where=below > 0)
    return np.column_stack([share, units])


def tail(event: ExactEvent, beyond: ArrayLike, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """P(|first X - second Y| >= beyond) for independent X, Y of the event's continuous law; broadcasts.

    Args:
        event: Its scale or variance is used.
        beyond: >= 0.
        first: Weight of X, >= 0, not zero together with `second`.
        second: Weight of Y, >= 0.
    """
    c, a, b = (np.asarray(value, np.float64) for value in (beyond, first, second))
    if isinstance(event, Gaussian):
        # scipy takes a while to import; anyone who reads a statement need not wait for it
        from scipy.special import erfc

        return np.asarray(erfc(c / np.sqrt(2 * float(event.variance) * (a * a + b * b))))
    large, small = np.maximum(a, b) * float(event.scale), np.minimum(a, b) * float(event.scale)
    # nearly equal scales divide by nearly nothing: there the larger one twice, which is above the truth
    alike = small > (1 - 1e-6) * large
    near = np.exp(-c / large) * (1 + c / (2 * large))
    small = np.where(alike, 0.0, small)
    with np.errstate(divide="ignore", invalid="ignore"):
        second_part = np.where(small > 0, small**2 * np.exp(-c / np.where(small > 0, small, 1.0)), 0.0)
    apart = (large**2 * np.exp(-c / large) - second_part) / (large**2 - small**2)
    return np.asarray(np.where(alike, near, apart))


def _span(likely: Callable[[NDArray[np.float64]], NDArray[np.bool_]], guess: float) -> tuple[float, float]:
    """The ends of what is likely in [0, 1], from outside; all of [0, 1] where nothing is."""
    tried = np.unique(np.append(np.linspace(0.0, 1.0, POINTS + 1), guess))
    inside = np.flatnonzero(likely(tried))
    if not len(inside):
        return 0.0, 1.0

    def end(outside: int, within: int) -> float:
        if not 0 <= outside < len(tried):
            return float(tried[within])
        out, into = float(tried[outside]), float(tried[within])
        while (middle := (out + into) / 2) not in (out, into) and not math.isclose(out, into, abs_tol=1e-12):
            out, into = (out, middle) if likely(np.array([middle]))[0] else (middle, into)
        return out

    first, last = int(inside[0]), int(inside[-1])
    return end(first - 1, first), end(last + 1, last)
