"""Detectors of people as ONNX files: those with known outputs, recognised by the outputs' shapes and names.

    where = OnnxDetector(Path("yolox_s.onnx"))                 # a `dpose.pose.boxes.Boxes`

A file describes its outputs but not its input: how a picture is scaled, the order of its colours and their
normalisation follow from the kind (`WAYS`).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.crops import Box

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
"""Number of Pascal VOC's classes, with the background, and the index of the class person."""
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


Picture = NDArray[np.uint8]

FILL = 114
"""Grey around a letterboxed picture, of 255: the value these detectors were trained with."""
SIDE = 640
"""Height and width if a file leaves them open."""
OVERLAP = 0.6
"""Largest intersection over union of two people of whom both stay, if the file does no suppression."""


@dataclass(frozen=True)
class Way:
    """Input and output conventions of one kind of detector.

    Attributes:
        kind: Name in `--detector-kind`.
        layout: Layout of the outputs.
        fit: How a picture is brought to the input's size: in its aspect and filled up to the right and below ("corner")
            or on all sides ("middle"), or stretched.
        order: Order of the colours.
        mean: Subtracted from values of 0 to 255, in that order.
        scale: Divided by afterwards.
        suppress: True if one person may be found many times.
    """

    kind: str
    layout: Layout
    fit: Literal["corner", "middle", "stretch"]
    order: Literal["RGB", "BGR"]
    mean: tuple[float, float, float]
    scale: tuple[float, float, float]
    suppress: bool


_NONE, _ONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
_MEAN, _SPREAD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # ImageNet's, RGB

WAYS = (
    Way("yolox", "grid", "corner", "BGR", _NONE, _ONE, True),
    Way("rtmdet", "dets", "corner", "BGR", _MEAN[::-1], _SPREAD[::-1], False),
    Way("yolox", "dets", "corner", "BGR", _NONE, _ONE, False),
    Way("yolov8", "columns", "middle", "RGB", _NONE, (255.0, 255.0, 255.0), True),
    Way("yolov8", "rows", "middle", "RGB", _NONE, (255.0, 255.0, 255.0), False),
    Way("ssd", "named", "stretch", "RGB", _NONE, _ONE, False),
    Way("ssd", "labelled", "stretch", "RGB", _MEAN, _SPREAD, False),
    Way("ssd", "scored", "stretch", "RGB", (127.0, 127.0, 127.0), (128.0, 128.0, 128.0), True),
)
"""Known kinds; of two with one layout the first is the default."""

KINDS = tuple(dict.fromkeys(way.kind for way in WAYS))
"""Values of `--detector-kind`."""


@dataclass(frozen=True)
class _Input:
    """The input of a file: one picture.

    Attributes:
        name: Name of the input.
        type: Type of its values, numpy's name.
        last: True if channels are the last axis.
        size: (H, W); None if open.
    """

    name: str
    type: str
    last: bool
    size: tuple[int | None, int | None]


