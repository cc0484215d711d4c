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
        ValueError: the box is not four numbers, empty or not finite, or padding or scale is not positive.
    """
    corners = np.asarray(box, np.float64)
    if corners.shape != (4,):
        raise ValueError(f"a box is x0, y0, x1, y1, of shape (4,), not {corners.shape}")
    x0, y0, x1, y1 = corners.tolist()
    if not (math.isfinite(x0 + y0 + x1 + y1) and x1 > x0 and y1 > y0 and padding * scale > 0):
        raise ValueError(f"box ({x0}, {y0}, {x1}, {y1}) with padding {padding} and scale {scale} holds nothing")
    enlarged, turned, mirrored = (np.array([value]) for value in (padding * scale, rotation, flip))
    matrix: Matrix = crop_transforms(np.array([[x0, y0, x1, y1]]), size, enlarged, turned, mirrored)[0]
    return matrix


def crop_transforms(
    boxes: Matrix,
    size: tuple[int, int],
    enlarged: NDArray[np.float64],
    rotations: NDArray[np.float64],
    flips: NDArray[np.bool_],
) -> Matrix:
    """Return `crop_transform` of N boxes, (N, 2, 3): float64 (N, 4), none of them empty; (N,) each of the others.

    Args:
        boxes: As there.
        size: As there.
        enlarged: Padding times scale.
        rotations: As there.
        flips: As there.
    """
    height, width = size
    x0, y0, x1, y1 = boxes.T
    zoom = width / (np.maximum(x1 - x0, (y1 - y0) * width / height) * enlarged)
    # one by one: numpy's own depend in their last bit on the processor
    angles = [math.radians(angle) for angle in rotations.tolist()]
    # y points down: a counter-clockwise turn as seen has the signs of a clockwise one as written
    cos, sin = (zoom * [part(angle) for angle in angles] for part in (math.cos, math.sin))
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    first = np.stack([cos, sin, (width - 1) / 2 - (cos * x + sin * y)], axis=1)
    second = np.stack([-sin, cos, (height - 1) / 2 - (cos * y - sin * x)], axis=1)
    first[flips] *= -1
    first[flips, 2] += width - 1
    return np.stack([first, second], axis=1)


def transform_points(matrix: ArrayLike, points: ArrayLike) -> NDArray[np.float64]:
    """Transform points (..., K, 2), or one (2,), by matrices (..., 2, 3); float64, of the points' shape."""
    m = np.asarray(matrix, np.float64)
    p = np.asarray(points, np.float64)
    x, y = p[..., 0, None], p[..., 1, None]
    if m.ndim > 2:
        m = m[..., None, :, :]
    return np.asarray(x * m[..., 0] + y * m[..., 1] + m[..., 2])


def invert(matrix: ArrayLike) -> Matrix:
    """Return the matrices (..., 2, 3) from crop to picture."""
    m = np.asarray(matrix, np.float64)
    linear = np.linalg.inv(m[..., :2])
    return np.concatenate([linear, -linear @ m[..., 2:]], axis=-1)


def zooms_of(matrices: ArrayLike) -> NDArray[np.float64]:
    """Return the number of crop pixels per picture pixel, (...), of matrices (..., 2, 3): what lengths grow by."""
    return np.asarray(np.sqrt(np.abs(np.linalg.det(np.asarray(matrices, np.float64)[..., :2]))))


def zoom_of(matrix: ArrayLike) -> float:
    """Return `zooms_of` of one matrix."""
    return float(zooms_of(matrix))


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
    shrink = int(shrinks_of(m))
    if shrink > 1:
        image, back = made_smaller(image, shrink)
        m = after(m, back)
    crop = cv2.warpAffine(image, m, size[::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    return np.asarray(crop, np.uint8)


def shrinks_of(matrices: ArrayLike) -> NDArray[np.int64]:
    """Return by how much a picture is made smaller before it is warped by matrices (..., 2, 3); 1 for not at all."""
    return np.maximum(1, (1 / np.maximum(zooms_of(matrices), 1e-3)).astype(np.int64))


def made_smaller(image: NDArray[np.uint8], shrink: int) -> tuple[NDArray[np.uint8], Matrix]:
    """Return the picture made smaller by averaging areas, and the (2, 3) matrix from there to the picture."""
    height, width = (max(1, side // shrink) for side in image.shape[:2])
    factors = np.array([image.shape[1] / width, image.shape[0] / height])
    # a pixel centre u of the small copy lies at (u + 0.5) * factor - 0.5 of the picture
    back = np.column_stack([np.diag(factors), (factors - 1) / 2])
    if shrink > 1:
        image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    return image, back


def after(second: ArrayLike, first: ArrayLike) -> Matrix:
    """Return the transforms (..., 2, 3) that do `first` and then `second`."""
    a, b = np.asarray(second, np.float64), np.asarray(first, np.float64)
    linear = a[..., :2] @ b[..., :2]
    return np.concatenate([linear, a[..., :2] @ b[..., 2:] + a[..., 2:]], axis=-1)


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

    def crop(self, size: tuple[int, int], padding: float = PADDING) -> Matrix:
        """Return the transform that crops the person, upright."""
        return crop_transform(self.corners, size, padding, self.turn)
