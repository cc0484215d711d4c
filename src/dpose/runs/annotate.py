"""`dpose predict` on pictures, folders, globs and video: drawn files out, and one JSON file of joints.

`dpose predict`: which model finds people, where they are looked for, and the table of one person's joints.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, cast

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.progress import Progress
from rich.table import Table

from dpose.errors import DposeError
from dpose.files import matching, place_inside, write_atomic
from dpose.media.kinds import kind_of, kind_of_name
from dpose.media.video_writer import WRITABLE
from dpose.pose import folder
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.boxes import Boxes, whole_picture
from dpose.pose.codec import base_of
from dpose.pose.data.yolo import check_label_names, write_yolo
from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseModel
from dpose.pose.people import ModelPeople, PeopleFinder, has_head
from dpose.pose.predict import for_prediction
from dpose.pose.skeletons import Skeleton
from dpose.runs.drawn_people import Annotated, DrawnPeople, Look
from dpose.runs.tasks import on_device


@dataclass(frozen=True)
class Predictor:
    """What finds people, and what the command prints of it.

    Attributes:
        finder: On the device where there is one.
        called: Its name.
        chance: About what the joints' scores of an untrained model are; None if unknown.
    """

    finder: PeopleFinder
    called: str
    chance: float | None = None


def bundled_predictor(*, flip_test: bool) -> Predictor:
    """The finder of people that comes with dpose."""
    name = folder.PREDICTOR
    return model_predictor(find_model(name), flip_test=flip_test, called=name)


def model_predictor(run: Path, *, flip_test: bool, called: str = "") -> Predictor:
    """What finds people with the pose model of a run or model folder.

    A model that was made from BlazePose looks for everybody; any other for one person in each box, or in the whole
    picture.

    Args:
        run: The folder.
        flip_test: Average with the mirrored crop; BlazePose reads everybody twice instead.
        called: Its name; the backbone's where "".
    """
    model = load_model(run)
    called = called or model.config.preset
    if isinstance(base_of(model.codec), BlazePoseCodec):
        return Predictor(BlazePeople(model), called)
    ready = cast("PoseModel", on_device(for_prediction(model)))
    return Predictor(ModelPeople(ready, flip_test=flip_test), called, model.codec.chance())


def joint_table(document: Mapping[str, Any], chance: float | None = None) -> RenderableType | None:
    """Joint, x, y (pixels of the picture) and score of the one person of a document, ready to print.

    Args:
        document: As `dpose.runs.drawn_people.Document` makes it.
        chance: `Predictor.chance`: where most scores are near it, that is said.

    Returns:
        None unless there is exactly one person.
    """
    if len(document["annotations"]) != 1:
        return None
    joints = document["categories"][0]["keypoints"]
    rows = np.asarray(document["annotations"][0]["keypoints"]).reshape(-1, 3)
    table = Table()
    for name in ("joint", "x", "y", "score"):
        table.add_column(name, justify="left" if name == "joint" else "right")
    for joint, (x, y, score) in zip(joints, rows, strict=True):
        table.add_row(joint, f"{x:.1f}", f"{y:.1f}", f"{score:.2f}")
    if chance is None or float(np.median(rows[:, 2])) > 2 * chance:
        return table
    return Group(table, f"Most scores are near {chance:.2f}, what a model gives that knows nothing: train it longer.")


def parse_box(text: str) -> tuple[float, float, float, float]:
    """A box from "x0,y0,x1,y1"."""
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise DposeError("box-malformed", "a box is x0,y0,x1,y1 in pixels", text) from error
    if not (x1 > x0 and y1 > y0 and all(map(math.isfinite, (x0, y0, x1, y1)))):
        raise DposeError("box-empty", "the box is empty", text, "x1 must exceed x0, y1 must exceed y0")
    return x0, y0, x1, y1


RESULTS = ".results.json"
"""A file with this ending receives COCO's results format: a list of the people alone."""

PLAIN = Look()
"""Joints on the picture, as the finder has them."""


def find_files(
    sources: Sequence[str], left: list[Path] | None = None, out: Path | None = None
) -> list[tuple[Path, Path]]:
    """The picture and video files that some sources name, each with its path relative to what named it.

    A source is a file, a folder (everything readable in it, below it too, but for what is hidden or stands in `out`) or
    a glob. Files keep the order of the sources and are sorted within one. What a folder holds besides is appended to
    `left`.
    """
    found: dict[Path, Path] = {}
    for source in sources:
        path = Path(source).expanduser()
        if path.is_dir():
            written = place_inside(path, out)
            names = [p.relative_to(path) for p in sorted(path.rglob("*")) if p.is_file()]
            seen = [n for n in names if not any(part[0] == "." for part in n.parts)]
            held = {path / n: kind_of(path / n) for n in seen if not (written and n.is_relative_to(written))}
            inside = [p for p, kind in held.items() if kind]
            if left is not None:
                left += [p for p, kind in held.items() if not kind]
            if not inside:
                raise DposeError("inputs-missing", "holds no picture and no video", source)
            for p in inside:
                found.setdefault(p, p.relative_to(path))
        elif path.is_file():
            found.setdefault(path, Path(path.name))
        else:
            matches = [p for p in matching(str(path), out) if p.is_file()]
            if not matches:
                raise DposeError("file-missing", "no such file or folder, and nothing matches it", source)
            for p in matches:
                found.setdefault(p, Path(p.name))
    return list(found.items())


