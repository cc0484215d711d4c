"""A privacy statement in plain English, as parts: warnings, the guarantee, titled lists.

    words = words_of(statement)
    words.guarantee                       # one paragraph; empty where nothing is claimed
    print(words.text())                   # all of it, every item of every list

The sentences stand in `statement.j2`; this module computes the numbers that they name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from dpose.privacy.attackers import FALSE_POSITIVES, AttackerBound, loss_grid
from dpose.privacy.neighbours import BEYOND
from dpose.privacy.queries import Query
from dpose.privacy.rounding import as_given, upper
from dpose.privacy.sections import EVERYBODY, UNSTATED, GroupResult
from dpose.units import Unit

if TYPE_CHECKING:
    from dpose.privacy.statement import PrivacyStatement
    from dpose.privacy.tradeoff import TradeOff

WEAK_ODDS = 50
"""A guarantee under which an alarm may raise the odds more often than this is called weak."""
WARNING = "WARNING: "
"""The beginning of a text that stands before the guarantee that it restricts."""
DETAILS_ONLY = (
    "so this hides details of a few pixels, not that a person is there, nor what they broadly look like"
)
"""A caveat of releases for so few pixels that a face covers many times as many."""


@dataclass(frozen=True)
class StatementWords:
    """What a statement says.

    Attributes:
        warnings: To be read before the guarantee: that there is none, and what restricts it.
        guarantee: One paragraph; empty where nothing is claimed.
        brief: The guarantee in one sentence, what it does not hide, what it takes as given: a line each.
        lists: Titles with their items; none is empty.
        no_guarantee: Why nothing is guaranteed; empty where something is.
        difference: In what neighbours may differ; empty where nothing is claimed.
        method: How epsilon was computed; empty where nothing is claimed.
        limit: Whom a guarantee holds against: noise from a cipher bounds those who cannot break it.
        several: What several units of one person cost together, or several times a release's pixels.
        curve: What no attacker can do, by the whole trade-off curve.
    """

    warnings: tuple[str, ...]
    guarantee: str
    brief: tuple[str, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    no_guarantee: str
    difference: str
    method: str
    limit: str
    several: tuple[str, ...]
    curve: tuple[str, ...]

    def text(self) -> str:
        """All of it: warnings, the guarantee, and the lists with every item."""
        blocks = [*self.warnings, self.guarantee]
        blocks += ["\n".join([f"{title}:", *(f"* {item}" for item in items)]) for title, items in self.lists]
        return "\n\n".join(block for block in blocks if block)

    def printed(self) -> str:
        """What is printed once the artefact is written: warnings, one sentence, and what is not hidden."""
        return "\n".join((*self.warnings, *self.brief))


def words_of(statement: PrivacyStatement) -> StatementWords:
    """The statement in words."""
    near = statement.neighbours
    events = statement.sampled_events
    of_units = near is not None and near.of_units
    bound = tpr_bound(statement)
    given, caveats = _without_warnings(statement.conditional_on), _without_warnings(statement.caveats)
    said: Any = _template().make_module(
        {
            "s": statement,
            "claims": None not in (near, statement.epsilon, statement.delta),
            "of_units": of_units,
            "beyond": near is not None and near.scope == BEYOND,
            "few_pixels": DETAILS_ONLY in statement.caveats,
            "given": given,
            "caveats": caveats,
            "tpr_bound": bound,
            "odds": bound / FALSE_POSITIVES,
            "alarms": f"{FALSE_POSITIVES:.0%}",
            "weak": statement.epsilon is not None and is_weak(statement),
            "exact_noise": any(event.rounded for event in events),
            "floating_noise": not all(event.rounded for event in events),
            "groups": statement.groups or statement.several(),
            "worst": largest_loss(statement.results),
        }
    )
    stated = (*statement.caveats, *statement.conditional_on)
    warnings = [text for text in stated if text.startswith(WARNING)]
    return StatementWords(
        warnings=tuple([said.no_guarantee, *warnings] if said.no_guarantee else warnings),
        guarantee=said.guarantee,
        brief=tuple(said.brief),
        lists=tuple((title, tuple(items)) for title, items in said.lists if items),
        no_guarantee=said.no_guarantee.partition(": ")[2],
        difference=said.difference,
        method=said.method,
        limit=said.limit,
        several=tuple(said.several),
        curve=tuple(said.curve),
    )


def curve_words(bound: AttackerBound) -> tuple[str, ...]:
    """What no attacker can do, by the whole trade-off curve, in words."""
    from dpose.privacy.statement import Kind, PrivacyStatement

    return words_of(PrivacyStatement(Kind.NONE, Unit.IMAGE, attackers=bound)).curve


def tpr_bound(statement: PrivacyStatement) -> float:
    """The largest true-positive rate of an attacker at 1 % false alarms: by the run's whole curve where it is known."""
    if statement.attackers is not None:
        return statement.attackers.rates[FALSE_POSITIVES]
    return true_positives(float(statement.epsilon or 0), statement.delta or 0.0)


