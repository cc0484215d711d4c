"""What an audit found, as values, as JSON and in words."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.audits import one_run as onerun
from dpose.audits.noise_family import Family, NoiseBound
from dpose.audits.trials import OperatingPoint, Trials, operating_points, refuted_by, roc
from dpose.extensions import source_files
from dpose.privacy.statement import software_versions
from dpose.privacy.tradeoff import Floats
from dpose.training.plan import BoundPlan

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
    guesses: tuple[onerun.Guesses, ...]

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
    adversaries: Sequence[Adversary],
    included: NDArray[np.bool_],
    family: Family,
    epsilon: float,
    alpha: float,
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
    guesses = [[onerun.guess(a.scores, included, count) for count in counts] for a in adversaries]
    made = [g for by_one in guesses for g in by_one]
    points = [_points(a, included) for a in adversaries]
    of_independent = [
        p for a, by_one in zip(adversaries, points, strict=True) if a.independent for p in by_one
    ]

    one_run = max(onerun.epsilon_bound(g, family.delta, each) for g in made)
    curve = family.bound(lambda c: any(onerun.refuted(g, c, each) for g in made))
    trials: NoiseBound | None = None
    level = alpha / (tests * max(1, len(of_independent)))
    if of_independent:
        trials = family.bound(lambda c: any(refuted_by(p.true, p.false, c, level) for p in of_independent))

    def refutes(k: int) -> bool:
        counted = points[k] if adversaries[k].independent else ()
        return (
            any(onerun.epsilon_bound(g, family.delta, each) > epsilon for g in guesses[k])
            or any(onerun.refuted(g, family.claimed, each) for g in guesses[k])
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
    if (
        adversary.calibration is None or not included.any() or not len(absent)
    ):  # of few coins all may fall alike
        return ()
    return operating_points(adversary.scores[included], absent, adversary.calibration)


def _trials(trials: Trials) -> dict[str, Any]:
    return {
        "hits": trials.hits,
        "total": trials.total,
        "rate": trials.rate,
        "interval": trials.interval(0.05),
    }


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
