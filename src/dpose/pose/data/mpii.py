"""MPII Human Pose (Andriluka et al., CVPR 2014), in the JSON form that HRNet and MMPose share.

The folder holds `images/` and, under one of two names, the labels: `annot/train.json`, `annot/valid.json`,
`annot/gt_valid.mat` (HRNet) or `annotations/mpii_train.json`, `mpii_val.json`, `mpii_gt_val.mat` (MMPose): 22,246 and
2,958 people. An entry is one person: `image`, `center`, `scale`, `joints` (16 x 2) and `joints_vis`.

**Geometry.** A person's square has the side 200 * scale about `center`. Unless center.x is -1 (no centre), center.y
first moves down by 15 * scale and scale grows by 1.25, so that limbs are not cut off. The crop is that square, widened
or heightened to the input's aspect, with nothing added to it. Centre and joints count from one (MATLAB): 1 is
subtracted here, and added to predictions for MPII's own tools.

**PCKh's reference length** is 0.6 times the diagonal of the head box, from `headboxes_src` of the .mat file, which
has the order of the validation labels. Without such a file (the training split has none) the segment
from upper neck to head top is used; a report line says so, and scores are not comparable with published ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.data.label_files import LabelFile, PictureFinder, Problems, holds_something, numbers, read_json
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, photographs
from dpose.pose.data.matlab import read_mat
from dpose.pose.skeletons import MPII

LABEL_FILE = LabelFile(
    {
        "train": ("annot/train.json", "annotations/mpii_train.json", "mpii_train.json"),
        "val": ("annot/valid.json", "annotations/mpii_val.json", "mpii_val.json"),
    },
    b"[",
    "give the folder that holds images/ and annot/ (or annotations/) of MPII",
)
HEAD_BOXES = ("annot/gt_valid.mat", "annotations/mpii_gt_val.mat", "mpii_gt_val.mat")
"""Usual files of the validation people's head boxes."""

HEAD_SHARE = 0.6
"""PCKh's reference length as a share of the head box's diagonal."""

PIXELS_PER_SCALE = 200.0
_NECK, _TOP = MPII.joints.index("upper_neck"), MPII.joints.index("head_top")
_KEYS = frozenset({"image", "center", "scale", "joints", "joints_vis"})


def read_mpii(root: Path, split: str, annotations: str = "", pictures: bool = True) -> Labels:
    """Read the labels of one split of MPII: a picture with all its labelled people a unit (`PoseDataset.labels`).

    An invalid entry is left out and reported in `problems` by its place in the file, counted from one; so is
    one whose picture is missing, with `pictures`.
    """
    path, note = LABEL_FILE.find(root, split, annotations)
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, list):
        raise DposeError("labels-malformed", "should be a JSON list of people", str(path), LABEL_FILE.get_it)
    lengths = _head_lengths(root, split, content)
    finder = PictureFinder([(root / "images", ""), (root, "")])
    places: dict[str, Path | None] = {}
    people: dict[str, list[LabelledPerson]] = {}
    for index, entry in enumerate(content):
        where = f"entry {index + 1}"
        made = _entry(entry, index, where, problems, None if lengths is None else float(lengths[index]))
        if made is None:
            continue
        name = entry["image"]
        if not isinstance(name, str) or name not in places:
            placed = finder.place(name, where, problems, absent=not pictures)
            if placed is None:
                continue
            places[name] = placed[1]
        people.setdefault(name, []).append(made)
    if content and not people:
        raise problems.all_unusable(path, f"{len(content):,} people")
    notes = [note] if note else []
    if lengths is None:
        notes.append(
            f"no head boxes ({Path(HEAD_BOXES[1]).name}): PCKh's length is the segment from neck to head top, and "
            "scores are not comparable with published ones"
        )
    return Labels(
        f"mpii:{split}",
        path,
        MPII,
        tuple(LabelledPicture(name, places[name], tuple(those)) for name, those in people.items()),
        tuple(problems),
        tuple(notes),
        padding=1.0,  # the square has its 1.25 already
        entries=len(content),
    )


