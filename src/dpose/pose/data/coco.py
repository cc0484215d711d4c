"""COCO keypoints (Lin et al., ECCV 2014), and every dataset in its format: a JSON file of images and annotations.

The folder is the dataset's own: `annotations/person_keypoints_train2017.json`, `train2017/000000000009.jpg`; pictures
are also found below `images/` and in the folder itself.

**Who is learnt from.** As in the reference implementations: people who are no crowd, have a labelled joint, and whose
box is not empty once it is clipped to the picture. Joints with v = 1 (hidden) count as joints with v = 2.

**What is scored.** Everything in the file, crowds and people without joints too: `pycocotools` ignores those by its own
rules, and pictures without people count for what is wrongly found there (`dpose.pose.ap`).

**Joints.** Those that the file's `categories` name, joined as its `skeleton` says; COCO's 17 where it names none.
A category called "person" is read, or else the only one that has joints.

**Crops.** A box (x, y, w, h) is clipped to [0, W - 1] x [0, H - 1], widened or heightened to the input's aspect about
its centre and enlarged by 1.25. Differences from HRNet: its clipping takes a pixel off each side of every box, and its
crops' centre lies half a crop pixel further right and down. Joints and their crop move together, so neither changes
what is learnt or scored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_bytes
from dpose.pose.data.augment import Augment
from dpose.pose.data.coco_labels import GET_IT, CocoImage, CocoSet, category_of, parse_coco
from dpose.pose.data.files import PictureFinder, find_annotations
from dpose.pose.data.problems import Problems
from dpose.pose.data.units import Person, Picture, PoseUnits, UnitKind
from dpose.pose.skeletons import COCO, Skeleton

ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    split: (f"annotations/person_keypoints_{split}2017.json", f"person_keypoints_{split}2017.json")
    for split in ("train", "val")
}

NAMES_READ = 1000
"""At most so many names of pictures are looked at to tell whether they are COCO's."""
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]*)"')
_COCO_NUMBER = re.compile(rb"(^|[/_])0{3}\d{9}\.jpg$")
CATEGORIES_BYTES = 2**20
"""At most so much of a file is taken for its list of categories."""


def open_coco(
    root: Path,
    split: str,
    *,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    annotations: str = "",
) -> PoseUnits:
    """One split of COCO: a picture with all its people a unit.

    Args:
        root: The dataset's folder.
        split: "train" or "val".
        input_size: (H, W) of a view in pixels.
        augment: What to change at random.
        unit: "image" or "crop".
        annotations: The label file, relative to `root`, where it has another name.

    Raises:
        DposeError: the folder or the labels are missing or unreadable, or not one of the pictures is there.
    """
    return units_of(read_coco(root, split, annotations), input_size=input_size, augment=augment, unit=unit)


def read_coco(root: Path, split: str, annotations: str = "", pictures: bool = True) -> CocoSet:
    """The labels of one split of COCO (`open_coco`); without `pictures` those of absent pictures too."""
    path, note = coco_annotations(root, split, annotations)
    bases = [
        (root / f"{split}2017", ""),
        (root / "images" / f"{split}2017", ""),
        (root / "images", ""),
        (root, ""),
    ]
    return parse_coco(
        path, PictureFinder(bases), name=f"coco:{split}", notes=(note,) if note else (), pictures=pictures
    )


def coco_skeleton(root: Path, split: str, annotations: str = "") -> Skeleton:
    """The skeleton of the labels of one split, without reading the labels: COCO's where the file names no joints.

    Raises:
        DposeError: there is no such file, it cannot be read, or its joints make no skeleton.
    """
    path, _ = coco_annotations(root, split, annotations)
    try:
        raw = file_bytes(path)
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
    for found in re.finditer(rb'"categories"\s*:\s*', raw):
        text = raw[found.end() : found.end() + CATEGORIES_BYTES].decode("utf-8", "replace")
        try:
            listed, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:  # whoever reads the labels says what is wrong with them
            continue
        return category_of({"categories": listed}, path)[1]
    return COCO


