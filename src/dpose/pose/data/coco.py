"""COCO keypoints (Lin et al., ECCV 2014), Human-Art, and other data in COCO's format: JSON of images and annotations.

The folder is the dataset's own: `annotations/person_keypoints_train2017.json`, `train2017/000000000009.jpg`; pictures
are also found below `images/` and in the folder itself.

**Who is learnt from.** As in the reference implementations: people who are no crowd, have a labelled joint, and whose
box is not empty once it is clipped to the picture. Joints with v = 1 (hidden) count as joints with v = 2.

**What is scored.** Everything in the file, crowds and people without joints too: `pycocotools` ignores those by its own
rules, and false detections in pictures without people count (`dpose.pose.ap`).

**Joints.** Those that the file's `categories` name, joined as its `skeleton` says; COCO's 17 if it names none.
A category called "person" is read, or else the only one that has joints.

**Crops.** A box (x, y, w, h) is clipped to [0, W - 1] x [0, H - 1], widened or heightened to the input's aspect about
its centre and enlarged by 1.25. Differences from HRNet: its clipping takes a pixel off each side of every box, and its
crops' centre lies half a crop pixel further right and down. Joints and their crop move together, so neither changes
what is learnt or scored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.pose.data.label_files import LabelFile, PictureFinder, Problems, label_bytes, numbers, read_json
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, boxed_person, photographs
from dpose.pose.skeletons import COCO, Skeleton, skeleton_of

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


def read_coco(root: Path, split: str, annotations: str = "", pictures: bool = True) -> Labels:
    """Read the labels of one split of COCO, a picture with all its people a unit (`PoseDataset.labels`)."""
    path, note = LABEL_FILE.find(root, split, annotations)
    places = (root / f"{split}2017", root / "images" / f"{split}2017", root / "images", root)
    finder = PictureFinder([(place, "") for place in places])
    notes = (note,) if note else ()
    return parse_coco(path, finder, name=f"coco:{split}", notes=notes, pictures=pictures)


def coco_skeleton(root: Path, split: str, annotations: str = "") -> Skeleton:
    """Read the skeleton of the labels of one split, without the labels: COCO's if the file names no joints."""
    path, _ = LABEL_FILE.find(root, split, annotations)
    raw = label_bytes(path)
    for match in re.finditer(rb'"categories"\s*:\s*', raw):
        text = raw[match.end() : match.end() + CATEGORIES_BYTES].decode("utf-8", "replace")
        try:
            listed, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:  # the reader of the labels reports what is wrong with them
            continue
        return category_of({"categories": listed}, path)[1]
    return COCO


def coco_holds(root: Path, split: str, annotations: str = "") -> tuple[str, str]:
    """Recognise COCO itself among data in its format: by the label file, and by the pictures' names.

    COCO's own files have "COCO 2017 Dataset" and cocodataset.org under `info`. COCO's pictures are called by
    numbers of twelve digits and have an address at cocodataset.org; the first `NAMES_READ` names are compared.

    Returns:
        "coco" by `info`, with the split if the file has its usual name, or ""; and "coco" or "" by its pictures.
    """
    path, note = LABEL_FILE.find(root, split, annotations)
    raw = label_bytes(path)
    own = f"coco:{split}" if not (annotations or note) else "coco"
    about = re.search(rb'"info"\s*:\s*\{[^{}]*\}', raw)
    declared = (
        about is not None and re.search(rb"COCO 20\d\d Dataset|cocodataset\.org", about.group()) is not None
    )
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
    skeleton: Skeleton | None = None,
    pictures: bool = True,
) -> Labels:
    """Read a label file in COCO's format.

    An invalid annotation is left out and reported in `problems` by its id; so is a picture that is missing, with its
    people. With `pictures=False` it stays, without a path: labels alone can be scored. `group_key` is the picture's
    field that tables are split by; `skeleton` replaces that of the file's categories.
    """
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, dict) or not all(
        isinstance(content.get(k), list) for k in ("images", "annotations")
    ):
        raise DposeError(
            "labels-malformed",
            'should be a JSON object with "images" and "annotations"',
            str(path),
            LABEL_FILE.get_it,
        )
    person, named = category_of(content, path)
    joints = skeleton or named
    images, lost = _images(content["images"], finder, group_key, problems, pictures)
    if content["images"] and not images:
        raise problems.all_unusable(path, f"{len(content['images']):,} pictures")
    people = _people(content["annotations"], person, images, lost, problems, len(joints))
    absent = sum(image.path is None for image in images.values())
    if absent:
        notes = (*notes, f"{absent:,} of {len(images):,} pictures are not there: their labels alone are read")
    labelled = tuple(replace(image, people=tuple(people.get(number, ()))) for number, image in images.items())
    return Labels(name, path, joints, labelled, tuple(problems), notes)