def square(center: tuple[float, float], scale: float) -> NDArray[np.float32]:
    """Return the box x0, y0, x1, y1 that a crop of a person shows, pixels counted from zero (see the module)."""
    x, y = center
    if x != -1:
        y += 15 * scale
        scale *= 1.25
    half = PIXELS_PER_SCALE * scale / 2
    return np.array([x - 1 - half, y - 1 - half, x - 1 + half, y - 1 + half], np.float32)


def _entry(entry: Any, index: int, where: str, problems: Problems, length: float | None) -> LabelledPerson | None:
    """Make a person, with the given reference length or else that from neck to head top."""
    if not isinstance(entry, dict):
        problems.add("is no object", where)
        return None
    unknown, missing = sorted(set(entry) - _KEYS), sorted(_KEYS - set(entry))
    if unknown:
        problems.add("an unknown key", where, "not used", repr(unknown[0]))
    if missing:
        problems.add(f"has no {missing[0]}", where)
        return None
    name = str(entry["image"])[:80]
    centre, scale = numbers(entry["center"], 2), numbers([entry["scale"]], 1)
    joints, flags = _joints(entry["joints"]), numbers(entry["joints_vis"], len(MPII))
    if joints is None or flags is None:
        problems.add("joints are not 16 pairs of finite numbers with 16 flags", where, detail=name)
        return None
    if not np.isin(flags, (0, 1)).all():
        problems.add("a visibility other than 0 or 1", where, detail=name)
        return None
    box = None
    if centre is not None and scale is not None and scale[0] > 0:
        box = square((float(centre[0]), float(centre[1])), float(scale[0]))
    if box is None or not holds_something(box):
        problems.add("no usable centre and scale", where, detail=name)
        return None
    if not flags.any():
        problems.add("not one visible joint", where, detail=name)
        return None
    visible = flags > 0
    if length is None and visible[_NECK] and visible[_TOP]:
        length = float(np.linalg.norm(joints[_TOP] - joints[_NECK]))
    keypoints = np.where(visible[:, None], joints - 1, 0).astype(np.float32).astype(np.float64)
    return LabelledPerson(index, keypoints, flags, box, head_length=length or float("nan"))


def _joints(value: Any) -> NDArray[np.float64] | None:
    rows = [numbers(row, 2) for row in value] if isinstance(value, list) and len(value) == len(MPII) else [None]
    return None if any(row is None for row in rows) else np.array(rows)


def _head_lengths(root: Path, split: str, content: list[Any]) -> NDArray[np.float64] | None:
    """Return the reference length of every entry, or None if there are no head boxes for these labels."""
    path = next((root / name for name in HEAD_BOXES if (root / name).is_file()), None)
    if split != "val" or path is None:
        return None
    arrays = read_mat(path, ("headboxes_src", "pos_gt_src"))
    boxes = arrays.get("headboxes_src")
    if boxes is None or boxes.dtype.kind not in "fiu" or boxes.shape != (2, 2, len(content)):
        shape = "missing" if boxes is None else f"{boxes.dtype} {boxes.shape}"
        raise DposeError(
            "headboxes-of-wrong-shape",
            f"'headboxes_src' should be numbers of shape (2, 2, {len(content)}), one box for each label; it is {shape}",
            str(path),
            "use the file that belongs to the labels, or move it away",
        )
    if not _same_people(arrays.get("pos_gt_src"), content):
        raise DposeError(
            "headboxes-of-other-labels",
            "holds other people than the labels, or in another order",
            str(path),
            "move it away",
        )
    corners = boxes.astype(np.float64)
    return np.asarray(HEAD_SHARE * np.linalg.norm(corners[1] - corners[0], axis=0))


def _same_people(positions: Any, content: list[Any]) -> bool:
    """True if the .mat file's joints are those of the labels: head boxes go to people by their place alone."""
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


DATASET = photographs(read_mpii, label_file=LABEL_FILE)
