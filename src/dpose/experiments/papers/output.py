"""What an experiment leaves in its folder: results.json, results.md, its figures, and a page with all of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpose.experiments.papers.experiment import Drawing, Experiment, Findings, Outcome, Table, Values
from dpose.files import write_atomic
from dpose.media.images import decode_image
from dpose.privacy.statement import software_versions
from dpose.report.markup import Html, bullets, figure, scrolling_table, tag, together
from dpose.report.page import POLICY
from dpose.report.style import STYLE


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
        "results.json": _json(experiment, settings, outcomes),
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
        parts += ["", f"## {table.title}", "", _row(table.head), _row(("---",) * len(table.head))]
        parts += [_row(row) for row in table.rows]
    return "\n".join(parts) + "\n"


def page(experiment: Experiment, findings: Findings) -> str:
    """One HTML file that needs no other and loads nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{experiment.name}: {experiment.title}"),
        tag("style", Html(STYLE)),
    )
    top = tag(
        "header",
        tag("p", f"dpose reproduce {experiment.name}", class_="eyebrow"),
        tag("h1", experiment.title),
        bullets(findings.notes),
    )
    drawn = [tag("section", figure(_picture(drawing), drawing.caption)) for drawing in findings.drawings]
    tables = [tag("section", _table(table)) for table in findings.tables]
    body = tag("body", top, tag("main", *drawn, *tables))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _table(table: Table) -> Html:
    return together([tag("h2", table.title), scrolling_table("", table.head, table.rows)])


def _picture(drawing: Drawing) -> Html:
    height, width = decode_image(drawing.png, drawing.name).shape[:2]
    uri = "data:image/png;base64," + base64.b64encode(drawing.png).decode("ascii")
    # as large as the column lets it be: figures are drawn at twice a screen's resolution
    return tag(
        "img", src=uri, alt=drawing.caption, width=width, height=height, style="max-width:100%;height:auto"
    )


def _json(experiment: Experiment, settings: Values, outcomes: Sequence[Outcome]) -> str:
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
        "cells": cells,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