class OnnxDetector:
    """Detector of people in an ONNX file (`dpose.pose.boxes.Boxes`), run by onnxruntime on the processor.

    The file is run once on a grey picture to recognise its outputs.

    Attributes:
        way: The recognised conventions.

    Args:
        path: The file.
        least: Least score of a person.
        kind: One of `KINDS`; recognised by the outputs if None.
    """

    def __init__(self, path: Path, least: float = 0.5, kind: str | None = None) -> None:
        if kind is not None and kind not in KINDS:
            raise DposeError(
                "detector-kind-unknown", f"no kind of detector is called {kind!r}", "--detector-kind", _known()
            )
        self._path, self._least = path, least
        self._session, self._input = _opened(path)
        self._names = [output.name.partition(":")[0] for output in self._session.get_outputs()]
        self._classes = _classes(self._session, path)
        size = self._input.size[0] or SIDE, self._input.size[1] or SIDE
        outputs = self._run(np.full((1, *size, 3), FILL, np.float32))
        layout = layout_of(outputs, size, bool(self._classes))
        ways = [way for way in WAYS if way.layout == layout and kind in (None, way.kind)]
        if not ways:
            shapes = ", ".join(f"{name} {_written(array.shape)}" for name, array in outputs.items())
            wrong = "no detector that is known" if layout is None else f"no {kind}"
            raise DposeError(
                "detector-kind-differs", f"its outputs are those of {wrong}: {shapes}", str(path), _known()
            )
        self.way = ways[0]

    def __call__(self, path: Path, number: int, image: Picture) -> Sequence[Box]:
        """Return the detected people, best first."""
        size = self._input.size[0] or SIDE, self._input.size[1] or SIDE
        if self.way.layout == "named" and None in self._input.size:
            size = image.shape[0], image.shape[1]  # such a file scales by itself
        fitted, zoom, shift = fit(image, size, self.way.fit)
        candidates = LAYOUTS[self.way.layout](self._run(self._normalised(fitted)), size, self._classes)
        return self._boxes(candidates, image, zoom, shift)

    def _normalised(self, fitted: Picture) -> NDArray[np.float32]:
        values: NDArray[Any] = (fitted if self.way.order == "RGB" else fitted[..., ::-1]).astype(np.float32)
        if self._input.type != "uint8":  # one that takes bytes normalises by itself
            values = (values - np.array(self.way.mean, np.float32)) / np.array(self.way.scale, np.float32)
        return values[None]

    def _run(self, batch: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Return the outputs by name, for a batch (1, H, W, 3)."""
        values = batch if self._input.last else batch.transpose(0, 3, 1, 2)
        given = {self._input.name: np.ascontiguousarray(values.astype(self._input.type))}
        try:
            return dict(zip(self._names, self._session.run(None, given), strict=True))
        except Exception as error:  # onnxruntime's own classes share no base but this
            raise DposeError("onnx-run-failed", "the detector cannot be run on one picture", str(self._path)) from error

    def _boxes(
        self, candidates: Candidates, image: Picture, zoom: tuple[float, float], shift: tuple[float, float]
    ) -> list[Box]:
        corners = (candidates.corners.astype(np.float64) - [*shift, *shift]) / [*zoom, *zoom]
        height, width = image.shape[:2]
        usable = np.isfinite(corners).all(axis=1) & (candidates.scores >= self._least)
        corners = np.clip(corners[usable], 0, [width, height, width, height])
        scores = candidates.scores[usable].astype(np.float64)
        held = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
        corners, scores = corners[held], scores[held]
        order = np.argsort(-scores, kind="stable")
        if self.way.suppress and len(order):
            sides = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
            chosen = cv2.dnn.NMSBoxes(sides.tolist(), scores.tolist(), 0.0, OVERLAP)
            order = np.asarray(chosen, int).reshape(-1)
        return [Box(corners[k], min(float(scores[k]), 1.0)) for k in order]


def fit(
    image: Picture, size: tuple[int, int], how: Literal["corner", "middle", "stretch"]
) -> tuple[Picture, tuple[float, float], tuple[float, float]]:
    """Bring a picture to a detector's size.

    Args:
        image: uint8, (H, W, 3).
        size: (H, W) to reach.
        how: As in `Way.fit`.

    Returns:
        uint8, (*size, 3); the enlargement of x and y; and their shift afterwards, pixels: a place of the
        picture is (place there - shift) / enlargement.
    """
    height, width = image.shape[:2]
    if how == "stretch":
        inner, left, top = size, 0, 0
    else:
        zoom = min(size[0] / height, size[1] / width)
        inner = max(1, round(height * zoom)), max(1, round(width * zoom))
        # half a pixel goes to the right and below, as the exporters of these detectors have it
        left, top = ((size[1] - inner[1]) // 2, (size[0] - inner[0]) // 2) if how == "middle" else (0, 0)
    out = np.full((*size, 3), FILL, np.uint8)
    out[top : top + inner[0], left : left + inner[1]] = cv2.resize(image, inner[::-1], interpolation=cv2.INTER_LINEAR)
    return out, (inner[1] / width, inner[0] / height), (float(left), float(top))


def _opened(path: Path) -> tuple[Any, _Input]:
    """Open a session for the file, and describe its input."""
    try:
        import onnxruntime
    except ImportError:
        raise DposeError(
            "package-missing", "a detector in an ONNX file needs onnxruntime", str(path), "pip install onnxruntime"
        ) from None
    if not path.is_file():
        raise DposeError("file-missing", "there is no such file", str(path), "give torchvision, or an ONNX file")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes share no base but this
        raise DposeError("onnx-unreadable", "is not a readable ONNX model", str(path)) from error
    entries = session.get_inputs()
    taken = ", ".join(f"{entry.name} {_written(entry.shape)}" for entry in entries)
    types = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(uint8)": "uint8"}
    shape, kind = list(entries[0].shape), types.get(entries[0].type)
    if len(entries) != 1 or len(shape) != 4 or kind is None or 3 not in (shape[1], shape[3]):
        raise DposeError(
            "onnx-input-wrong", f"takes {taken}, and not one picture", str(path), "export the detector for one picture"
        )
    last = shape[1] != 3
    sides = [side if isinstance(side, int) else None for side in (shape[1:3] if last else shape[2:])]
    return session, _Input(entries[0].name, kind, last, (sides[0], sides[1]))


def _classes(session: Any, path: Path) -> Mapping[int, str]:
    """Return the classes named in the file's metadata, as Ultralytics writes them; empty if there are none."""
    text = session.get_modelmeta().custom_metadata_map.get("names", "")
    try:
        read = ast.literal_eval(text) if text else {}
    except (ValueError, SyntaxError):
        return {}
    if not isinstance(read, dict) or not all(isinstance(k, int) for k in read):
        return {}
    names = {k: str(name) for k, name in read.items()}
    if len(names) > 1 and "person" not in names.values():
        some = ", ".join(list(names.values())[:5])
        raise DposeError(
            "detector-without-person", f"knows no person among its {len(names)} classes ({some}, ...)", str(path)
        )
    return names


def _known() -> str:
    return f"known are {', '.join(KINDS)} (--detector-kind)"


def _written(shape: Sequence[int | str | None]) -> str:
    return f"({', '.join('?' if side is None else str(side) for side in shape)})"
