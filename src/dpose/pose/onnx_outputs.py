"""Readers of the outputs of known detectors: people's boxes in pixels of the input, and their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Layout = Literal["grid", "dets", "columns", "rows", "named", "labelled", "scored"]
Outputs = Mapping[str, NDArray[Any]]
Size = tuple[int, int]
Classes = Mapping[int, str]

STRIDES = ((8, 16, 32), (8, 16, 32, 64))
"""Strides of the grids of YOLOX and YOLOv8 to 11, pixels."""
POSE_COLUMNS = 56
"""Columns of YOLOv8's and YOLO11's models of poses: a box, one class, and 17 joints of three numbers."""
POSE_ROW = 57
"""Columns of these models after suppression: a box, score, class, and the joints."""
VOC_CLASSES, VOC_PERSON = 21, 15
"""Number of Pascal VOC's classes, with the background, and the number of people among them."""
MOST_EXPONENT = 20.0


@dataclass(frozen=True)
class Candidates:
    """People that a detector found, before any is left out.

    Attributes:
        corners: (N, 4), x0, y0, x1, y1 in pixels of the input.
        scores: (N,).
    """

    corners: NDArray[np.float64]
    scores: NDArray[np.float64]


def layout_of(outputs: Outputs, size: Size, described: bool = False) -> Layout | None:
    """Recognise the layout of outputs; None if it is unknown.

    Args:
        outputs: Outputs by name, for one picture.
        size: (H, W) of the input.
        described: True if the file's metadata name its classes: then the first output may have others behind it.
    """
    if {"detection_boxes", "detection_classes", "detection_scores"} <= set(outputs):
        return "named"
    arrays = list(outputs.values())
    shapes = [array.shape for array in arrays]
    if any(not shape or shape[0] != 1 for shape in shapes):
        return None
    flat = [shape for shape in shapes if len(shape) == 2]
    deep = [shape for shape in shapes if len(shape) == 3]
    if len(shapes) == 2 and len(flat) == len(deep) == 1 and deep[0][1:] == (flat[0][1], 5):
        return "dets"
    if len(shapes) == 3 and len(flat) == 2 and len(deep) == 1 and deep[0][2] == 4:
        ours = all(shape[1] == deep[0][1] for shape in flat) and len(_labels(arrays)) == 1
        return "labelled" if ours and _are_shares(next(a for a in arrays if a.ndim == 3)) else None
    if len(shapes) == len(deep) == 2 and deep[0][1] == deep[1][1]:
        boxes, scores = sorted(arrays, key=lambda array: array.shape[2] != 4)
        # DETR and YOLO-NAS also give boxes and scores; only here are the scores shares with a background
        ours = boxes.shape[2] == 4 and scores.shape[2] not in (1, 4) and _are_shares(boxes)
        return "scored" if ours and np.allclose(scores.sum(axis=2), 1, atol=0.01) else None
    if len(shapes[0]) != 3 or (len(shapes) > 1 and not described):
        return None
    _, rows, columns = shapes[0]
    cells = {grid_cells(size, strides) for strides in STRIDES}
    if rows in cells and columns > 5 and len(shapes) == 1:
        return "grid"
    if columns in cells and rows > 4:
        return "columns"
    return "rows" if columns in (6, POSE_ROW) and len(shapes) == 1 else None


