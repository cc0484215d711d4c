"""What is guaranteed: the plain fact at the top of the page, and the section that spells it out."""

from __future__ import annotations

from collections.abc import Sequence

from dpose.privacy.attackers import FALSE_POSITIVES, true_positives
from dpose.privacy.rounding import as_given
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.privacy.tradeoff import approximate
from dpose.report.charts import REFERENCE, bound_on_attacks
from dpose.report.numbers import at_most
from dpose.report.results import Block, Bullets, Figure, Group, Numbers, Text
from dpose.report.run import MethodFacts, RunRecord

UNPROTECTED = "everything: what the run would otherwise protect may be learnt from it"
NO_STATEMENT = (
    "The run left no privacy statement: it is not finished, or it broke off. Until it has one, nothing is claimed "
    "for it."
)


def plain_fact(run: RunRecord) -> Group:
    """The guarantee, or that there is none, at the top of the page."""
    statement = run.statement
    if statement is None or statement.kind is not Kind.PRIVATE:
        public = f"It was trained on {run.data}, which are declared public." if run.data_are_public else ""
        return Group((Text(("No guarantee",), "fact"), _reason(statement), public), "panel none")
    found, beyond = statement.tpr_bound, _beyond(run)
    numbers = (
        ("epsilon", at_most(statement.epsilon or 0)),
        ("delta", at_most(statement.delta or 0.0)),
        ("for each", statement.unit),
    )
    tested = (
        f"Anyone who tests whether a given {statement.unit} was used{beyond}, with false alarms on "
        f"{FALSE_POSITIVES:.0%} of those that were not, finds at most {at_most(found, times=100)}% of those that "
        f"were. {_strength(statement)}"
    )
    views = (
        f"The public views themselves, the labels, and whose {statement.unit}s were used are not protected."
    )
    head = Text(("Differential privacy guarantee",), "eyebrow")
    return Group((head, Numbers(numbers, beyond.strip()), tested, views if beyond else ""), "panel private")


def guarantee_section(run: RunRecord) -> tuple[Block, ...]:
    """What is covered, what is not, what the number means, and the statement's own words."""
    statement = run.statement
    if statement is None:
        return (NO_STATEMENT,)
    said = statement.words()
    protects, leaves_open = _sides(statement, run.facts)
    sides = [
        Group((Bullets(items),), f"side {kind}", title)
        for title, items, kind in (
            ("Protected", protects, "covered"),
            ("Not protected", leaves_open, "open"),
        )
        if items
    ]
    lead = (*said.warnings, said.guarantee)
    words = Group(tuple(Text((text,), "lead") for text in lead if text))
    terms = [Group((Bullets(items),), title=title) for title, items in said.lists]
    return (
        Group((words, Group(tuple(sides))), "beside"),
        *_meaning(statement, _beyond(run), said.limit),
        *([Group(tuple(terms), "terms")] if terms else []),
    )


def _sides(statement: PrivacyStatement, method: MethodFacts | None) -> tuple[Sequence[str], Sequence[str]]:
    """What is protected and what is not."""
    uncovered = [
        f"{query.what} of {query.data} ({query.purpose}): {query.coverage.replace('NOT', 'not')}"
        for query in statement.queries
        if not query.covered
    ]
    if statement.kind is not Kind.PRIVATE:
        protects = method.protects if method and not method.private and statement.kind is Kind.NONE else ()
        return protects, [
            *(method.leaves_open if method and not method.private else (UNPROTECTED,)),
            *uncovered,
        ]
    return (method.protects, [*method.leaves_open, *uncovered]) if method else ((), uncovered)


def _reason(statement: PrivacyStatement | None) -> str:
    if statement is None:
        return NO_STATEMENT
    reason = statement.words().no_guarantee
    return reason[:1].upper() + reason[1:]


def _beyond(run: RunRecord) -> str:
    """What a unit is protected beyond; empty where all of it is."""
    method = run.facts
    return " beyond its public view" if method and method.public_views else ""


def _strength(statement: PrivacyStatement) -> str:
    weak = statement.is_weak
    return "That is a weak guarantee, and the section below says what it is worth." if weak else ""


def _meaning(statement: PrivacyStatement, beyond: str, limit: str) -> tuple[Block, ...]:
    """The bound on an attacker, drawn; nothing where there is none."""
    if statement.kind is not Kind.PRIVATE or statement.epsilon is None or statement.delta is None:
        return ()
    epsilon, delta, unit = float(statement.epsilon), statement.delta, statement.unit
    found, strong = statement.tpr_bound, true_positives(REFERENCE, delta)
    known = statement.attackers is not None
    source = (
        "by the run's whole trade-off curve"
        if known
        else f"for epsilon {at_most(epsilon)} and delta {at_most(delta)}"
    )
    describes = (
        f"The most an attacker can find against the rate of false alarms, {source}. At {FALSE_POSITIVES:.0%} false "
        f"alarms: {at_most(found, times=100)}%. The diagonal is an "
        "attacker who learns nothing."
    )
    words = (
        f"Somebody holds the model and wants to know whether one given {unit} was used in training it{beyond}. "
        "Flagging more of them finds more, and raises more false alarms. An attacker who learns nothing from the "
        "model moves along the diagonal: what is found grows only as fast as the false alarms.",
        f"No attacker can get above the curve, {limit}. The area above it is ruled out. "
        "The nearer the curve is to the diagonal, the stronger the guarantee.",
        f"Here the bound at {FALSE_POSITIVES:.0%} false alarms is {at_most(found, times=100)}%."
        + (
            f" With epsilon {as_given(REFERENCE)} it would be {at_most(strong, times=100)}%."
            if epsilon > 1.5 * REFERENCE and not known
            else ""
        )
        + " It is a bound for the worst case: an attacker who knows every other "
        f"{unit} and everything about this one.",
    )
    curve = statement.attacker_curve()
    reference = approximate(REFERENCE, delta) if epsilon > 1.5 * REFERENCE and not known else None
    chart = bound_on_attacks(curve, unit, describes, reference)
    figure = Figure("", f"The bound on an attacker, {source}.", chart)
    return (Group((figure, Group(words, title="What the number means")), "beside"),)
