"""A privacy statement in plain English."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpose.privacy.accounting import Accountant
from dpose.privacy.attackers import FALSE_POSITIVES, loss_grid
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import BEYOND, Relation
from dpose.privacy.queries import Query
from dpose.privacy.rounding import upper
from dpose.privacy.section_words import section_lists
from dpose.privacy.statement import Kind, PrivacyStatement

if TYPE_CHECKING:
    from dpose.privacy.tradeoff import TradeOff

TIMES = 50
"""A guarantee under which an alarm may raise the odds more often than this is called weak."""

LIMIT = (
    "whatever else they know, as long as they cannot break the cryptography that its random bits come from "
    "(AES-256 under keys derived with BLAKE2b)"
)
"""Whom a guarantee holds against. Noise from a cipher bounds those who cannot break it, and nobody else."""

METHODS = {
    Accountant.PLD: "computed with privacy loss distributions",
    Accountant.RDP: "computed with Renyi differential privacy",
    Accountant.PURE: "pure differential privacy, added up exactly",
    Accountant.ZCDP: "computed with zero-concentrated differential privacy",
    Accountant.GAUSSIAN: "the Gaussian mechanism's own curve",
}

NOISES = {
    True: "exactly: whole numbers, each with the probability of a rounded Gaussian, added to sums of whole numbers",
    False: "in 64-bit floating point, which is not exact: see the caveats",
}
"""How the noise of events was drawn, by whether they are `rounded`."""

WARNING = "WARNING: "
"""The beginning of a text that stands before the guarantee that it restricts."""

DETAILS_ONLY = (
    "so this hides details of a few pixels, not that a person is there, nor what they broadly look like"
)
"""A caveat of releases for so few pixels that a face covers many times as many."""

NOTHING = {
    Kind.SEEDED: (
        "NOTHING IS GUARANTEED: the noise came from a seed. Whoever knows or guesses the seed "
        "can take the noise away again. The numbers below are what the same run would claim with noise "
        "from the operating system."
    ),
    Kind.PAPER: (
        "NOTHING IS GUARANTEED: this repeats a published method for comparison, and that method's own "
        "privacy claim does not hold. The caveats say why."
    ),
    Kind.NONE: (
        "NOTHING IS GUARANTEED: this was made without differential privacy. It may reveal whatever was "
        "in its data."
    ),
}


def true_positives(epsilon: float, delta: float, false_positives: float = FALSE_POSITIVES) -> float:
    """The most that any attacker can find of what is there, at a given rate of false alarms.

    For a test between two neighbouring datasets, (epsilon, delta)-differential privacy bounds the
    true-positive rate by min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)) at false-positive rate a
    (Kairouz, Oh and Viswanath 2015, "The composition theorem for differential privacy").
    """
    # e^epsilon overflows above 709, where the bound has long been 1
    grown = math.exp(min(epsilon, 700.0)) * false_positives + delta
    shrunk = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - false_positives)
    return min(1.0, grown, shrunk)


def found_at_most(statement: PrivacyStatement) -> float:
    """The most that an attacker finds at the usual rate of false alarms: by the run's whole curve where it is known."""
    if statement.sections.attackers is not None:
        return dict(statement.sections.attackers.found)[FALSE_POSITIVES]
    return true_positives(float(statement.epsilon or 0), statement.delta or 0.0)


def is_weak(statement: PrivacyStatement) -> bool:
    """Whether an alarm may raise the odds 50 times: at 1 % false alarms, or at fewer by the whole curve."""
    if statement.sections.attackers is None:
        return found_at_most(statement) > TIMES * FALSE_POSITIVES
    found = statement.sections.attackers.found
    return any(most > TIMES * rate for rate, most in found if rate <= FALSE_POSITIVES)


def attacker_curve(statement: PrivacyStatement) -> TradeOff:
    """The most that any attacker finds at every rate of false alarms: by the recorded events, or by the claim alone."""
    from dpose.privacy.tradeoff import approximate, of_events

    if statement.sections.attackers is None or statement.neighbours is None:
        return approximate(float(statement.epsilon or 0), statement.delta or 0.0)
    counted = [event for event in statement.events if isinstance(event, SampledGaussian)]
    return of_events(counted, statement.neighbours.relation, grid=loss_grid(counted))