def coco_holds(root: Path, split: str, annotations: str = "") -> tuple[str, str]:
    """Whether data in COCO's format are COCO itself: what its label file says, and what its pictures are called.

    COCO's own files say "COCO 2017 Dataset" and name cocodataset.org under `info`. COCO's pictures are called by
    numbers of twelve digits and have an address at cocodataset.org; of the names the first `NAMES_READ` are looked at.

    Returns:
        "coco" by `info`, with the split where the file has its usual name, or ""; and "coco" or "" by its pictures.

    Raises:
        DposeError: there is no such file, or it cannot be read.
    """
    path, note = coco_annotations(root, split, annotations)
    try:
        raw = file_bytes(path)
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
    own = f"coco:{split}" if not (annotations or note) else "coco"
    about = re.search(rb'"info"\s*:\s*\{[^{}]*\}', raw)
    said = (
        about is not None and re.search(rb"COCO 20\d\d Dataset|cocodataset\.org", about.group()) is not None
    )
    names = [found.group(1) for found in islice(_FILE_NAME.finditer(raw), NAMES_READ)]
    like = numbered_as_coco(names) or re.search(rb"//images\.cocodataset\.org/", raw) is not None
    return own if said else "", "coco" if like else ""


def numbered_as_coco(names: Sequence[bytes]) -> bool:
    """Whether most of some pictures' names are COCO's numbers of twelve digits."""
    return 2 * sum(_COCO_NUMBER.search(name) is not None for name in names) > len(names)


def coco_annotations(root: Path, split: str, annotations: str = "") -> tuple[Path, str]:
    """The label file of a split of COCO, and a note where it has an unusual name."""
    return find_annotations(root, ANNOTATIONS[split], annotations, b"{", GET_IT)


def units_of(
    labels: CocoSet,
    *,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    nobody: bool = False,
) -> PoseUnits:
    """The people of `labels` to learn from, as units; pictures without such people are none, unless `nobody`."""
    learnt = labels.learnt()
    pictures = []
    for image in labels.images:
        people = tuple(
            Person(
                p.keypoints.astype(np.float32),
                p.flags > 0,
                box,
                # a dataset whose persons have no head boxes: PCKh does not apply
                area=p.area,
            )
            for p, box in learnt.get(image.id, ())
        )
        if (people or nobody) and image.path is not None:
            pictures.append(
                Picture(
                    image.name,
                    len(people),
                    partial(_read_people, labels.read, image, people),
                    path=image.path,
                )
            )
    count = sum(len(p) for p in learnt.values())
    return PoseUnits(
        pictures,
        input_size=input_size,
        augment=augment,
        unit=unit,
        skeleton=labels.skeleton,
        report=[f"{labels.name}: {len(pictures):,} pictures, {count:,} people", *report_lines(labels)],
        problems=labels.problems,
        nobody=nobody,
    )


def report_lines(labels: CocoSet) -> list[str]:
    """What is told of label files in this format: who is not learnt from and why, and the problems' summary."""
    crowds = sum(p.crowd for p in labels.people)
    jointless = sum(not p.crowd and not p.labelled for p in labels.people)
    learnt = sum(len(p) for p in labels.learnt().values())
    boxless = len(labels.people) - crowds - jointless - learnt
    empty = len({i.id for i in labels.images} - set(labels.learnt()))
    told = list(labels.notes)
    for count, what in (
        (crowds, "not learnt from: crowds"),
        (jointless, "not learnt from: people without a labelled joint"),
        (boxless, "not learnt from: people whose box is empty inside the picture"),
        (empty, "pictures without anyone to learn from"),
    ):
        if count:
            told.append(f"{count:,} {what}")
    return told + Problems(labels.problems).summary()


def _read_people(
    read: Callable[[CocoImage], NDArray[np.uint8]], image: CocoImage, people: tuple[Person, ...]
) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
    return read(image), people
