"""Writer of an experiment's results: results.json, results.md, figures, and a page with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpose.privacy.statement import software_versions
from dpose.report.document import Report
from dpose_lab.papers.experiment import Experiment, Findings, Outcome, Values


def write_results(
    folder: Path, experiment: Experiment, settings: Values, outcomes: Sequence[Outcome], findings: Findings
) -> list[Path]:
    """Write all results; the files that a reader opens first come first."""
    return results_report(experiment, settings, outcomes, findings).write(folder)


def results_report(experiment: Experiment, settings: Values, outcomes: Sequence[Outcome], findings: Findings) -> Report:
    """Assemble the experiment's report."""
    cells: list[dict[str, Any]] = []
    for outcome in outcomes:
        cell: dict[str, Any] = {"settings": outcome.cell.settings, "status": outcome.status}
        if outcome.status == "done":
            cell["values"] = outcome.values
        if outcome.error:
            cell["error"] = outcome.error
        cells.append(cell)
    return Report(
        f"{experiment.name}: {experiment.title}",
        kind=f"dpose reproduce {experiment.name}",
        source="the results beside it",
        notes=findings.notes,
        tables=findings.tables,
        figures=findings.figures,
        files=findings.files,
        values={
            "experiment": experiment.name,
            "settings": settings,
            "software": software_versions(),
            **findings.values,
            "cells": cells,
        },
    )
