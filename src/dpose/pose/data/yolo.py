"""YOLO-pose: a text file a picture, as Ultralytics and Roboflow write it; reading it, and converting pose data to it.

The folder holds `data.yaml` and pictures below `images/`, each with `labels/NAME.txt` in its place:

    path: .                       # or the root itself
    train: images/train           # a folder, a list of them, or a text file of pictures
    val: images/val
    names: {0: person}
    kpt_shape: [17, 3]            # joints, and 2 or 3 numbers a joint
    flip_idx: [0, 2, 1, ...]      # the joint at each place of a mirrored picture
    kpt_names: {0: [nose, ...]}   # optional

A line is `class cx cy w h` and, for each joint, `x y v` (or `x y`), all in shares of the picture's width and height as
it is shown; v is 0 not labelled, 1 hidden, 2 seen. Without `kpt_names` 17 joints are COCO's unless `flip_idx` is
not, others are called by number. Without v a joint at 0, 0 is not labelled.

The file may have another name where it is the only `.yaml` of the folder. A `skeleton` of pairs of joints, counted from
0 or from 1, is drawn. What another machine has elsewhere is looked for by the end of its name below the folder.

Everything else is as for data in COCO's format, AP too. A person's area is 0.53 of the box, as in Ultralytics:
boxes stand for the segmentation that labels of this kind lack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import explain_os_error, file_text, file_yaml, write_atomic
from dpose.known_sets import sets_in
from dpose.media.images import encode_image, shown_size
from dpose.media.kinds import kind_of
from dpose.pose.data.coco import NAMES_READ, numbered_as_coco
from dpose.pose.data.label_files import PictureFinder, Problems, edges_between, label_text
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, boxed_person, photographs
from dpose.pose.data.units import PoseUnits
from dpose.pose.skeletons import COCO, MOST_JOINTS, Skeleton, skeleton_of

USUAL = "data.yaml"
AREA_OF_BOX = 0.53
OUTSIDE = 0.5
"""Largest distance of a share from the picture; pixels in place of shares are further away."""
_GET_IT = "give the folder that holds data.yaml, images/ and labels/"


def yolo_skeleton(root: Path, split: str, annotations: str = "") -> Skeleton:
    """Read the joints of a dataset, as its `data.yaml` names, counts and mirrors them."""
    return described_joints(*read_settings(root, annotations))[0]


def yolo_holds(root: Path, split: str, annotations: str = "") -> tuple[str, str]:
    """Recognise a public set in this format: by `path` or `download` of `data.yaml`, and by its pictures' names."""
    settings, path = read_settings(root, annotations)
    sources = [Path(str(settings.get(name) or "")).stem for name in ("path", "download")]
    # a folder may be called "coco" for its format
    declared = next((key for text in sources if text != "coco" for key in sets_in(text)), "")
    names = [file.name.encode() for file in _pictures(settings, split, path)[:NAMES_READ]]
    return declared, "coco" if numbered_as_coco(names) else ""


def read_yolo(root: Path, split: str, annotations: str = "", pictures: bool = True) -> Labels:
    """Read the labels of one split. An invalid line is left out and reported by file and line.

    Pictures are always needed, whatever `pictures` says: labels are shares of their sizes.
    """
    settings, path = read_settings(root, annotations)
    skeleton, values = described_joints(settings, path)
    files = _pictures(settings, split, path)
    people_class = _people_class(settings)
    problems = Problems()
    numbers = {int(file.stem) for file in files if file.stem.isdecimal()}
    pictures_read: list[LabelledPicture] = []
    people = 0
    for place, file in enumerate(files, 1):
        try:
            size = shown_size(file)
        except DposeError as error:
            problems.add(error.what, file.name)
            continue
        described = (len(skeleton), values, people_class)
        those = _people(file, size, described, people + 1, problems)
        people += len(those)
        # as in COCO, a number as a picture's name is its id
        number = int(file.stem) if len(numbers) == len(files) else place
        pictures_read.append(LabelledPicture(_below(file, path.parent), file, tuple(those), size, number))
    if not pictures_read:
        raise DposeError("pictures-all-unreadable", f"not one picture of {split!r} can be read", str(path), _GET_IT)
    return Labels(f"yolo:{split}", path, skeleton, tuple(pictures_read), tuple(problems))