def category_of(content: dict[str, Any], path: Path) -> tuple[set[int], Skeleton]:
    """Return the numbers of the categories to read, and their joints."""
    listed = content.get("categories")
    entries = [c for c in listed if isinstance(c, dict) and "id" in c] if isinstance(listed, list) else []
    posed = [c for c in entries if isinstance(c.get("keypoints"), list) and c["keypoints"]]
    chosen = [c for c in entries if c.get("name") == "person"] or (posed if len(posed) == 1 else [])
    described = next((c for c in chosen if c in posed), None)
    if any(type(c["id"]) is not int for c in chosen):
        raise DposeError("category-id-invalid", 'the "id" of a category should be a whole number', str(path))
    if described is None:
        return {c["id"] for c in chosen} or {1}, COCO
    try:
        edges = [(int(a) - 1, int(b) - 1) for a, b in described.get("skeleton") or ()]  # COCO counts from 1
    except (TypeError, ValueError) as error:
        raise DposeError(
            "skeleton-edges-invalid", '"skeleton" should be pairs of joints', str(path)
        ) from error
    return {c["id"] for c in chosen}, skeleton_of(described["keypoints"], edges, where=str(path))


def _images(
    entries: list[Any], finder: PictureFinder, group_key: str, problems: Problems, pictures: bool
) -> tuple[dict[int, LabelledPicture], set[int]]:
    """Return the usable pictures by id, without their people, and the ids of the others."""
    images: dict[int, LabelledPicture] = {}
    lost: set[int] = set()
    paths: set[Path] = set()
    for number, entry in enumerate(entries, 1):
        where = f"image entry {number}"
        if not isinstance(entry, dict) or type(entry.get("id")) is not int:
            problems.add("a picture without a whole number as id", where)
            continue
        own, where = entry["id"], f"image {entry['id']}"
        if own in images or own in lost:
            problems.add("two pictures with one id", where)
            continue
        lost.add(own)
        placed = finder.place(entry.get("file_name"), where, problems, absent=not pictures)
        if placed is None:
            continue
        file, path = placed
        sides = [v for v in (entry.get("height"), entry.get("width")) if type(v) is int and 0 < v < 2**31]
        if len(sides) != 2:
            problems.add("no width and height", where, detail=file)
        elif (path or Path(file)) in paths:
            problems.add("two ids for one picture", where, detail=file)
        else:
            paths.add(path or Path(file))
            lost.discard(own)
            group = entry.get(group_key, "") if group_key else ""
            images[own] = LabelledPicture(
                file, path, (), (sides[0], sides[1]), own, group if isinstance(group, str) else ""
            )
    return images, lost


def _people(
    entries: list[Any],
    person: set[int],
    images: dict[int, LabelledPicture],
    lost: set[int],
    problems: Problems,
    joints: int,
) -> dict[int, list[LabelledPerson]]:
    """Return the usable annotations by picture."""
    people: dict[int, list[LabelledPerson]] = {}
    known: set[int] = set()
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or type(entry.get("id")) is not int:
            problems.add("an annotation without a whole number as id", f"annotation entry {number}")
            continue
        where = f"annotation {entry['id']}"
        category, image = entry.get("category_id", 1), entry.get("image_id")
        if not isinstance(category, int | float) or category not in person:
            continue
        if entry["id"] in known:
            problems.add("two annotations with one id", where)
        elif not isinstance(image, int | float):
            problems.add("its picture has no number", where)
        elif image in lost:
            problems.add("its picture cannot be used", where, detail=f"image {image}")
        elif image not in images:
            problems.add("its picture is not in the file", where, detail=f"image {image}")
        else:
            made = _annotation(entry, images[int(image)], where, problems, joints)
            if made is not None:
                known.add(made.id)
                people.setdefault(int(image), []).append(made)
    return people


_KEYS = frozenset({
    "id", "image_id", "category_id", "keypoints", "num_keypoints", "bbox", "area", "iscrowd", "segmentation",
    "keypoints_21", "num_keypoints_21", "self_contact", "annotator", "ignore", "score", "attributes",
})  # fmt: skip


def _annotation(
    entry: dict[str, Any], image: LabelledPicture, where: str, problems: Problems, joints: int
) -> LabelledPerson | None:
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        problems.add("an unknown key", where, "not used", repr(unknown[0]))
    missing = [key for key in ("keypoints", "bbox") if key not in entry]
    if missing:
        problems.add(f"has no {missing[0]}", where)
        return None
    flat, box = numbers(entry["keypoints"], 3 * joints), numbers(entry["bbox"], 4)
    if flat is None:
        problems.add(f"keypoints are not {3 * joints} finite numbers", where)
        return None
    if box is None:
        problems.add("bbox is not 4 finite numbers", where)
        return None
    area = entry.get("area", box[2] * box[3])
    if type(area) not in (int, float) or not 0 <= area < 1e300:
        problems.add("area is no positive number", where)
        return None
    crowd = entry.get("iscrowd", 0)
    if crowd not in (0, 1):
        problems.add("iscrowd is neither 0 nor 1", where)
        return None
    assert image.size is not None
    made = boxed_person(
        entry["id"],
        flat.reshape(-1, 3),
        box,
        image.size,
        area=float(area),
        where=where,
        problems=problems,
        crowd=bool(crowd),
    )
    if made is not None and entry.get("num_keypoints", made.labelled) != made.labelled:
        detail = f"{entry['num_keypoints']}, {made.labelled}"
        problems.add("num_keypoints is not the number of labelled joints", where, "kept", detail)
    return made


DATASET = photographs(
    read_coco, skeleton=COCO, own_skeleton=coco_skeleton, label_file=LABEL_FILE, oks=True, holds=coco_holds
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
        skeleton=COCO,  # its categories name its own 21
        pictures=pictures,
    )


HUMANART = photographs(read_humanart, skeleton=COCO, label_file=HUMANART_FILE, oks=True)
