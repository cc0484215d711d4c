"""Scores of finished models, of whatever task: of public data, or of held-out data and then listed in the statement.

Scores by object keypoint similarity, and of predictions that somebody else made.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from rich.console import Console
from rich.progress import Progress

from dpose.account import committing
from dpose.errors import DposeError
from dpose.files import check_place, is_shipped, write_atomic
from dpose.pose.ap import APResult
from dpose.pose.boxes import read_detections
from dpose.pose.data import SOURCES, Augment, DataSpec, open_data, open_labels
from dpose.pose.data.labels import Labels, units_of
from dpose.pose.data.units import PoseUnits
from dpose.pose.evaluate import (
    finder_of,
    keypoint_ap,
    label_boxes,
    read_mpii_predictions,
    read_results,
    score_mpii_predictions,
    score_results,
    whole_picture_ap,
    whole_picture_pckh,
)
from dpose.pose.metrics import PCKhResult
from dpose.pose.model import PoseConfig, PoseModel
from dpose.privacy.ledger import Ledger
from dpose.privacy.scores import query_of, score_name
from dpose.privacy.sections import Query
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import DEFAULT_TASK
from dpose.runs.reporting import make_report, show_report
from dpose.runs.scored import protects, reserve_labels, reserve_score
from dpose.runs.tasks import on_device, task_entry, task_of
from dpose.training.folder import check_sealable, read_statement, reseal
from dpose.training.trained_on import seen_line, trained_on
from dpose.units import Result


def score_boxes(
    model: PoseModel, spec: DataSpec, *, detections: str | None = None, limit: int | None = None, console: Console
) -> tuple[APResult, int]:
    """AP and AR of a model on data in COCO's format, with the mirrored crop averaged in.

    Args:
        model: On its device.
        spec: The data, with its split.
        detections: A detector's boxes: a file of COCO's results format, relative to the data's folder; the labels' own
            boxes where None.
        limit: At most so many pictures, chosen by name.
        console: Where progress and counts go.

    Returns:
        The result, and the number of pictures.
    """
    labels = _labels(spec, console, limit)
    if detections is None:
        boxes = label_boxes(labels)
        console.print("Boxes: the labels' own; published AP uses a detector's (--detections)", highlight=False)
    else:
        # those of other pictures are no mistake where only some of the pictures are wanted or there
        boxes, problems = read_detections(file := detections_file(spec, detections))
        there = {image.id for image in labels.pictures}
        count = sum(len(found) for image, found in boxes.items() if image in there)
        elsewhere = sum(map(len, boxes.values())) - count
        lines = f"Boxes: {count:,} of {file.name}"
        console.print(f"{lines}, {elsewhere:,} of other pictures" if elsewhere else lines, highlight=False)
        show_report(problems.summary(), console)
    with _progress(console, len(labels.pictures)) as advance:
        result = keypoint_ap(model, labels, boxes, advance=advance)
    return result, len(labels.pictures)


def score_whole_pictures(
    model: PoseModel, spec: DataSpec, units: PoseUnits, *, limit: int | None = None, console: Console
) -> tuple[APResult | PCKhResult, int]:
    """The score of a model that looks for people in whole pictures: no boxes are used.

    Args:
        model: On its device.
        spec: The data, with its split.
        units: Their pictures (`pictures_of`).
        limit: As `score_boxes`.
        console: Where progress and counts go.

    Returns:
        AP of data in COCO's format, with the mirrored picture averaged in where the model takes the picture for a crop;
        PCKh of others; and the number of pictures.
    """
    if not spec.dataset.oks:
        finder = finder_of(model)
        with _progress(console, len(units.pictures)) as advance:
            result = whole_picture_pckh(finder, units.pictures, units.skeleton, advance=advance)
        return result, len(units)
    labels = _labels(spec, console, limit)
    with _progress(console, len(labels.pictures)) as advance:
        found = whole_picture_ap(finder_of(model, flip_test=True), labels, advance=advance)
    return found, len(labels.pictures)


def pictures_of(spec: DataSpec, input_size: tuple[int, int], limit: int | None) -> PoseUnits:
    """Data whose pictures without labelled people are read, too: all of these are units, for the account.

    Args:
        spec: The data, with its split.
        input_size: (H, W) of a model; of rendered pictures, too.
        limit: At most so many pictures, chosen by name: those of `score_boxes` and `score_whole_pictures`.
    """
    if not spec.dataset.oks:
        return open_data(spec, purpose="evaluate", input_size=input_size, augment=Augment.none(), limit=limit)
    labels = _opened(spec)
    return _all_of(labels if limit is None else labels.limit(limit), spec, input_size)


def _all_of(labels: Labels, spec: DataSpec, input_size: tuple[int, int]) -> PoseUnits:
    """All pictures, those without anyone to learn from, too: a person who is found there lowers AP."""
    units = units_of(labels, input_size=input_size, augment=Augment.none(), include_empty=True)
    units.set_names = spec.set_names
    return units


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[], None]]:
    """A bar; what is given moves it by one."""
    with Progress(console=console, transient=True) as bar:
        shown = bar.add_task("evaluating", total=total)
        yield lambda: bar.advance(shown)


def score_file(predictions: Path, data: str, console: Console) -> APResult | PCKhResult:
    """The score of a file of predictions by itself: COCO's results format, or MPII's order as `.mat` or JSON.

    A score of labels that need protection depends on them, no matter who predicted, and is charged to their
    account. Labels suffice: pictures that are absent are scored too, and charged by their labels (`reserve_labels`).

    Args:
        predictions: The file.
        data: A data spec; the split defaults to validation.
        console: Where counts go.
    """
    spec = DataSpec.parse(data).for_purpose("evaluate")
    if not (spec.dataset.oks or spec.dataset.label_file):
        raise _unsupported(spec)
    labels = _opened(spec, pictures=False)
    # a mistake in the file costs no score
    read_mpii_predictions(predictions, labels) if labels.entries else read_results(predictions, labels)
    reserved = ""
    if not spec.public:
        absent = _absent(labels)
        if absent:
            console.print(
                f"{len(absent):,} pictures are not there: the account has their labels, and cannot tell what else read "
                "those pictures",
                highlight=False,
            )
        size = PoseConfig(preset="nano").input_size  # of no matter: files are compared by their content
        units = None if len(absent) == len(labels.pictures) else _all_of(_opened(spec), spec, size)
        reserved = reserve_labels(predictions, units, absent, name=spec.shown, console=console)
    with committing(reserved):
        show_report(labels.report(), console)
        if labels.entries:
            return score_mpii_predictions(predictions, labels)
        result, problems = score_results(predictions, labels)
    show_report(problems.summary(), console)
    return result


def _absent(labels: Labels) -> list[str]:
    """Name and labels, in one text, of each missing picture: of the people to learn from, or else of all."""
    lines = []
    for picture in labels.pictures:
        if picture.path is None:
            those = [p for p in picture.people if p.person is not None] or picture.people
            people = [p.keypoints.tolist() if p.box is None else (p.keypoints.tolist(), p.box.tolist()) for p in those]
            lines.append(f"{picture.name} {people}")
    return lines


def _labels(spec: DataSpec, console: Console, limit: int | None) -> Labels:
    """The labels of people who are scored by OKS, after a line about them is printed."""
    if not spec.dataset.oks:
        raise _unsupported(spec)
    labels = _opened(spec)
    if limit is not None:
        labels = labels.limit(limit)
    show_report(labels.report(), console)
    return labels


def _opened(spec: DataSpec, pictures: bool = True) -> Labels:
    labels = open_labels(spec, pictures=pictures)
    assert labels is not None, f"{spec.name} has a measure but no labels"
    return labels


def _unsupported(spec: DataSpec) -> DposeError:
    scored = ", ".join(name for name, source in SOURCES.items() if source.oks or source.label_file)
    return DposeError(
        "labels-format-unsupported",
        f"{spec.name} has neither labels in COCO's format nor MPII's",
        str(spec),
        f"use {scored}",
    )


def detections_file(spec: DataSpec, file: str) -> Path:
    """Where a file of detections is, which is named relative to the data's folder; refused if it is not there."""
    path = spec.folder / Path(file).expanduser()
    if not path.is_file():
        raise DposeError(
            "file-missing", "no such file", str(path), "a detections file is named relative to the data's folder"
        )
    return path


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
        beside: Other models without a guarantee, by name, whose scores on the same data are shown beside this one's;
            their own folders are left as they are.
        detections: For AP, a detector's boxes, relative to the data's folder; the labels' own where None.
        whole_pictures: Look for people in whole pictures instead, and use no boxes.
        out: A file to write the score to as well.
        console: Where progress goes.

    Returns:
        The results (`dpose.units.Result`, each of its task's metric, which prints itself) of the model and of the
        models beside it, in their order.
    """
    entry = task_entry(task_of(folder) or DEFAULT_TASK)
    model = entry.load(folder)
    statement = read_statement(folder)
    if not whole_pictures:
        scored = entry.scored(folder, model, data, limit=limit, detections=detections, console=console)
    elif entry.whole_pictures is None:
        raise DposeError(
            "whole-pictures-unsupported", f"the task {entry.name} knows no boxes", "--whole-pictures", "leave it out"
        )
    else:
        scored = entry.whole_pictures(folder, model, data, limit=limit, console=console)
    for _, path in beside:  # whose units are not looked for among those that are scored
        if protects(path, read_statement(path)):
            said = "has a guarantee, or comes from a run with one, so that its score is recorded with it"
            raise DposeError("score-beside-private-run", said, str(path), "evaluate it by itself")
    if out is not None:
        check_place(out, as_file=True)
    if not scored.public:
        check_recorded(folder, statement)
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
    folder: Path, score: RecordedScore, statement: PrivacyStatement | None, console: Console, out: Path | None = None
) -> None:
    """Write a score to `evaluations/`; one on private data is listed in ledger, statement and card first.

    Weights that come with dpose claim nothing, and nothing is written beside them.

    Args:
        folder: A run or model folder.
        score: The score.
        statement: Statement of the model.
        console: Receives a message if the score cannot be stored.
        out: A file to write the score to as well.
    """
    shipped, outside = is_shipped(folder), not score.public and _is_recorded(folder, statement)
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


def _is_recorded(folder: Path, statement: PrivacyStatement | None) -> bool:
    """Whether a private score is listed: not of a model that claims nothing, if it is read-only or has no ledger."""
    kept = not is_shipped(folder) and os.access(folder, os.W_OK) and (folder / "ledger.jsonl").exists()
    return statement is not None and (kept or statement.kind != "none")


def check_recorded(folder: Path, statement: PrivacyStatement | None) -> None:
    """Refuse, before it costs anything, a score of private data that could not be listed in the folder's statement.

    Raises:
        DposeError: the folder has no ledger, was changed since it was sealed, or cannot be written.
    """
    if statement is not None and _is_recorded(folder, statement):
        check_sealable(folder, statement)


def record_query(folder: Path, query: Query) -> None:
    """Add `query`, something computed from private data besides training, to ledger, statement and card of a run.

    Args:
        folder: A run's.
        query: What was computed, of which data.
    """

    # the ledger first: a query that did not reach the statement shows up in `dpose verify`
    def restated(ledger: Ledger, before: PrivacyStatement) -> PrivacyStatement:
        ledger.query(query.to_dict())
        return before.with_query(query)

    reseal(folder, restated)
