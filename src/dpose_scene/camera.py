"""The camera: where it stands, how it frames a person as a top-down crop would, and exact projection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Camera:
    """A pinhole camera. The centre of the top-left pixel is (0, 0).

    Attributes:
        position: (3,) metres.
        axes: (3, 3) rows: right, down and forward in the world.
        focal: Focal length in pixels.
        centre: (2,) principal point x, y in pixels; a crop of a larger picture puts it anywhere.
    """

    position: Floats
    axes: Floats
    focal: float
    centre: Floats

    def project(self, points: Floats) -> tuple[Floats, Floats]:
        """Pixels (N, 2) and depths (N,) in metres of world points (N, 3)."""
        local = (points - self.position) @ self.axes.T
        return local[:, :2] / local[:, 2:] * self.focal + self.centre, local[:, 2]

    def array(self) -> Floats:
        """(15,) position, axes, focal, centre: what the kernels read."""
        return np.concatenate([self.position, self.axes.ravel(), [self.focal], self.centre])


def axes_looking(azimuth: float, elevation: float, roll: float) -> Floats:
    """Rows right, down, forward of a camera that looks at the origin from this direction, radians."""
    ca, sa, ce, se = math.cos(azimuth), math.sin(azimuth), math.cos(elevation), math.sin(elevation)
    fx, fy, fz = -sa * ce, -se, -ca * ce
    dx, dy, dz = se * sa, -ce, se * ca  # down = forward x right, right = (ca, 0, -sa)
    cr, sr = math.cos(roll), math.sin(roll)
    return np.array(
        [
            [cr * ca + sr * dx, sr * dy, -cr * sa + sr * dz],
            [cr * dx - sr * ca, cr * dy, cr * dz + sr * sa],
            [fx, fy, fz],
        ]
    )


def frame_person(
    points: Floats, axes: Floats, distance: float, size: tuple[int, int], fill: float, shift: tuple[float, float]
) -> Camera:
    """The camera whose crop holds `points`.

    Args:
        points: (N, 3) what must be in the picture.
        axes: From `axes_looking`.
        distance: From the camera to the middle of the points, metres.
        size: (H, W) pixels.
        fill: Extent of the points over the frame's, along whichever side they fill more.
        shift: Offset of their middle from the frame's, as shares of its width and height.
    """
    middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
    position = middle - distance * axes[2]
    local = (points - position) @ axes.T
    flat = local[:, :2] / np.maximum(local[:, 2:], 0.5)
    low, high = flat.min(axis=0), flat.max(axis=0)
    height, width = size
    extent = np.maximum(high - low, 1e-3)
    focal = fill * min(height / extent[1], 1.06 * width / extent[0])
    centre = np.array([(width - 1) * (0.5 + shift[0]), (height - 1) * (0.5 + shift[1])]) - focal * 0.5 * (low + high)
    return Camera(position, axes, float(focal), centre)
