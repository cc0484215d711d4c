"""COCO keypoints (Lin et al., ECCV 2014), Human-Art, and other data in COCO's format: JSON of images and annotations.

The folder is the dataset's own: `annotations/person_keypoints_train2017.json`, `train2017/000000000009.jpg`; pictures
are also found below `images/`, in the folder itself and beside a label file in it.

**Who is learnt from.** As in the reference implementations: people who are no crowd, have a labelled joint, and whose
box is not empty once it is clipped to the picture. Joints with v = 1 (hidden) count as joints with v = 2.

**What is scored.** Everything in the file, crowds and people without joints too: `pycocotools` ignores those by its own
rules, and false detections in pictures without people count (`dpose.pose.ap`).

**Joints.** Those that the file's `categories` name, joined as its `skeleton` says; if it names none, 17 are COCO's and
others are called by number. Of several categories with joints that called "person" is read, or all if their joints
are the same; `,category=NAME` says which.

**Odd values.** A value that cannot be used costs that value: an id is given anew, a missing size is the picture's, a
missing box is taken around the joints (`dpose.pose.data.labels.boxed_person`).

**Crops.** A box (x, y, w, h) is clipped to [0, W - 1] x [0, H - 1], widened or heightened to the input's aspect about
its centre and enlarged by 1.25. Differences from HRNet: its clipping takes a pixel off each side of every box, and its
crops' centre lies half a crop pixel further right and down. Joints and their crop move together, so neither changes
what is learnt or scored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from dpose.errors import DposeError
from dpose.files import read_bytes
from dpose.pose.data.label_files import (
    LabelFile,
    PictureFinder,
    Problems,
    edges_between,
    id_of,
    joint_rows,
    numbers,
    read_json,
    whole,
)
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, boxed_person, photographs
from dpose.pose.skeletons import COCO, Skeleton, declared_skeleton, skeleton_of

LABEL_FILE = LabelFile(
    {
        split: (f"annotations/person_keypoints_{split}2017.json", f"person_keypoints_{split}2017.json")
        for split in ("train", "val")
    },
    b"{",
    "give the folder that holds annotations/ and train2017/ or val2017/ of COCO 2017",
)
NAMES_READ = 1000
"""Largest number of picture names that are compared with COCO's."""
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]*)"')
_COCO_NUMBER = re.compile(rb"(^|[/_])0{3}\d{9}\.jpg$")
CATEGORIES_BYTES = 2**20
"""Largest size of a file's list of categories."""


def read_coco(
    root: Path, split: str, annotations: str = "", pictures: bool = True, category: str = "", joints: str = ""
) -> Labels:
    """Read the labels of one split of COCO, a picture with all its people a unit (`PoseDataset.labels`)."""
    path, note = LABEL_FILE.find(root, split, annotations)
    part = path.stem.rpartition("_")[2]  # CVAT's: annotations/person_keypoints_PART.json, images/PART/
    places = [root / f"{split}2017", root / "images" / f"{split}2017", root / "images" / part, root / "images", root]
    beside = path.parent.absolute()  # Roboflow's: train/_annotations.coco.json, and the pictures in train/ too
    if beside.is_relative_to(root.absolute()) and ".." not in beside.relative_to(root.absolute()).parts:
        places.append(beside)
    finder = PictureFinder([(place, "") for place in places])
    notes = (note,) if note else ()
    return parse_coco(
        path, finder, name=f"coco:{split}", notes=notes, pictures=pictures, category=category, joints=joints
    )


def coco_skeleton(root: Path, split: str, annotations: str = "", category: str = "", joints: str = "") -> Skeleton:
    """Read the skeleton of one split without the labels: as declared, as the file names it, or COCO's."""
    if joints:
        return declared_skeleton(joints)
    path, _ = LABEL_FILE.find(root, split, annotations)
    raw = read_bytes(path)
    for match in re.finditer(rb'"categories"\s*:\s*', raw):
        text = raw[match.end() : match.end() + CATEGORIES_BYTES].decode("utf-8", "replace")
        try:
            listed, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:  # the reader of the labels reports what is wrong with them
            continue
        return category_of({"categories": listed}, path, category)[1] or COCO
    return COCO


