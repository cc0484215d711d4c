"""A mean over units, or a ratio of two sums over them, with exact integer noise and an interval for that noise.

    query = ScoreQuery(Relation.ZERO_OUT)                        # the mean of a score in [0, 1] over n public units
    event = laplace_event(query, Fraction("0.1"))                # pure differential privacy; or gaussian_event
    sums = noised_sums(query, scores, event, AesNoise(Key.fresh()))
    ratio_of(query, sums, event, units=1000)                     # value, low, high: post-processing

**Guarantee.** A unit's part of the sums is a function of that unit alone, in whole numbers of `1 / GRID`. The relation
says what may happen to one unit; `ScoreQuery.l1` and `squared_l2` bound how far the sums then move together. Noise is
added to the integers themselves (`dpose.privacy.discrete`), so no floating-point number stands between it and the
proof, and all that comes after reads the noised sums and public numbers. docs/proofs/scores.md derives the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.errors import DposeError
from dpose.privacy.discrete import MAX_SCALE, discrete_gaussian, discrete_laplace
from dpose.privacy.events import ExactEvent, Gaussian, Laplace
from dpose.privacy.gaussian import least_variance
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.rounding import as_given

GRID = 1 << 20
"""Sums are whole numbers of 1 / GRID: a power of two, so that scaling a score by it rounds nothing."""
CONFIDENCE = 0.95
POINTS = 4096
"""Values of the ratio that are tried before the ends of its interval are found by bisection."""

Sums = tuple[int, ...]


class NoisedQuery(Protocol):
    """Sums of whole numbers over private units, and how far one unit moves them."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""

    @property
    def l1(self) -> int:
        """The most that the sums change between neighbours, in L1 norm."""

    @property
    def squared_l2(self) -> int:
        """As `l1`, in squared L2 norm."""

    @property
    def replaced(self) -> NoisedQuery:
        """The same for whoever is replaced by another."""

    def sums(self, values: Any) -> Sums:
        """Over all units, without noise: private."""


@dataclass(frozen=True)
class ScoreQuery:
    """What is asked of private units: a mean, or a ratio of found to found and missed.

    The mean over units is of scores in [0, 1]. Its sum is divided by the number of units, which is public under
    zero-out and replacement; under add-or-remove it is a second sum, noised like the first. The pooled ratio is of two
    sums, of things found and of things missed, at most `joints` of them a unit; it needs no number of units.

    Attributes:
        relation: The neighbouring relation.
        joints: J, the most that a unit contributes to both sums of the pooled ratio together; None for the mean.

    Raises:
        DposeError: `joints` is below 1.
    """

    relation: Relation = Relation.ZERO_OUT
    joints: int | None = None

    def __post_init__(self) -> None:
        if self.joints is not None and self.joints < 1:
            raise DposeError(
                "joints-per-unit-too-few",
                f"a unit must count at least 1 joint, not {self.joints}",
                "--joints-per-unit",
            )

    @property
    def replaced(self) -> ScoreQuery:
        """The same for whoever is replaced by another."""
        return ScoreQuery(Relation.REPLACE, self.joints)

    @property
    def counts_units(self) -> bool:
        """Whether the number of units is one of the sums: the mean's, where that number is itself protected."""
        return self.joints is None and self.relation is Relation.ADD_REMOVE

    @property
    def l1(self) -> int:
        """The most that the sums change between neighbours, in L1 norm and units of 1 / GRID."""
        if self.joints is None:
            return 2 * GRID if self.counts_units else GRID
        return (2 if self.relation is Relation.REPLACE else 1) * self.joints * GRID

    @property
    def squared_l2(self) -> int:
        """As `l1`, in squared L2 norm."""
        if self.joints is None:
            return 2 * GRID**2 if self.counts_units else GRID**2
        return (2 if self.relation is Relation.REPLACE else 1) * (self.joints * GRID) ** 2

    def contributions(self, values: ArrayLike) -> NDArray[np.int64]:
        """What each of n units adds to the sums, (n, 1) or (n, 2), in whole numbers of 1 / GRID.

        Args:
            values: For the mean (n,) scores: what is below 0 counts as 0, what is above 1 as 1, nan as 0. For the
                pooled ratio (n, 2) whole numbers, found and missed.

        Raises:
            ValueError: a unit counts more than `joints`, or a count is negative.
        """
        if self.joints is None:
            scores = np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=0.0), 0.0, 1.0)
            parts = [np.rint(scores * GRID).astype(np.int64)]
            if self.counts_units:
                parts.append(np.full(len(scores), GRID, np.int64))
            return np.stack(parts, axis=1)
        counts = np.asarray(values, np.int64).reshape(-1, 2)
        if (counts < 0).any() or (counts.sum(axis=1) > self.joints).any():
            raise ValueError(f"a unit counts 0 to {self.joints} joints, found and missed together")
        return counts * GRID

    def sums(self, values: ArrayLike) -> Sums:
        """The sums over all units, without noise: private."""
        return tuple(int(total) for total in self.contributions(values).sum(axis=0))


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


