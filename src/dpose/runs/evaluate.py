"""Scores of finished models, of whatever task: of public data, or of held-out data and then listed in the statement."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from rich.console import Console

from dpose.account import committing
from dpose.errors import DposeError
from dpose.files import is_shipped, write_atomic
from dpose.privacy.ledger import Ledger
from dpose.privacy.queries import Query
from dpose.privacy.scores import query_of, score_name
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import DEFAULT_TASK
from dpose.runs.reporting import make_report, show_report
from dpose.runs.scored import reserve_score
from dpose.runs.tasks import on_device, task_entry, task_of
from dpose.training.folder import read_statement, reseal
from dpose.training.trained_on import seen_line, trained_on
from dpose.units import Result


def evaluate_run(
    folder: Path,
    data: str,
    *,
    limit: int | None = None,
    beside: Sequence[tuple[str, Path]] = (),
    detections: str | None = None,
    whole_pictures: bool = False,
    out: Path | None = None,
    console: Console,
) -> list[Any]:
    """The score of the model in `folder` on `data`, written to `evaluations/` and recorded in the statement.

    Nothing is written beside weights that come with dpose.

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
        whole_pictures: Look for people in whole pictures instead, and use no boxes.
        out: A file to write the score to as well.
        console: Where progress goes.

    Returns:
        The results (`dpose.units.Result`, each of its task's metric, which prints itself) of the model and of the
        models beside it, in their order.

    Raises:
        DposeError: no model, no data, the data are the ones the run protects, or a budget stands for some of them.
    """
    entry = task_entry(task_of(folder) or DEFAULT_TASK)
    model = entry.load(folder)
    statement = read_statement(folder)
    if not whole_pictures:
        scored = entry.scored(folder, model, data, limit=limit, detections=detections, console=console)
    elif entry.whole_pictures is None:
        raise DposeError(
            "whole-pictures-unsupported",
            f"the task {entry.name} knows no boxes",
            "--whole-pictures",
            "leave it out",
        )
    else:
        scored = entry.whole_pictures(folder, model, data, limit=limit, console=console)
    reserved = reserve_score(
        folder,
        statement,
        scored.units,
        name=scored.name,
        public=scored.public,
        same=scored.same,
        unit=scored.unit,
        console=console,
    )
    with committing(reserved):
        show_report(scored.report, console)
        seen = seen_line(trained_on(folder), scored.names)
        if seen:
            console.print(seen, highlight=False, soft_wrap=True)
        result, count = scored.score(on_device(model))
        others = {name: scored.score(on_device(entry.load(path)))[0] for name, path in beside}
        score = RecordedScore(scored.name, scored.public, count, result, others, seen=seen)
        record_score(folder, score, statement, console, out)
    if (folder / "report.html").exists():
        make_report(folder, console=console)
    return [result, *others.values()]


@dataclass(frozen=True)
class RecordedScore:
    """A model's score on some data.

    Attributes:
        name: Name of the data, as readers elsewhere may see it.
        public: True if no person in the data needs protection.
        units: Number of units scored; None if it is not published.
        result: Result of the model.
        beside: Results of other models on the same data, by name.
        privacy: Statement of a score with noise: such a score never replaces an earlier one, and ledger and statement
            list it by its file's digest.
        seen: A sentence if the weights have seen the set that is scored; "" otherwise.
    """

    name: str
    public: bool
    units: int | None
    result: Result
    beside: Mapping[str, Result] = field(default_factory=dict)
    privacy: PrivacyStatement | None = None
    seen: str = ""


def record_score(
    folder: Path,
    score: RecordedScore,
    statement: PrivacyStatement | None,
    console: Console,
    out: Path | None = None,
) -> None:
    """Write a score to `evaluations/`; one on private data is listed in ledger, statement and card first.

    Weights that come with dpose claim nothing, and nothing is written beside them.

    Args:
        folder: A run or model folder.
        score: The score.
        statement: Statement of the model.
        console: Receives a message if the score cannot be stored.
        out: A file to write the score to as well.

    Raises:
        DposeError: the score must be recorded and cannot be, or `out` cannot be written.
    """
    # a model that claims nothing can be scored in a read-only folder, and where no ledger came with it
    shipped = is_shipped(folder)
    kept = not shipped and os.access(folder, os.W_OK) and (folder / "ledger.jsonl").exists()
    outside = statement is not None and not score.public and (kept or statement.kind != "none")
    found, units, privacy = score.result.to_dict(), score.units, score.privacy
    whole = bool(found.get("whole_pictures"))
    size = (", whole pictures" if whole else "") + ("" if units is None else f", {units:,} units")
    content = {
        "data": score.name,
        "units": units,
        "public": score.public,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "result": found,
        "beside": [{"name": other, "result": values.to_dict()} for other, values in score.beside.items()],
        **({} if privacy is None else {"privacy": privacy.to_dict()}),
        **({"seen": score.seen} if score.seen else {}),
    }
    parts = [
        score.name,
        *(["whole-pictures"] if whole else []),
        *([] if units is None else [str(units)]),
        *([] if privacy is None else ["noised", token_hex(4)]),
    ]
    file = re.sub(r"[^\w.-]+", "_", "-".join(parts)) + ".json"
    raw = (json.dumps(content, indent=2) + "\n").encode()
    if statement and outside:
        plain = Query(found["metric"], f"{score.name}{size}")
        query = plain if privacy is None else query_of(content, score_name(raw, file))
        record_query(folder, query)
    if out is not None:
        write_atomic(out, raw)
    if shipped:
        return
    try:
        write_atomic(folder / "evaluations" / file, raw)
    except DposeError as error:
        if outside:
            raise
        console.print(f"The score is not kept: {error.line()}", highlight=False)


def record_query(folder: Path, query: Query) -> None:
    """Add `query`, something computed from private data besides training, to ledger, statement and card of a run.

    Args:
        folder: A run's.
        query: What was computed, of which data.

    Raises:
        DposeError: the folder cannot be written.
    """

    # the ledger first: a query that did not reach the statement shows up in `dpose verify`
    def restated(ledger: Ledger, before: PrivacyStatement) -> PrivacyStatement:
        ledger.query(query.to_dict())
        return before.with_query(query)

    reseal(folder, restated)
