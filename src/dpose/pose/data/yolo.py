"""YOLO-pose: a text file a picture, as Ultralytics and Roboflow write it (`dpose.pose.data.convert` writes it, too).

The folder holds `data.yaml` and pictures below `images/`, each with `labels/NAME.txt` in its place:

    path: .                       # or the root itself
    train: images/train           # a folder, a list of them, or a text file of pictures
    val: images/val
    names: {0: person}
    kpt_shape: [17, 3]            # joints, and 2 or 3 numbers a joint
    flip_idx: [0, 2, 1, ...]      # the joint at each place of a mirrored picture
    kpt_names: {0: [nose, ...]}   # optional

A line is `class cx cy w h` and, for each joint, `x y v` (or `x y`), all in shares of the picture's width and height as
it is shown; v is 0 not labelled, 1 hidden, 2 seen. Without `kpt_names` 17 joints are COCO's, others are called by
number. Without v a joint at 0, 0 is not labelled.

Everything else is as for data in COCO's format, AP too. A person's area is 0.53 of the box, as Ultralytics takes it:
boxes stand for the segmentation that labels of this kind lack.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_text, file_yaml
from dpose.known_sets import sets_in
from dpose.media.images import IMAGE_SUFFIXES, shown_size
from dpose.pose.data.coco import NAMES_READ, numbered_as_coco
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, boxed_person, photographs
from dpose.pose.data.problems import Problems
from dpose.pose.skeletons import COCO, Skeleton, skeleton_of

USUAL = "data.yaml"
AREA_OF_BOX = 0.53
MOST_JOINTS = 1_000
_GET_IT = "give the folder that holds data.yaml, images/ and labels/"


def yolo_skeleton(root: Path, split: str, annotations: str = "") -> Skeleton:
    """The joints of a dataset, as its `data.yaml` names, counts and mirrors them.

    Raises:
        DposeError: there is no such file, or it describes no joints.
    """
    return described_joints(*read_settings(root, annotations))[0]


def yolo_holds(root: Path, split: str, annotations: str = "") -> tuple[str, str]:
    """Which public set data in this format are: as `path` or `download` of `data.yaml` say, and as its pictures' names.

    Raises:
        DposeError: there is no such file, or it is none.
    """
    settings, path = read_settings(root, annotations)
    told = [Path(str(settings.get(name) or "")).stem for name in ("path", "download")]
    # a folder may be called "coco" for its format
    said = next((key for text in told if text != "coco" for key in sets_in(text)), "")
    names = [file.name.encode() for file in _pictures(settings, split, path)[:NAMES_READ]]
    return said, "coco" if numbered_as_coco(names) else ""


def read_yolo(root: Path, split: str, annotations: str = "", pictures: bool = True) -> Labels:
    """The labels of one split. A line that makes no sense is left out and told by file and line.

    Pictures are always needed, whatever `pictures` says: labels are shares of their sizes.

    Raises:
        DposeError: `data.yaml` is missing, is none or lacks the split, or there is not one picture.
    """
    settings, path = read_settings(root, annotations)
    skeleton, values = described_joints(settings, path)
    files = _pictures(settings, split, path)
    people_class = _people_class(settings)
    problems = Problems()
    numbers = {int(file.stem) for file in files if file.stem.isdecimal()}
    found: list[LabelledPicture] = []
    people = 0
    for place, file in enumerate(files, 1):
        try:
            size = shown_size(file)
        except DposeError as error:
            problems.add(error.what, file.name)
            continue
        those = _people(file, size, (len(skeleton), values, people_class), people + 1, problems)
        people += len(those)
        # as COCO's, a picture called by a number keeps it
        number = int(file.stem) if len(numbers) == len(files) else place
        found.append(LabelledPicture(_below(file, path.parent), file, tuple(those), size, number))
    if not found:
        raise DposeError(
            "pictures-all-unreadable", f"not one picture of {split!r} can be read", str(path), _GET_IT
        )
    return Labels(f"yolo:{split}", path, skeleton, tuple(found), tuple(problems))


def read_settings(root: Path, annotations: str = "") -> tuple[dict[str, Any], Path]:
    """What `data.yaml`, or the file that is named in its place, says; and that file.

    Raises:
        DposeError: there is no such file, or it is no mapping.
    """
    path = root / (annotations or USUAL)
    if not path.is_file():
        raise DposeError("data-file-missing", f"holds no {annotations or USUAL}", str(root), _GET_IT)
    try:
        found = file_yaml(path)
    except (OSError, ValueError) as error:
        raise DposeError("yaml-invalid", "is no YAML", str(path), _GET_IT) from error
    if not isinstance(found, dict):
        raise DposeError(
            "data-file-malformed",
            "should be a mapping with train, val, names and kpt_shape",
            str(path),
            _GET_IT,
        )
    return found, path


def described_joints(settings: Mapping[str, Any], path: Path) -> tuple[Skeleton, int]:
    """The skeleton, and how many numbers a joint has."""
    shape = settings.get("kpt_shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(n) is int for n in shape)):
        raise DposeError(
            "kpt-shape-missing",
            "has no kpt_shape, so its labels are no poses",
            str(path),
            "write [joints, 2 or 3]",
        )
    count, values = shape
    if not 1 <= count <= MOST_JOINTS or values not in (2, 3):
        many = f"more than {MOST_JOINTS:,} joints" if count > MOST_JOINTS else f"{shape}"
        raise DposeError(
            "kpt-shape-invalid", f"kpt_shape cannot be {many}", str(path), "write [joints, 2 or 3]"
        )
    named = settings.get("kpt_names")
    named = next(iter(named.values()), None) if isinstance(named, dict) else named
    names = named if isinstance(named, list) else COCO.joints if count == len(COCO) else None
    names = [f"joint_{j}" for j in range(count)] if names is None else [str(name) for name in names]
    if len(names) != count:
        raise DposeError(
            "joint-names-count-wrong", f"names {len(names)} joints where kpt_shape has {count}", str(path)
        )
    order, edges = settings.get("flip_idx"), COCO.edges if tuple(names) == COCO.joints else ()
    if order is not None and not (isinstance(order, list) and all(type(j) is int for j in order)):
        raise DposeError("flip-idx-invalid", "flip_idx should be a list of places", str(path))
    return skeleton_of(names, edges, order, where=str(path)), values


def _people_class(settings: Mapping[str, Any]) -> int | None:
    """The number of the class called person; None where no class is, and all are read."""
    names = settings.get("names")
    listed = names.items() if isinstance(names, dict) else enumerate(names if isinstance(names, list) else ())
    return next((int(number) for number, name in listed if name == "person"), None)


def _pictures(settings: Mapping[str, Any], split: str, path: Path) -> list[Path]:
    """The picture files of a split, by name."""
    given = settings.get(split)
    if not given:
        raise DposeError(
            "split-without-pictures",
            f"names no pictures of {split!r}",
            str(path),
            f"its splits: {_splits(settings)}",
        )
    roots = [path.parent / str(settings.get("path", ".")), path.parent]
    files: list[Path] = []
    for place in given if isinstance(given, list) else [given]:
        # Roboflow writes "../train/images" for what lies beside data.yaml
        tried = [root / name for root in roots for name in (str(place), str(place).removeprefix("../"))]
        found = next((t for t in tried if os.path.exists(t)), None)  # a name may be too long to look for
        if found is None:
            raise DposeError(
                "file-missing", "no such file or folder", str(tried[0]), f"{split} in {path.name} names it"
            )
        if found.is_dir():
            files += [f for f in sorted(found.rglob("*")) if f.suffix.lower() in IMAGE_SUFFIXES]
        else:
            try:
                listed = file_text(found).split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise DposeError(
                    "picture-list-invalid",
                    "is no list of pictures",
                    str(found),
                    f"{split} in {path.name} names it",
                ) from error
            files += [found.parent / line.strip() for line in listed if line.strip()]
    return list(dict.fromkeys(files))


def _splits(settings: Mapping[str, Any]) -> str:
    return ", ".join(name for name in ("train", "val", "test") if settings.get(name)) or "none"


def _label_file(picture: Path) -> Path:
    """Where a picture's labels lie: "labels" for the last folder called "images"."""
    parts = list(picture.parts)
    places = [k for k, part in enumerate(parts[:-1]) if part == "images"]
    if places:
        parts[places[-1]] = "labels"
    return Path(*parts).with_suffix(".txt")


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    """The lines of a label file, counted from 1; none where there is no file, as of a picture without anybody."""
    try:
        text = file_text(path, errors="replace") if path.exists() else ""
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
    return [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]


