"""The optional sections of a statement in plain English."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpose.privacy.attackers import trade_off_lines
from dpose.privacy.rounding import upper
from dpose.privacy.sections import EVERYBODY, UNSTATED, Deployment, GroupResult, PlantedCanaries
from dpose.privacy.statement import PrivacyStatement

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
        (
            "Several times as much:" if statement.release else f"Several {statement.unit}s of one person:",
            group_lines(statement),
        ),
        (
            "The settings that it was chosen from, one of them for each trial:",
            [_setting(setting) for setting in statement.tuning.settings] if statement.tuning else (),
        ),
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
        ("Canaries, which are nobody:", _canaries(said.canaries) if said.canaries else ()),
        (
            "Results by group:",
            [
                f"{r.group} ({r.units} units): {r.metric} {r.after}"
                + (f", {r.before} before" if r.before else "")
                for r in said.results
            ]
            + largest_loss(said.results),
        ),
        ("Not covered, and ways around the guarantee:", said.side_channels),
    ]


def largest_loss(results: Sequence[GroupResult]) -> list[str]:
    """Who pays most, of results with scores before private training: the largest loss of a group beside everybody's."""
    try:
        losses = {r.group: float(r.before) - float(r.after) for r in results if r.before}
    except ValueError:  # texts that somebody else wrote
        return []
    mean = losses.pop(EVERYBODY, None)
    if mean is None or not losses:
        return []
    worst = max(losses, key=lambda group: losses[group])
    return [f"the largest loss of any group: {losses[worst]:.1f} points, {worst}; everybody: {mean:.1f}"]


def group_lines(statement: PrivacyStatement) -> list[str]:
    """What several units of one person cost together, or several times a release's pixels; nothing where not known."""
    groups = statement.sections.groups or statement.several()
    if not groups:
        return []
    each = statement.neighbours.count if statement.release and statement.neighbours else 1
    told = [f"{g.units * each:,}: {'above 100' if g.epsilon is None else upper(g.epsilon)}" for g in groups]
    what = f"so many {statement.unit}s together" if statement.release else "so many of them together"
    return [f"epsilon of {what}, at delta {upper(statement.delta or 0)}: {', '.join(told)}"]


def _deployment(said: Deployment) -> list[str]:
    when = f", on {said.date}" if said.date else ""
    stated = {name: value for name in ASKED if (value := getattr(said, name)) != UNSTATED}
    open_ones = [words for name, words in ASKED.items() if name not in stated]
    lines = [f"{said.released}, in the {said.model} model{when}"]
    lines += [f"{ASKED[name]}: {value}" for name, value in stated.items()]
    return [*lines, *([f"not stated: {'; '.join(open_ones)}"] if open_ones else [])]


def _canaries(planted: PlantedCanaries) -> list[str]:
    return [
        f"{int(planted.count):,} {planted.kind} canaries were planted among the units and count among them; they cost "
        "accuracy and nobody's privacy",
        f"which of them are in was drawn by fair coins and committed to before the first step: {planted.commitment}. "
        "Whoever is given the opening can audit this model",
    ]


def _setting(setting: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "as the run has it"
