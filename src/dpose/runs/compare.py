"""`dpose compare`: several runs in one table and one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.privacy.ranges import upper
from dpose.report.run import RunRecord, Score
from dpose.runs.reading import read_run


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The finished runs in `folders`, in that order."""
    runs = [read_run(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if run.statement is None:
            raise DposeError(
                "run-unfinished", "is not finished: it has no statement", str(folder), "leave it out, or finish it"
            )
    return runs


def scores_of(run: RunRecord) -> dict[tuple[str, str], float]:
    """In percent, by data and metric: what was watched, as it was last, and every evaluation."""
    found: list[tuple[str, Score]] = [(watched.name, watched.moments[-1].score) for watched in run.watched]
    for one in run.evaluations:
        found.append((one.data if one.units is None else f"{one.data}, {one.units:,} units", one.score))
    return {(data, score.main_name): score.main_percent for data, score in found if score.main_percent is not None}


def curve_of(run: RunRecord) -> list[tuple[int, float]]:
    """(step, score in percent) of the data that were watched, from before the first step; empty if none were."""
    moments = run.watched[-1].moments if run.watched else ()
    return [(each.step, each.score.main_percent) for each in moments if each.score.main_percent is not None]


def comparison_table(runs: Sequence[RunRecord]) -> Table:
    """A row a run: what it guarantees beside how well it does."""
    scores = [scores_of(run) for run in runs]
    scored = list(dict.fromkeys(name for found in scores for name in found))
    usual = scored[0][1] if scored else "score"
    table = Table(title=f"{usual}, or the metric named, in percent", title_justify="left")
    for name in ("run", "method", "guarantee", "epsilon", "steps"):
        table.add_column(name, justify="right" if name in ("epsilon", "steps") else "left")
    for data, metric in scored:
        table.add_column(data if metric == usual else f"{data}: {metric}", justify="right", overflow="fold")
    for run, found in zip(runs, scores, strict=True):
        assert run.statement is not None
        epsilon = run.statement.epsilon
        table.add_row(
            run.name,
            run.method,
            run.statement.kind.value,
            "-" if epsilon is None else upper(epsilon),
            f"{run.steps:,}",
            *(f"{found[name]:.1f}" if name in found else "-" for name in scored),
        )
    return table


def draw_comparison(runs: Sequence[RunRecord], out: Path) -> None:
    """The score by step and the last one, a line and a bar a run, as a picture."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [(run, curve) for run in runs if (curve := curve_of(run))]
    if not shown:
        said = "no run watched a score, so there is nothing to draw"
        raise DposeError("watched-scores-missing", said, fix="train with data.validation_data")
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, max(4.2, 0.55 * len(shown))), layout="constrained")
    for k, (run, curve) in enumerate(shown):
        colour, (_, end) = f"C{k}", curve[-1]
        left.plot(*zip(*curve, strict=True), color=colour, marker="o", markersize=3, label=_label(run))
        right.barh(k, end, color=colour)
        right.annotate(f" {end:.1f}", (end, k), va="center", fontsize=9)
    watched = [run.watched[-1] for run, _ in shown]
    metrics = dict.fromkeys(one.moments[-1].score.main_name for one in watched)
    left.set(xlabel="step", ylabel=", ".join(metrics), ylim=(0, None), title="while training")
    right.set(xlabel=", ".join(metrics), title="last score")
    right.set_yticks(range(len(shown)), bar_labels([run for run, _ in shown]), fontsize=8)
    right.invert_yaxis()
    left.legend(fontsize=8, frameon=False)
    for axes, along in ((left, "y"), (right, "x")):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis=along, alpha=0.25)
    figure.suptitle(", ".join(dict.fromkeys(one.name for one in watched)), fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=out.suffix.lstrip(".") or "png", dpi=140)
    plt.close(figure)
    write_atomic(out, buffer.getvalue())


def bar_labels(runs: Sequence[RunRecord]) -> list[str]:
    """What the bars stand for: runs, with their data where those differ, and their steps where others followed."""
    several = len({run.watched[-1].name for run in runs}) > 1
    labels = []
    for run in runs:
        watched, step = run.watched[-1], curve_of(run)[-1][0]
        late = [f"last score, step {step:,} of {run.steps:,}"] if step < run.steps else []
        labels.append("\n".join([run.name, *([watched.name] if several else []), *late]))
    return labels


def _label(run: RunRecord) -> str:
    epsilon = run.statement.epsilon if run.statement else None
    return run.name if epsilon is None else f"{run.name}, epsilon {upper(epsilon)}"
