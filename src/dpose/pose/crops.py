"""Geometry between a person's box in a picture and a crop of the model's input size.

Convention: whole numbers are pixel centres. (0, 0) is the centre of the top-left pixel, so a picture of W x
H pixels reaches from (-0.5, -0.5) to (W - 0.5, H - 0.5), and `whole_frame` is that box. Every matrix here
is 2x3 and maps (x, y, 1) of the picture to (x, y) of the crop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]

PADDING = 1.25
"""Default size of a crop relative to the person's box."""


def whole_frame(size: tuple[int, int]) -> NDArray[np.float32]:
    """Return the box (x0, y0, x1, y1) of a whole picture of `size` (H, W): from pixel edge to pixel edge."""
    height, width = size
    return np.array([-0.5, -0.5, width - 0.5, height - 0.5], np.float32)


def crop_transform(
    box: ArrayLike,
    size: tuple[int, int],
    padding: float = PADDING,
    rotation: float = 0.0,
    scale: float = 1.0,
    flip: bool = False,
) -> Matrix:
    """Return the similarity that takes a box to the middle of a crop, with the aspect of its content unchanged.

    The box is first widened or heightened to the crop's aspect, then enlarged by `padding * scale`. The
    picture is turned about the box's centre, then mirrored.

    Args:
        box: (4,), x0, y0, x1, y1 in picture pixels, x0 < x1 and y0 < y1.
        size: (H, W) of the crop in pixels.
        padding: Size of the crop relative to the box, >= 1 to hold it all.
        rotation: Degrees, counter-clockwise as seen.
        scale: > 1 shows more of the surroundings and makes the person smaller.
        flip: Mirror left and right. The caller must then rename the joints.

    Returns:
        (2, 3) float64, picture to crop.

    Raises:
        ValueError: the box is empty or not finite, or padding or scale is not positive.
    """
    x0, y0, x1, y1 = (float(v) for v in np.asarray(box, np.float64))
    height, width = size
    if not (math.isfinite(x0 + y0 + x1 + y1) and x1 > x0 and y1 > y0 and padding * scale > 0):
        raise ValueError(
            f"box ({x0}, {y0}, {x1}, {y1}) with padding {padding} and scale {scale} holds nothing"
        )
    side = max(x1 - x0, (y1 - y0) * width / height) * padding * scale
    zoom = width / side
    angle = math.radians(rotation)
    # y points down: a counter-clockwise turn as seen has the signs of a clockwise one as written
    cos, sin = zoom * math.cos(angle), zoom * math.sin(angle)
    linear = np.array([[cos, sin], [-sin, cos]])
    centre = np.array([(x0 + x1) / 2, (y0 + y1) / 2])
    shift = np.array([(width - 1) / 2, (height - 1) / 2]) - linear @ centre
    matrix = np.column_stack([linear, shift])
    if flip:
        matrix[0] = -matrix[0]
        matrix[0, 2] += width - 1
    return matrix


def transform_points(matrix: ArrayLike, points: ArrayLike) -> NDArray[np.float64]:
    """Transform points (..., 2) by a 2x3 matrix; float64 (..., 2)."""
    m = np.asarray(matrix, np.float64)
    return np.asarray(points, np.float64) @ m[:, :2].T + m[:, 2]


def invert(matrix: ArrayLike) -> Matrix:
    """Return the 2x3 matrix from crop to picture.

    Raises:
        numpy.linalg.LinAlgError: the matrix has no inverse.
    """
    m = np.asarray(matrix, np.float64)
    linear = np.linalg.inv(m[:, :2])
    return np.column_stack([linear, -linear @ m[:, 2]])


def zoom_of(matrix: ArrayLike) -> float:
    """Return the number of crop pixels per picture pixel: the factor by which lengths are multiplied."""
    m = np.asarray(matrix, np.float64)
    return math.sqrt(abs(float(np.linalg.det(m[:, :2]))))


def warp(image: NDArray[np.uint8], matrix: ArrayLike, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resample a picture to a crop: bilinear, black outside the picture.

    A crop at less than half the picture's resolution is taken from a smaller copy made by averaging areas,
    since bilinear sampling would skip pixels between its samples.

    Args:
        image: uint8, (H, W, 3).
        matrix: (2, 3), picture to crop.
        size: (H, W) of the crop.

    Returns:
        uint8, (*size, 3). With the identity matrix and the picture's own size, the picture itself, exactly.
    """
    m = np.asarray(matrix, np.float64)
    shrink = int(1 / max(zoom_of(m), 1e-3))
    if shrink > 1:
        height, width = (max(1, side // shrink) for side in image.shape[:2])
        factors = np.array([image.shape[1] / width, image.shape[0] / height])
        # a pixel centre u of the small copy lies at (u + 0.5) * factor - 0.5 of the picture
        back = np.column_stack([np.diag(factors), (factors - 1) / 2])
        m = np.column_stack([m[:, :2] @ back[:, :2], transform_points(m, back[:, 2])])
        image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    crop = cv2.warpAffine(image, m, size[::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    return np.asarray(crop, np.uint8)


@dataclass(frozen=True)
class Box:
    """A detected person.

    Attributes:
        corners: (4,) float64, x0, y0, x1, y1 in picture pixels.
        score: In [0, 1].
        turn: Degrees, counter-clockwise as seen, that the picture is turned about the box's centre to bring the person
            upright.
    """

    corners: NDArray[np.float64]
    score: float
    turn: float = 0.0

    def crop(
        self,
        size: tuple[int, int],
        padding: float = PADDING,
        rotation: float = 0.0,
        scale: float = 1.0,
        flip: bool = False,
    ) -> Matrix:
        """Return the transform that crops the person, upright: `crop_transform` with `rotation` added to the turn."""
        return crop_transform(self.corners, size, padding, self.turn + rotation, scale, flip)
