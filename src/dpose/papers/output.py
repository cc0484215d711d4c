"""What an experiment leaves in its folder: results.json, results.md, its figures, and a page with all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpose.files import write_atomic
from dpose.papers.experiment import Experiment, Findings, Outcome, Values
from dpose.privacy.statement import software_versions
from dpose.report.document import head
from dpose.report.markup import Html, bullets, scrolling_table, tag, together
from dpose.report.results import Table, drawing_html, markdown_table


def write_results(
    folder: Path, experiment: Experiment, settings: Values, outcomes: Sequence[Outcome], findings: Findings
) -> list[Path]:
    """Write everything; the files that a reader opens first come first.

    Raises:
        DposeError: the folder cannot be written to.
    """
    files: dict[str, bytes | str] = {
        "index.html": page(experiment, findings),
        "results.md": markdown(experiment, findings),
        "results.json": _json(experiment, settings, outcomes, findings.values),
        **{f"{drawing.name}.png": drawing.png for drawing in findings.drawings},
    }
    for name, content in files.items():
        write_atomic(folder / name, content)
    return [folder / name for name in files]


def markdown(experiment: Experiment, findings: Findings) -> str:
    """Tables and notes as Markdown."""
    parts = [f"# {experiment.name}: {experiment.title}", *(f"* {note}" for note in findings.notes)]
    for drawing in findings.drawings:
        parts.append(f"\n![{drawing.caption}]({drawing.name}.png)")
    for table in findings.tables:
        parts += markdown_table(table)
    return "\n".join(parts) + "\n"


def page(experiment: Experiment, findings: Findings) -> str:
    """One HTML file that needs no other and loads nothing."""
    top = tag(
        "header",
        tag("p", f"dpose reproduce {experiment.name}", class_="eyebrow"),
        tag("h1", experiment.title),
        bullets(findings.notes),
    )
    drawings = [tag("section", drawing_html(drawing)) for drawing in findings.drawings]
    tables = [tag("section", _table(table)) for table in findings.tables]
    body = tag("body", top, tag("main", *drawings, *tables))
    return (
        "<!DOCTYPE html>\n"
        + tag("html", head(f"{experiment.name}: {experiment.title}"), body, lang="en")
        + "\n"
    )


def _table(table: Table) -> Html:
    return together([tag("h2", table.title), scrolling_table("", table.head, table.rows)])


def _json(experiment: Experiment, settings: Values, outcomes: Sequence[Outcome], computed: Values) -> str:
    cells: list[dict[str, Any]] = []
    for outcome in outcomes:
        cell: dict[str, Any] = {"settings": outcome.cell.settings, "status": outcome.status}
        if outcome.status == "done":
            cell["values"] = outcome.values
        if outcome.error:
            cell["error"] = outcome.error
        cells.append(cell)
    content = {
        "experiment": experiment.name,
        "settings": settings,
        "software": software_versions(),
        **computed,
        "cells": cells,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
