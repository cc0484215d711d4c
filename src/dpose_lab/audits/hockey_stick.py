"""A black-box auditor for mechanisms that can be run many times on two neighbouring inputs.

    findings = audit_mechanism(with_unit, without, epsilon=1.0, delta=1e-5, samples=20_000)
    findings.flagged, findings.epsilon_bound

`with_unit(count)` and `without(count)` return `count` independent outputs each. Events {score >= t} are chosen on the
first half of the outputs and tested on the other half, so that choosing costs nothing. Where the output space is small
the loss is computed exactly instead: `exact_epsilon`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from dpose.audits.trials import Trials, epsilon_by, refuted_by
from dpose.privacy.tradeoff import Floats, TradeOff, approximate

Sampler = Callable[[int], NDArray[Any]]
Score = Callable[[NDArray[Any]], Floats]

THRESHOLDS = 200
"""Number of events tried for each score and direction, on the half of the outputs that chooses."""


def value(outputs: NDArray[Any]) -> Floats:
    """Score of an output: the output itself, a number."""
    return np.asarray(outputs, np.float64)


def negated(outputs: NDArray[Any]) -> Floats:
    """Score of an output: minus the output."""
    return -np.asarray(outputs, np.float64)


@dataclass(frozen=True)
class OutputEvent:
    """A set of outputs, {score >= threshold}, and the input on which it is more likely.

    Attributes:
        score: Name of the score.
        threshold: Outputs with at least this score are in the event.
        first_likelier: True if the event is more likely on the first input.
    """

    score: str
    threshold: float
    first_likelier: bool

    def __str__(self) -> str:
        which = "with" if self.first_likelier else "without"
        return f"{self.score} >= {self.threshold + 0.0:.6g}, likelier {which} the unit"


@dataclass(frozen=True)
class Tested:
    """An event and its counts on the half of the outputs that tests.

    Attributes:
        event: Event chosen on the other half.
        likelier: Count on the input on which the event is expected more often.
        rarer: Count on the other input.
    """

    event: OutputEvent
    likelier: Trials
    rarer: Trials


@dataclass(frozen=True)
class MechanismFindings:
    """Result of a black-box audit.

    Attributes:
        epsilon: Claimed epsilon.
        delta: Claimed delta.
        alpha: The probability that a true claim is refuted.
        pair: The event for the claimed (epsilon, delta).
        curve: The event for the claimed trade-off curve; None if no curve is claimed.
        epsilon_bound: A lower bound on epsilon at `delta`, from `pair`.
        hockey_stick: The estimate of P[event] - e^epsilon P'[event] from `pair`, which delta must not be below, and a
            lower bound for it.
        refuted_by: "(epsilon, delta)" or "trade-off curve", or both.
    """

    epsilon: float
    delta: float
    alpha: float
    pair: Tested
    curve: Tested | None
    epsilon_bound: float
    hockey_stick: tuple[float, float]
    refuted_by: tuple[str, ...]

    @property
    def flagged(self) -> bool:
        """True if the claim is refuted."""
        return bool(self.refuted_by)

    def to_dict(self) -> dict[str, Any]:
        """The findings as JSON."""

        def tested(counts: Tested | None) -> Any:
            if counts is None:
                return None
            rates = {"likelier": vars(counts.likelier), "rarer": vars(counts.rarer)}
            return {"event": str(counts.event), **rates}

        return {
            "claim": {"epsilon": self.epsilon, "delta": self.delta},
            "confidence": 1 - self.alpha,
            "flagged": self.flagged,
            "refuted_by": list(self.refuted_by),
            "epsilon_lower_bound": self.epsilon_bound,
            "hockey_stick": {"estimate": self.hockey_stick[0], "lower_bound": self.hockey_stick[1]},
            "events": {"pair": tested(self.pair), "curve": tested(self.curve)},
        }


def audit_mechanism(
    first: Sampler,
    second: Sampler,
    *,
    epsilon: float,
    delta: float,
    samples: int,
    curve: TradeOff | None = None,
    scores: Mapping[str, Score] | None = None,
    alpha: float = 0.05,
) -> MechanismFindings:
    """Try to refute that `first` and `second` are (epsilon, delta)-indistinguishable.

    The bounds are Clopper and Pearson's, so the answer is wrong with probability at most `alpha` whatever the outputs
    are; half of it goes to (epsilon, delta), half to the curve.

    Args:
        first: Draws outputs on one input.
        second: Draws outputs on its neighbour.
        epsilon: Claimed epsilon.
        delta: Claimed delta.
        samples: Number of outputs of each, half of which choose the events.
        curve: The claimed trade-off curve, if any; far easier to refute than a pair.
        scores: Functions of an array of outputs, (N, ...) to (N,); the output and its negative by default. A score
            may use whatever the adversary knows of the mechanism and of the two inputs.
        alpha: Probability that a true claim is refuted.

    Raises:
        ValueError: fewer than four samples.
    """
    if samples < 4:
        raise ValueError("an audit needs at least four samples, half to choose an event and half to test it")
    scores = scores or {"output": value, "-output": negated}
    half = samples // 2
    one, other = first(half), second(half)
    tests = 2 if curve else 1
    level = alpha / tests
    candidates = [c for name, score in scores.items() for c in _candidates(name, score(one), score(other))]
    hits = np.array([[c[1], c[2]] for c in candidates], np.float64)
    # Clopper and Pearson's bounds of all candidates at once, which scipy's binomtest has one at a time
    low = np.nan_to_num(beta.ppf(level / 2, hits[:, 0], half - hits[:, 0] + 1), nan=0.0)
    high = np.nan_to_num(beta.ppf(1 - level / 2, hits[:, 1] + 1, half - hits[:, 1]), nan=1.0)
    best = candidates[int(np.argmax((low - delta) / high))][0]
    best_on_curve = candidates[int(np.argmax(low - curve.power(high)))][0] if curve else None

    one, other = first(samples - half), second(samples - half)

    def test(event: OutputEvent) -> Tested:
        likelier, rarer = (one, other) if event.first_likelier else (other, one)
        counted = [Trials(int((scores[event.score](o) >= event.threshold).sum()), len(o)) for o in (likelier, rarer)]
        return Tested(event, *counted)

    pair = test(best)
    on_curve = test(best_on_curve) if best_on_curve else None
    bound_below = epsilon_by(pair.likelier, pair.rarer, delta, level)
    refuted = []
    if refuted_by(pair.likelier, pair.rarer, approximate(epsilon, delta), level):
        refuted.append("(epsilon, delta)")
    if curve and on_curve and refuted_by(on_curve.likelier, on_curve.rarer, curve, level):
        refuted.append("trade-off curve")
    grown = math.exp(min(epsilon, 700.0))
    estimate = pair.likelier.rate - grown * pair.rarer.rate
    bound = pair.likelier.at_least(level / 2) - grown * pair.rarer.at_most(level / 2)
    return MechanismFindings(epsilon, delta, alpha, pair, on_curve, bound_below, (estimate, bound), tuple(refuted))


def _candidates(name: str, one: Floats, other: Floats) -> list[tuple[OutputEvent, int, int]]:
    """Count the events of one score on the likelier and on the rarer input."""
    pooled = np.sort(np.concatenate([one, other]))
    ranks = np.unique(np.geomspace(1, len(pooled), THRESHOLDS).astype(np.int64))
    thresholds = np.unique(pooled[len(pooled) - ranks])
    counts = [len(s) - np.searchsorted(np.sort(s), thresholds, side="left") for s in (one, other)]
    events = []
    for t, a, b in zip(thresholds, *counts, strict=True):
        events.append((OutputEvent(name, float(t), True), int(a), int(b)))
        events.append((OutputEvent(name, float(t), False), int(b), int(a)))
    return events


Distribution = Mapping[Any, float]


def exact_delta(first: Distribution, second: Distribution, epsilon: float) -> float:
    """The least delta at which two distributions are epsilon-indistinguishable, both ways, by adding up all outputs.

    Args:
        first: Probability by output.
        second: The same for the neighbouring input.
        epsilon: At least 0.
    """
    grown = math.exp(min(epsilon, 700.0))
    outputs = set(first) | set(second)
    one_way = math.fsum(max(0.0, first.get(o, 0.0) - grown * second.get(o, 0.0)) for o in outputs)
    other_way = math.fsum(max(0.0, second.get(o, 0.0) - grown * first.get(o, 0.0)) for o in outputs)
    return max(one_way, other_way)


def exact_epsilon(first: Distribution, second: Distribution, delta: float) -> float:
    """The least epsilon at `delta`, to nine digits; infinity if there is none."""
    if exact_delta(first, second, 700.0) > delta:
        return math.inf
    low, high = 0.0, 700.0
    if exact_delta(first, second, low) <= delta:
        return 0.0
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        if exact_delta(first, second, middle) <= delta:
            high = middle
        else:
            low = middle
    return high