def coco_holds(root: Path, split: str, annotations: str = "", category: str = "", joints: str = "") -> tuple[str, str]:
    """Recognise COCO itself among data in its format: by the label file, and by the pictures' names.

    COCO's own files have "COCO 2017 Dataset" and cocodataset.org under `info`. COCO's pictures are called by
    numbers of twelve digits and have an address at cocodataset.org; the first `NAMES_READ` names are compared.

    Returns:
        "coco" by `info`, with the split if the file has its usual name, or ""; and "coco" or "" by its pictures.
    """
    path, note = LABEL_FILE.find(root, split, annotations)
    raw = read_bytes(path)
    own = f"coco:{split}" if not (annotations or note) else "coco"
    about = re.search(rb'"info"\s*:\s*\{[^{}]*\}', raw)
    declared = about is not None and re.search(rb"COCO 20\d\d Dataset|cocodataset\.org", about.group()) is not None
    names = [match.group(1) for match in islice(_FILE_NAME.finditer(raw), NAMES_READ)]
    numbered = numbered_as_coco(names) or re.search(rb"//images\.cocodataset\.org/", raw) is not None
    return own if declared else "", "coco" if numbered else ""


def numbered_as_coco(names: Sequence[bytes]) -> bool:
    """True if most of some pictures' names are COCO's numbers of twelve digits."""
    return 2 * sum(_COCO_NUMBER.search(name) is not None for name in names) > len(names)


def parse_coco(
    path: Path,
    finder: PictureFinder,
    *,
    name: str,
    notes: tuple[str, ...] = (),
    group_key: str = "",
    pictures: bool = True,
    category: str = "",
    joints: str = "",
) -> Labels:
    """Read a label file in COCO's format.

    An invalid annotation is left out and reported in `problems` by its id; so is a picture that is missing, with its
    people. With `pictures=False` it stays, without a path: labels alone can be scored. `group_key` is the picture's
    field that tables are split by; `category` is the one to read. `joints` declares them in place of the category's own
    (`declared_skeleton`); if neither does they are COCO's, and never read off an annotation, which is somebody's.
    """
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in ("images", "annotations")):
        raise DposeError(
            "labels-malformed", 'should be a JSON object with "images" and "annotations"', str(path), LABEL_FILE.get_it
        )
    chosen, named = category_of(content, path, category)
    declared = _declared(joints, named, path) if joints else named
    skeleton = declared or COCO
    images, lost = _images(content["images"], finder, group_key, problems, pictures)
    if content["images"] and not images:
        raise problems.all_unusable(path, f"{len(content['images']):,} pictures")
    people = _people(content["annotations"], chosen, images, lost, problems, len(skeleton))
    if not (people or declared) and (counts := _other_counts(content["annotations"])):
        said = f"names no joints, and labels {counts} of them where COCO has {len(COCO)}"
        raise DposeError(
            "joints-not-declared", said, str(path), f"say which, as in coco:ROOT,joints={counts}, or their names"
        )
    absent = sum(image.path is None for image in images.values())
    if absent:
        notes = (*notes, f"{absent:,} of {len(images):,} pictures are not there: their labels alone are read")
    labelled = tuple(replace(image, people=tuple(people.get(own, ()))) for own, image in images.items())
    return Labels(name, path, skeleton, labelled, tuple(problems), notes)


def _declared(joints: str, named: Skeleton | None, path: Path) -> Skeleton:
    """Return the joints that are declared; refuse the file's own in another order, as joints are read by place."""
    declared = declared_skeleton(joints, f"joints={joints}")
    if named and len(named) == len(declared):
        for own, other in zip(named.joints, declared.joints, strict=True):
            if own != other and own in declared.joints:
                raise DposeError(
                    "joints-order-differs",
                    f"has {own} where {other} is declared",
                    str(path),
                    f"leave joints= out, or declare the file's order: joints={','.join(named.joints)}",
                )
    return declared


@dataclass(frozen=True)
class Categories:
    """The categories to read, and all that the file lists.

    Attributes:
        read: Ids of the categories to read.
        listed: Names of the file's categories by id; empty if the file lists none.
    """

    read: frozenset[int | str]
    listed: Mapping[int | str, str]