@dataclass(frozen=True)
class LabelFiles:
    """Files of labels to write besides the drawn ones.

    Attributes:
        json: COCO's form: images (a frame is one too), annotations with keypoints (x, y, score), score, box and, in
            videos, track, and a category with the joints' names; the annotations alone where the name ends in
            `RESULTS`.
        yolo: A folder of YOLO-pose labels (`dpose.pose.data.yolo.write_yolo`), as of its training split.
        label_studio: Label Studio's tasks as JSON (`label_studio_tasks`).
    """

    json: Path | None = None
    yolo: Path | None = None
    label_studio: Path | None = None

    def write(self, document: Mapping[str, Any], skeleton: Skeleton, called: str) -> None:
        """Write the people of `document`, whose joints are those of `skeleton`, found by the model `called`."""
        if self.json is not None:
            content = document["annotations"] if self.json.name.endswith(RESULTS) else document
            write_atomic(self.json, json.dumps(content, allow_nan=False) + "\n")
        if self.yolo is not None:
            write_yolo(self.yolo, document, skeleton, "train")
        if self.label_studio is not None:
            tasks = label_studio_tasks(document, f"dpose {called}".strip())
            write_atomic(self.label_studio, json.dumps(tasks, allow_nan=False) + "\n")


def annotate(
    finder: PeopleFinder,
    files: Sequence[tuple[Path, Path]],
    out: Path | None,
    boxes: Boxes = whole_picture,
    *,
    labels: LabelFiles = LabelFiles(),
    look: Look = PLAIN,
    called: str = "",
    console: Console,
) -> Annotated:
    """Draw the people found in pictures and videos.

    A file that cannot be read is reported and skipped; if none can be, that is an error. A drawn video has the
    frames, times and length of the one it was drawn from, and no sound; a person in it keeps a number
    (`dpose.pose.tracks`). A picture without people is written as it is.

    Args:
        finder: Of people and their joints.
        files: As `find_files` gives them.
        out: The drawn file where there is one source and this has a suffix, else a folder. Where None, "NAME-pose"
            beside the one source.
        boxes: Where people are; None for a picture leaves it to the finder.
        labels: Files of labels to write besides.
        look: How they are drawn.
        called: The model's name, for Label Studio.
        console: Where progress goes.
    """
    if look.hide_faces and not has_head(finder.skeleton):
        raise DposeError("head-joints-missing", "the model finds no joint of a head", "--hide-faces")
    work = DrawnPeople(finder, boxes, look)
    done = work.done
    targets, names = _targets(files, out), _names(files)
    named = [path for path in (out if targets == [out] else None, labels.json, labels.label_studio) if path]
    read = [path for path, _ in files] + ([boxes.source] if hasattr(boxes, "source") else [])
    _check_replaced(read, targets, named)
    if labels.yolo is not None:
        check_label_names(
            (name.as_posix() for (path, _), name in zip(files, names, strict=True) if kind_of(path) == "picture"),
            labels.yolo / "labels" / "train",
        )
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("predicting", total=len(files))
        for (path, _), name, target in zip(files, names, targets, strict=True):
            try:
                if kind_of(path) == "video":
                    work.video(
                        path, name, target, lambda n, of: bar.update(task, description=f"frame {n} of {of or '?'}")
                    )
                else:
                    work.picture(path, name, target)
            except DposeError as error:
                if len(files) == 1:
                    raise
                done.problems.append(f"skipped: {error.line()}")
            bar.advance(task)
    if not done.pictures and not done.videos:
        raise DposeError("files-all-unusable", f"not one of {len(files):,} files could be used; {done.problems[0]}")
    labels.write(done.document, work.way.target, called)
    done.place = str(targets[0] if len(targets) == 1 else out)
    done.notes += getattr(boxes, "notes", [])
    return done


def _names(files: Sequence[tuple[Path, Path]]) -> list[PurePath]:
    """Return what each file is written down as: below what named it, or below the folder where equal names differ."""
    times = Counter(relative for _, relative in files)
    base = {
        name: os.path.commonpath([path.resolve().parent for path, relative in files if relative == name])
        for name, count in times.items()
        if count > 1
    }
    return [path.resolve().relative_to(base[name]) if name in base else name for path, name in files]


