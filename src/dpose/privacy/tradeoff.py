"""Trade-off curves: how many of the true positives any attacker can have at a given rate of false ones.

    claimed = of_events([bound.event], plan.relation)      # the whole curve that the accountant proves
    claimed.power(0.01)                                    # the most true positives at 1 % false ones

A guarantee is more than one pair (epsilon, delta): the accountant gives a delta for every epsilon, and each pair
bounds every attacker (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022, "Gaussian differential privacy",
Proposition 2.12):

    tpr <= e^epsilon fpr + delta        and        tpr <= 1 - e^-epsilon (1 - delta - fpr).

A `TradeOff` is a finite set of such pairs and the lower envelope of their lines. Fewer pairs, or larger deltas, only
make the curve more permissive, so what refutes it refutes the exact curve too, and what it allows no attacker exceeds:
1 - power(a) is a lower bound on the type II error of every test whose type I error is a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from dpose.privacy.accounting import FINE, library_relation
from dpose.privacy.events import SampledGaussian, merge
from dpose.privacy.neighbours import Relation

Floats = NDArray[np.float64]

PAIRS = 400
"""How many (epsilon, delta) pairs stand for a curve."""
NEGLIGIBLE = 1e-9
"""The curve's last pair has about this delta; what lies beyond could not be told apart by any audit here."""


@dataclass(frozen=True)
class TradeOff:
    """The lower envelope of the lines that some (epsilon, delta) pairs draw.

    Attributes:
        pairs: (N, 2) float64, each row an epsilon >= 0 and a delta in [0, 1] that both hold.
    """

    pairs: Floats

    def power(self, fpr: ArrayLike) -> Floats:
        """The most true positives that any attacker can have at each false-positive rate; concave, rising."""
        x = np.atleast_1d(np.asarray(fpr, np.float64))[:, None]
        grown = np.exp(np.minimum(self.pairs[:, 0], 700.0))  # beyond, the bound has long been 1
        delta = self.pairs[:, 1]
        least = np.minimum(grown * x + delta, 1 - (1 - delta - x) / grown)
        return np.asarray(np.clip(least.min(axis=1), 0.0, 1.0))

    def least_false_positive(self, tpr: float) -> float:
        """The least false-positive rate that any attacker with this true-positive rate must have; convex, rising."""
        knots, values = self._inverse
        return float(np.interp(tpr, knots, values))

    def epsilon(self, delta: float) -> float:
        """About the least epsilon at `delta`: between the pairs by a straight line."""
        epsilons, deltas = self.pairs[np.argsort(self.pairs[:, 0])].T
        return float(np.interp(-delta, -deltas, epsilons))

    @cached_property
    def _inverse(self) -> tuple[Floats, Floats]:
        """Bends of the upper envelope of the inverted lines, between which interpolation is exact."""
        grown, delta = np.exp(self.pairs[:, 0]), self.pairs[:, 1]
        slopes = np.concatenate([[0.0], 1 / grown, grown])
        # the lines are written as they are at tpr = 1, where the steep ones are well conditioned
        at_one = np.concatenate([[0.0], (1 - delta) / grown, 1 - delta])
        return _upper_envelope(slopes, at_one)


def _upper_envelope(slopes: Floats, at_one: Floats) -> tuple[Floats, Floats]:
    """Knots in [0, 1] and values of the largest of some lines y = at_one + slope * (t - 1)."""
    order = np.lexsort((at_one, slopes))
    kept: list[int] = []
    starts: list[float] = []
    for line in order:
        start = -math.inf
        while kept:
            last = kept[-1]
            if slopes[line] == slopes[last]:
                start = -math.inf if at_one[line] >= at_one[last] else math.inf
            else:
                start = 1 - (at_one[line] - at_one[last]) / (slopes[line] - slopes[last])
            if start > starts[-1]:
                break
            kept.pop()
            starts.pop()
            start = -math.inf
        if start < 1.0:
            kept.append(int(line))
            starts.append(start)
    inside = [max(0.0, s) for s in starts] + [1.0]
    lines = [*kept, kept[-1]]
    values = [at_one[k] + slopes[k] * (t - 1) for k, t in zip(lines, inside, strict=True)]
    return np.asarray(inside), np.maximum(np.asarray(values), 0.0)


def approximate(epsilon: float, delta: float) -> TradeOff:
    """The curve of (epsilon, delta)-differential privacy and nothing more."""
    return TradeOff(np.array([[epsilon, delta]], np.float64))


def gaussian(mu: float) -> TradeOff:
    """The curve of telling N(0, 1) from N(mu, 1): Gaussian differential privacy.

    Its pairs are exact: delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Balle and Wang
    2018, Theorem 8, with mu = sensitivity / sigma).
    """
    # beyond mu^2/2 + 7 mu the loss itself is a seven sigma event
    epsilons = np.linspace(0.0, mu * (mu / 2 + 7), PAIRS)
    return TradeOff(np.column_stack([epsilons, gaussian_deltas(mu, epsilons)]))


def gaussian_deltas(mu: float, epsilons: Floats) -> Floats:
    """The delta of N(0, 1) against N(mu, 1) at each epsilon."""
    first = np.exp(log_ndtr(mu / 2 - epsilons / mu))
    second = np.exp(epsilons + log_ndtr(-mu / 2 - epsilons / mu))
    return np.asarray(np.clip(first - second, 0.0, 1.0))


def of_events(
    events: Sequence[SampledGaussian], relation: Relation = Relation.ZERO_OUT, *, grid: float = FINE
) -> TradeOff:
    """The curve that the PLD accountant proves for `events`; never stricter than the exact one.

    Both orders of the two neighbours are in each delta, so the curve holds for both.

    Args:
        events: What was released.
        relation: The neighbouring relation.
        grid: Width of the loss distribution's grid.
    """
    accountant = composed_accountant(merge(events), Relation(relation), grid)
    last = float(accountant.get_epsilon(NEGLIGIBLE))
    return TradeOff(profile(accountant, last, PAIRS))


@lru_cache(maxsize=16)
def composed_accountant(events: tuple[SampledGaussian, ...], relation: Relation, grid: float) -> Any:
    """dp-accounting's accountant of all `events`; not to be composed with more."""
    from dp_accounting.pld import pld_privacy_accountant

    accountant = pld_privacy_accountant.PLDAccountant(library_relation(relation), grid)
    for event in events:
        accountant.compose(event.dp_event())
    return accountant


def profile(accountant: Any, last: float, count: int) -> Floats:
    """(count, 2): epsilons from 0 to `last` with the deltas that hold there."""
    epsilons = np.linspace(0.0, last, count)
    deltas = np.asarray(accountant.get_delta(epsilons), np.float64)
    return np.column_stack([epsilons, np.clip(deltas, 0.0, 1.0)])
