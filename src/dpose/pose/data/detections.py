"""People's boxes from a detector, in COCO's results format: `{image_id, category_id, bbox, score}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.crops import PADDING, Matrix, crop_transform
from dpose.pose.data.problems import Problems, holds_something, numbers, read_json


@dataclass(frozen=True)
class Box:
    """A detected person.

    Attributes:
        corners: (4,) float64, x0, y0, x1, y1 in picture pixels.
        score: In [0, 1].
        turn: Degrees, counter-clockwise as seen, that the picture is turned about the box's centre to bring the person
            upright (`dpose.pose.crops.crop_transform`).
    """

    corners: NDArray[np.float64]
    score: float
    turn: float = 0.0


def crop_of(
    box: Box,
    size: tuple[int, int],
    padding: float = PADDING,
    rotation: float = 0.0,
    scale: float = 1.0,
    flip: bool = False,
) -> Matrix:
    """The crop of the person in a box, brought upright by the box's turn: what `crop_transform` makes of it.

    Args:
        box: A person's.
        size: As `crop_transform`, and so are all others; `rotation` comes on top of the box's turn.
        padding: See above.
        rotation: See above.
        scale: See above.
        flip: See above.
    """
    return crop_transform(box.corners, size, padding, box.turn + rotation, scale, flip)


def read_detections(
    path: Path, known: Mapping[int, object] | None = None, least: float = 0.0
) -> tuple[dict[int, list[Box]], Problems]:
    """The boxes of a detections file by picture id, best first.

    Boxes are used as they are, not clipped to the picture, as in the reference implementations. Entries of another
    category than 1 (person) are passed over silently; entries that make no sense are told by their place in the file.

    Args:
        path: A JSON list.
        known: Ids of the pictures there are; others are told as problems. Any where None.
        least: Boxes with a lower score are left out.

    Raises:
        DposeError: the file is unreadable, or not one of its boxes can be used.
    """
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, list):
        raise DposeError(
            "detections-malformed",
            "should be a JSON list of boxes",
            str(path),
            "give a file of COCO's results format",
        )
    boxes: dict[int, list[Box]] = {}
    for number, entry in enumerate(content, 1):
        where = f"{path.name} entry {number}"
        if not isinstance(entry, dict) or type(entry.get("image_id")) is not int:
            problems.add("a box without the number of its picture", where)
            continue
        if entry.get("category_id", 1) != 1:
            continue
        box, score = numbers(entry.get("bbox"), 4), numbers([entry.get("score")], 1)
        if box is None or score is None or not 0 <= score[0] <= 1:
            problems.add("not a bbox of 4 finite numbers with a score in [0, 1]", where)
        elif not holds_something(np.concatenate([box[:2], box[:2] + box[2:]])):
            problems.add("an empty box", where)
        elif known is not None and entry["image_id"] not in known:
            problems.add(
                "a box of a picture that is not among the labels", where, detail=f"image {entry['image_id']}"
            )
        elif score[0] >= least:
            corners = np.array([box[0], box[1], box[0] + box[2], box[1] + box[3]])
            boxes.setdefault(entry["image_id"], []).append(Box(corners, float(score[0])))
    if content and not boxes:
        first = problems.found[0] if len(problems) else f"none has a score of {least} or more"
        raise DposeError(
            "detections-all-unusable",
            f"not one of its {len(content):,} boxes can be used; {first}",
            str(path),
        )
    for found in boxes.values():
        found.sort(key=lambda b: -b.score)
    return boxes, problems
