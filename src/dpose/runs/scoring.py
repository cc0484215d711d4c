"""Scores by object keypoint similarity, and of predictions that somebody else made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from dpose.account import committing
from dpose.errors import DposeError
from dpose.pose.ap import APResult
from dpose.pose.boxes import read_detections
from dpose.pose.data import SOURCES, Augment, DataSpec, open_data, open_labels
from dpose.pose.data.labels import Labels, units_of
from dpose.pose.data.units import PoseUnits
from dpose.pose.evaluate import (
    finder_of,
    keypoint_ap,
    label_boxes,
    score_mpii_predictions,
    score_results,
    whole_picture_ap,
    whole_picture_pckh,
)
from dpose.pose.metrics import PCKhResult
from dpose.pose.model import PoseConfig, PoseModel
from dpose.runs.scored import reserve_labels


def score_boxes(
    model: PoseModel,
    spec: DataSpec,
    *,
    detections: str | None = None,
    limit: int | None = None,
    console: Console,
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

    Raises:
        DposeError: data or detections cannot be read, or the data are not in COCO's format.
    """
    labels = _labels(spec, console, limit)
    if detections is None:
        boxes = label_boxes(labels)
        console.print(
            "Boxes: the labels' own; published AP uses a detector's (--detections)", highlight=False
        )
    else:
        file = _beside(spec, detections)
        # those of other pictures are no mistake where only some of the pictures are wanted or there
        boxes, problems = read_detections(file)
        there = {image.id for image in labels.pictures}
        count = sum(len(found) for image, found in boxes.items() if image in there)
        elsewhere = sum(map(len, boxes.values())) - count
        lines = f"Boxes: {count:,} of {file.name}"
        console.print(f"{lines}, {elsewhere:,} of other pictures" if elsewhere else lines, highlight=False)
        _tell(problems.summary(), console)
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

    Raises:
        DposeError: the data cannot be read, or have none of the model's joints.
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

    Raises:
        DposeError: they cannot be read.
    """
    if not spec.dataset.oks:
        return open_data(spec, purpose="evaluate", input_size=input_size, augment=Augment.none(), limit=limit)
    labels = _opened(spec)
    chosen = labels if limit is None else labels.limit(limit)
    units = units_of(chosen, input_size=input_size, augment=Augment.none(), include_empty=True)
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

    Raises:
        DposeError: a file cannot be read, the data are of another kind, or a budget stands for some of the pictures.
    """
    spec = DataSpec.parse(data).for_purpose("evaluate")
    if not (spec.dataset.oks or spec.dataset.label_file):
        raise _unsupported(spec)
    labels = _opened(spec, pictures=False)
    reserved = ""
    if not spec.public:
        absent = _absent(labels)
        if absent:
            console.print(
                f"{len(absent):,} pictures are not there: the account has their labels, and cannot tell what else read "
                "those pictures",
                highlight=False,
            )
        units = None if len(absent) == sum(bool(p.learnt) for p in labels.pictures) else _units(spec)
        reserved = reserve_labels(predictions, units, absent, name=spec.shown, console=console)
    with committing(reserved):
        if labels.entries:
            _tell(labels.notes, console)
            return score_mpii_predictions(predictions, labels)
        _tell(labels.report(), console)
        result, problems = score_results(predictions, labels)
    _tell(problems.summary(), console)
    return result


def _units(spec: DataSpec) -> PoseUnits:
    size = PoseConfig(preset="nano").input_size  # of no matter: files are compared by their content
    return open_data(spec, purpose="evaluate", input_size=size, augment=Augment.none())


def _absent(labels: Labels) -> list[str]:
    """Name and labels, in one text, of each missing picture with people to learn from."""
    lines = []
    for picture in labels.pictures:
        if picture.path is None and picture.learnt:
            learnt = [p for p in picture.people if p.person is not None]
            people = [
                p.keypoints.tolist() if p.box is None else (p.keypoints.tolist(), p.box.tolist())
                for p in learnt
            ]
            lines.append(f"{picture.name} {people}")
    return lines


def _labels(spec: DataSpec, console: Console, limit: int | None) -> Labels:
    """The labels of people who are scored by OKS, after a line about them is printed."""
    if not spec.dataset.oks:
        raise _unsupported(spec)
    labels = _opened(spec)
    if limit is not None:
        labels = labels.limit(limit)
    _tell(labels.report(), console)
    return labels


def _opened(spec: DataSpec, pictures: bool = True) -> Labels:
    labels = open_labels(spec, pictures=pictures)
    assert labels is not None, f"{spec.name} has a measure but no labels"
    return labels


def _tell(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False)


def _unsupported(spec: DataSpec) -> DposeError:
    scored = ", ".join(name for name, source in SOURCES.items() if source.oks or source.label_file)
    return DposeError(
        "labels-format-unsupported",
        f"{spec.name} has neither labels in COCO's format nor MPII's",
        str(spec),
        f"use {scored}",
    )


def _beside(spec: DataSpec, file: str) -> Path:
    path = spec.folder / Path(file).expanduser()
    if not path.is_file():
        raise DposeError(
            "file-missing",
            "no such file",
            str(path),
            "a detections file is named relative to the data's folder",
        )
    return path