def laplace_event(query: NoisedQuery, epsilon: Fraction) -> Laplace:
    """The discrete Laplace noise with which `query` costs exactly `epsilon`, without a delta.

    Raises:
        DposeError: epsilon is not positive, or too small for the noise's integers.
    """
    if epsilon <= 0:
        raise DposeError(
            "epsilon-not-positive", f"epsilon must be a positive number, not {as_given(epsilon)}"
        )
    scale = Fraction(query.l1) / epsilon
    if scale > MAX_SCALE:
        raise DposeError(
            "epsilon-too-small",
            f"nothing is left of a score at epsilon {as_given(epsilon)}",
            fix="choose a larger one",
        )
    return Laplace(scale, Fraction(query.l1))


def gaussian_event(query: NoisedQuery, epsilon: float, delta: float) -> Gaussian:
    """The discrete Gaussian noise with which `query` costs at most `epsilon` at `delta` (the accountant "gaussian").

    Raises:
        DposeError: epsilon or delta is out of range, or too small for the noise's integers.
    """
    squared = Fraction(query.squared_l2)
    variance = least_variance(squared, epsilon, delta)
    if variance > MAX_SCALE**2:
        raise DposeError(
            "epsilon-too-small",
            f"nothing is left of a score at epsilon {as_given(epsilon)}",
            fix="choose a larger one",
        )
    return Gaussian(Fraction(variance), squared)


def dearer(query: NoisedQuery, event: ExactEvent) -> ExactEvent:
    """What `event` is for whoever is hidden by the query's relation and whoever is replaced: the dearer of both.

    The number of units is either public under both or noised.
    """
    replaced = query.replaced
    if isinstance(event, Laplace):
        return replace(event, sensitivity=Fraction(max(query.l1, replaced.l1)))
    return replace(event, sensitivity_squared=Fraction(max(query.squared_l2, replaced.squared_l2)))


def noised_sums(
    query: NoisedQuery, values: Any, event: ExactEvent, noise: NoiseSource, step: int = 0
) -> Sums:
    """The sums of `query` over all units, each with its own noise: what is released.

    **Guarantee.** Neighbours: data that differ in one unit by `query.relation`, the other units having the same values.
    Sensitivity: `query.l1` or `query.squared_l2`. Noise: the event's, exact, from a stream that is given out once. All
    arithmetic is on integers.

    Args:
        query: What is asked.
        values: Of each unit, as the query's `sums` takes them.
        event: One release, of noise for at least the query's sensitivity.
        noise: Fresh and secret; nothing is guaranteed with one that is seeded.
        step: Keeps several releases with one source apart.

    Raises:
        ValueError: the event is for a smaller sensitivity or for several releases, or `values` are out of range.
        RuntimeError: the source gave noise for this step before.
    """
    enough = (
        event.sensitivity >= query.l1
        if isinstance(event, Laplace)
        else event.sensitivity_squared >= query.squared_l2
    )
    if not enough or event.steps != 1:
        raise ValueError("the event is not for one release of this query")
    exact = query.sums(values)
    stream = noise.stream(Purpose.SCORE, step)
    drawn = (
        discrete_laplace(event.scale, len(exact), stream)
        if isinstance(event, Laplace)
        else discrete_gaussian(event.variance, len(exact), stream)
    )
    return tuple(total + int(added) for total, added in zip(exact, drawn, strict=True))


def ratio_of(query: ScoreQuery, sums: Sums, event: ExactEvent, units: int | None = None) -> NoisedRatio:
    """The score and its interval, of noised sums and public numbers alone: post-processing.

    The interval holds every ratio r that a test at level 1 - `CONFIDENCE` does not refuse (Fieller 1954). With the true
    sums A and B, r = A / B makes A - r B zero, so the same of the noised sums is noise alone, X - r Y, of a known law.
    For found F and missed M it is (1 - r) F - r M. So r lies in the interval with probability `CONFIDENCE` at least,
    however large the noise is beside B.

    Args:
        query: What was asked.
        sums: As `noised_sums` gave them.
        event: The noise in them.
        units: The public number of units, for the mean where it is public; otherwise None.

    Raises:
        ValueError: `units` is missing, or given where the query does not divide by it.
    """
    public = query.joints is None and not query.counts_units
    if public != (units is not None):
        raise ValueError("the number of units is needed where it is public and divided by, and only there")
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
        # scipy takes a while to import; whoever reads a statement need not wait for it
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
