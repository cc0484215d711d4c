"""What a count will be worth, by arithmetic alone: whom it hides, which errors to expect, what would be better."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

from dpose.errors import DposeError
from dpose.measure.config import CountConfig
from dpose.measure.plan import CountPlan, bind_count
from dpose.measure.statement import OUTSIDE, expected_errors, longer_stays
from dpose.privacy.ranges import exact_text, upper

WISH = 2
"""What a number of a window should be right within."""
WINDOWS = (60, 600, 3600, 14_400, 86_400)
CHUNKS = (1, 2, 5, 10, 30, 60, 300)
"""Windows and chunks, in seconds, that are tried for that."""


def explained(plan: CountPlan) -> Iterator[str]:
    """The explanation of a plan, line by line; nothing is read for it."""
    config = plan.config
    yield f"Hidden: {config.neighbours.describe()}, with epsilon {upper(config.epsilon)} a day" + (
        f" and delta {config.delta}" if config.delta else ""
    )
    yield (
        f"Those stays touch at most {plan.touched:,} chunks of {exact_text(config.chunk)} s; noise is for all of them, "
        "in every window"
    )
    for line in (*longer_stays(plan), *OUTSIDE[:1]):
        yield f"Less hidden: {line}"
    yield f"Expected of each window of {exact_text(config.window)} s, before anything is read:"
    for name, mean, within, unit in expected_errors(plan):
        yield f"  {name}: off by {mean:.3g} {unit} on average, by at most {within:.3g} in 95 % of the windows"
        yield f"    right within {WISH} {unit} in 95 %: {_better(plan, name)}"


def drowned(plan: CountPlan) -> Iterator[str]:
    """Warnings about queries whose noise is as wide as the range of a window's number; nothing is read for them."""
    for name, _, within, unit in expected_errors(plan):
        query = plan.mechanisms[name]
        most = query.most * plan.window_chunks / float(plan.divisor(query.query, plan.windows.start))
        if 2 * within >= most:
            yield (
                f"{name}: a window's noise is within {within:.3g} {unit} in 95 % of the windows, and its number is at "
                f"most {most:.3g}: it says little. --explain names what would be better."
            )


def _better(plan: CountPlan, name: str) -> str:
    """The settings nearest to the plan's that would give a window's number within `WISH`."""
    now = _within(plan, name)
    if now <= WISH:
        return "as it is"
    ways = [f"epsilon {upper(plan.config.epsilon * Fraction(now / WISH).limit_denominator(100), 2)}"]
    changed: dict[str, list[Callable[[], CountConfig]]] = {
        "window": [partial(replace, plan.config, window=Fraction(value)) for value in WINDOWS],
        "chunk": [partial(replace, plan.config, chunk=Fraction(value)) for value in CHUNKS],
    }
    for what, tried in changed.items():
        for make in tried:
            with contextlib.suppress(DposeError):  # a chunk that divides no window
                other = make()
                if _within(bind_count(other, plan.schedule), name) <= WISH:
                    ways.append(f"{what} {exact_text(getattr(other, what))} s")
                    break
    several = len(plan.config.queries) > 1
    return ", or ".join([*ways, *(["fewer queries"] if several else [])])


def _within(plan: CountPlan, name: str) -> float:
    return next(within for query, _, within, _ in expected_errors(plan) if query == name)
