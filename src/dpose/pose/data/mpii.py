"""MPII Human Pose (Andriluka et al., CVPR 2014), in the JSON form that HRNet and MMPose share.

The folder holds `images/` and, under one of two names, the labels: `annot/train.json`, `annot/valid.json`,
`annot/gt_valid.mat` (HRNet) or `annotations/mpii_train.json`, `mpii_val.json`, `mpii_gt_val.mat` (MMPose): 22,246 and
2,958 people. An entry is one person: `image`, `center`, `scale`, `joints` (16 x 2) and `joints_vis`.

**Geometry.** A person's square has the side 200 * scale about `center`. Unless center.x is -1 (no centre), center.y
first moves down by 15 * scale and scale grows by 1.25, so that limbs are not cut off. The crop is that square, widened
or heightened to the input's aspect, with nothing added to it. Centre and joints count from one (MATLAB): 1 is
subtracted here, and added to predictions that are written for MPII's own tools.

**PCKh's reference length** is 0.6 times the diagonal of the head box, from `headboxes_src` of the .mat file, which
stands in the order of the validation labels. Where there is no such file (the training split has none) the segment
from upper neck to head top stands in; a report line says so, and scores are not comparable with published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import leads_out
from dpose.media.images import read_image
from dpose.pose.data.augment import Augment
from dpose.pose.data.cache import PictureCache, picture_cache
from dpose.pose.data.files import PictureFinder, find_annotations
from dpose.pose.data.matlab import read_mat
from dpose.pose.data.problems import Problem, Problems, holds_something, numbers, read_json
from dpose.pose.data.units import Person, Picture, PoseUnits, UnitKind
from dpose.pose.skeletons import MPII

ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    "train": ("annot/train.json", "annotations/mpii_train.json", "mpii_train.json"),
    "val": ("annot/valid.json", "annotations/mpii_val.json", "mpii_val.json"),
}
HEAD_BOXES = ("annot/gt_valid.mat", "annotations/mpii_gt_val.mat", "mpii_gt_val.mat")
"""Where the validation people's head boxes are looked for."""

HEAD_SHARE = 0.6
"""PCKh's reference length as a share of the head box's diagonal."""

PIXELS_PER_SCALE = 200.0
_NECK, _TOP = MPII.joints.index("upper_neck"), MPII.joints.index("head_top")
_GET_IT = "give the folder that holds images/ and annot/ (or annotations/) of MPII"
_KEYS = frozenset({"image", "center", "scale", "joints", "joints_vis"})


@dataclass(frozen=True)
class MpiiPerson:
    """One entry of the label file.

    Attributes:
        entry: Its place in the file, from 0: predictions for MPII's tools stand in this order.
        image: The picture's name.
        person: Keypoints, square and reference length, counting pixels from zero.
    """

    entry: int
    image: str
    person: Person


@dataclass(frozen=True)
class MpiiSet:
    """The labels of one split.

    Attributes:
        source: The label file.
        entries: How many people the file has, those left out too.
        people: In the file's order.
        paths: The picture files by name; `read_mpii(..., pictures=False)` lets some be absent.
        problems: What was wrong with the file.
        notes: Anything else worth telling.
    """

    source: Path
    entries: int
    people: tuple[MpiiPerson, ...]
    paths: Mapping[str, Path]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def open_mpii(
    root: Path,
    split: str,
    *,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    annotations: str = "",
) -> PoseUnits:
    """One split of MPII: a picture with all its labelled people a unit.

    Args:
        root: The dataset's folder.
        split: "train" or "val".
        input_size: (H, W) of a view in pixels.
        augment: What to change at random.
        unit: "image" or "crop" (a person, which is how the papers count).
        annotations: The label file, relative to `root`, where it has another name.

    Raises:
        DposeError: the folder or the labels are missing or unreadable, or not one of the pictures is there.
    """
    labels = read_mpii(root, split, annotations)
    grouped: dict[str, list[Person]] = {}
    for labelled in labels.people:
        grouped.setdefault(labelled.image, []).append(labelled.person)
    cache = picture_cache()
    pictures = [
        Picture(
            name,
            len(people),
            partial(_read, labels.paths[name], tuple(people), cache),
            path=labels.paths[name],
        )
        for name, people in grouped.items()
    ]
    return PoseUnits(
        pictures,
        input_size=input_size,
        augment=augment,
        unit=unit,
        padding=1.0,  # the square has its 1.25 already
        skeleton=MPII,
        report=[
            f"mpii:{split}: {len(pictures):,} pictures, {len(labels.people):,} people",
            *labels.notes,
            *Problems(labels.problems).summary(),
        ],
        problems=labels.problems,
    )


def read_mpii(root: Path, split: str, annotations: str = "", pictures: bool = True) -> MpiiSet:
    """The labels of one split of MPII (`open_mpii`).

    An entry that makes no sense is left out and told in `problems` by its place in the file, counted from one; so is
    one whose picture is missing, with `pictures`.
    """
    path, note = mpii_annotations(root, split, annotations)
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, list):
        raise DposeError("labels-malformed", "should be a JSON list of people", str(path), _GET_IT)
    lengths = _head_lengths(root, split, content)
    finder = PictureFinder([(root / "images", ""), (root, "")])
    people: list[MpiiPerson] = []
    paths: dict[str, Path] = {}
    for index, entry in enumerate(content):
        made = _entry(entry, index, finder, paths, problems, pictures)
        if made is not None:
            people.append(made if lengths is None else _with_length(made, float(lengths[index])))
    if content and not people:
        raise DposeError(
            "labels-all-unusable",
            f"not one of its {len(content):,} people can be used; {problems.found[0]}",
            str(path),
        )
    notes = [note] if note else []
    if lengths is None:
        notes.append(
            f"no head boxes ({Path(HEAD_BOXES[1]).name}): PCKh's length is the segment from neck to head top, and "
            "scores are not comparable with published ones"
        )
    return MpiiSet(path, len(content), tuple(people), paths, tuple(problems), tuple(notes))


