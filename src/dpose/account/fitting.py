"""What would still fit into a budget, in words: steps and releases of the kinds that were charged before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dpose.account.composition import filter_epsilon, order_of_budget, renyi_cost
from dpose.account.records import PIXEL, Budget, Charge, restated, unbounded
from dpose.privacy.events import Event, Gaussian, Laplace, SampledGaussian
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.rounding import as_given, lower

EXAMPLES = 3
"""Of what would fit: so many, of the newest kinds."""

Cost = tuple[float, float]
"""Renyi divergence at the budget's order, and the probability that it does not hold."""


def fitting_words(budget: Budget, spent: Cost, like: Sequence[Charge]) -> str:
    """What of the kinds of `like` a budget of which this is spent would still let in; "" where nothing would."""
    order, cap = order_of_budget(budget.epsilon, budget.delta)
    left = max(0.0, cap - spent[0])
    said = [
        words
        for charge in like
        for event in charge.events
        if (words := _fitting(budget.neighbours, left, order, charge, event))
    ]
    if not said:
        return ""
    rest = lower(max(0.0, budget.epsilon - filter_epsilon(spent, budget.epsilon, budget.delta)), 3)
    return f"at epsilon {rest} left: {', or '.join(list(dict.fromkeys(said))[-EXAMPLES:])}"


def _fitting(asked: Neighbours, left: float, order: float, charge: Charge, event: Event) -> str:
    """How much of an event's kind fits into a Renyi divergence; "" where nothing does."""
    if unbounded(charge, asked.unit):
        return ""
    if isinstance(event, SampledGaussian):
        one = renyi_cost([replace(event, steps=1)], order, replaces=asked.replaces)[0]
        steps = min(int(left / one), 10**9) if one else 10**9
        batch = f"of {round(event.q * charge.units):,}" if charge.units else ""
        size = batch or f"at sampling rate {as_given(float(f'{event.q:.3g}'))}"
        return f"{steps:,} steps {size} at sigma {lower(event.sigma, 3)}" if steps else ""
    if charge.unit != PIXEL:
        return ""
    (wide,) = restated(replace(charge, events=(event,)), asked)
    if isinstance(event, Laplace) and isinstance(wide, Laplace):
        room = max(left, math.sqrt(2 * left / order)) / float(wide.pure() / event.pure())
        what = f"at {lower(room, 2)}"
    elif isinstance(event, Gaussian) and isinstance(wide, Gaussian):
        room = left / order / float(wide.rho() / event.rho())
        what = f"at rho {lower(room, 2)} of zCDP"
    else:
        return ""
    pixels = f" for {event.pixels} pixels" if event.pixels else ""
    return f"one release of each {charge.within} {what}{pixels}" if room >= 1e-6 else ""