def paragraph(statement: PrivacyStatement) -> str:
    """The statement as text: warnings, one paragraph, then its lists, every item of which is shown."""
    blocks = warnings_of(statement)
    if statement.neighbours is not None and statement.epsilon is not None and statement.delta is not None:
        blocks.append(
            _guarantee(statement) if statement.neighbours.of_units else _release_guarantee(statement)
        )
    for title, items in (
        ("How it was chosen:", _choice(statement)),
        ("How it was released:", [f"{name}: {value}" for name, value in statement.release.items()]),
        ("How its noise was drawn:", _noise(statement)),
        ("Treated as public:", statement.public),
        ("Taken as given:", _without_warnings(statement.conditional_on)),
        ("Also computed from private data:", [_query(query) for query in statement.queries]),
        ("Caveats:", _without_warnings(statement.caveats)),
        *section_lists(statement),
    ):
        if items:
            blocks.append("\n".join([title, *(f"* {item}" for item in items)]))
    return "\n\n".join(blocks)


def in_brief(statement: PrivacyStatement) -> str:
    """What is printed of a statement once its artefact is written: warnings, one sentence, and what is not hidden."""
    lines = warnings_of(statement)
    weak = "That is a weak guarantee. " if statement.epsilon is not None and is_weak(statement) else ""
    if statement.neighbours is not None and statement.epsilon is not None and statement.delta is not None:
        verb = "protects" if statement.kind is Kind.PRIVATE else "would protect"
        lines.append(f"This {verb} {_protected(statement)} with {_cost(statement)}. {weak}".strip())
        lines.append(f"Not hidden: {'; '.join(_not_hidden(statement))}.")
        if given := _without_warnings(statement.conditional_on):
            lines.append(f"Taken as given: {'; '.join(given)}.")
    return "\n".join(lines)


def warnings_of(statement: PrivacyStatement) -> list[str]:
    """What must be read before the guarantee: that there is none, and each text that begins with `WARNING`."""
    nothing = [NOTHING[statement.kind]] if statement.kind in NOTHING else []
    return nothing + [
        text for text in (*statement.caveats, *statement.conditional_on) if text.startswith(WARNING)
    ]


def _without_warnings(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if not text.startswith(WARNING)]


def _not_hidden(statement: PrivacyStatement) -> list[str]:
    """What the guarantee leaves open, the widest first."""
    assert statement.neighbours is not None
    if statement.neighbours.of_units:
        beyond = ["the public views and labels"] if statement.neighbours.scope == BEYOND else []
        found = [
            *beyond,
            "what is true of the private data as a whole",
            f"what several {statement.unit}s share",
        ]
        for group in [group for group in statement.sections.groups if group.epsilon is not None][-1:]:
            found[-1] += f" ({group.units} of them: epsilon {upper(group.epsilon or 0)})"
    else:
        few = DETAILS_ONLY in statement.caveats
        person = "that a person is there and what they broadly look like, and " if few else ""
        found = [f"{person}whatever covers more {statement.unit}s than that"]
    return found + [f"{query.what} of {query.data}" for query in statement.queries if not query.covered]


def _protected(statement: PrivacyStatement) -> str:
    """What a guarantee is about, in words."""
    assert statement.neighbours is not None
    if not statement.neighbours.of_units:
        return statement.neighbours.describe()
    scored = statement.tuning.scored if statement.tuning else 0
    count = "" if statement.n is None else f" {statement.n + scored:,}"
    nominal = " (a number fixed beforehand)" if statement.neighbours.relation is Relation.ADD_REMOVE else ""
    each = f"each single {statement.unit} among the{count} private ones{nominal}"
    return f"what {each} holds beyond its public view" if statement.neighbours.scope == BEYOND else each


def _cost(statement: PrivacyStatement) -> str:
    assert statement.epsilon is not None
    assert statement.delta is not None
    return f"epsilon = {upper(statement.epsilon)} and delta = {upper(statement.delta)}"