def read_settings(root: Path, annotations: str = "") -> tuple[dict[str, Any], Path]:
    """Read `data.yaml`, or the file that replaces it; return its content and path."""
    path = root / (annotations or USUAL)
    if not path.is_file() and not annotations:
        others = sorted([*root.glob("*.yaml"), *root.glob("*.yml")])
        if len(others) > 1:
            names = ", ".join(other.name for other in others)
            fix = "say which, as in yolo:ROOT,annotations=FILE"
            raise DposeError("labels-ambiguous", f"several files could be its {USUAL}: {names}", str(root), fix)
        path = others[0] if others else path
    if not path.is_file():
        raise DposeError("data-file-missing", f"holds no {annotations or USUAL}", str(root), _GET_IT)
    try:
        settings = file_yaml(path)
    except (OSError, ValueError) as error:
        raise DposeError("yaml-invalid", "is no YAML", str(path), _GET_IT) from error
    if not isinstance(settings, dict):
        raise DposeError(
            "data-file-malformed", "should be a mapping with train, val, names and kpt_shape", str(path), _GET_IT
        )
    return settings, path


def described_joints(settings: Mapping[str, Any], path: Path) -> tuple[Skeleton, int]:
    """Return the skeleton, and how many numbers a joint has."""
    shape = settings.get("kpt_shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(n) is int for n in shape)):
        raise DposeError(
            "kpt-shape-missing", "has no kpt_shape, so its labels are no poses", str(path), "write [joints, 2 or 3]"
        )
    count, values = shape
    if not 1 <= count <= MOST_JOINTS or values not in (2, 3):
        many = f"more than {MOST_JOINTS:,} joints" if count > MOST_JOINTS else f"{shape}"
        raise DposeError("kpt-shape-invalid", f"kpt_shape cannot be {many}", str(path), "write [joints, 2 or 3]")
    named = settings.get("kpt_names")
    named = next(iter(named.values()), None) if isinstance(named, dict) else named
    order = settings.get("flip_idx")
    if order is not None and not (isinstance(order, list) and all(type(j) is int for j in order)):
        raise DposeError("flip-idx-invalid", "flip_idx should be a list of places", str(path))
    # seventeen joints that are mirrored otherwise are others than COCO's, or stand in another order
    of_coco = count == len(COCO) and order in (None, list(COCO.flip_order))
    names = named if isinstance(named, list) else COCO.joints if of_coco else None
    names = [f"joint_{j}" for j in range(count)] if names is None else [str(name) for name in names]
    if len(names) != count:
        raise DposeError("joint-names-count-wrong", f"names {len(names)} joints where kpt_shape has {count}", str(path))
    edges = edges_between(settings.get("skeleton") or (), count, first=0)
    if edges is None:
        raise DposeError("skeleton-edges-invalid", "skeleton should be pairs of joints", str(path))
    if not edges and tuple(names) == COCO.joints:
        edges = list(COCO.edges)
    return skeleton_of(names, edges, order, where=str(path)), values


def _people_class(settings: Mapping[str, Any]) -> int | None:
    """Return the number of the class called person; None if no class is, and all are read."""
    names = settings.get("names")
    listed = names.items() if isinstance(names, dict) else enumerate(names if isinstance(names, list) else ())
    return next((int(number) for number, name in listed if name == "person"), None)


def _pictures(settings: Mapping[str, Any], split: str, path: Path) -> list[Path]:
    """Return the picture files of a split, by name."""
    given = settings.get(split)
    if not given:
        raise DposeError(
            "split-without-pictures", f"names no pictures of {split!r}", str(path), f"its splits: {_splits(settings)}"
        )
    roots = [path.parent / str(settings.get("path", ".")), path.parent]
    finder = PictureFinder([(root, "") for root in roots])
    files: list[Path] = []
    for place in given if isinstance(given, list) else [given]:
        tried = [root / str(place) for root in roots]
        # a name may be too long to look for; Roboflow writes "../train/images" for what lies beside data.yaml
        place_found = next((t for t in tried if os.path.exists(t)), None) or finder.find(str(place))
        if place_found is None:
            raise DposeError(
                "file-missing", "no such file or folder", str(tried[0]), f"{split} in {path.name} names it"
            )
        if place_found.is_dir():
            files += [f for f in sorted(place_found.rglob("*")) if kind_of(f) == "picture"]
        else:
            try:
                listed = file_text(place_found, encoding="utf-8-sig").split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise DposeError(
                    "picture-list-invalid",
                    "is no list of pictures",
                    str(place_found),
                    f"{split} in {path.name} names it",
                ) from error
            near = PictureFinder([(folder, "") for folder in (place_found.parent, *roots)])
            for name in filter(None, map(str.strip, listed)):
                exact = place_found.parent / name
                files.append(exact if os.path.exists(exact) else near.find(name) or exact)
    return list(dict.fromkeys(files))


def _splits(settings: Mapping[str, Any]) -> str:
    return ", ".join(name for name in ("train", "val", "test") if settings.get(name)) or "none"


def _label_file(picture: Path) -> Path:
    """Return the file of a picture's labels: "labels" in place of the last folder called "images"."""
    parts = list(picture.parts)
    places = [k for k, part in enumerate(parts[:-1]) if part == "images"]
    if places:
        parts[places[-1]] = "labels"
    return Path(*parts).with_suffix(".txt")


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    """Return the lines of a label file, counted from 1; none if there is no file, as for a picture without people."""
    text = label_text(path) if path.exists() else ""
    return [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]


def _people(
    picture: Path, size: tuple[int, int], described: tuple[int, int, int | None], first: int, problems: Problems
) -> list[LabelledPerson]:
    """Read the people of a picture of (H, W), numbered from `first`; `described`: joints, numbers a joint, class."""
    joints, values, wanted = described
    people: list[LabelledPerson] = []
    for line, text in _lines(_label_file(picture)):
        where = f"{_label_file(picture).name} line {line}"
        parsed = _person(text, joints, values, size)
        if isinstance(parsed[0], str):
            problems.add(parsed[0], where, detail=str(parsed[1]))
        elif wanted is None or parsed[0] == wanted:
            _, rows, box = parsed
            made = boxed_person(first + len(people), rows, box, size, where=where, problems=problems)
            people.append(replace(made, area=AREA_OF_BOX * made.area))
    return people


def _person(
    text: str, joints: int, values: int, size: tuple[int, int]
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]] | tuple[str, str]:
    """Return the class of a line, joints (J, 3) and box x, y, w, h in pixels; or what is wrong with it, and details."""
    try:
        row = np.array([float(part) for part in text.split()])
    except ValueError:
        return "not a line of numbers", ""
    if len(row) != 5 + joints * values:
        fits = [f"[{(len(row) - 5) // k}, {k}]" for k in (2, 3) if len(row) > 5 and not (len(row) - 5) % k]
        fit = f"; kpt_shape: {' or '.join(fits)} would fit" if fits else ""
        return f"not {5 + joints * values} numbers", f"{len(row)}{fit}"
    if not np.isfinite(row[0]):
        return "no class", ""
    rows = row[5:].reshape(joints, values)
    flags = rows[:, 2] if values == 3 else np.where((rows > 0).any(axis=1), 2.0, 0.0)
    labelled = rows[flags > 0, :2]
    if len(labelled) and not any(map(_are_shares, labelled)):
        return "joints that are not in shares of the picture", ""
    scale = np.array(size[::-1], np.float64)
    centre, extent = row[1:3] * scale, row[3:5] * scale
    usable = _are_shares(row[1:5])  # or else the box is taken around the joints
    box = np.concatenate([centre - extent / 2, extent]) if usable else np.full(4, np.nan)
    return int(row[0]), np.column_stack([rows[:, :2] * scale, flags]), box


