"""Scores of finished models: of public data, or of held-out data and then listed in the statement."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.experiments.choices import shown_spec
from dpose.experiments.reporting import make_report, show_report
from dpose.files import write_atomic
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data
from dpose.pose.folder import load_model
from dpose.pose.metrics import PCKhResult
from dpose.pose.task import PoseTask
from dpose.privacy.ledger import Ledger
from dpose.privacy.statement import PrivacyStatement, Query
from dpose.training.folder import model_card, read_statement
from dpose.training.score import score


def evaluate_run(
    folder: Path,
    data: str,
    *,
    limit: int | None = None,
    beside: Sequence[tuple[str, Path]] = (),
    console: Console,
) -> list[PCKhResult]:
    """PCKh of the model in `folder` on `data`, written to `evaluations/` and recorded in the statement.

    A score on private data is a release without noise. On data the model was trained on it would undo the guarantee
    and is refused; on held-out private data it is listed in the statement, outside the guarantee.

    Args:
        folder: A run or model folder.
        data: A data spec; the split defaults to validation.
        limit: Use only so many units, a fixed choice by name.
        beside: Other models, by name, whose scores on the same data are shown beside this one's; their own folders
            are left as they are.
        console: Where progress goes.

    Returns:
        The model's result and those of the models beside it, in their order.

    Raises:
        DposeError: no model, no data, or the data are the ones the run protects.
    """
    spec = DataSpec.parse(data).for_purpose("evaluate")
    model = load_model(folder)
    statement = read_statement(folder)
    if statement and statement.kind != "none" and spec == _trained_on(folder):
        raise DposeError(
            "these are the units the run protects; their score without noise is outside any guarantee",
            data,
            "evaluate on a held-out split",
        )
    units = open_data(
        data, purpose="evaluate", input_size=model.config.input_size, augment=Augment.none(), limit=limit
    )
    show_report(units.report, console)
    results = []
    for path in (folder, *(other for _, other in beside)):
        scored = load_model(path).to("cuda" if torch.cuda.is_available() else "cpu")
        task = PoseTask(scored.config.skeleton, scored.config.split_ratio)
        results.append(cast(PCKhResult, score(task, scored, units, console=console)))
    named = {name: result.to_dict() for (name, _), result in zip(beside, results[1:], strict=True)}
    _record(folder, spec, units, results[0], named, statement, console)
    if (folder / "report.html").exists():
        make_report(folder, console=console)
    return results


def _record(
    folder: Path,
    spec: DataSpec,
    units: PoseUnits,
    result: PCKhResult,
    beside: dict[str, Any],
    statement: PrivacyStatement | None,
    console: Console,
) -> None:
    name = shown_spec(spec)
    outside = statement is not None and statement.kind != "none" and not spec.public
    if statement and outside:
        query = Query("PCKh", f"{name}, {len(units):,} units")
        # the ledger first: a query that did not reach the statement shows up in `dpose verify`
        with Ledger.append_to(folder / "ledger.jsonl") as ledger:
            ledger.query(query.to_dict())
            updated = statement.with_query(query, ledger.head)
        config = json.loads((folder / "config.json").read_text())
        write_atomic(folder / "privacy.json", updated.to_json())
        write_atomic(folder / "README.md", model_card("pose", updated, config))
    content = {
        "data": name,
        "units": len(units),
        "public": spec.public,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "result": result.to_dict(),
        "beside": [{"name": other, "result": values} for other, values in beside.items()],
    }
    file = re.sub(r"[^\w.-]+", "_", f"{name}-{len(units)}")
    try:
        write_atomic(folder / "evaluations" / f"{file}.json", json.dumps(content, indent=2) + "\n")
    except DposeError as error:
        if outside:
            raise
        # a model that is installed where nobody may write can be scored all the same
        console.print(f"The score is not kept: {error.line()}", highlight=False)


def _trained_on(folder: Path) -> DataSpec | None:
    """The spec of the data a run was trained on, where its config says."""
    try:
        values: Any = json.loads((folder / "config.json").read_text())
        return DataSpec.parse(values["run"]["data"]["private"]).for_purpose("train")
    except (OSError, ValueError, KeyError, TypeError, DposeError):
        return None
