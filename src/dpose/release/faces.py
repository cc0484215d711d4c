"""Finding faces in the frames of a video, and going on where a finder fails: for blurring alone, which hides nothing.

    find = face_finder(Path("face_detection_yunet_2023mar.onnx"))
    for frame, boxes in zip(frames, held(map(find, again), hold=14), strict=True):
        ...

No finder finds every face, so no guarantee can rest on one. The bundled one, scikit-image's cascade for frontal faces,
is a fallback that finds few.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_digest

Picture: TypeAlias = NDArray[np.uint8]
Place: TypeAlias = tuple[float, float, float, float]
"""Top, left, bottom and right of a face, pixels of the frame."""

CASCADE = "scikit-image's cascade for frontal faces, a fallback that finds few"
SMALLEST_FACE = 24
"""Pixels; the cascade's own window."""
SCORE = 0.5
"""A network's finds below it are left out. Lower than is usual: a face left open is worse than a bottle blurred."""
OVERLAP = 0.3
"""A share of area. Of two finds in a frame that have more of their union in common, one is left out; two finds in
different frames that have more of the smaller one in common are one face."""
GROWTH = 0.03
"""A share of a face's side: how much farther a box reaches on each side for every frame that it is held."""
MOST_GROWTH = 0.5
STRIDES = (8, 16, 32)
"""Strides of YuNet's three grids, pixels."""
ANCHORS = {896: ((16, 2), (8, 6)), 2304: ((48, 1),)}
"""BlazeFace's grids by the number of its anchors: cells along a side, and anchors in each (MediaPipe's short and full
range)."""


@dataclass(frozen=True)
class FaceFinder:
    """Finds faces in frames.

    Attributes:
        find: From a frame, uint8 (H, W, C), to places.
        about: What the finder is, in words.
        digest: SHA-256 of its file; "" for the bundled one.
    """

    find: Callable[[Picture], list[Place]]
    about: str
    digest: str = ""


def face_finder(model: Path | None = None) -> FaceFinder:
    """The finder in an ONNX file, YuNet's or BlazeFace's by its outputs; without one the bundled cascade."""
    if model is None:
        face_cascade()
        return FaceFinder(cascade_faces, CASCADE)
    find = onnx_finder(model)
    digest = file_digest(model)
    return FaceFinder(find, f"the detector {model.name} (sha256 {digest[:16]})", digest)


def onnx_finder(model: Path) -> Callable[[Picture], list[Place]]:
    """Run a face detector with onnxruntime.

    YuNet takes BGR, 0 to 255, (1, 3, H, W); BlazeFace RGB, -1 to 1, (1, 3, S, S) or (1, S, S, 3). A frame is scaled to
    fit and filled up with black to the right and below; a model that leaves its size open gets the frame's own, filled
    up to a multiple of 32.
    """
    try:
        import onnxruntime
    except ImportError:
        raise DposeError(
            "package-missing", "a detector needs onnxruntime", str(model), "pip install scikit-image onnxruntime"
        ) from None
    if not model.is_file():
        raise DposeError("file-missing", "there is no such file", str(model))
    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        (entry,) = session.get_inputs()
        names = [output.name for output in session.get_outputs()]
        last = entry.shape[1] != 3 and entry.shape[3] == 3
        sides = [side if isinstance(side, int) else None for side in (entry.shape[1:3] if last else entry.shape[2:])]
        given = sides[0], sides[1]
    except Exception as error:  # onnxruntime's own classes share no base but this
        raise DposeError("onnx-unreadable", "is not a readable ONNX detector of faces", str(model)) from error
    yunet = {f"{kind}_{stride}" for kind in ("cls", "obj", "bbox") for stride in STRIDES} <= set(names)

    def find(frame: Picture) -> list[Place]:
        fitted, scale = _fitted(frame, given)
        blob = fitted[..., ::-1].astype(np.float32) if yunet else fitted.astype(np.float32) / 127.5 - 1
        blob = blob[None] if last else blob.transpose(2, 0, 1)[None]
        try:
            outputs = dict(zip(names, session.run(None, {entry.name: np.ascontiguousarray(blob)}), strict=True))
            found = (yunet_faces if yunet else blazeface_faces)(outputs, fitted.shape[:2])
        except DposeError as error:
            raise DposeError(error.code, error.what, str(model), error.fix) from error
        except Exception as error:
            raise DposeError("onnx-run-failed", "the detector cannot be run on a frame", str(model)) from error
        return [(top / scale, left / scale, bottom / scale, right / scale) for top, left, bottom, right in found]

    find(np.zeros((64, 64, 3), np.uint8))  # a file that is no detector is refused before a video is touched
    return find


def yunet_faces(outputs: Mapping[str, NDArray[Any]], size: tuple[int, int]) -> list[Place]:
    """Faces from YuNet's outputs: cls, obj (1, n, 1) and bbox (1, n, 4) of three grids; its key points are not needed.

    The score is the root of class times objectness; a box is its cell plus an offset, and e^w by e^h strides large (Wu,
    Peng and Yu 2023, as OpenCV's FaceDetectorYN reads it).

    Args:
        outputs: By name.
        size: Height and width of the input.
    """
    boxes, scores = [], []
    for stride in STRIDES:
        rows, columns = size[0] // stride, size[1] // stride
        kinds = (np.clip(outputs[f"{kind}_{stride}"].reshape(-1), 0, 1) for kind in ("cls", "obj"))
        scores.append(np.sqrt(math.prod(kinds)))
        x, y, wide, tall = outputs[f"bbox_{stride}"].reshape(-1, 4).T
        row, column = np.divmod(np.arange(rows * columns), columns)
        middle = np.stack([column + x, row + y, np.exp(wide), np.exp(tall)], 1) * stride
        boxes.append(middle)
    return _best(np.concatenate(boxes), np.concatenate(scores))


