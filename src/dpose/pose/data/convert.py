"""From any pose data to a YOLO-pose folder that other programs train on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpose.errors import DposeError
from dpose.files import explain_os_error, write_atomic
from dpose.media.images import encode_image, shown_size
from dpose.pose.data.units import PoseUnits
from dpose.pose.data.yolo import write_yolo


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
