"""`dpose plan`: a plan in words and numbers, before any data is read.

The figures are computed once and then remembered in the user's cache folder, since loading the accountant and composing
a run takes seconds. What trains, states or verifies binds the plan, or counts the events, itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpose.privacy import memo
from dpose.privacy.accounting import MIN_DELTA, OF_RUNS, Accountant
from dpose.privacy.attackers import FALSE_POSITIVES, AttackerBound, bound_attackers
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import as_given, few_units, large_delta, lower, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.units import Unit

KIND = "plans"


@dataclass(frozen=True)
class NoiseNeeded:
    """What one accountant says.

    Attributes:
        accountant: Which.
        sigma: The noise multiplier; None if it has no bound for the plan's relation or delta.
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
    """The figures of `plan` for this many units: remembered ones where there are any."""
    request = {"plan": plan.to_dict(), "units": units}
    remembered = memo.recall(KIND, request)
    if remembered is not None:
        return PlanFigures.from_dict(remembered)
    figures = _computed(plan, plan.bind(units, units))
    memo.remember(KIND, request, figures.to_dict())
    return figures


def _computed(plan: TrainingPlan, bound: BoundPlan) -> PlanFigures:
    if bound.event is None or plan.delta is None:
        return PlanFigures(bound.n, bound.steps, bound.sampling_rate)
    rows = []
    for accountant in OF_RUNS:
        replaced = accountant is Accountant.RDP and plan.relation is Relation.REPLACE
        if replaced or (accountant is Accountant.PLD and plan.delta < MIN_DELTA):
            rows.append(NoiseNeeded(accountant, None, None))
            continue
        other = bound if accountant is plan.accountant else replace(plan, accountant=accountant).bind(bound.n, bound.n)
        assert other.event is not None
        rows.append(NoiseNeeded(accountant, other.event.sigma, other.epsilon))
    attackers = bound_attackers([bound.event], plan.relation, plan.delta)
    return PlanFigures(bound.n, bound.steps, bound.sampling_rate, tuple(rows), attackers)


def explain_plan(plan: TrainingPlan, units: int, size: tuple[int, int] = (256, 192)) -> RenderableType:
    """What `plan` does to `units` units: noise by each accountant, steps, what is protected and what is not.

    Args:
        plan: The plan.
        units: How many units there are.
        size: (H, W) of a crop, for what its public view shows.
    """
    figures = plan_figures(plan, units)
    method = plan.kind
    parts: list[RenderableType] = [Text(f"{method.name}: {method.summary}."), Text()]
    parts.append(_schedule(plan, figures))
    for note in plan.notes(figures.n):
        parts += [Text(), Text(note)]
    if method.private:
        warnings = (large_delta(plan.delta, figures.n), few_units(figures.n))
        parts += [part for warning in warnings if warning for part in (Text(), Text(warning))]
        parts += [Text(), _noise(plan, figures)]
        parts += _listed("What no attacker can do, by the whole trade-off curve", _attackers(plan, figures.attackers))
        parts += [Text(), Text(f"Neighbours ({plan.relation.value}): {plan.relation.rule}.")]
    parts += _listed(f"Protected, unit = one {plan.unit or 'unit of the data'}", method.protects)
    parts += _listed("Not protected", method.leaves_open)
    parts += _listed("What it needs and costs", (*method.costs, *_settings(plan, size)))
    return Group(*parts)


def _settings(plan: TrainingPlan, size: tuple[int, int]) -> list[str]:
    lines = []
    if plan.augmentation_multiplicity > 1:
        lines.append(
            f"{plan.augmentation_multiplicity} augmented copies of each unit: that many times the time, no more noise"
        )
    if plan.kind.solves:
        lines.append("the directions, 4 to 32, of joints that the model finds in all public units")
    elif plan.kind.fitted:
        s, scales = plan.subspace, plan.kind.pre_clipping == "scales"
        what = "scales" if scales else f"subspace: {s.rank} directions"
        lines.append(
            f"the {what} of gradients of {s.units} public units, fitted every {s.refresh} steps"
            if s.kind == "public"
            else f"the {'scales are' if scales else 'subspace is'} a control: {s.kind}"
        )
    if plan.kind.public_views:
        lines.append(f"the public view: {plan.public_view.describe(size)}")
    if plan.kind.public_views and plan.kind.private:
        lines.append(
            "the private loss is l(x, y)"
            if plan.private_loss == "plain"
            else "the private loss is the residual l(x, y) - l(psi(x), y)"
        )
    return lines


def _schedule(plan: TrainingPlan, figures: PlanFigures) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("units", f"{figures.n:,}")
    table.add_row("expected batch size", f"{figures.divisor:,.0f}")
    if plan.kind.private:
        table.add_row("sampling rate q", upper(figures.rate, places=6))
    table.add_row("steps", f"{figures.steps:,}")
    return table


def _noise(plan: TrainingPlan, figures: PlanFigures) -> Table:
    table = Table(title="The noise that this budget asks for", title_justify="left")
    for name in ("accountant", "noise multiplier", "noise on the mean gradient", "epsilon", "delta"):
        table.add_column(name, justify="left" if name == "accountant" else "right")
    for row in figures.noise:
        if row.sigma is None:
            why = "replacement" if row.accountant is Accountant.RDP else f"a delta below {as_given(MIN_DELTA)}"
            table.add_row(row.accountant.value, f"has no bound for {why}", "", "", "")
            continue
        table.add_row(
            row.accountant.value + (" (used)" if row.accountant is plan.accountant else ""),
            lower(row.sigma, places=4),
            f"{lower(row.sigma / figures.divisor, 3)} C",
            upper(row.epsilon or 0, places=4),
            as_given(plan.delta or 0),
        )
    return table


def _attackers(plan: TrainingPlan, found: AttackerBound | None) -> tuple[str, ...]:
    if found is None:
        if plan.delta is not None and plan.delta < MIN_DELTA:
            return (f"no curve is computed for a delta below {as_given(MIN_DELTA)}",)
        return ("there is no use in a bound: epsilon is far too large",)
    most = found.rates[FALSE_POSITIVES]
    one = plan.unit or "unit"
    return (
        f"an attacker who guesses whether one {one} was in, with false alarms of "
        f"{as_given(100 * FALSE_POSITIVES)} %, is right at most {upper(most, 3, times=100)} % of the times that it was",
        *PrivacyStatement(Kind.NONE, Unit.IMAGE, attackers=found).words().curve,
    )


def _listed(title: str, lines: tuple[str, ...]) -> list[RenderableType]:
    if not lines:
        return []
    table = Table(box=None, show_header=False, pad_edge=False)
    for line in lines:
        table.add_row(" *", line)
    return [Text(), Text(f"{title}:"), table]
