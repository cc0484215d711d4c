"""The account of private data, for readers: what has read them, what it took, and what is left of a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpose.privacy.odometer import (
    EVALUATION,
    Budget,
    Charge,
    Marks,
    budgets,
    charges,
    composed,
    groups,
    lift_budget,
    set_budget,
    touching,
    unbounded,
)
from dpose.privacy.rounding import as_given, upper

DELTA = 1e-5
"""At which epsilon is told where no run names a delta."""


def account_of(data: str | None, delta: float | None, console: Console) -> RenderableType:
    """What was taken from `data`, or from all data that this machine knows of.

    Args:
        data: NAME[:ROOT][:SPLIT]; None for everything.
        delta: At which epsilon is composed; the largest of the runs' own by default.
        console: Where progress goes.

    Raises:
        DposeError: the data or the account cannot be read.
    """
    entries = charges()
    if data is None:
        found = groups(entries)
        if not found:
            return Text("Nothing has been trained on this machine yet.")
        return Group(*(_table(group, delta, _budgets(group)) for group in found))
    marks = marks_of_data(data, console)
    mine = touching(entries, marks)
    limits = [b for b in budgets() if len(b.marks) == len(marks) and (b.marks == marks).all()]
    if not mine and not limits:
        return Text(f"{data}: nothing on this machine has read any of these {len(marks):,} pictures.")
    return _table(mine, delta, limits or _budgets(mine), title=data)


def change_budget(
    data: str, epsilon: float | None, delta: float, console: Console, unit: str | None = None
) -> str:
    """Set the budget of `data`, or lift it where `epsilon` is None; what was done, in words.

    Args:
        data: NAME[:ROOT][:SPLIT], of poses or of videos.
        epsilon: Of all runs together.
        delta: At which it is counted.
        console: Where progress goes.
        unit: What it is for; a video where the data are videos, otherwise an image.

    Raises:
        DposeError: the data cannot be read, or a value is out of range.
    """
    unit = unit or ("video" if _of_videos(data) else "image")
    marks = marks_of_data(data, console)
    if epsilon is None:
        return f"{data}: " + ("the budget is lifted" if lift_budget(marks) else "there was no budget")
    set_budget(Budget(epsilon, delta, data, marks, unit))
    what = "videos" if _of_videos(data) else "pictures"
    return (
        f"{data}: no run may take these {len(marks):,} {what} past epsilon {as_given(epsilon)} at delta "
        f"{as_given(delta)} for each {unit}, all runs together; what has no bound for that is refused: runs without "
        "noise or for a weaker unit, "
        "feature privacy, scores"
    )


def marks_of_data(data: str, console: Console) -> Marks:
    """The pictures or videos of `data`, as a training run would read them (rendered ones: of preset `nano`).

    Raises:
        DposeError: they cannot be read.
    """
    # here and not above: models bring torch, which whoever lists the account should not have to load
    from dpose.action.data import VideoUnits, open_videos
    from dpose.action.model import ActionConfig
    from dpose.pose.data import open_data
    from dpose.pose.model import PoseConfig
    from dpose.privacy.protected import protect

    if _of_videos(data):
        videos = open_videos(data, purpose="train")
        return protect(
            VideoUnits(videos, ActionConfig(videos.actions or ("",), "nano")), console=console
        ).identity.marks
    units = open_data(data, purpose="train", input_size=PoseConfig(preset="nano").input_size)
    return protect(units, console=console).identity.marks


def _of_videos(data: str) -> bool:
    from dpose.action.data.spec import SOURCES

    return data.partition(":")[0].partition(",")[0] in SOURCES


def _budgets(entries: Sequence[Charge]) -> list[Budget]:
    return [b for b in budgets() if touching(entries, b.marks)]


def _table(
    entries: Sequence[Charge], delta: float | None, limits: Sequence[Budget], title: str | None = None
) -> RenderableType:
    table = Table(title=title or ", ".join(sorted({entry.data for entry in entries})), title_justify="left")
    for column in ("when", "what", "unit", "neighbours", "epsilon", "delta"):
        table.add_column(column, justify="right" if column in ("epsilon", "delta") else "left", no_wrap=True)
    table.add_column("where", overflow="fold")
    for entry in entries:
        table.add_row(
            entry.at[:10],
            entry.what,
            entry.unit,
            entry.relation.value + (" *" if entry.beyond else ""),
            _own(entry),
            as_given(entry.delta) if entry.bounded else "",
            _short(entry.folder),
        )
    at = delta or max((entry.delta for entry in entries if entry.bounded), default=DELTA)
    bounded = [entry for entry in entries if entry.bounded]
    lines = ["No run with a guarantee has read them."]
    if bounded:
        lines = [
            f"All runs with a guarantee, composed: epsilon {upper(composed(bounded, at))} at delta {as_given(at)}."
        ]
    free = [entry for entry in entries if not entry.bounded and entry.what != EVALUATION]
    if free:
        lines.append(
            f"Besides, {_times(len(free), 'run')} that nothing bounds (no noise, or noise from a seed)."
        )
    scores = len(entries) - len(bounded) - len(free)
    if scores:
        lines.append(f"Besides, {_times(scores, 'score')} without noise.")
    if any(entry.beyond for entry in entries):
        lines.append("* protects only what a picture holds beyond its public view and labels.")
    if len({entry.unit for entry in bounded}) > 1:
        lines.append("The units differ; together the runs protect the smallest of them.")
    lines += [_budget_line(limit) for limit in limits]
    return Group(table, Text("\n".join(lines) + "\n"))


def _budget_line(limit: Budget) -> str:
    """What is left of a budget; where something has no bound, that and not a number."""
    found = touching(charges(), limit.marks)
    free = Counter(why for entry in found if (why := unbounded(entry, limit.unit)))
    of = f"epsilon {as_given(limit.epsilon)} at delta {as_given(limit.delta)}"
    said = f"Budget of {limit.data}: {of} for each {limit.unit}; "
    if not free:
        return f"{said}{upper(composed(found, limit.delta))} is spent."
    return f"{said}what is spent has no bound: " + "; ".join(f"{n} x {why}" for why, n in free.items()) + "."


def _own(entry: Charge) -> str:
    if entry.what == EVALUATION:
        return "no noise"
    return upper(composed([entry], entry.delta)) if entry.bounded else "unbounded"


def _times(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _short(folder: str) -> str:
    try:
        return str(Path(folder).relative_to(Path.cwd()))
    except ValueError:
        return folder