def blazeface_faces(outputs: Mapping[str, NDArray[Any]], size: tuple[int, int]) -> list[Place]:
    """Faces from BlazeFace's outputs: (1, n, 16) boxes and key points around its anchors, and (1, n, 1) logits.

    An anchor is the middle of a cell; a box is given in pixels of the input from there (Bazarevsky et al. 2019, as
    MediaPipe reads it).

    Args:
        outputs: Two of them, under any name.
        size: Height and width of the input, equal.
    """
    found = {array.shape[-1]: array.reshape(-1, array.shape[-1]) for array in outputs.values()}
    grids = ANCHORS.get(len(found.get(16, ())))
    if grids is None or set(found) != {1, 16} or len(found[1]) != len(found[16]):
        raise DposeError(
            "face-detector-unknown", "is neither YuNet nor BlazeFace by its outputs", fix="give one of these two"
        )
    anchors = np.concatenate(
        [
            (np.stack(np.divmod(np.arange(side * side), side)[::-1], 1) + 0.5).repeat(each, 0) / side
            for side, each in grids
        ]
    )
    boxes = found[16][:, :4].astype(np.float64)
    boxes[:, :2] += anchors * size[::-1]
    scores = 1 / (1 + np.exp(-np.clip(found[1][:, 0].astype(np.float64), -100, 100)))
    return _best(boxes, scores)


def _best(boxes: NDArray[Any], scores: NDArray[Any]) -> list[Place]:
    """Finds by middle and size whose score suffices, without those that overlap a better one."""
    sure = scores >= SCORE
    wide = boxes[sure][:, 2:]
    corners = boxes[sure][:, :2] - wide / 2
    chosen = cv2.dnn.NMSBoxes(
        np.concatenate([corners, wide], 1).tolist(), scores[sure].astype(float).tolist(), SCORE, OVERLAP
    )
    return [
        (float(top), float(left), float(top + tall), float(left + across))
        for (left, top), (across, tall) in ((corners[i], wide[i]) for i in np.asarray(chosen, int).reshape(-1))
    ]


def _fitted(frame: Picture, given: tuple[int | None, int | None]) -> tuple[Picture, float]:
    """A frame in colour at a model's size, and how many times larger it is than before."""
    colour = frame.repeat(3, 2) if frame.shape[2] == 1 else frame
    height, width = colour.shape[:2]
    tall, wide = given[0] or -(-height // 32) * 32, given[1] or -(-width // 32) * 32
    scale = min(tall / height, wide / width) if all(given) else 1.0
    inner = min(tall, max(1, round(height * scale))), min(wide, max(1, round(width * scale)))
    out = np.zeros((tall, wide, 3), np.uint8)
    out[: inner[0], : inner[1]] = cv2.resize(colour, inner[::-1], interpolation=cv2.INTER_LINEAR)
    return out, scale


def cascade_faces(frame: Picture) -> list[Place]:
    """Frontal faces that the bundled cascade finds.

    Args:
        frame: uint8, (H, W, C).
    """
    height, width = frame.shape[:2]
    if min(height, width) <= SMALLEST_FACE:
        return []
    colour = np.ascontiguousarray(frame.repeat(3, 2) if frame.shape[2] == 1 else frame)
    side = min(height, width)
    found = face_cascade().detect_multi_scale(
        img=colour, scale_factor=1.2, step_ratio=1, min_size=(SMALLEST_FACE, SMALLEST_FACE), max_size=(side, side)
    )
    return [(f["r"], f["c"], f["r"] + f["height"], f["c"] + f["width"]) for f in found]


@lru_cache(maxsize=1)
def face_cascade() -> Any:
    """scikit-image's cascade of local binary patterns for frontal faces."""
    from skimage.data import lbp_frontal_face_cascade_filename
    from skimage.feature import Cascade

    return Cascade(lbp_frontal_face_cascade_filename())


def held(finds: Iterable[list[Place]], hold: int) -> Iterator[list[Place]]:
    """Where faces are taken to be, also in frames where the finder fails: a find holds before and after its own frame.

    In a frame stand its own finds; and those of the frames near it, nearest first, where none stands yet, in boxes that
    grow with the distance. So a face is followed while it is found, and a gap of up to twice `hold` is closed from both
    ends.

    Args:
        finds: Finds of each frame, in order.
        hold: Frames before and after; 0 for the finds alone.

    Yields:
        For each frame, once the finds of `hold` frames more were taken.
    """
    window: deque[tuple[int, list[Place]]] = deque(maxlen=2 * hold + 1)
    nothing: list[Place] = []
    for number, found in enumerate(itertools.chain(finds, itertools.repeat(nothing, hold))):
        window.append((number, found))
        here = number - hold
        if here < 0:
            continue
        shown: list[Place] = []
        for away, place in sorted((abs(n - here), place) for n, places in window for place in places):
            if away == 0 or all(_overlap(place, other) < OVERLAP for other in shown):
                shown.append(_grown(place, away))
        yield shown


def _grown(place: Place, frames: int) -> Place:
    top, left, bottom, right = place
    more = min(MOST_GROWTH, GROWTH * frames) * max(bottom - top, right - left)
    return top - more, left - more, bottom + more, right + more


def _overlap(one: Place, other: Place) -> float:
    """What two boxes have in common, of the smaller of them."""
    tall = min(one[2], other[2]) - max(one[0], other[0])
    wide = min(one[3], other[3]) - max(one[1], other[1])
    areas = [(b - t) * (r - left) for t, left, b, r in (one, other)]
    return max(0.0, tall) * max(0.0, wide) / max(1e-9, min(areas))
