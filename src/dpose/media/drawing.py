"""People drawn on pictures, and pictures laid side by side."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.media.images import Image

Colour = tuple[int, int, int]

DEFAULT_COLOUR: Colour = (80, 200, 120)
_OUTLINE: Colour = (20, 20, 20)
_PLATE: Colour = (245, 245, 245)
_SHIFT = 4  # OpenCV's fixed-point bits: joints land between pixels instead of jumping from one to the next
_REACH = 8  # joints further out than this many picture sizes are not drawn: fixed-point coordinates would overflow


def draw_skeleton(
    image: Image,
    keypoints: ArrayLike,
    scores: ArrayLike,
    edges: Sequence[tuple[int, int]],
    colours: Sequence[Colour] | None = None,
    thickness: int | None = None,
    threshold: float = 0.3,
) -> Image:
    """One person's skeleton drawn over a copy of the picture.

    Each half of an edge takes the colour of its own joint, so left, right and middle stay apart. On a
    picture of a few dozen pixels lines hide what they show: enlarge the picture and the keypoints first.

    Args:
        image: uint8, (H, W, 3) RGB; not changed.
        keypoints: (J, 2), x and y in pixels; pixel centres are whole numbers. Joints that are not finite
            are skipped.
        scores: (J,), a visibility flag or a score a joint.
        edges: Pairs of joint indices.
        colours: RGB, one a joint; all the same colour where None.
        thickness: Line width in pixels; chosen by the picture's size where None.
        threshold: Joints with a lower score are not drawn, nor the edges that end in them.

    Returns:
        uint8, (H, W, 3) RGB.

    Raises:
        ValueError: the numbers of keypoints, scores and colours differ.
    """
    points = np.asarray(keypoints, np.float64)
    strength = np.asarray(scores, np.float64)
    if points.shape != (len(strength), 2) or (colours is not None and len(colours) != len(points)):
        raise ValueError(f"keypoints {points.shape}, scores {strength.shape} and colours do not match")
    paint = [DEFAULT_COLOUR] * len(points) if colours is None else list(colours)
    canvas = np.ascontiguousarray(image).copy()
    width = thickness if thickness is not None else max(1, round(min(image.shape[:2]) / 110))
    near = np.abs(np.nan_to_num(points, nan=np.inf)).max(axis=1) < _REACH * max(image.shape[:2])
    shown = near & (strength >= threshold)

    links = [(a, b) for a, b in edges if shown[a] and shown[b]]
    # All outlines first: drawn edge by edge they would cut through the limbs already there.
    for a, b in links:
        _line(canvas, points[a], points[b], _OUTLINE, width + max(2, width // 2))
    for a, b in links:
        middle = (points[a] + points[b]) / 2
        _line(canvas, points[a], middle, paint[a], width)
        _line(canvas, middle, points[b], paint[b], width)
    for joint in np.flatnonzero(shown):
        _disc(canvas, points[joint], _OUTLINE, 1.1 * width + 1)
        _disc(canvas, points[joint], paint[joint], 1.1 * width)
    return canvas


def draw_number(image: Image, at: ArrayLike, number: int) -> Image:
    """A copy of the picture with a number above a place: dark on a light plate, inside the picture.

    Args:
        image: uint8, (H, W, 3) RGB; not changed.
        at: (2,), x and y of the plate's bottom middle, pixels, finite.
        number: To be written.

    Returns:
        uint8, (H, W, 3) RGB.
    """
    canvas = np.ascontiguousarray(image).copy()
    height, width = canvas.shape[:2]
    size = max(0.4, min(height, width) / 700)
    heavy = max(1, round(1.6 * size))
    (wide, tall), _ = cv2.getTextSize(str(number), cv2.FONT_HERSHEY_SIMPLEX, size, heavy)
    pad = max(2, round(4 * size))
    x, y = (float(v) for v in np.asarray(at, np.float64))
    left = round(min(max(x - wide / 2 - pad, 0), max(width - wide - 2 * pad, 0)))
    top = round(min(max(y - tall - 2 * pad, 0), max(height - tall - 2 * pad, 0)))
    cv2.rectangle(canvas, (left, top), (left + wide + 2 * pad, top + tall + 2 * pad), _PLATE, cv2.FILLED)
    place = (left + pad, top + pad + tall)
    cv2.putText(canvas, str(number), place, cv2.FONT_HERSHEY_SIMPLEX, size, _OUTLINE, heavy, cv2.LINE_AA)
    return canvas


def draw_box(image: Image, box: ArrayLike, number: int) -> Image:
    """A copy of the picture with a box and its number above it.

    Args:
        image: uint8, (H, W, 3) RGB; not changed.
        box: (4,), left, top, width and height, whole pixels.
        number: To be written.

    Returns:
        uint8, (H, W, 3) RGB.
    """
    canvas = np.ascontiguousarray(image).copy()
    left, top, wide, tall = (int(value) for value in np.asarray(box))
    heavy = max(1, round(min(canvas.shape[:2]) / 300))
    for colour, width in ((_OUTLINE, 3 * heavy), (DEFAULT_COLOUR, heavy)):
        cv2.rectangle(canvas, (left, top), (left + wide - 1, top + tall - 1), colour, width)
    return draw_number(canvas, (left + wide / 2, top), number)


def picture_grid(images: Sequence[Image], columns: int, pad: int = 4, labels: Sequence[str] | None = None) -> Image:
    """Pictures in rows on a white sheet, each centred in a cell of the largest picture's size.

    Args:
        images: uint8, (H, W, 3) RGB; sizes may differ.
        columns: Cells a row; fewer pictures than that give a narrower sheet.
        pad: White pixels around every cell.
        labels: One line of text above each picture, cut to the cell's width.

    Returns:
        uint8, (H, W, 3) RGB.

    Raises:
        ValueError: no pictures, `columns` < 1, or another number of labels than pictures.
    """
    if not images or columns < 1:
        raise ValueError("a grid needs at least one picture and one column")
    if labels is not None and len(labels) != len(images):
        raise ValueError(f"{len(labels)} labels for {len(images)} pictures")
    height = max(i.shape[0] for i in images)
    width = max(i.shape[1] for i in images)
    strip = 0 if labels is None else 18
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    sheet = np.full((pad + rows * (height + strip + pad), pad + columns * (width + pad), 3), 255, np.uint8)
    for n, image in enumerate(images):
        top = pad + n // columns * (height + strip + pad)
        left = pad + n % columns * (width + pad)
        if labels is not None:
            _text(sheet[top : top + strip, left : left + width], labels[n])
        y = top + strip + (height - image.shape[0]) // 2
        x = left + (width - image.shape[1]) // 2
        sheet[y : y + image.shape[0], x : x + image.shape[1]] = image
    return sheet


def _fixed(point: NDArray[np.float64]) -> tuple[int, int]:
    x, y = (round(float(v) * (1 << _SHIFT)) for v in point)
    return x, y


def _line(canvas: Image, start: NDArray[np.float64], end: NDArray[np.float64], colour: Colour, width: int) -> None:
    cv2.line(canvas, _fixed(start), _fixed(end), colour, width, cv2.LINE_AA, _SHIFT)


def _disc(canvas: Image, centre: NDArray[np.float64], colour: Colour, radius: float) -> None:
    cv2.circle(canvas, _fixed(centre), round(radius * (1 << _SHIFT)), colour, cv2.FILLED, cv2.LINE_AA, _SHIFT)


def _text(area: Image, text: str) -> None:
    """Write into a view of the sheet; what does not fit is cut off by the view's edge."""
    canvas = np.ascontiguousarray(area)
    cv2.putText(canvas, text, (1, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.42, _OUTLINE, 1, cv2.LINE_AA)
    area[:] = canvas
