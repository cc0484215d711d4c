"""Scores of finished models: of public data, or of held-out data and then listed in the statement."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.pose.ap import APResult
from dpose.pose.data import Augment, DataSpec, open_data
from dpose.pose.folder import load_model, shipped_weights
from dpose.pose.metrics import PCKhResult
from dpose.pose.model import PoseModel
from dpose.pose.task import PoseTask
from dpose.privacy.statement import PrivacyStatement, Query
from dpose.runs.build import shown_spec, sources
from dpose.runs.places import run_config
from dpose.runs.queries import record_query
from dpose.runs.reporting import make_report, show_report
from dpose.runs.scored import reserve_score
from dpose.runs.scoring import score_boxes
from dpose.training.folder import read_statement
from dpose.training.score import metric_of_views
from dpose.units import Result


def evaluate_run(
    folder: Path,
    data: str,
    *,
    limit: int | None = None,
    beside: Sequence[tuple[str, Path]] = (),
    detections: str | None = None,
    console: Console,
) -> list[PCKhResult | APResult]:
    """The score of the model in `folder` on `data`, written to `evaluations/` and recorded in the statement.

    PCKh, or OKS AP on COCO and Human-Art.

    A score on private data is a release without noise. On data the model was trained on it would undo the guarantee
    and is refused, by the pictures' content; on held-out private data it is listed in the statement, outside the
    guarantee, and charged to the account of those data before it is computed.

    Args:
        folder: A run or model folder.
        data: A data spec; the split defaults to validation.
        limit: Use only so many units, a fixed choice by name.
        beside: Other models, by name, whose scores on the same data are shown beside this one's; their own folders
            are left as they are.
        detections: For AP, a detector's boxes, relative to the data's folder; the labels' own where None.
        console: Where progress goes.

    Returns:
        The model's result and those of the models beside it, in their order.

    Raises:
        DposeError: no model, no data, the data are the ones the run protects, or a budget stands for some of them.
    """
    spec = DataSpec.parse(data).for_purpose("evaluate")
    model = load_model(folder)
    statement = read_statement(folder)
    own = _trained_on(folder)
    units = open_data(
        spec, purpose="evaluate", input_size=model.config.input_size, augment=Augment.none(), limit=limit
    )
    reserve_score(
        folder,
        statement,
        units,
        name=shown_spec(spec),
        public=spec.public,
        same=any(spec.same_units(one) for one in own),
        unit="image",
        console=console,
    )
    paths = (folder, *(other for _, other in beside))
    results: list[PCKhResult | APResult] = []
    if spec.dataset.oks:
        for path in paths:
            found, count = score_boxes(
                _placed(path), spec, detections=detections, limit=limit, console=console
            )
            results.append(found)
    elif detections is not None:
        raise DposeError("takes no detections: its people have boxes of their own", spec.name)
    else:
        show_report(units.report, console)
        count = len(units)
        for path in paths:
            scored = _placed(path)
            task = PoseTask(scored.config.skeleton, scored.config.split_ratio, labels=units.skeleton.name)
            results.append(cast(PCKhResult, metric_of_views(task, scored, units, console=console)))
    named = {name: result.to_dict() for (name, _), result in zip(beside, results[1:], strict=True)}
    record_score(folder, "pose", shown_spec(spec), spec.public, count, results[0], named, statement, console)
    if (folder / "report.html").exists():
        make_report(folder, console=console)
    return results


def _placed(folder: Path) -> PoseModel:
    return load_model(folder).to("cuda" if torch.cuda.is_available() else "cpu")


def record_score(
    folder: Path,
    task: str,
    name: str,
    public: bool,
    units: int,
    result: Result,
    beside: dict[str, Any],
    statement: PrivacyStatement | None,
    console: Console,
) -> None:
    """Write a score to `evaluations/`; one on private data is listed in ledger, statement and card first.

    Args:
        folder: A run or model folder.
        task: Of the model.
        name: Of the data, as readers elsewhere may see it.
        public: Whether nobody in the data needs protection.
        units: How many were scored.
        result: The model's.
        beside: Other models' results on the same data, as JSON by name.
        statement: The model's.
        console: Where it is said if the score cannot be kept.

    Raises:
        DposeError: the score must be recorded and cannot be.
    """
    # a model that is installed where nobody may write claims nothing, and can be scored all the same
    fixed = statement is not None and statement.kind == "none" and not os.access(folder, os.W_OK)
    shipped = folder.resolve() in {place.resolve() for place in shipped_weights().values()}
    outside = statement is not None and not public and not fixed and not shipped
    if statement and outside:
        query = Query(result.to_dict()["metric"], f"{name}, {units:,} units")
        record_query(folder, statement, query, task)
    content = {
        "data": name,
        "units": units,
        "public": public,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "result": result.to_dict(),
        "beside": [{"name": other, "result": values} for other, values in beside.items()],
    }
    file = re.sub(r"[^\w.-]+", "_", f"{name}-{units}")
    try:
        write_atomic(folder / "evaluations" / f"{file}.json", json.dumps(content, indent=2) + "\n")
    except DposeError as error:
        if outside:
            raise
        console.print(f"The score is not kept: {error.line()}", highlight=False)


def _trained_on(folder: Path) -> tuple[DataSpec, ...]:
    """The data a run was trained on, where its config says."""
    try:
        return sources(run_config(folder))
    except DposeError:
        return ()
