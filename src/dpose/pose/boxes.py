"""Boxes of people in a picture: one given box, a file's, labels', or those that torchvision's detector finds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dpose.errors import DposeError
from dpose.pose.crops import PADDING, Box
from dpose.pose.data.label_files import Problems, holds_something, numbers, read_json, results_of
from dpose.pose.data.labels import Labels

PERSON = 1
"""COCO's number of the category person."""
LARGEST = 1e9
"""Pixels from a picture's corner beyond which no box can be: such a one overflows what is computed of it."""


class Boxes(Protocol):
    """Returns the boxes of people in a picture."""

    def __call__(self, path: Path, number: int, image: NDArray[np.uint8]) -> Sequence[Box] | None:
        """Return the boxes, or None for the whole picture as one person.

        Args:
            path: The picture's file, or the video's.
            number: The frame's number from 0; -1 for a picture.
            image: uint8 (H, W, 3) RGB.
        """


def whole_picture(path: Path, number: int, image: NDArray[np.uint8]) -> None:
    """Return None: one person fills the picture (`Boxes`)."""
    return None


class FixedBox:
    """The same box in every picture (`Boxes`).

    Args:
        corners: (4,), x0, y0, x1, y1 in picture pixels.
    """

    def __init__(self, corners: ArrayLike) -> None:
        self._box = Box(np.asarray(corners, np.float64), 1.0)
        self._beyond: dict[str, None] = {}

    def __call__(self, path: Path, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """Return the box; raise `DposeError` where nothing of it is in the picture."""
        height, width = image.shape[:2]
        x0, y0, x1, y1 = self._box.corners
        if x0 >= width or y0 >= height or x1 <= 0 or y1 <= 0:
            raise DposeError(
                "box-outside-picture",
                f"the box {x0:g},{y0:g},{x1:g},{y1:g} lies outside the picture of {width} x {height} pixels",
                str(path),
                "give x0,y0,x1,y1 in pixels",
            )
        if x0 < 0 or y0 < 0 or x1 > width or y1 > height:
            self._beyond[f"{path}: the box reaches beyond its {width} x {height} pixels"] = None
        return (self._box,)

    @property
    def notes(self) -> list[str]:
        """A line for each picture or video that the box reaches beyond."""
        return list(self._beyond)


class DetectedBoxes:
    """Boxes of a detections file (`Boxes`), COCO's results format.

    A picture's boxes are those whose `image_id` is the number in its file name ("000000000785.jpg": 785); a video
    frame's those whose `image_id` is its number, from 0. A picture without boxes in the file has no people.

    Args:
        path: The file.
        least: Least score of a box.
    """

    def __init__(self, path: Path, least: float = 0.5) -> None:
        self.source = path
        self._boxes, self.problems = read_detections(path, least=least)

    def __call__(self, path: Path, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """Return the picture's or frame's boxes."""
        if number < 0:
            if not path.stem.isdecimal():
                raise DposeError(
                    "picture-name-not-number",
                    "a detections file names pictures by number, and this name is none",
                    str(path),
                    "use --labels or --box",
                )
            number = int(path.stem)
        return self._boxes.get(number, ())


class LabelledBoxes:
    """Boxes of labelled people (`Boxes`), of the picture that a file is (`Labels.picture_of`).

    Args:
        labels: Labels with boxes. People without a usable box have none here.
    """

    def __init__(self, labels: Labels) -> None:
        self.source, self._labels = labels.source, labels

    def __call__(self, path: Path, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """Return the picture's boxes."""
        picture = self._labels.picture_of(path.absolute())
        if picture is None:
            raise DposeError("picture-not-labelled", "is not among the labels", str(path))
        boxes = [_without(self._labels.padding, person.box.astype(np.float64)) for person in picture.learnt]
        return [Box(box, 1.0) for box in boxes]


def _without(padding: float, box: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shrink a box of labels with less padding than prediction adds, so that both crops are the same."""
    if padding == PADDING:
        return box
    middle = (box[:2] + box[2:]) / 2
    half = (box[2:] - box[:2]) / 2 * padding / PADDING
    return np.concatenate([middle - half, middle + half])


def read_detections(path: Path, least: float = 0.0) -> tuple[dict[int, list[Box]], Problems]:
    """Read the boxes of a detections file, a JSON list, by picture id, best first.

    Boxes are used as they are, not clipped to the picture, as in the reference implementations. Entries of another
    category than 1 (person) are ignored; invalid entries are reported by their position in the file.
    """
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, list):
        raise DposeError(
            "detections-malformed", "should be a JSON list of boxes", str(path), "give a file of COCO's results format"
        )
    boxes: dict[int, list[Box]] = {}
    for where, entry in results_of(content, path, "box", problems):
        box, score = numbers(entry.get("bbox"), 4), numbers([entry.get("score")], 1)
        if box is None or score is None or not 0 <= score[0] <= 1:
            problems.add("not a bbox of 4 finite numbers with a score in [0, 1]", where)
        elif not holds_something(np.concatenate([box[:2], box[:2] + box[2:]])):
            problems.add("an empty box", where)
        elif np.abs(box).max() > LARGEST:
            problems.add("a box beyond any picture", where)
        elif score[0] >= least:
            corners = np.array([box[0], box[1], box[0] + box[2], box[1] + box[3]])
            boxes.setdefault(entry["image_id"], []).append(Box(corners, float(score[0])))
    if content and not boxes:
        raise problems.all_unusable(
            path, f"{len(content):,} boxes", f"none has a score of {least} or more", "detections-all-unusable"
        )
    for of_picture in boxes.values():
        of_picture.sort(key=lambda b: -b.score)
    return boxes, problems


class PersonDetector:
    """Faster R-CNN with a MobileNetV3 backbone, trained on COCO (`dpose.pose.boxes.Boxes`).

    The weights, 74 MiB, are no part of dpose: torchvision downloads them once from download.pytorch.org to torch's
    cache folder. Pictures never leave this machine.

    Args:
        least: Least score of a person.
    """

    def __init__(self, least: float = 0.5) -> None:
        from torchvision.models import detection

        weights = detection.FasterRCNN_MobileNet_V3_Large_320_FPN_Weights.COCO_V1
        try:
            # the backbone's own weights would be downloaded first, and then overwritten
            self._model: Any = detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=weights, weights_backbone=None)
        except (URLError, OSError, RuntimeError) as error:
            folder = Path(torch.hub.get_dir()) / "checkpoints"
            raise DposeError(
                "detector-weights-unavailable",
                f"the person detector's weights cannot be had ({_reason(error)})",
                weights.url,
                f"fetch that file on a machine with a network and put it into {os.fspath(folder)}, or give boxes with "
                "--box, --detections or --labels",
            ) from error
        self._model = self._model.eval()
        self._least = least

    def __call__(self, path: Path, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """Return the detected people, best first."""
        picture = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1) / 255
        with torch.inference_mode():
            (output,) = self._model([picture])
        people = (output["labels"] == PERSON) & (output["scores"] >= self._least)
        corners, scores = (output["boxes"][people].double().cpu().numpy(), output["scores"][people].cpu().numpy())
        return [Box(c, float(s)) for c, s in zip(corners, scores, strict=True) if c[2] > c[0] and c[3] > c[1]]


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    return " ".join(str(cause).split())[:120] or type(error).__name__
