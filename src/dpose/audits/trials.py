"""Independent trials: Clopper-Pearson bounds, and a guarantee tested by the true and false positives of one event.

    found = Trials(hits=61, total=250)
    found.interval(0.05)                         # exact 95 % interval for the rate
    refuted_by(found, false, curve, alpha=0.05)  # more true positives than the curve allows?

Where outputs on the one dataset and outputs on its neighbour are drawn independently, the rates of any event on the two
bound the guarantee from below. The event must be chosen on other samples than those counted here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from dpose.privacy.tradeoff import Floats, TradeOff

TARGETS = (0.001, 0.01, 0.1, 0.3)
"""False-positive rates at which a threshold is set; the first two are reported."""


@dataclass(frozen=True)
class Trials:
    """How often something happened in independent trials."""

    hits: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.total or self.total < 1:
            raise ValueError(f"{self.hits} of {self.total} trials cannot be")

    @property
    def rate(self) -> float:
        """The share of hits."""
        return self.hits / self.total

    def at_least(self, alpha: float) -> float:
        """A lower bound on the probability of a hit, wrong with probability at most `alpha` (Clopper-Pearson)."""
        return _clopper_pearson(self.hits, self.total, alpha, "greater")[0]

    def at_most(self, alpha: float) -> float:
        """An upper bound on the probability of a hit, wrong with probability at most `alpha`."""
        return _clopper_pearson(self.hits, self.total, alpha, "less")[1]

    def interval(self, alpha: float) -> tuple[float, float]:
        """Both, each with half of `alpha`."""
        return self.at_least(alpha / 2), self.at_most(alpha / 2)


@lru_cache(maxsize=1 << 12)  # a search tests the same trials against curve after curve
def _clopper_pearson(hits: int, total: int, alpha: float, alternative: str) -> tuple[float, float]:
    found = binomtest(hits, total, alternative=alternative).proportion_ci(1 - alpha, method="exact")
    return float(found.low), float(found.high)


def refuted_by(true: Trials, false: Trials, curve: TradeOff, alpha: float) -> bool:
    """Whether there are more true positives than `curve` allows at these false ones, at level `alpha`."""
    return true.at_least(alpha / 2) > float(curve.power(false.at_most(alpha / 2))[0]) + 1e-12


def epsilon_by(true: Trials, false: Trials, delta: float, alpha: float) -> float:
    """A lower bound on epsilon at `delta`: log((tpr - delta) / fpr) with both rates at their bounds; at least 0."""
    gained = true.at_least(alpha / 2) - delta
    return max(0.0, math.log(gained / false.at_most(alpha / 2))) if gained > 0 else 0.0


@dataclass(frozen=True)
class OperatingPoint:
    """What an attack finds at one threshold.

    Attributes:
        target: The false-positive rate for which the threshold was set.
        true: Included canaries above the threshold.
        false: Canaries that were not included (or never meant to be) above it.
    """

    target: float
    true: Trials
    false: Trials

    def epsilon(self, delta: float, alpha: float = 0.05) -> float:
        """The lower bound on epsilon that these rates imply, where the scores counted are independent of each other."""
        return epsilon_by(self.true, self.false, delta, alpha)


def operating_points(
    included: Floats, absent: Floats, calibration: Floats, targets: tuple[float, ...] = TARGETS
) -> tuple[OperatingPoint, ...]:
    """True and false positives at thresholds that were set on other samples.

    Args:
        included: Scores of canaries that were in.
        absent: Scores of what was not in.
        calibration: Further scores of what was not in, from which the thresholds are taken and nothing else.
        targets: False-positive rates to set thresholds for.
    """
    ordered = np.sort(calibration)[::-1]
    points = []
    for target in targets:
        # the threshold itself does not count as above it, so that ties cannot raise the false positives
        threshold = ordered[min(math.floor(target * len(ordered)), len(ordered) - 1)]
        points.append(OperatingPoint(target, _above(included, threshold), _above(absent, threshold)))
    return tuple(points)


def _above(scores: Floats, threshold: float) -> Trials:
    return Trials(int((scores > threshold).sum()), len(scores))


def roc(included: Floats, absent: Floats, most: int = 400) -> tuple[Floats, Floats]:
    """The empirical curve: false- and true-positive rates at every threshold, thinned to about `most` points.

    Returns:
        Rising false-positive rates and the true-positive rates that go with them, both from 0 to 1; those of guessing
        where nothing was in, or nothing out.
    """
    if not len(included) or not len(absent):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    thresholds = np.unique(np.concatenate([included, absent]))[::-1]
    fpr = 1 - np.searchsorted(np.sort(absent), thresholds, side="left") / len(absent)
    tpr = 1 - np.searchsorted(np.sort(included), thresholds, side="left") / len(included)
    fpr, tpr = np.concatenate([[0.0], fpr]), np.concatenate([[0.0], tpr])
    return fpr[_thin(fpr, tpr, most)], tpr[_thin(fpr, tpr, most)]


def _thin(fpr: Floats, tpr: Floats, most: int) -> NDArray[np.int64]:
    """Positions of the curve's corners; where there are more than `most`, evenly spread on a log scale of `fpr`."""
    if len(fpr) <= most:
        return np.arange(len(fpr))
    wanted = np.geomspace(max(fpr[fpr > 0].min(), 1e-6), 1.0, most // 2)
    by_rate = np.searchsorted(fpr, wanted, side="right") - 1
    evenly = np.linspace(0, len(fpr) - 1, most // 2).astype(np.int64)
    return np.unique(np.concatenate([by_rate, evenly, [0, len(fpr) - 1]]))
