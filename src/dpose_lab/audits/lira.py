"""Membership inference by shadow models: was this unit in the run that made these weights?

    scores = logit_scaled(losses)                          # (runs, units)
    guesses = adversaries(targets, shadows)                  # online and offline

The likelihood-ratio attack of Carlini et al. 2022, "Membership inference attacks from first principles" (LiRA): shadow
runs on random halves of the units show how each unit's own score is distributed where it is in and where it is out; a
target's score is then judged by those two distributions, unit by unit.

Shadows and targets are different runs. What the adversary learns from shadows is independent of the targets' coins, so
guesses about the targets are post-processing of them, and one-run auditing (`dpose.audits.findings`) holds for all
pairs of a unit and a target together: each pair has a coin of its own, and changing it changes one unit in one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.audits.findings import Adversary
from dpose.privacy.tradeoff import Floats

MANY = 64
"""Number of shadows from which on each unit has its own variances; with fewer, all units share two (section VI-C)."""
LEAST_LOSS = 1e-9
"""Smallest loss; smaller ones are raised to it."""


@dataclass(frozen=True)
class ScoredUnits:
    """Scores of every unit by several runs.

    Attributes:
        scores: (runs, units) float64, higher where the run knows the unit better.
        included: (runs, units), True for units that were in.

    Raises:
        ValueError: the shapes differ.
    """

    scores: Floats
    included: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.scores.shape != self.included.shape or self.scores.ndim != 2:
            raise ValueError(f"scores {self.scores.shape} of coins {self.included.shape}")

    def without(self, run: int) -> ScoredUnits:
        """Leave out one run."""
        return ScoredUnits(np.delete(self.scores, run, axis=0), np.delete(self.included, run, axis=0))


Attack = Callable[[Floats, ScoredUnits], Floats]


def logit_scaled(losses: ArrayLike) -> Floats:
    """log(p / (1 - p)) with p = exp(-loss): close to Gaussian where a loss is not (equation 3 there).

    Args:
        losses: >= 0, of any shape.
    """
    clamped = np.maximum(np.asarray(losses, np.float64), LEAST_LOSS)
    # -log(e^loss - 1), written so that a large loss does not overflow
    return np.asarray(-clamped - np.log(-np.expm1(-clamped)))


def online(scores: Floats, shadows: ScoredUnits) -> Floats:
    """The log-likelihood ratio of "in" against "out" under two Gaussians a unit, (units,).

    Args:
        scores: (units,), of one target.
        shadows: Runs that had each unit in and runs that had it out.
    """
    (mean_in, std_in), (mean_out, std_out) = _moments(shadows)
    return np.asarray(_log_density(scores, mean_in, std_in) - _log_density(scores, mean_out, std_out))


def offline(scores: Floats, shadows: ScoredUnits) -> Floats:
    """Distance of the score above the unit's "out" distribution, in standard deviations, (units,).

    Needs no shadow that had the unit in: an adversary can train such shadows after the fact.
    """
    _, (mean, std) = _moments(shadows)
    return np.asarray((scores - mean) / std)


ATTACKS: dict[str, Attack] = {
    "supposes Gaussian scores, in and out (online)": online,
    "supposes Gaussian scores of units that are out (offline)": offline,
}


def adversaries(targets: ScoredUnits, shadows: ScoredUnits) -> list[Adversary]:
    """Run every attack on every pair of a unit and a target.

    Thresholds come from the shadows, each attacked with the help of the others.

    Raises:
        ValueError: fewer than three shadows, or shadows and targets with different units.
    """
    if len(shadows.scores) < 3 or shadows.scores.shape[1] != targets.scores.shape[1]:
        raise ValueError(f"{shadows.scores.shape} shadows cannot judge {targets.scores.shape} targets")
    attacks = []
    for name, attack in ATTACKS.items():
        own = [attack(row, shadows) for row in targets.scores]
        others = [attack(row, shadows.without(k)) for k, row in enumerate(shadows.scores)]
        calibration = np.stack(others)[~shadows.included]
        attacks.append(Adversary(name, np.concatenate(own), calibration=calibration))
    return attacks


def _moments(shadows: ScoredUnits) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Means and standard deviations of every unit's scores, by runs with and without it."""
    sides = [shadows.included, ~shadows.included]
    means = [_mean(shadows.scores, side) for side in sides]
    # a unit that was in all runs, or in none, gets the mean of the other side and the average distance
    gap = means[0] - means[1]
    usual = float(np.nanmean(gap)) if np.isfinite(gap).any() else 0.0
    means = [
        np.where(np.isnan(means[0]), means[1] + usual, means[0]),
        np.where(np.isnan(means[1]), means[0] - usual, means[1]),
    ]
    inside, outside = ((mean, _deviation(shadows.scores, side, mean)) for mean, side in zip(means, sides, strict=True))
    return inside, outside


def _mean(scores: Floats, side: NDArray[np.bool_]) -> Floats:
    count = side.sum(axis=0)
    total = np.where(side, scores, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))


def _deviation(scores: Floats, side: NDArray[np.bool_], mean: Floats) -> Floats:
    squares = np.where(side, (scores - mean) ** 2, 0.0).sum(axis=0)
    free = np.maximum(side.sum(axis=0) - 1, 0)
    common = float(squares.sum() / max(free.sum(), 1)) or 1.0
    if len(scores) < MANY:
        return np.full(len(mean), np.sqrt(common))
    own = np.divide(squares, free, out=np.full(len(mean), common), where=(free > 0) & (squares > 0))
    return np.asarray(np.sqrt(own))


def _log_density(x: Floats, mean: Floats, std: Floats) -> Floats:
    return np.asarray(-0.5 * ((x - mean) / std) ** 2 - np.log(std))
