"""YOLO-pose folders that other programs train on, written: labels of people, and any pose data converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dpose.errors import DposeError
from dpose.files import explain_os_error, write_atomic
from dpose.media.images import encode_image, shown_size
from dpose.pose.data.units import PoseUnits
from dpose.pose.data.yolo import USUAL, described_joints, read_settings
from dpose.pose.skeletons import Skeleton


def convert_data(
    units: PoseUnits, folder: Path, split: str, advance: Callable[[], None] = lambda: None
) -> int:
    """Write units as a split of a YOLO-pose dataset, without protection: labels in full, pictures as links.

    Pictures that are in no file, and those that a reader would turn otherwise than their labels do, are written as PNG.
    Labels and written pictures are readable by you alone.

    Args:
        units: The data; their joints as they stand.
        folder: Made where it is missing.
        split: "train", "val" or "test".
        advance: Called after every picture.

    Returns:
        How many pictures there are.

    Raises:
        DposeError: the split is there already, a picture cannot be read, or the folder cannot be written to.
    """
    place = folder / "images" / split
    if place.exists():
        raise DposeError(
            "output-exists", "is there already", str(place), "choose another folder, or delete it"
        )
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
                {
                    "image_id": number,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "keypoints": joints.ravel().tolist(),
                }
            )
        advance()
    return write_yolo(folder, document, units.skeleton, split)


def write_yolo(folder: Path, document: Mapping[str, Any], skeleton: Skeleton, split: str) -> int:
    """Write people as labels of a YOLO-pose dataset: `labels/SPLIT/NAME.txt` and `data.yaml`, readable by you alone.

    Args:
        folder: Made where it is missing; its `data.yaml` gets the split beside those that it has.
        document: As COCO has it: images, and annotations with bbox and keypoints. The third number of a joint is v; in
            annotations with a "score", which are predictions, it is the joint's own score and every joint is taken as
            seen. A joint outside the picture is not labelled: YOLO has no place for it.
        skeleton: Of the joints.
        split: "train", "val" or "test".

    Returns:
        How many files of labels were written: one a picture, empty where there is nobody in it.

    Raises:
        DposeError: two pictures would share a file, or the folder cannot be written to or is of other joints.
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
    if len(set(names)) != len(names):
        raise DposeError(
            "picture-names-collide", "two pictures have one name", str(folder), "write them to a folder each"
        )
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
    """The label file's name of a picture, or of a video's frame: counted from 1, as Ultralytics writes those."""
    frame = f"_{image['frame'] + 1}" if "frame" in image else ""
    return f"{Path(image['file_name']).stem}{frame}.txt"


def _line(person: Mapping[str, Any], size: tuple[int, int]) -> str:
    x, y, w, h = person["bbox"]
    x0, x1 = np.clip([x, x + w], 0, size[0])
    y0, y1 = np.clip([y, y + h], 0, size[1])
    box = np.array([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]) / [*size, *size]
    rows = np.asarray(person["keypoints"], np.float64).reshape(-1, 3)
    places = rows[:, :2] / size
    flags = np.where(rows[:, 2] > 0, 2 if "score" in person else rows[:, 2], 0)
    flags[((places < 0) | (places > 1)).any(axis=1)] = 0
    joints = [
        f"{px:.6f} {py:.6f} {v:.0f}" if v else "0 0 0" for (px, py), v in zip(places, flags, strict=True)
    ]
    return " ".join(["0", *(f"{v:.6f}" for v in box), *joints]) + "\n"