def category_of(content: dict[str, Any], path: Path, name: str = "") -> tuple[Categories, Skeleton | None]:
    """Return the categories to read, and their joints; None if the file names no joints."""
    listed = content.get("categories")
    entries = {
        own: c
        for c in (listed if isinstance(listed, list) else [])
        if isinstance(c, dict) and (own := id_of(c.get("id"))) is not None
    }
    names = {own: str(c.get("name", own)) for own, c in entries.items()}
    posed = [own for own, c in entries.items() if isinstance(c.get("keypoints"), list) and c["keypoints"]]
    if name:
        chosen = [own for own in entries if names[own] == name]
        if not chosen:
            raise DposeError("category-unknown", f"has no category {name!r}", str(path), _choices(entries, names))
    else:
        chosen = [own for own in posed if names[own] == "person"] or posed
        if len({tuple(map(str, entries[own]["keypoints"])) for own in chosen}) > 1:
            raise DposeError(
                "categories-ambiguous",
                f"{len(chosen)} categories have joints of their own",
                str(path),
                f"say which, as in coco:ROOT,category={names[chosen[0]]}; {_choices(entries, names)}",
            )
    if not chosen:
        people = [own for own in entries if names[own] == "person"]
        return Categories(frozenset(people or entries or {1}), names), None
    described = next((entries[own] for own in chosen if own in posed), None)
    if described is None:
        return Categories(frozenset(chosen), names), None
    edges = edges_between(described.get("skeleton") or (), len(described["keypoints"]), first=1)
    if edges is None:
        raise DposeError("skeleton-edges-invalid", '"skeleton" should be pairs of joints', str(path))
    skeleton = skeleton_of(list(map(str, described["keypoints"])), edges, where=str(path))
    return Categories(frozenset(chosen), names), skeleton


def _choices(entries: Mapping[int | str, dict[str, Any]], names: Mapping[int | str, str]) -> str:
    """List a file's categories with how many joints they have."""
    counts = {own: len(c.get("keypoints") or ()) for own, c in entries.items()}
    return "its categories: " + ", ".join(f"{names[own]} ({counts[own]} joints)" for own in entries)


def _other_counts(annotations: list[Any]) -> int:
    """Return how many joints the first annotation has, for whom it is to be said to; 0 if it has none, or COCO's."""
    flat = next((e["keypoints"] for e in annotations if isinstance(e, dict) and e.get("keypoints")), None)
    joints = len(flat) // 3 if isinstance(flat, list) and len(flat) % 3 == 0 else 0
    return 0 if joints == len(COCO) else joints


def _images(
    entries: list[Any], finder: PictureFinder, group_key: str, problems: Problems, pictures: bool
) -> tuple[dict[int | str, LabelledPicture], set[int | str]]:
    """Return the usable pictures by id, without their people, and the ids of the others."""
    images: dict[int | str, LabelledPicture] = {}
    lost: set[int | str] = set()
    ids = [id_of(entry.get("id")) if isinstance(entry, dict) else None for entry in entries]
    numbered = all(isinstance(own, int) for own in ids if own is not None)
    if not numbered:
        problems.add("ids that are no numbers: pictures are numbered anew", "images", "kept")
    for place, (own, entry) in enumerate(zip(ids, entries, strict=True), 1):
        if own is None:
            problems.add("a picture without an id", f"image entry {place}")
            continue
        where = f"image {own}"
        if own in images or own in lost:
            problems.add("two pictures with one id", where)
            continue
        lost.add(own)
        stated = _size(entry)
        placed = finder.place_once(entry.get("file_name"), stated, where, problems, absent=not pictures)
        if placed is None:
            continue
        if stated is None:
            problems.add("no width and height: the picture's are taken", where, "kept")
        file, path, size = placed
        lost.discard(own)
        group = entry.get(group_key, "") if group_key else ""
        number = own if numbered and isinstance(own, int) else place
        images[own] = LabelledPicture(file, path, (), size, number, group if isinstance(group, str) else "")
    return images, lost


def _size(entry: dict[str, Any]) -> tuple[int, int] | None:
    """Return (H, W) as the labels have it."""
    height, width = whole(entry.get("height")), whole(entry.get("width"))
    if height is None or width is None or not (0 < height < 2**31 and 0 < width < 2**31):
        return None
    return height, width


def _people(
    entries: list[Any],
    categories: Categories,
    images: dict[int | str, LabelledPicture],
    lost: set[int | str],
    problems: Problems,
    joints: int,
) -> dict[int | str, list[LabelledPerson]]:
    """Return the usable annotations by picture."""
    people: dict[int | str, list[LabelledPerson]] = {}
    known: dict[int, dict[str, Any]] = {}
    taken = [whole(entry.get("id")) for entry in entries if isinstance(entry, dict)]
    fresh = count(1 + max((own for own in taken if own is not None), default=0))
    for place, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            problems.add("an annotation that is no object", f"annotation entry {place}")
            continue
        own = whole(entry.get("id"))
        where = f"annotation entry {place}" if own is None else f"annotation {own}"
        category, image = id_of(entry.get("category_id", 1)), id_of(entry.get("image_id"))
        if category is None or category not in categories.read:
            if category is None or category not in categories.listed:
                listed = ", ".join(f"{k} {v}" for k, v in categories.listed.items()) or "1"
                problems.add(
                    "a category that the file does not list", where, "not used", f"{category}; it lists {listed}"
                )
            elif entry.get("keypoints"):
                problems.add("another category", where, "not used", categories.listed[category])
            continue
        if own is not None and known.get(own) == entry:
            problems.add("the same annotation twice", where)
        elif image is None:
            problems.add("its picture has no number", where)
        elif image in lost:
            problems.add("its picture cannot be used", where, detail=f"image {image}")
        elif image not in images:
            problems.add("its picture is not in the file", where, detail=f"image {image}")
        else:
            if own is None or own in known:
                problems.add("no id of its own: numbered anew", where, "kept")
                own = next(fresh)
            made = _annotation(entry, own, images[image], where, problems, joints)
            if made is not None:
                known[own] = entry
                people.setdefault(image, []).append(made)
    return people


