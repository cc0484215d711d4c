"""What an audit found, as values, as JSON and in words.

Auditing in one run: from guesses about many canaries to a lower bound on epsilon.

    made = guess(scores, included, 100)                      # the 50 highest as in, the 50 lowest as out
    epsilon_bound(made, delta=1e-5, alpha=0.05)              # Steinke, Nasr and Jagielski 2023
    refuted(made, claimed_curve, alpha=0.05)                 # Mahloujifar, Melis and Chaudhuri 2024

Each of m canaries goes into the data on the toss of its own fair coin, before training. The adversary sees what the
mechanism released, guesses `made` of the coins and leaves the others. Under a guarantee about each single canary the
number of right guesses is unlikely to be large; where it is, the guarantee is refuted. The number of guesses must be
fixed beforehand, or each number tried must pay for itself (`TrialPlan`): the adversary may choose *which* canaries to
guess by looking, not how many. Derivations: docs/proofs/auditing.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from dpose.audits.noise_family import Family, NoiseBound
from dpose.audits.trials import OperatingPoint, Trials, operating_points, refuted_by, roc
from dpose.extensions import source_files
from dpose.privacy.statement import software_versions
from dpose.privacy.tradeoff import Floats, TradeOff
from dpose.training.plan import BoundPlan

LARGEST = 20.0
"""Bounds are looked for up to this epsilon; no number of guesses here could show a larger one."""
STEP = 0.01
"""Bounds are rounded down to a multiple of this."""


@dataclass(frozen=True)
class Guesses:
    """What the adversary staked and how it came out.

    Attributes:
        canaries: m, all canaries, guessed or not.
        made: Guesses made.
        correct: How many of them were right.
    """

    canaries: int
    made: int
    correct: int

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.made <= self.canaries:
            raise ValueError(f"{self.correct} of {self.made} guesses on {self.canaries} canaries cannot be")


def guess(scores: Floats, included: NDArray[np.bool_], made: int) -> Guesses:
    """Guess the highest scores as in and the lowest as out, half and half.

    Args:
        scores: (m,), higher where the adversary believes more that the canary was in.
        included: (m,), the coins.
        made: How many guesses; an odd one goes to the highest.

    Raises:
        ValueError: the two arrays differ in shape, or there are fewer canaries than guesses.
    """
    if scores.shape != included.shape or scores.ndim != 1 or made > len(scores):
        raise ValueError(f"cannot make {made} guesses from scores {scores.shape} of coins {included.shape}")
    # ties go by position, which says nothing about a coin
    order = np.argsort(-scores, kind="stable")
    top = made - made // 2
    right = int(included[order[:top]].sum()) + int((~included[order[len(order) - made // 2 :]]).sum())
    return Guesses(len(scores), made, right)


def p_values(guesses: Guesses, epsilons: Floats, delta: float) -> Floats:
    """The largest probability, for each epsilon, that an (epsilon, delta)-DP mechanism allows of so many right guesses.

    With W ~ Binomial(made, e^epsilon / (1 + e^epsilon)) and v right guesses,

        P[right >= v]  <=  P[W >= v] + 2 m delta max_{1 <= i <= v} P[v > W >= v - i] / i

    (Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", Theorem 5.2).
    """
    v = guesses.correct
    if v == 0:
        return np.ones_like(epsilons)
    rate = expit(epsilons)[:, None]
    tail = np.asarray(binom.sf(v - 1, guesses.made, rate))[:, 0]
    below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1)[None], guesses.made, rate), axis=1)
    worst = (below / np.arange(1, v + 1)).max(axis=1)
    return np.asarray(np.minimum(1.0, tail + 2 * guesses.canaries * delta * worst))


def epsilon_bound(guesses: Guesses, delta: float, alpha: float) -> float:
    """A lower bound on epsilon at `delta`, wrong with probability at most `alpha`.

    Epsilons are tried from 0 upwards, and the bound stops at the first that is not refuted: it can exceed the true
    epsilon only where the true epsilon itself was refuted.
    """
    low = 0.0
    for width in (20 * STEP, STEP):
        epsilons = low + width * np.arange(LARGEST / (20 * STEP) if width > STEP else 20)
        stands = p_values(guesses, epsilons, delta) > alpha
        first = int(np.argmax(stands)) if stands.any() else len(epsilons)
        low = float(epsilons[max(first - 1, 0)])
    return low


def refuted(guesses: Guesses, curve: TradeOff, alpha: float) -> bool:
    """Whether so many right guesses have a probability below `alpha` under every mechanism within `curve`."""
    return _least_mass(guesses, curve, alpha) > 1 + 1e-9


def _least_mass(guesses: Guesses, curve: TradeOff, tail: float) -> float:
    """The least total probability of all outcomes, given that the right guesses reach `correct` with `tail`.

    A total above one cannot be, so the tail is refuted. With p_i the probability of exactly i right guesses, c of them
    made and f the curve, one-run auditing gives for every i (Mahloujifar, Melis and Chaudhuri 2024, "Auditing
    f-differential privacy in one run", Theorem 9 for k = 2)

        sum_{j > i} (j/m) p_j   <=   power( sum_{j >= i} ((c - j)/m) p_j ) .

    The two sums are `right` and `wrong` below. Going down from the tail, each p_i is the least that the inequality
    allows, and never negative; docs/proofs/auditing.md proves that this greedy choice gives the least total.
    """
    m, made = guesses.canaries, guesses.made
    right = tail * guesses.correct / m
    wrong = tail * (made - guesses.correct) / m
    for i in range(guesses.correct - 1, -1, -1):
        needed = curve.least_false_positive(right)
        mass = max(0.0, (needed - wrong) * m / (made - i))
        right = right + mass * i / m
        wrong = wrong + mass * (made - i) / m
    return (right + wrong) * m / made


SHARES = (0.05, 0.2, 0.7)
"""Shares of the canaries that are guessed, fixed beforehand; each is tried at a third of the level."""
TESTS = ("(epsilon, delta) in one run", "trade-off curve in one run", "trade-off curve, independent canaries")
"""The three tests; each has a third of the level to spend."""


@dataclass(frozen=True)
class Adversary:
    """One way to score the canaries.

    Attributes:
        name: What it supposes.
        scores: (m,), higher where it believes more that the canary was in.
        calibration: Scores of what was never in, for thresholds alone; or None, and there are no operating points.
        absent: Further scores of what was never in, to count false positives on together with canaries left out.
        independent: Whether the scores of different canaries are independent of each other under the claimed mechanism.
    """

    name: str
    scores: Floats
    calibration: Floats | None = None
    absent: Floats | None = None
    independent: bool = False


@dataclass(frozen=True)
class AuditFindings:
    """What one run gave away.

    Attributes:
        bounds: Lower bounds on epsilon by test, all of which hold together; None if a test does not apply.
        refuted: The tests that refute the claim.
        adversary: The one whose rates are reported: the first, or the first that refutes the claim where it does not.
        points: Its operating points.
        curve: Its empirical false- and true-positive rates.
        guesses: Its guesses.
    """

    bounds: Mapping[str, float | None]
    refuted: tuple[str, ...]
    adversary: str
    points: tuple[OperatingPoint, ...]
    curve: tuple[Floats, Floats]
    guesses: tuple[Guesses, ...]

    @property
    def flagged(self) -> bool:
        """Whether the claim is refuted."""
        return bool(self.refuted)

    @property
    def bound(self) -> float:
        """The largest of the bounds."""
        return max(value for value in self.bounds.values() if value is not None)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "flagged": self.flagged,
            "refuted_by": list(self.refuted),
            "adversary": self.adversary,
            "epsilon_lower_bounds": dict(self.bounds),
            "operating_points": [_point(point) for point in self.points],
            "guesses": [vars(guess) for guess in self.guesses],
            "curve": {"fpr": self.curve[0].tolist(), "tpr": self.curve[1].tolist()},
        }


def weigh(
    adversaries: Sequence[Adversary], included: NDArray[np.bool_], family: Family, epsilon: float, alpha: float
) -> AuditFindings:
    """Test a claim by all adversaries' scores; the probability to refute a true one is at most `alpha`.

    The level is divided evenly among the tests, the adversaries and the numbers of guesses (or thresholds).

    Args:
        adversaries: At least one; the rates of the first are reported, unless only another one refutes the claim.
        included: (m,), the coins.
        family: The claimed event and its relatives.
        epsilon: As claimed at `family.delta`.
        alpha: In (0, 1).
    """
    independent = [a for a in adversaries if a.independent]
    tests = 3 if independent else 2
    each = alpha / (tests * len(adversaries) * len(SHARES))
    counts = [max(2, round(share * len(included))) for share in SHARES]
    guesses = [[guess(a.scores, included, count) for count in counts] for a in adversaries]
    made = [g for by_one in guesses for g in by_one]
    points = [_points(a, included) for a in adversaries]
    of_independent = [p for a, by_one in zip(adversaries, points, strict=True) if a.independent for p in by_one]

    one_run = max(epsilon_bound(g, family.delta, each) for g in made)
    curve = family.bound(lambda c: any(refuted(g, c, each) for g in made))
    trials: NoiseBound | None = None
    level = alpha / (tests * max(1, len(of_independent)))
    if of_independent:
        trials = family.bound(lambda c: any(refuted_by(p.true, p.false, c, level) for p in of_independent))

    def refutes(k: int) -> bool:
        counted = points[k] if adversaries[k].independent else ()
        return (
            any(epsilon_bound(g, family.delta, each) > epsilon for g in guesses[k])
            or any(refuted(g, family.claimed, each) for g in guesses[k])
            or any(refuted_by(p.true, p.false, family.claimed, level) for p in counted)
        )

    shown = next((k for k in range(len(adversaries)) if refutes(k)), 0)
    bounds = (one_run, curve.epsilon, trials.epsilon if trials else None)
    claimed = family.event.sigma
    verdicts = (one_run > epsilon, curve.sigma <= claimed, trials is not None and trials.sigma <= claimed)
    return AuditFindings(
        dict(zip(TESTS, bounds, strict=True)),
        tuple(test for test, refuted in zip(TESTS, verdicts, strict=True) if refuted),
        adversaries[shown].name,
        points[shown],
        roc(adversaries[shown].scores[included], _absent(adversaries[shown], included)),
        tuple(guesses[shown]),
    )


def _absent(adversary: Adversary, included: NDArray[np.bool_]) -> Floats:
    left_out = adversary.scores[~included]
    return left_out if adversary.absent is None else np.concatenate([left_out, adversary.absent])


def _points(adversary: Adversary, included: NDArray[np.bool_]) -> tuple[OperatingPoint, ...]:
    absent = _absent(adversary, included)
    if adversary.calibration is None or not included.any() or not len(absent):  # of few coins all may fall alike
        return ()
    return operating_points(adversary.scores[included], absent, adversary.calibration)


def _trials(trials: Trials) -> dict[str, Any]:
    return {"hits": trials.hits, "total": trials.total, "rate": trials.rate, "interval": trials.interval(0.05)}


def _point(point: OperatingPoint) -> dict[str, Any]:
    return {"target_fpr": point.target, "tpr": _trials(point.true), "fpr": _trials(point.false)}


BLIND = (
    "This audit sees nothing: not one of its controls was flagged, and they leak on purpose. That the run was not "
    "flagged means nothing."
)
"""What a report says in place of a verdict."""


@dataclass(frozen=True)
class AuditReport:
    """An audit of a training run.

    Attributes:
        title: What was audited.
        claim: What is claimed: epsilon, delta, relation, accountant, n, event.
        threat_model: What the adversary knows, does and sees.
        canaries: Kind, count and how many were in.
        seed: None for keys from the operating system.
        alpha: Probability that a true claim is refuted.
        planted: The fault that was planted; "" for none.
        unseen: Where no audit sees that fault: why, and what does; otherwise "".
        findings: Of the audited run.
        controls: Of runs whose outcome is known, by name; none of them reads private data.
        family: For the picture.
        notes: What the reader must know.
    """

    title: str
    claim: Mapping[str, Any]
    threat_model: str
    canaries: Mapping[str, Any]
    seed: int | None
    alpha: float
    planted: str
    findings: AuditFindings
    controls: Mapping[str, AuditFindings]
    family: Family
    notes: Sequence[str] = ()
    unseen: str = ""
    code: Mapping[str, str] = field(default_factory=lambda: code_version())

    @property
    def blind(self) -> bool:
        """Whether not one control is flagged, which all leak: then silence about the run means nothing."""
        return bool(self.controls) and not any(control.flagged for control in self.controls.values())

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        fpr = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 121)])
        return {
            "schema": 1,
            "title": self.title,
            "claim": dict(self.claim),
            "threat_model": self.threat_model,
            "canaries": dict(self.canaries),
            "seed": self.seed,
            "confidence": 1 - self.alpha,
            "planted_fault": self.planted,
            "not_seen_because": self.unseen,
            "code": dict(self.code),
            "run": self.findings.to_dict(),
            "controls": {name: found.to_dict() for name, found in self.controls.items()},
            "claimed_curve": {"fpr": fpr.tolist(), "tpr": self.family.claimed.power(fpr).tolist()},
            "notes": list(self.notes),
        }


def claim_of(bound: BoundPlan) -> dict[str, Any]:
    """What a plan with its constants claims, as a report shows it."""
    plan = bound.plan
    return {
        "method": plan.method,
        "epsilon": bound.epsilon,
        "delta": plan.delta,
        "relation": plan.relation.value,
        "accountant": plan.accountant.value,
        "unit": plan.unit,
        "n": bound.n,
        "event": bound.event.to_dict() if bound.event else None,
        "plan_sha256": bound.sha256,
    }


def code_version() -> dict[str, str]:
    """Versions of the packages, and a digest of dpose's own source as it ran."""
    digest = hashlib.sha256()
    for name, path in source_files():
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return {**software_versions(), "source": digest.hexdigest()[:16]}
