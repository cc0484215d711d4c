"""The plan page: the noise that a budget requires, an attacker's limits, and epsilon against noise. Reads no data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.attackers import loss_grid
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import as_given, lower, upper
from dpose.privacy.tradeoff import of_events
from dpose.report.inline import tidy
from dpose.training.methods import METHODS
from dpose.training.plan import BoundPlan, TrainingPlan

RATES = tuple(k / 50 for k in range(51))
"""False-positive rates at which the trade-off curve is drawn."""
TIMES = tuple(2 ** (k / 8) for k in range(-8, 9))
"""Noise multipliers at which epsilon is drawn, in multiples of the plan's."""


def planned(body: Mapping[str, Any]) -> dict[str, Any]:
    """A training plan as JSON for the page; numbers are the plan's, rounded to the safe side.

    Args:
        body: units, epochs, batch, epsilon, delta; method, relation and accountant if they are not the defaults.
    """
    bound = _bound(
        _positive(body, "units", whole=True),
        _positive(body, "epochs"),
        _positive(body, "batch", whole=True),
        _positive(body, "epsilon"),
        _positive(body, "delta"),
        str(body.get("method", "dp-sgd")),
        str(body.get("relation", Relation.ZERO_OUT.value)),
        str(body.get("accountant", Accountant.PLD.value)),
    )
    plan, event = bound.plan, bound.event
    if event is None or bound.epsilon is None:
        raise DposeError("method-without-noise", f"{plan.method} adds no noise, so there is nothing to plan", "method")
    options = (
        f"--epochs {as_given(plan.epochs)} --batch-size {plan.expected_batch_size} "
        f"--epsilon {as_given(plan.epsilon or 0)} --delta {as_given(plan.delta or 0)} --method {plan.method}"
    )
    if plan.relation is not Relation.ZERO_OUT:
        options += f" --set plan.relation={plan.relation.value}"
    if plan.accountant is not Accountant.PLD:
        options += f" --set plan.accountant={plan.accountant.value}"
    nominal = "" if plan.nominal_units is None else f" --set plan.nominal_units={plan.nominal_units}"
    attack = _attack(event, plan.relation)
    return {
        "numbers": [
            ["noise multiplier", lower(event.sigma, places=4)],
            ["noise on the mean gradient", f"{lower(event.sigma / bound.divisor, 3)} C"],
            ["steps", f"{bound.steps:,}"],
            ["sampling rate", upper(bound.sampling_rate, places=6)],
            ["epsilon", upper(bound.epsilon, places=4)],
            ["delta", tidy(as_given(plan.delta or 0))],
        ],
        "attack": [list(point) for point in zip(RATES, attack, strict=True)],
        "reached": (
            "At 1 % false alarms, an attacker who guesses whether one given unit was in the data is right about "
            f"at most {upper(100 * _power(event, plan.relation, 0.01), places=1)} % of those that were."
        ),
        "sigma": event.sigma,
        "steps": bound.steps,
        "rate": bound.sampling_rate,
        "protects": list(plan.kind.protects),
        "open": list(plan.kind.leaves_open),
        "neighbours": f"{plan.relation.value}: {plan.relation.rule}",
        "summary": plan.kind.summary,
        "commands": [
            f"dpose plan --units {bound.n} {options}",
            f"dpose train --data NAME:ROOT {options}{nominal} --out runs/a",
        ],
    }


def noise_curve(body: Mapping[str, Any]) -> dict[str, Any]:
    """Epsilon of the plan at smaller and larger noise."""
    sigma, steps = _positive(body, "sigma"), _positive(body, "steps", whole=True)
    rate, delta = _positive(body, "rate"), _positive(body, "delta")
    relation = str(body.get("relation", Relation.ZERO_OUT.value))
    if relation not in tuple(Relation):
        raise DposeError("relation-unknown", f"must be one of {', '.join(Relation)}, not {relation!r}", "relation")
    points = _noise_curve(sigma, steps, rate, delta, Relation(relation))
    return {"points": [list(point) for point in points]}


def private_methods() -> list[str]:
    """The methods that add noise."""
    return [name for name, method in METHODS.items() if method.private]


@lru_cache(maxsize=64)
def _bound(
    units: int, epochs: float, batch: int, budget: float, delta: float, method: str, relation: str, accountant: str
) -> BoundPlan:
    nominal = units if relation == Relation.ADD_REMOVE else None
    plan = TrainingPlan(
        method=method,
        epsilon=budget,
        delta=delta,
        epochs=epochs,
        expected_batch_size=batch,
        relation=relation,  # type: ignore[arg-type]
        accountant=accountant,  # type: ignore[arg-type]
        nominal_units=nominal,
    )
    return plan.bind(units)


@lru_cache(maxsize=64)
def _curve(event: SampledGaussian, relation: Relation) -> Any:
    return of_events([event], relation, grid=loss_grid([event]))


def _attack(event: SampledGaussian, relation: Relation) -> list[float]:
    return [round(float(value), 4) for value in _curve(event, relation).power(RATES)]


def _power(event: SampledGaussian, relation: Relation, rate: float) -> float:
    return float(_curve(event, relation).power(rate)[0])


@lru_cache(maxsize=64)
def _noise_curve(
    sigma: float, steps: int, rate: float, delta: float, relation: Relation
) -> tuple[tuple[float, float], ...]:
    points = []
    for times in TIMES:
        event = SampledGaussian(q=min(1.0, rate), sigma=sigma * times, steps=steps, sensitivity=1.0)
        points.append((sigma * times, epsilon([event], delta, relation=relation)))
    return tuple(points)


def _positive(body: Mapping[str, Any], name: str, *, whole: bool = False) -> Any:
    try:
        value = float(body[name])
        if not 0 < value < 1e12 or isinstance(body[name], bool) or (whole and value != int(value)):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        kind = "a whole number above 0" if whole else "a number above 0"
        raise DposeError("request-field-invalid", f"must be {kind}, not {str(body.get(name))[:40]!r}", name) from None
    return int(value) if whole else value