def _targets(files: Sequence[tuple[Path, Path]], out: Path | None) -> list[Path]:
    """Where each drawn file goes; two never go to one place."""
    if len(files) > 1 and (out is None or (kind_of_name(out) and not out.is_dir())):
        said = f"{len(files):,} files are to be drawn"
        raise DposeError("out-not-folder", said, str(out or ""), fix="give a folder with --out")
    if len(files) == 1 and out is not None and out.suffix and not out.is_dir():
        return [out]
    targets: dict[Path, None] = {}
    for path, relative in files:
        video = kind_of(path) == "video"
        kept = path.suffix.lower() in (tuple(WRITABLE) if video else (".jpg", ".jpeg", ".png"))
        name = f"{path.stem}-pose{path.suffix if kept else '.mp4' if video else '.png'}"
        folder = path.parent if out is None else out / relative.parent
        target, count = folder / name, 1
        while target in targets:
            count += 1
            target = folder / f"{Path(name).stem}-{count}{Path(name).suffix}"
        targets[target] = None
    return list(targets)


def _check_replaced(read: Sequence[Path], drawn: Sequence[Path], named: Sequence[Path]) -> None:
    """Refuse to write over what is read, or, with a name that the user gave, over any picture or video."""
    sources = {path.resolve() for path in read}
    for target in (*drawn, *named):
        if target.resolve() in sources:
            raise DposeError("original-overwritten", "would replace its source", str(target), "choose another name")
        if target in named and target.is_file() and kind_of(target):
            raise DposeError("output-exists", "is a picture or video already", str(target), "choose another name")


def names_several(sources: Sequence[str]) -> bool:
    """Whether sources may name more than one picture, or a video."""
    paths = [Path(s).expanduser() for s in sources]
    return len(paths) != 1 or not paths[0].is_file() or kind_of(paths[0]) == "video"


LOCAL = "/data/local-files/?d="
"""Where Label Studio serves files of its own machine; what follows is a path below its document root."""


def label_studio_tasks(document: Mapping[str, Any], version: str) -> list[dict[str, Any]]:
    """One task a picture, with a prediction: a rectangle a person, and its joints as points that belong to it.

    The labelling configuration has RectangleLabels called "person" and KeyPointLabels called "joint", both of an Image
    called "image" (docs/guide/workflows.md). Joints outside the picture, for which there is no
    place, and those of no score are left out.

    Args:
        document: As `dpose predict --json` writes it; frames of videos are left out, they are in no file.
        version: Of the model, for Label Studio's list of predictions.
    """
    joints = document["categories"][0]["keypoints"]
    people: dict[int, list[Mapping[str, Any]]] = {}
    for person in document["annotations"]:
        people.setdefault(person["image_id"], []).append(person)
    tasks = []
    for image in document["images"]:
        if "frame" not in image:
            found = people.get(image["id"], [])
            shapes = [shape for person in found for shape in _shapes(person, image, joints)]
            scores = [person["score"] for person in found]
            prediction = {"model_version": version, "score": sum(scores) / max(len(scores), 1), "result": shapes}
            tasks.append({"data": {"image": LOCAL + image["file_name"]}, "predictions": [prediction]})
    return tasks


def _shapes(person: Mapping[str, Any], image: Mapping[str, Any], joints: list[str]) -> Iterator[dict[str, Any]]:
    """A person's rectangle and points, in percent of the picture."""
    width, height = image["width"], image["height"]
    facts = {"to_name": "image", "original_width": width, "original_height": height, "image_rotation": 0}
    name = f"person-{person['id']}"
    x, y, w, h = person["bbox"]
    x0, x1 = (min(max(v / width, 0.0), 1.0) * 100 for v in (x, x + w))
    y0, y1 = (min(max(v / height, 0.0), 1.0) * 100 for v in (y, y + h))
    yield {
        **facts,
        "id": name,
        "from_name": "person",
        "type": "rectanglelabels",
        "score": person["score"],
        "value": {"x": x0, "y": y0, "width": x1 - x0, "height": y1 - y0, "rotation": 0, "rectanglelabels": ["person"]},
    }
    values = person["keypoints"]
    for k, joint in enumerate(joints):
        px, py, score = values[3 * k] / width, values[3 * k + 1] / height, values[3 * k + 2]
        if score > 0 and 0 <= px <= 1 and 0 <= py <= 1:
            yield {
                **facts,
                "id": f"{name}-{joint}",
                "from_name": "joint",
                "parentID": name,
                "type": "keypointlabels",
                "score": score,
                "value": {"x": 100 * px, "y": 100 * py, "width": 0.5, "keypointlabels": [joint]},
            }