def mpii_annotations(root: Path, split: str, annotations: str = "") -> tuple[Path, str]:
    """The label file of a split of MPII, and a note where it has an unusual name."""
    return find_annotations(root, ANNOTATIONS[split], annotations, b"[", _GET_IT)


def square(center: tuple[float, float], scale: float) -> NDArray[np.float32]:
    """The box x0, y0, x1, y1 of what a crop shows of a person, pixels counted from zero (see the module)."""
    x, y = center
    if x != -1:
        y += 15 * scale
        scale *= 1.25
    half = PIXELS_PER_SCALE * scale / 2
    return np.array([x - 1 - half, y - 1 - half, x - 1 + half, y - 1 + half], np.float32)


def _read(
    path: Path, people: tuple[Person, ...], cache: PictureCache | None
) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
    image = read_image(path) if cache is None else cache.read(path, lambda: read_image(path))
    return image, people


def _entry(
    entry: Any, index: int, finder: PictureFinder, paths: dict[str, Path], problems: Problems, pictures: bool
) -> MpiiPerson | None:
    where = f"entry {index + 1}"
    if not isinstance(entry, dict):
        problems.add("is no object", where)
        return None
    unknown, missing = sorted(set(entry) - _KEYS), sorted(_KEYS - set(entry))
    if unknown:
        problems.add("an unknown key", where, "not used", repr(unknown[0]))
    if missing:
        problems.add(f"has no {missing[0]}", where)
        return None
    name = entry["image"]
    if not isinstance(name, str) or leads_out(name):
        problems.add("no usable file name", where, detail=repr(name)[:80])
        return None
    centre, scale = numbers(entry["center"], 2), numbers([entry["scale"]], 1)
    joints, flags = _joints(entry["joints"]), numbers(entry["joints_vis"], len(MPII))
    if joints is None or flags is None:
        problems.add("joints are not 16 pairs of finite numbers with 16 flags", where, detail=name)
        return None
    if not np.isin(flags, (0, 1)).all():
        problems.add("a visibility other than 0 or 1", where, detail=name)
        return None
    if centre is None or scale is None or scale[0] <= 0:
        problems.add("no usable centre and scale", where, detail=name)
        return None
    if not flags.any():
        problems.add("not one visible joint", where, detail=name)
        return None
    if name not in paths:
        found = finder.find(name)
        if found is not None:
            paths[name] = found
        elif pictures:
            problems.add("the picture is missing", where, detail=name)
            return None
    visible = flags > 0
    keypoints = np.where(visible[:, None], joints - 1, 0).astype(np.float32)
    length = float("nan")
    if visible[_NECK] and visible[_TOP]:
        segment = float(np.linalg.norm(joints[_TOP] - joints[_NECK]))
        length = segment if segment > 0 else length
    box = square((float(centre[0]), float(centre[1])), float(scale[0]))
    if not holds_something(box):
        problems.add("no usable centre and scale", where, detail=name)
        return None
    return MpiiPerson(index, name, Person(keypoints, visible, box, length))


def _joints(value: Any) -> NDArray[np.float64] | None:
    rows = (
        [numbers(row, 2) for row in value] if isinstance(value, list) and len(value) == len(MPII) else [None]
    )
    return None if any(row is None for row in rows) else np.array(rows)


def _with_length(labelled: MpiiPerson, length: float) -> MpiiPerson:
    p = labelled.person
    return MpiiPerson(
        labelled.entry,
        labelled.image,
        Person(p.keypoints, p.visible, p.box, length if length > 0 else float("nan")),
    )


def _head_lengths(root: Path, split: str, content: list[Any]) -> NDArray[np.float64] | None:
    """The reference length of every entry, or None where there are no head boxes for these labels."""
    path = next((root / name for name in HEAD_BOXES if (root / name).is_file()), None)
    if split != "val" or path is None:
        return None
    found = read_mat(path, ("headboxes_src", "pos_gt_src"))
    boxes = found.get("headboxes_src")
    if boxes is None or boxes.dtype.kind not in "fiu" or boxes.shape != (2, 2, len(content)):
        shape = "missing" if boxes is None else f"{boxes.dtype} {boxes.shape}"
        raise DposeError(
            "headboxes-of-wrong-shape",
            f"'headboxes_src' should be numbers of shape (2, 2, {len(content)}), one box for each label; it is {shape}",
            str(path),
            "use the file that belongs to the labels, or move it away",
        )
    if not _same_people(found.get("pos_gt_src"), content):
        raise DposeError(
            "headboxes-of-other-labels",
            "holds other people than the labels, or in another order",
            str(path),
            "move it away",
        )
    corners = boxes.astype(np.float64)
    return np.asarray(HEAD_SHARE * np.linalg.norm(corners[1] - corners[0], axis=0))


def _same_people(positions: Any, content: list[Any]) -> bool:
    """Whether the .mat file's joints are those of the labels: head boxes go to people by their place alone."""
    if positions is None or positions.shape != (len(MPII), 2, len(content)):
        return False
    agree, compared = 0, 0
    for index, entry in enumerate(content):
        joints = _joints(entry.get("joints")) if isinstance(entry, dict) else None
        flags = numbers(entry.get("joints_vis"), len(MPII)) if isinstance(entry, dict) else None
        if joints is None or flags is None or not flags.any():
            continue
        apart = np.abs(joints - positions[:, :, index])[flags > 0]
        compared += 1
        agree += bool(np.median(apart) < 5)
    return compared == 0 or agree / compared > 0.9
