"""The optional sections of a statement in plain English."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpose.privacy.attackers import trade_off_lines
from dpose.privacy.exact import ExactEvent, GaussianEvent, LaplaceEvent
from dpose.privacy.group_privacy import MOST
from dpose.privacy.neighbours import BOX
from dpose.privacy.rounding import upper
from dpose.privacy.sections import UNSTATED, Deployment
from dpose.privacy.statement import Kind, PrivacyStatement

ASKED = {
    "curator": "the curator, who sees the data as they are",
    "access": "who may have it",
    "intended_use": "what it is for",
    "contact": "whom to ask",
    "why_epsilon": "why this epsilon",
    "why_delta": "why this delta",
    "why_unit": "why this unit",
    "settings": "how all other settings were chosen",
}
"""What is asked of whoever releases something, in words."""


def section_lists(statement: PrivacyStatement) -> list[tuple[str, Sequence[str]]]:
    """Titles with their items, of the sections that the statement has."""
    said = statement.sections
    return [
        ("What the whole trade-off curve says:", trade_off_lines(said.attackers) if said.attackers else ()),
        (f"Several {statement.unit}s of one person:", group_lines(statement)),
        ("What is released, and by whom:", _deployment(said.deployment) if said.deployment else ()),
        (
            "Public inputs:",
            [f"{i.what}: sha256 {i.sha256[:16]}..., licence: {i.licence}" for i in said.inputs],
        ),
        (
            "What audits showed:",
            [
                f"{a.what}: epsilon is at least {a.epsilon}, with confidence {a.confidence}"
                for a in said.audits
            ],
        ),
        (
            "Results by group:",
            [
                f"{r.group} ({r.units} units): {r.metric} {r.after}"
                + (f", {r.before} before" if r.before else "")
                for r in said.results
            ],
        ),
        ("Not covered, and ways around the guarantee:", said.side_channels),
    ]


def group_lines(statement: PrivacyStatement) -> list[str]:
    """What several units of one person cost together; nothing where it is not known."""
    groups = statement.sections.groups
    if not groups:
        return []
    told = [f"{g.units}: {'above 100' if g.epsilon is None else upper(g.epsilon)}" for g in groups]
    return [f"epsilon of so many together, at delta {upper(statement.delta or 0)}: {', '.join(told)}"]


def several_lines(statement: PrivacyStatement) -> list[str]:
    """Of a release, what several times the pixels that it protects cost; nothing where that is not known.

    Sensitivities are norms: k times as many pixels move a release by at most k times as far.
    """
    neighbours = statement.neighbours
    if not statement.release or neighbours is None or neighbours.scope == BOX or statement.epsilon is None:
        return []
    exact = [event for event in statement.events if isinstance(event, LaplaceEvent | GaussianEvent)]
    if len(exact) < len(statement.events) or statement.kind not in (Kind.PRIVATE, Kind.SEEDED):
        return []
    costs = [statement.cost([_times(event, k) for event in exact]) for k in range(2, MOST + 1)]
    told = ", ".join(f"{k * neighbours.m:,}: {upper(cost)}" for k, cost in enumerate(costs, 2))
    return [f"epsilon of so many {statement.unit}s together, at delta {upper(statement.delta or 0)}: {told}"]


def _times(event: ExactEvent, k: int) -> ExactEvent:
    """The event of a sensitivity k times as large: it costs as k releases, with Gaussian noise as k^2."""
    return replace(event, steps=event.steps * (k if isinstance(event, LaplaceEvent) else k * k))


def _deployment(said: Deployment) -> list[str]:
    when = f", on {said.date}" if said.date else ""
    stated = {name: value for name in ASKED if (value := getattr(said, name)) != UNSTATED}
    open_ones = [words for name, words in ASKED.items() if name not in stated]
    lines = [f"{said.released}, in the {said.model} model{when}"]
    lines += [f"{ASKED[name]}: {value}" for name, value in stated.items()]
    return [*lines, *([f"not stated: {'; '.join(open_ones)}"] if open_ones else [])]
