"""What may be shown of how a run went: curves by step, with the epsilon spent beside them."""

from __future__ import annotations

from dpose.privacy.statement import Kind
from dpose.report.charts import POINTS, line_by_step
from dpose.report.inline import Strong
from dpose.report.numbers import at_most, brief
from dpose.report.results import Block, Figure, Group, Table
from dpose.report.run import RunRecord, Watched
from dpose.report.scores import standing

SERIES = {
    "public_loss": (
        "loss on public views",
        "Mean loss of each batch of public views, which the method does not protect.",
    ),
    "public_gradient_norm": ("norm of the public gradient", "Of the public views alone."),
    "loss": (
        "training loss",
        "Mean loss of each batch of what the run learns from. No epsilon is claimed for it.",
    ),
    "noisy_gradient_norm": (
        "norm of the noised gradient",
        "What the optimizer was given, noise included. Norms before the noise were not recorded: they would tell of "
        "the private data.",
    ),
    "lr": ("learning rate", "A setting; no data in it."),
}


NAMES = {
    "subspace_directions": "Directions of the subspace",
    "subspace_rank": "Numerical rank of the public gradients",
    "subspace_energy": "Share of the public gradients' energy in the subspace",
    "surviving_norm": "Share of the noisy update's norm that survives the projection",
    "subspace_age": "Age of the subspace, steps",
    "public_gradients_not_finite": "Public gradients left out as not finite",
}
"""Diagnostics in words; others are shown by their own names."""


def curves_section(run: RunRecord) -> tuple[Block, ...]:
    """Scores while training, then what each step showed."""
    figures = [found for watched in run.watched if (found := _watched_figure(run, watched))]
    for key, (title, says) in SERIES.items():
        points = run.series.get(key)
        if points:
            describes = f"The {title} over {len(points):,} steps, from {brief(points[0][1])} to {brief(points[-1][1])}."
            chart = line_by_step(points, describes, y_title=title, height=174 if key == "lr" else 214)
            says += _thinning(len(points)) if key != "lr" else ""
            figures.append(Figure("", (Strong(f"{title[:1].upper()}{title[1:]}. "), says), chart))
    if not figures:
        return ("The log holds no steps.",)
    return _progress(run), Group(tuple(figures), "charts")


def diagnostics_section(run: RunRecord) -> tuple[Block, ...]:
    """Each diagnostic by step, and its last value; empty where there is none."""
    if not run.diagnostics:
        return ()
    figures, rows = list[Figure](), list[tuple[str, ...]]()
    for name, points in run.diagnostics.items():
        words, (step, last) = _words(name), points[-1]
        chart = line_by_step(points, f"{words} by step, lately {brief(last)}.", height=174)
        figures.append(Figure("", (Strong(words),), chart))
        rows.append((words, f"{step:,}", brief(last)))
    table = Table("Last values", ("Diagnostic", "Step", "Value"), tuple(rows))
    return Group(tuple(figures), "charts"), table


def _watched_figure(run: RunRecord, watched: Watched) -> Figure | None:
    last = watched.moments[-1].score
    main = last.main
    known = [(m.step, value) for m in watched.moments if (value := m.score.columns.get(main)) is not None]
    if not known:
        return None
    spent = [(float(m.step), at_most(m.epsilon)) for m in watched.moments if m.epsilon is not None]
    title = last.main_name
    describes = (
        f"{title} on {watched.name}: {brief(known[0][1])} after {known[0][0]:,} steps, {brief(known[-1][1])} after "
        f"{known[-1][0]:,}."
    )
    scale = " The upper scale is the epsilon spent by then." if spent else ""
    chart = line_by_step(
        known,
        describes,
        y_title=", ".join(filter(None, (title, last.unit))),
        above=spent,
        above_title="epsilon spent",
        height=242 if spent else 214,
    )
    caption = (Strong("Score while training. "), f"{watched.name}.{scale} ", standing(run, watched.public))
    return Figure("", caption, chart)


def _progress(run: RunRecord) -> str:
    if run.planned_steps is None or not run.steps:
        return ""
    if run.steps >= run.planned_steps:
        return f"All {run.planned_steps:,} planned steps were taken."
    still = (
        " Epsilon is still the whole plan's: the reason to stop may have depended on what was seen."
        if run.statement is not None and run.statement.kind is Kind.PRIVATE
        else ""
    )
    return f"The run was stopped after {run.steps:,} of {run.planned_steps:,} planned steps.{still}"


def _thinning(count: int) -> str:
    return (
        " The line is a mean over neighbouring steps, the band their lowest to highest."
        if count > POINTS
        else ""
    )


def _words(name: str) -> str:
    spoken = NAMES.get(name, name.replace("_", " "))
    return spoken[:1].upper() + spoken[1:]