_KEYS = frozenset({
    "id", "image_id", "category_id", "keypoints", "num_keypoints", "bbox", "area", "iscrowd", "segmentation",
    "keypoints_21", "num_keypoints_21", "self_contact", "annotator", "ignore", "score", "attributes",
})  # fmt: skip


def _annotation(
    entry: dict[str, Any], own: int, image: LabelledPicture, where: str, problems: Problems, joints: int
) -> LabelledPerson | None:
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        problems.add("an unknown key", where, "not used", repr(unknown[0]))
    if "keypoints" not in entry:
        problems.add("has no keypoints", where)
        return None
    rows = joint_rows(entry["keypoints"], joints)
    if rows is None:
        problems.add(f"keypoints are not {joints} joints of 3 numbers", where)
        return None
    box = numbers(entry.get("bbox"), 4)
    area = numbers([entry.get("area", np.nan)], 1)
    if "area" in entry and (area is None or not 0 <= area[0] < 1e300):
        problems.add("area is no positive number: the box's is taken", where, "kept")
        area = None
    crowd = whole(int(entry["iscrowd"]) if isinstance(entry.get("iscrowd"), bool) else entry.get("iscrowd", 0))
    if crowd not in (0, 1):
        problems.add("iscrowd is neither 0 nor 1: taken as 0", where, "kept")
    assert image.size is not None
    made = boxed_person(
        own,
        rows,
        np.full(4, np.nan) if box is None else box,
        image.size,
        area=float("nan") if area is None else float(area[0]),
        where=where,
        problems=problems,
        crowd=crowd == 1,
    )
    if entry.get("num_keypoints", made.labelled) != made.labelled:
        detail = f"{entry['num_keypoints']}, {made.labelled}"
        problems.add("num_keypoints is not the number of labelled joints", where, "kept", detail)
    return made


DATASET = photographs(
    read_coco,
    options=("annotations", "category", "joints"),
    skeleton=COCO,
    own_skeleton=coco_skeleton,
    label_file=LABEL_FILE,
    oks=True,
    holds=coco_holds,
)


HUMANART_FILE = LabelFile(
    {
        "train": ("annotations/training_humanart_coco.json", "annotations/training_humanart.json"),
        "val": ("annotations/validation_humanart.json",),
    },
    b"{",
    "give the folder HumanArt that holds annotations/ and images/",
)


def read_humanart(root: Path, split: str, annotations: str = "", pictures: bool = True) -> Labels:
    """Read one split of Human-Art (Ju et al., CVPR 2023): photographs, paintings, sculptures, drawings.

    The folder is the dataset's own, `HumanArt`. Its labels name pictures from the folder above, "HumanArt/images/..."
    and, for those of COCO, "coco/train2017/...". The 17 joints are COCO's; Human-Art's own 21 (`keypoints_21`) are not
    used. A picture's `category` ("acrobatics", "digital art"; twenty of them) is its `group`.
    """
    path, note = HUMANART_FILE.find(root, split, annotations)
    above = root.resolve().parent
    bases = [(above / "HumanArt", "HumanArt/"), (above / "coco", "coco/")]
    # the same folder under another name, and pictures unpacked without the folders above them
    bases += [(root, "HumanArt/"), (root, "HumanArt/images/"), (root / "images", ""), (root, "")]
    return parse_coco(
        path,
        PictureFinder(bases),
        name=f"humanart:{split}",
        notes=(note,) if note else (),
        group_key="category",
        joints=COCO.name,  # its categories name its own 21
        pictures=pictures,
    )


HUMANART = photographs(read_humanart, skeleton=COCO, label_file=HUMANART_FILE, oks=True)
