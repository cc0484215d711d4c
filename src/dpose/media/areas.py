"""Public areas of a frame, by corners as shares of its width and height."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import cv2
import numpy as np
from numpy.typing import NDArray

Point = tuple[Fraction, Fraction]
"""Across and down, as shares of the frame's width and height."""


def masked(pixels: NDArray[np.uint8], masks: Sequence[Sequence[Point]]) -> NDArray[np.uint8]:
    """A frame with public areas blackened; itself if there are none."""
    if not masks:
        return pixels
    shown, (height, width) = np.ascontiguousarray(pixels).copy(), pixels.shape[:2]
    for mask in masks:
        corners = [(round(float(x) * width), round(float(y) * height)) for x, y in mask]
        cv2.fillPoly(shown, [np.array(corners, np.int32)], (0, 0, 0))
    return shown


def lies_inside(point: NDArray[np.float64], area: Sequence[Point], size: tuple[int, int]) -> bool:
    """True if a point lies in an area, or the area is all of the picture."""
    if not area:
        return True
    corners = np.array([(float(x) * size[0], float(y) * size[1]) for x, y in area], np.float32)
    return cv2.pointPolygonTest(corners, (float(point[0]), float(point[1])), False) >= 0
