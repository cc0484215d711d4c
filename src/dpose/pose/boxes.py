"""Where to look for people: whoever asks for poses says so by a `Boxes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.errors import DposeError
from dpose.pose.crops import PADDING
from dpose.pose.data.detections import Box, read_detections
from dpose.pose.data.labels import Labels


class Boxes(Protocol):
    """Gives the people's boxes in a picture."""

    def __call__(self, name: str, number: int, image: NDArray[np.uint8]) -> Sequence[Box] | None:
        """The boxes, or None for the whole picture as one person.

        Args:
            name: The picture's file name without folders, or the video's.
            number: The frame's number from 0; -1 for a picture.
            image: uint8 (H, W, 3) RGB.
        """


def whole_picture(name: str, number: int, image: NDArray[np.uint8]) -> None:
    """One person who fills the picture (`Boxes`)."""
    return None


class FixedBox:
    """The same box in every picture (`Boxes`).

    Args:
        corners: (4,), x0, y0, x1, y1 in picture pixels.
    """

    def __init__(self, corners: ArrayLike) -> None:
        self._box = Box(np.asarray(corners, np.float64), 1.0)

    def __call__(self, name: str, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """The box."""
        return (self._box,)


class DetectedBoxes:
    """The boxes of a detections file (`Boxes`), COCO's results format.

    A picture's boxes are those whose `image_id` is the number that its file name is ("000000000785.jpg": 785); a video
    frame's those whose `image_id` is its number, from 0. A picture that the file has no boxes for has no people.

    Args:
        path: The file.
        least: Boxes with a lower score are left out.

    Raises:
        DposeError: the file is unreadable, or has no usable box.
    """

    def __init__(self, path: Path, least: float = 0.5) -> None:
        self._boxes, self.problems = read_detections(path, least=least)
        self._path = path

    def __call__(self, name: str, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """The picture's or frame's boxes.

        Raises:
            DposeError: the picture's name is no number.
        """
        if number < 0:
            stem = Path(name).stem
            if not stem.isdecimal():
                raise DposeError(
                    "picture-name-not-number",
                    "a detections file names pictures by number, and this name is none",
                    name,
                    "use --labels or --box",
                )
            number = int(stem)
        return self._boxes.get(number, ())


class LabelledBoxes:
    """The boxes of labelled people (`Boxes`), found by the picture's file name.

    Args:
        labels: Of data that have boxes; those of people who are not learnt from are none.
    """

    def __init__(self, labels: Labels) -> None:
        self._boxes: dict[str, list[Box]] = {}
        for picture in labels.pictures:
            boxes = [_without(labels.padding, person.box.astype(np.float64)) for person in picture.learnt]
            self._boxes[Path(picture.name).name] = [Box(box, 1.0) for box in boxes]

    def __call__(self, name: str, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """The picture's boxes.

        Raises:
            DposeError: the picture is not among the labels.
        """
        if name not in self._boxes:
            raise DposeError("picture-not-labelled", "is not among the labels", name)
        return self._boxes[name]


def _without(padding: float, box: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a box is before prediction adds its own padding, of labels that are padded less than that."""
    if padding == PADDING:
        return box
    middle = (box[:2] + box[2:]) / 2
    half = (box[2:] - box[:2]) / 2 * padding / PADDING
    return np.concatenate([middle - half, middle + half])
