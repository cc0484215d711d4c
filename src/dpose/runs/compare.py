"""`dpose compare`: several runs in one table and one picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table

from dpose.errors import DposeError
from dpose.files import file_json, file_text, write_atomic
from dpose.privacy.ranges import upper
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.places import run_config
from dpose.runs.reading import score_of
from dpose.training.folder import read_statement

K = TypeVar("K")


@dataclass(frozen=True)
class ComparedRun:
    """One run.

    Attributes:
        name: Its folder's name.
        method: Of its plan.
        statement: What it guarantees.
        steps: Taken.
        scores: In percent, by data and metric: what was watched, and every evaluation.
        curve: (step, score) of the watched data, from before the first step.
        metric: Of the curve; "" without one.
    """

    name: str
    method: str
    statement: PrivacyStatement
    steps: int
    scores: dict[tuple[str, str], float]
    curve: tuple[tuple[int, float], ...]
    metric: str = ""


def read_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """The runs in `folders`, in that order."""
    return [_read(folder) for folder in folders]


def _read(folder: Path) -> ComparedRun:
    config = run_config(folder)
    statement = read_statement(folder)
    if statement is None:
        raise DposeError(
            "run-unfinished", "is not finished: it has no statement", str(folder), "leave it out, or finish it"
        )
    try:
        return _with_scores(folder, config.plan.method, statement)
    except DposeError:
        raise
    except OSError as error:
        raise DposeError(
            "file-unreadable", f"cannot be read ({error.strerror})", str(error.filename or folder)
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DposeError(
            "run-log-unreadable", "its log or one of its scores cannot be read", str(folder), "leave it out"
        ) from error


def _with_scores(folder: Path, method: str, statement: PrivacyStatement) -> ComparedRun:
    lines = [_line(text) for text in file_text(folder / "log.jsonl").splitlines()]
    watched = [line for line in lines if line.get("type") == "score"]
    curve = [(_known(line["step"], int), *main) for line in watched if (main := _main(line["result"]))]
    found = [(_known(line["data"], str), line["result"]) for line in watched[-1:]]
    for path in sorted((folder / "evaluations").glob("*.json")):
        content = file_json(path)
        size = "" if content["units"] is None else f", {content['units']:,} units"
        found.append((f"{content['data']}{size}", content["result"]))
    scores = {(data, main[0]): main[1] for data, result in found if (main := _main(result))}
    return ComparedRun(
        name=folder.name,
        method=method,
        statement=statement,
        steps=max((_known(line["step"], int) for line in lines if line.get("type") == "step"), default=0),
        scores=scores,
        curve=tuple((step, value) for step, _, value in curve),
        metric=curve[-1][1] if curve else "",
    )


def _known(value: Any, kind: type[K]) -> K:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _main(result: Any) -> tuple[str, float] | None:
    """The metric's name and the one number in percent that stands for a result; None if there was nothing to score."""
    score = score_of(result)
    value = score.main_percent if score else None
    return None if score is None or value is None else (score.main_name, value)


def _line(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}


def comparison_table(runs: Sequence[ComparedRun]) -> Table:
    """A row a run: what it guarantees beside how well it does."""
    scored = list(dict.fromkeys(name for run in runs for name in run.scores))
    usual = scored[0][1] if scored else "score"
    table = Table(title=f"{usual}, or the metric named, in percent", title_justify="left")
    for name in ("run", "method", "guarantee", "epsilon", "steps"):
        table.add_column(name, justify="right" if name in ("epsilon", "steps") else "left")
    for data, metric in scored:
        table.add_column(data if metric == usual else f"{data}: {metric}", justify="right")
    for run in runs:
        epsilon = run.statement.epsilon
        table.add_row(
            run.name,
            run.method,
            run.statement.kind.value,
            "-" if epsilon is None else upper(epsilon),
            f"{run.steps:,}",
            *(f"{run.scores[name]:.1f}" if name in run.scores else "-" for name in scored),
        )
    return table


def draw_comparison(runs: Sequence[ComparedRun], out: Path) -> None:
    """The score by step and at the end, a line and a bar a run, as a picture."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [run for run in runs if run.curve]
    if not shown:
        raise DposeError(
            "watched-scores-missing",
            "no run watched a score, so there is nothing to draw",
            fix="train with data.validation_data",
        )
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4.2), width_ratios=(3, 2), layout="constrained", sharey=True
    )
    ends = [run.curve[-1][1] for run in shown]
    for k, run in enumerate(shown):
        colour = f"C{k}"
        left.plot(*zip(*run.curve, strict=True), color=colour, marker="o", markersize=3, label=_label(run))
        right.bar(k, ends[k], color=colour)
        right.annotate(f"{ends[k]:.1f}", (k, ends[k]), ha="center", va="bottom", fontsize=9)
    left.set(xlabel="step", ylabel=", ".join(dict.fromkeys(run.metric for run in shown)), title="while training")
    right.set(title="at the end")
    right.set_xticks(range(len(shown)), [run.name for run in shown], rotation=30, ha="right")
    left.legend(fontsize=8, frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    figure.suptitle(", ".join(dict.fromkeys(next(iter(run.scores))[0] for run in shown)), fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=out.suffix.lstrip(".") or "png", dpi=140)
    plt.close(figure)
    write_atomic(out, buffer.getvalue())


def _label(run: ComparedRun) -> str:
    epsilon = run.statement.epsilon
    return run.name if epsilon is None else f"{run.name}, epsilon {upper(epsilon)}"
