"""The figures of a plan, for showing: computed once, then remembered in the user's cache folder.

Loading the accountant and composing a run takes seconds; a plan is looked at again and again. What trains, states or
verifies does not come here: it binds the plan, or counts the events, itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpose.privacy import memo
from dpose.privacy.accounting import OF_RUNS, Accountant
from dpose.privacy.attackers import AttackerBound, bound_attackers
from dpose.privacy.neighbours import Relation
from dpose.training.plan import BoundPlan, TrainingPlan

KIND = "plans"


@dataclass(frozen=True)
class NoiseNeeded:
    """What one accountant says.

    Attributes:
        accountant: Which.
        sigma: The noise multiplier; None if it has no bound for the plan's relation.
        epsilon: What that costs.
    """

    accountant: Accountant
    sigma: float | None
    epsilon: float | None


@dataclass(frozen=True)
class PlanFigures:
    """A plan bound to a number of units, in numbers.

    Attributes:
        n: Units; under add-or-remove the nominal number.
        steps: Optimizer steps.
        rate: The sampling rate q.
        noise: By each accountant; none for a method without noise.
        attackers: What no attacker can do; None if it is of no use, or without noise.
    """

    n: int
    steps: int
    rate: float
    noise: tuple[NoiseNeeded, ...] = ()
    attackers: AttackerBound | None = None

    @property
    def divisor(self) -> float:
        """The expected batch size q*n."""
        return self.rate * self.n

    def to_dict(self) -> dict[str, Any]:
        """JSON values; numbers of any precision as strings."""
        return {
            "n": self.n,
            "steps": self.steps,
            "rate": repr(self.rate),
            "noise": [[row.accountant.value, repr(row.sigma), repr(row.epsilon)] for row in self.noise],
            "attackers": self.attackers.to_dict() if self.attackers else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PlanFigures:
        """What `to_dict` wrote.

        Raises:
            ValueError, TypeError, KeyError, DposeError: it did not.
        """
        noise = tuple(NoiseNeeded(Accountant(a), _number(s), _number(e)) for a, s, e in values["noise"])
        bound = values["attackers"]
        return cls(
            int(values["n"]),
            int(values["steps"]),
            float(values["rate"]),
            noise,
            None if bound is None else AttackerBound.read(bound, "attackers"),
        )


def _number(text: str) -> float | None:
    return None if text == "None" else float(text)


def plan_figures(plan: TrainingPlan, units: int) -> PlanFigures:
    """The figures of `plan` for this many units: remembered ones where there are any.

    Raises:
        DposeError: as `TrainingPlan.bind`.
    """
    request = {"plan": plan.to_dict(), "units": units}
    remembered = memo.recall(KIND, request)
    if remembered is not None:
        return PlanFigures.from_dict(remembered)
    figures = _computed(plan, plan.bind(units))
    memo.remember(KIND, request, figures.to_dict())
    return figures


def _computed(plan: TrainingPlan, bound: BoundPlan) -> PlanFigures:
    if bound.event is None or plan.delta is None:
        return PlanFigures(bound.n, bound.steps, bound.sampling_rate)
    rows = []
    for accountant in OF_RUNS:
        if accountant is Accountant.RDP and plan.relation is Relation.REPLACE:
            rows.append(NoiseNeeded(accountant, None, None))
            continue
        other = bound if accountant is plan.accountant else replace(plan, accountant=accountant).bind(bound.n)
        assert other.event is not None
        rows.append(NoiseNeeded(accountant, other.event.sigma, other.epsilon))
    attackers = bound_attackers([bound.event], plan.relation, plan.delta)
    return PlanFigures(bound.n, bound.steps, bound.sampling_rate, tuple(rows), attackers)