def grid_cells(size: Size, strides: tuple[int, ...]) -> int:
    """Return the total number of cells of the grids with these strides over an input of (H, W)."""
    return sum(math.prod(side // stride for side in size) for stride in strides)


def _grid(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """YOLOX (Ge et al. 2021): (1, A, 5 + C), a cell a row; people are class 0, as in COCO.

    A row holds the middle from the cell's corner and the logarithm of the sides, in strides, objectness, and a share
    for each class. Some files have the grid applied: middle and sides are in pixels, and middles all over the input.
    """
    (values,) = (array[0].astype(np.float64) for array in outputs.values())
    strides = next(s for s in STRIDES if grid_cells(size, s) == len(values))
    corners, lengths = [], []
    for stride in strides:
        rows, columns = (side // stride for side in size)
        row, column = np.divmod(np.arange(rows * columns), columns)
        corners.append(np.stack([column, row], axis=1))
        lengths.append(np.full((rows * columns, 1), stride))
    length = np.concatenate(lengths)
    middle, sides = values[:, :2], values[:, 2:4]
    if np.median(np.abs(middle)) < min(size) / 8:
        middle = (middle + np.concatenate(corners)) * length
        sides = np.exp(np.minimum(sides, MOST_EXPONENT)) * length
    people = _of_people(values[:, 5:], 0)
    return Candidates(_around(middle, sides), values[:, 4] * people)


def _dets(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """RTMDet and others as mmdeploy writes them: (1, K, 5) corners and score, (1, K) labels; people are label 0."""
    boxes = next(array for array in outputs.values() if array.ndim == 3)[0].astype(np.float64)
    labels = next(array for array in outputs.values() if array.ndim == 2)[0]
    people = labels == 0
    return Candidates(boxes[people, :4], boxes[people, 4])


def _columns(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """YOLOv8 to 11: (1, 4 + C, A), a cell a column: middle, sides, a share for each class; joints are ignored."""
    values = next(iter(outputs.values()))[0].astype(np.float64).T
    count = len(classes) or (1 if values.shape[1] == POSE_COLUMNS else values.shape[1] - 4)
    people = _of_people(values[:, 4 : 4 + count], _person(classes))
    return Candidates(_around(values[:, :2], values[:, 2:4]), people)


def _rows(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """YOLOv8 to 11 and 26 with suppression inside: (1, K, 6) corners, score and class; joints may follow."""
    values = next(iter(outputs.values()))[0].astype(np.float64)
    people = values[:, 5] == _person(classes)
    return Candidates(values[people, :4], values[people, 4])


def _named(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """TensorFlow's: y0, x0, y1, x1 in shares of the picture, COCO's numbers, people 1."""
    boxes = outputs["detection_boxes"].reshape(-1, 4)[:, [1, 0, 3, 2]]
    scores = outputs["detection_scores"].reshape(-1).astype(np.float64)
    people = np.rint(outputs["detection_classes"].reshape(-1)) == 1
    if "num_detections" in outputs:
        people &= np.arange(len(people)) < int(outputs["num_detections"].reshape(-1)[0])
    return Candidates(_in_pixels(boxes[people], size), scores[people])


def _labelled(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """SSD with suppression inside: (1, K, 4) corners in shares of the input, (1, K) labels, people 1, (1, K) scores."""
    arrays = list(outputs.values())
    boxes = next(array for array in arrays if array.ndim == 3)[0]
    labels = _labels(arrays)[0][0]
    scores = next(array for array in arrays if array.ndim == 2 and array.dtype.kind == "f")[0]
    return Candidates(_in_pixels(boxes[labels == 1], size), scores[labels == 1].astype(np.float64))


def _scored(outputs: Outputs, size: Size, classes: Classes) -> Candidates:
    """SSD: (1, K, 4) corners in shares of the input, (1, K, C) a share for each class, the background first.

    Of 21 classes, Pascal VOC's, people are 15, else 1.
    """
    boxes, scores = sorted(outputs.values(), key=lambda array: array.shape[2] != 4)
    person = VOC_PERSON if scores.shape[2] == VOC_CLASSES else 1
    return Candidates(_in_pixels(boxes[0], size), _of_people(scores[0].astype(np.float64), person))


LAYOUTS: dict[Layout, Callable[[Outputs, Size, Classes], Candidates]] = {
    "grid": _grid,
    "dets": _dets,
    "columns": _columns,
    "rows": _rows,
    "named": _named,
    "labelled": _labelled,
    "scored": _scored,
}
"""Reader of each layout: takes outputs by name, (H, W) of the input, and the file's classes by number if it names
them."""


def _labels(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the flat arrays of whole numbers."""
    return [array for array in arrays if array.ndim == 2 and array.dtype.kind in "iu"]


def _are_shares(boxes: NDArray[Any]) -> bool:
    """True if boxes are in shares of the input, and not in pixels."""
    return not boxes.size or float(np.abs(boxes).max()) < 4


def _person(classes: Classes) -> int:
    return next((number for number, name in classes.items() if name == "person"), 0)


def _of_people(shares: NDArray[np.float64], person: int) -> NDArray[np.float64]:
    """Return (N,): the share of people where it is the largest of all classes, else 0."""
    ours = shares[:, person]
    return np.where(ours >= shares.max(axis=1), ours, 0.0)


def _around(middle: NDArray[np.float64], sides: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([middle - sides / 2, middle + sides / 2], axis=1)


def _in_pixels(boxes: NDArray[Any], size: Size) -> NDArray[np.float64]:
    height, width = size
    return boxes.astype(np.float64) * [width, height, width, height]