def _are_shares(values: NDArray[np.float64]) -> bool:
    """True if no number is further outside the picture than rounding, and people cut off by its edge, explain."""
    return not (np.abs(values - 0.5) > 0.5 + OUTSIDE).any()


def _below(file: Path, folder: Path) -> str:
    """Return a file's name relative to a folder, or its own if it lies elsewhere."""
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else file.name


def convert_data(units: PoseUnits, folder: Path, split: str, advance: Callable[[], None] = lambda: None) -> int:
    """Write units as a split of a YOLO-pose dataset, without protection: labels in full, pictures as links.

    Pictures without a file, and those whose EXIF rotation disagrees with their labels, are written as PNG.
    Labels and written pictures are readable by their owner alone.

    Args:
        units: The data; their joints as they are.
        folder: Created if missing.
        split: "train", "val" or "test".
        advance: Called after every picture.

    Returns:
        The number of pictures.
    """
    place = folder / "images" / split
    if place.exists():
        raise DposeError("output-exists", "is there already", str(place), "choose another folder, or delete it")
    document: dict[str, Any] = {"images": [], "annotations": []}
    for number, picture in enumerate(units.pictures, 1):
        image, people = picture.read()
        height, width = image.shape[:2]
        # the whole name, so that pictures of one name in two folders stay two
        name = picture.name.replace("/", "_")
        if picture.path is not None and shown_size(picture.path) == (height, width):
            target = place / Path(name).with_suffix(picture.path.suffix)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(picture.path.resolve())
            except OSError as error:
                raise explain_os_error(error, target) from error
        else:
            target = place / f"{Path(name).stem}.png"
            write_atomic(target, encode_image(image, ".png"), mode=0o600)
        document["images"].append({"id": number, "file_name": target.name, "width": width, "height": height})
        for person in people:
            x0, y0, x1, y1 = (float(v) for v in person.box)
            joints = np.column_stack([person.keypoints, np.where(person.visible, 2.0, 0.0)])
            document["annotations"].append(
                {"image_id": number, "bbox": [x0, y0, x1 - x0, y1 - y0], "keypoints": joints.ravel().tolist()}
            )
        advance()
    return write_yolo(folder, document, units.skeleton, split)