def true_positives(epsilon: float, delta: float, false_positives: float = FALSE_POSITIVES) -> float:
    """The largest true-positive rate of an attacker at a given rate of false alarms, by (epsilon, delta) alone.

    For a test between two neighbouring datasets, (epsilon, delta)-differential privacy bounds the
    true-positive rate by min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)) at false-positive rate a
    (Kairouz, Oh and Viswanath 2015, "The composition theorem for differential privacy").
    """
    # e^epsilon overflows above 709, where the bound has long been 1
    grown = math.exp(min(epsilon, 700.0)) * false_positives + delta
    shrunk = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - false_positives)
    return min(1.0, grown, shrunk)


def is_weak(statement: PrivacyStatement) -> bool:
    """True if an alarm may raise the odds 50 times: at 1 % false alarms, or at fewer by the whole curve."""
    if statement.attackers is None:
        return tpr_bound(statement) > WEAK_ODDS * FALSE_POSITIVES
    found = statement.attackers.rates
    return any(most > WEAK_ODDS * rate for rate, most in found.items() if rate <= FALSE_POSITIVES)


def attacker_curve(statement: PrivacyStatement) -> TradeOff:
    """The most that any attacker finds at every rate of false alarms: by the recorded events, or by the claim alone."""
    from dpose.privacy.tradeoff import approximate, of_events

    if statement.attackers is None or statement.neighbours is None:
        return approximate(float(statement.epsilon or 0), statement.delta or 0.0)
    events = statement.sampled_events
    return of_events(events, statement.neighbours.relation, grid=loss_grid(events))


def largest_loss(results: Sequence[GroupResult]) -> tuple[str, float, float] | None:
    """The group that loses most by private training, its loss and everybody's, in points; None where not known."""
    try:
        losses = {r.group: float(r.before) - float(r.after) for r in results if r.before}
    except ValueError:  # texts that somebody else wrote
        return None
    mean = losses.pop(EVERYBODY, None)
    if mean is None or not losses:
        return None
    worst = max(losses, key=lambda group: losses[group])
    return worst, losses[worst], mean


def coverage(query: Query) -> str:
    """Whether epsilon covers a query; where it does not, what the query costs by noise of its own."""
    if query.covered:
        return "covered by epsilon"
    return f"not part of epsilon: it costs {query.cost}" if query.cost else "NOT covered by epsilon"


def settings_of(release: Mapping[str, Any]) -> list[str]:
    """A release's record, a line a setting; without what the guarantee says itself, and what is not set.

    >>> settings_of({"config": {"epsilon": "2", "block": 12, "regions": None, "chosen": ["block"]}})
    ['block: 12', 'chosen: block']
    """
    lines: dict[str, None] = {}  # in order, each once
    for name, value in release.items():
        if isinstance(value, Mapping):
            before = "" if name in ("config", "shape") else f"{name} "
            lines |= dict.fromkeys(f"{before}{line}" for line in settings_of(value))
        elif name not in ("epsilon", "delta") and value not in (None, [], ""):
            told = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            lines[f"{name}: {told}"] = None
    return [line for line in lines if not line.startswith("neighbours ")]


def _without_warnings(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if not text.startswith(WARNING)]


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701: plain text; whoever shows it on a page escapes it
        loader=PackageLoader("dpose.privacy", "."), undefined=StrictUndefined
    )
    environment.filters |= {"upper": upper, "as_given": as_given, "line": lambda text: " ".join(text.split())}
    environment.globals |= {"coverage": coverage, "settings_of": settings_of, "unstated": UNSTATED}
    return environment.get_template("statement.j2")
