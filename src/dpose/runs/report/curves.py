"""What may be shown of how a run went: curves by step, with the epsilon spent beside them."""

from __future__ import annotations

from dpose.privacy.statement import Kind
from dpose.report.charts import POINTS, line_chart
from dpose.report.markup import Html, figure, paragraphs, scrolling_table, tag, together
from dpose.report.numbers import at_most, brief
from dpose.runs.report.record import RunRecord, Watched
from dpose.runs.report.scores import standing

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


def curves_section(run: RunRecord) -> Html:
    """Scores while training, then what each step showed."""
    boxes = [_watched_figure(run, watched) for watched in run.watched]
    for key, (title, says) in SERIES.items():
        points = run.series.get(key)
        if points:
            describes = f"The {title} over {len(points):,} steps, from {brief(points[0][1])} to {brief(points[-1][1])}."
            boxes.append(
                figure(
                    line_chart(points, describes, y_title=title, height=174 if key == "lr" else 214),
                    tag("b", title[:1].upper() + title[1:] + ". "),
                    says + (_thinning(len(points)) if key != "lr" else ""),
                )
            )
    if not boxes:
        return paragraphs("The log holds no steps.")
    return together([_progress(run), tag("div", *boxes, class_="charts")])


def diagnostics_section(run: RunRecord) -> Html:
    """Each diagnostic by step, and its last value; empty where there is none."""
    if not run.diagnostics:
        return Html("")
    boxes = [
        figure(
            line_chart(points, f"{_words(name)} by step, lately {brief(points[-1][1])}.", height=174),
            tag("b", _words(name)),
        )
        for name, points in run.diagnostics.items()
    ]
    table = scrolling_table(
        "Last values",
        ["Diagnostic", "Step", "Value"],
        [
            (_words(name), f"{points[-1][0]:,}", brief(points[-1][1]))
            for name, points in run.diagnostics.items()
        ],
    )
    return together([tag("div", *boxes, class_="charts"), table])


def _watched_figure(run: RunRecord, watched: Watched) -> Html:
    last = watched.moments[-1].score
    main = last.main
    known = [(m.step, value) for m in watched.moments if (value := m.score.columns.get(main)) is not None]
    if not known:
        return Html("")
    spent = [(float(m.step), at_most(m.epsilon)) for m in watched.moments if m.epsilon is not None]
    title = last.main_name
    describes = (
        f"{title} on {watched.name}: {brief(known[0][1])} after {known[0][0]:,} steps, {brief(known[-1][1])} after "
        f"{known[-1][0]:,}."
    )
    scale = " The upper scale is the epsilon spent by then." if spent else ""
    return figure(
        line_chart(
            known,
            describes,
            y_title=", ".join(filter(None, (title, last.unit))),
            above=spent,
            above_title="epsilon spent",
            height=242 if spent else 214,
        ),
        tag("b", "Score while training. "),
        f"{watched.name}.{scale} ",
        standing(run, watched.public),
    )


def _progress(run: RunRecord) -> Html:
    if run.planned_steps is None or not run.steps:
        return Html("")
    if run.steps >= run.planned_steps:
        return paragraphs(f"All {run.planned_steps:,} planned steps were taken.")
    still = (
        " Epsilon is still the whole plan's: the reason to stop may have depended on what was seen."
        if run.statement is not None and run.statement.kind is Kind.PRIVATE
        else ""
    )
    return paragraphs(
        f"The run was stopped after {run.steps:,} of {run.planned_steps:,} planned steps.{still}"
    )


def _thinning(count: int) -> str:
    return (
        " The line is a mean over neighbouring steps, the band their lowest to highest."
        if count > POINTS
        else ""
    )


def _words(name: str) -> str:
    spoken = NAMES.get(name, name.replace("_", " "))
    return spoken[:1].upper() + spoken[1:]