def _guarantee(statement: PrivacyStatement) -> str:
    verb = "protects" if statement.kind is Kind.PRIVATE else "would protect"
    by = f", {METHODS[statement.accountant]}" if statement.accountant else ""
    return (
        f"This {verb} {_protected(statement)} with {_cost(statement)}{by}. "
        f"{difference(statement)} This holds against anyone who has the artefact, {LIMIT}. "
        f"{_attack(statement)} It does not hide what is true of the private data as a whole, and whatever is spread "
        f"over several {statement.unit}s is protected less: their epsilons at least add up."
    )


def _release_guarantee(statement: PrivacyStatement) -> str:
    verb = "protects" if statement.kind is Kind.PRIVATE else "would protect"
    by = f" ({METHODS[statement.accountant]})" if statement.accountant else ""
    return (
        f"This {verb} {_protected(statement)}, with {_cost(statement)}{by}. "
        f"What can be learnt from it changes little if these {statement.unit}s take any other values. This holds "
        f"against anyone who has the artefact, {LIMIT}. {_attack(statement)} "
        f"Whatever covers more {statement.unit}s than that is protected less: the caveats say how much less."
    )


def difference(statement: PrivacyStatement) -> str:
    """In what neighbours may differ, in a sentence."""
    near = statement.neighbours
    assert near is not None
    said = f"What can be learnt from it changes little if {near.change()}."
    return (
        f"{said} The public views and the labels themselves are not protected."
        if near.scope == BEYOND
        else said
    )


def _attack(statement: PrivacyStatement) -> str:
    found = found_at_most(statement)
    if statement.neighbours is not None and not statement.neighbours.of_units:
        text = (
            f"An attacker who tests whether they had given values, with false alarms in {FALSE_POSITIVES:.0%} of the "
            f"cases where they had not, finds it in at most {upper(found, times=100)}% of those where they had; such "
            f"an alarm raises the odds at most {upper(found / FALSE_POSITIVES, 3)} times."
        )
    else:
        beyond = statement.neighbours is not None and statement.neighbours.scope == BEYOND
        thing = f"{statement.unit}'s protected part" if beyond else statement.unit
        text = (
            f"An attacker who tests whether a given {thing} was used, with false alarms on "
            f"{FALSE_POSITIVES:.0%} of those that were not, finds at most {upper(found, times=100)}% of those that "
            f"were; such an alarm raises the odds that it was used at most {upper(found / FALSE_POSITIVES, 3)} times."
        )
    if is_weak(statement):
        text += " That is a weak guarantee."
    return text


def _noise(statement: PrivacyStatement) -> list[str]:
    """Whether a run's noise was exact, a sentence a kind; none of what has no such events."""
    events = [event for event in statement.events if isinstance(event, SampledGaussian)]
    return [words for rounded, words in NOISES.items() if any(event.rounded is rounded for event in events)]


def _choice(statement: PrivacyStatement) -> list[str]:
    """How a run was chosen among others, in sentences; none where it was not."""
    tuning, delta = statement.tuning, statement.delta
    if tuning is None or delta is None or statement.n is None:
        return []
    trained, judged = tuning.by_side(delta)
    alone, score = tuning.of_one_trial(delta)
    unit = statement.unit
    return [
        f"by private selection: the best of a random number of trials (law {tuning.law}), each with a setting drawn "
        f"from a fixed grid of {len(tuning.settings)}; the number of trials, the others and all scores stay secret",
        f"each trial learnt from {statement.n:,} {unit}s and was scored, with noise, on {tuning.scored:,} others; "
        f"which are which was fixed beforehand by their names",
        f"epsilon is that of all trials and of the choice: {upper(trained)} for one {unit} that was learnt from, "
        f"{upper(judged)} for one that was scored on; one trial alone would cost {upper(alone)} and {upper(score)}",
    ]


def _query(query: Query) -> str:
    return f"{query.what}, of {query.data}, {query.purpose} ({coverage(query)})"


def coverage(query: Query) -> str:
    """Whether epsilon covers a query; where it does not, what the query costs by noise of its own."""
    if query.covered:
        return "covered by epsilon"
    return f"not part of epsilon: it costs {query.cost}" if query.cost else "NOT covered by epsilon"