def _people(
    picture: Path,
    size: tuple[int, int],
    described: tuple[int, int, int | None],
    first: int,
    problems: Problems,
) -> list[LabelledPerson]:
    """The people of a picture of (H, W), numbered from `first`; described are joints, numbers a joint, and class."""
    joints, values, wanted = described
    people: list[LabelledPerson] = []
    for line, text in _lines(_label_file(picture)):
        where = f"{_label_file(picture).name} line {line}"
        found = _person(text, joints, values, size)
        if isinstance(found, str):
            problems.add(found, where)
        elif wanted is None or found[0] == wanted:
            _, rows, box = found
            area = float(AREA_OF_BOX * box[2:].prod())
            number = first + len(people)
            made = boxed_person(number, rows, box, size, area=area, where=where, problems=problems)
            people += [] if made is None else [made]
    return people


def _person(
    text: str, joints: int, values: int, size: tuple[int, int]
) -> str | tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """The class of a line, joints (J, 3) and box x, y, w, h in pixels; or what is wrong with it."""
    try:
        row = np.array([float(part) for part in text.split()])
    except ValueError:
        return "not a line of numbers"
    if len(row) != 5 + joints * values:
        return f"not {5 + joints * values} numbers"
    if not np.isfinite(row).all() or (row[1:5] < 0).any() or (row[1:5] > 1).any():
        return "a box that is not in shares of the picture"
    scale = np.array(size[::-1], np.float64)
    rows = row[5:].reshape(joints, values)
    flags = rows[:, 2] if values == 3 else np.where((rows > 0).any(axis=1), 2.0, 0.0)
    centre, extent = row[1:3] * scale, row[3:5] * scale
    box = np.concatenate([centre - extent / 2, extent])
    return int(row[0]), np.column_stack([rows[:, :2] * scale, flags]), box


def _below(file: Path, folder: Path) -> str:
    """A file's name relative to a folder, or its own where it lies elsewhere."""
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else file.name


DATASET = photographs(
    read_yolo,
    ("train", "val", "test"),
    skeleton=COCO,
    own_skeleton=yolo_skeleton,
    oks=True,
    holds=yolo_holds,
)