def write_yolo(folder: Path, document: Mapping[str, Any], skeleton: Skeleton, split: str) -> int:
    """Write people as labels of a YOLO-pose dataset: `labels/SPLIT/NAME.txt` and `data.yaml`, mode 0600.

    Args:
        folder: Created if missing; the split is added to its `data.yaml`.
        document: As COCO has it: images, and annotations with bbox and keypoints. The third number of a joint is v; in
            annotations with a "score", which are predictions, it is the joint's own score and every joint is taken as
            seen. A joint outside the picture is not labelled: YOLO has no place for it.
        skeleton: Skeleton of the joints.
        split: "train", "val" or "test".

    Returns:
        The number of label files: one a picture, empty for a picture without people.
    """
    path = folder / USUAL
    settings: dict[str, Any] = {"path": ".", "names": {0: "person"}}
    if path.exists():
        settings, _ = read_settings(folder)
        if described_joints(settings, path)[0] != skeleton:
            raise DposeError("joints-differ", "describes other joints", str(path), "choose another folder")
    lines: dict[int, list[str]] = {image["id"]: [] for image in document["images"]}
    sizes = {image["id"]: (image["width"], image["height"]) for image in document["images"]}
    for person in document["annotations"]:
        lines[person["image_id"]].append(_line(person, sizes[person["image_id"]]))
    names = [label_name(image) for image in document["images"]]
    check_label_names([image["file_name"] for image in document["images"] if "frame" not in image])
    for name, image in zip(names, document["images"], strict=True):
        write_atomic(folder / "labels" / split / name, "".join(lines[image["id"]]), mode=0o600)
    settings |= {
        split: f"images/{split}",
        "kpt_shape": [len(skeleton), 3],
        "flip_idx": list(skeleton.flip_order),
        "kpt_names": {0: list(skeleton.joints)},
    }
    # Ultralytics wants both in every file
    settings |= {"train": settings.get("train", settings[split]), "val": settings.get("val", settings[split])}
    write_atomic(path, yaml.safe_dump(settings, sort_keys=False, default_flow_style=None), mode=0o600)
    return len(names)


def label_name(image: Mapping[str, Any]) -> str:
    """Return the label file's name of a picture, or of a video's frame: counted from 1, as Ultralytics writes those."""
    frame = f"_{image['frame'] + 1}" if "frame" in image else ""
    name = Path(image["file_name"])
    return str(name.with_name(f"{name.stem}{frame}.txt"))


def check_label_names(names: Iterable[str], folder: Path | None = None) -> None:
    """Refuse pictures whose label files would have one name, or stand in `folder` already: somebody may have made them.

    Raises:
        DposeError: two names are the same, or differ in their suffix alone; or a label file is there.
    """
    known: dict[str, str] = {}
    for name in names:
        label = label_name({"file_name": name})
        if folder is not None and (folder / label).exists():
            raise DposeError("output-exists", "are labels already", str(folder / label), "choose another folder")
        if label in known:
            raise DposeError(
                "picture-names-collide",
                f"{known[label]} and {name} would have one label file",
                fix="give one of them another name",
            )
        known[label] = name


def _line(person: Mapping[str, Any], size: tuple[int, int]) -> str:
    x, y, w, h = person["bbox"]
    x0, x1 = np.clip([x, x + w], 0, size[0])
    y0, y1 = np.clip([y, y + h], 0, size[1])
    box = np.array([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]) / [*size, *size]
    rows = np.asarray(person["keypoints"], np.float64).reshape(-1, 3)
    places = rows[:, :2] / size
    flags = np.where(rows[:, 2] > 0, 2 if "score" in person else rows[:, 2], 0)
    flags[((places < 0) | (places > 1)).any(axis=1)] = 0
    joints = [f"{px:.6f} {py:.6f} {v:.0f}" if v else "0 0 0" for (px, py), v in zip(places, flags, strict=True)]
    return " ".join(["0", *(f"{v:.6f}" for v in box), *joints]) + "\n"


DATASET = photographs(
    read_yolo, ("train", "val", "test"), skeleton=COCO, own_skeleton=yolo_skeleton, oks=True, holds=yolo_holds
)
