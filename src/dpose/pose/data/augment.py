"""Random changes to a crop: the ranges, one draw from them, and a view with its labels under a draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.pose.crops import crop_transform, invert, transform_points, warp, whole_frame, zoom_of
from dpose.units import View

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True)
class Drawn:
    """One draw: arguments of `crop_transform`, and a 3x4 colour matrix or None."""

    rotation: float = 0.0
    scale: float = 1.0
    flip: bool = False
    colour: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Augment:
    """Ranges of random changes; every draw is uniform.

    Attributes:
        flip: Probability of mirroring.
        rotation: Largest turn either way, degrees.
        rotation_probability: Probability of turning at all.
        scale: Least and greatest enlargement of the box; above 1 the person becomes smaller.
        colour: Strength of the colour change, 0 to 1: the relative change of contrast, saturation and each
            channel's gain, and of brightness relative to white.
    """

    flip: float = 0.0
    rotation: float = 0.0
    rotation_probability: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    colour: float = 0.0

    def __post_init__(self) -> None:
        """Refuse ranges that cannot be drawn from."""
        if not (0 <= self.flip <= 1 and 0 <= self.rotation_probability <= 1 and 0 <= self.colour <= 1):
            raise ValueError("flip, rotation_probability and colour lie between 0 and 1")
        if not (0 < self.scale[0] <= self.scale[1] and self.rotation >= 0):
            raise ValueError("scale must be an increasing pair above 0, and rotation at least 0")

    @classmethod
    def none(cls) -> Augment:
        """Return no change: the canonical crop, from which a public view is computed."""
        return cls()

    @classmethod
    def public(cls) -> Augment:
        """Return strong changes, for public data: half mirrored, 60 % turned up to 80 degrees, scale 0.5 to 1.5."""
        return cls(flip=0.5, rotation=80.0, rotation_probability=0.6, scale=(0.5, 1.5), colour=0.25)

    @classmethod
    def private(cls) -> Augment:
        """Return mild changes: with noisy gradients, examples close to the test data are learnt better."""
        return cls(flip=0.5, rotation=30.0, rotation_probability=0.5, scale=(0.8, 1.25), colour=0.1)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Draw once. `none()` takes nothing from `rng`; any other takes the same amount each time."""
        if self == Augment.none():
            return Drawn()
        flip, turn, angle, scale = rng.random(4)
        colours = 2 * rng.random(6).astype(np.float32) - 1
        low, high = self.scale
        return Drawn(
            rotation=float((2 * angle - 1) * self.rotation) if turn < self.rotation_probability else 0.0,
            scale=float(low + scale * (high - low)),
            flip=bool(flip < self.flip),
            colour=_colour_matrix(colours * np.float32(self.colour)) if self.colour else None,
        )


def _colour_matrix(change: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the 3x4 matrix of a change of contrast, brightness, saturation and three gains."""
    contrast, brightness, saturation = 1 + change[0], 255 * change[1] / 2, 1 + change[2]
    mixed = saturation * np.eye(3, dtype=np.float32) + (1 - saturation) * np.tile(_LUMA, (3, 1))
    linear = contrast * mixed @ np.diag(1 + change[3:])
    # contrast turns about mid-gray, so that it does not brighten or darken as well
    shift = np.full((3, 1), 127.5 * (1 - contrast) + brightness, np.float32)
    return np.concatenate([linear, shift], axis=1).astype(np.float32)


def recolour(image: NDArray[np.uint8], matrix: NDArray[np.float32] | None) -> NDArray[np.uint8]:
    """Apply a 3x4 colour matrix to a uint8 RGB picture, rounded and clamped to 0 to 255."""
    if matrix is None:
        return image
    return np.asarray(cv2.transform(image, matrix), np.uint8)


def vary_view(view: View, augment: Augment, flip_order: Sequence[int], rng: np.random.Generator) -> View:
    """Return `view` under one draw of `augment`, with its labels.

    Areas that a turn or a smaller scale brings in from outside the crop are black, where `PoseUnits.load` would have
    taken them from the picture.

    Args:
        view: A view of `PoseUnits`, or another picture of the same crop with its labels; uint8 (H, W, 3).
        augment: The ranges.
        flip_order: The joints' order in a mirrored picture.
        rng: Source of all randomness.
    """
    drawn = augment.draw(rng)
    height, width = view.image.shape[:2]
    size = (height, width)
    matrix = crop_transform(whole_frame(size), size, 1.0, drawn.rotation, drawn.scale, drawn.flip)
    order = list(flip_order) if drawn.flip else list(range(len(flip_order)))
    labelled = view.target["labelled"][order] > 0
    keypoints = transform_points(matrix, view.target["keypoints"][order])
    zoom = zoom_of(matrix)
    target = {
        **view.target,
        **target_of(
            keypoints,
            labelled,
            size,
            head_length=view.target["head_length"] * zoom,
            area=view.target["area"] * zoom**2,
            inverse=_after(view.target["inverse"], invert(matrix)),
        ),
    }
    return View(recolour(warp(view.image, matrix, size), drawn.colour), target, view.weight)


def target_of(
    keypoints: NDArray[np.float64],
    labelled: NDArray[np.bool_],
    size: tuple[int, int],
    *,
    head_length: ArrayLike,
    area: ArrayLike,
    inverse: NDArray[np.float64],
) -> dict[str, NDArray[Any]]:
    """Return the target of a view of one person, float32; joints that lie outside the view are not visible in it.

    Args:
        keypoints: (J, 2), pixels of the view.
        labelled: (J,) which of them are labelled.
        size: (H, W) of the view, pixels.
        head_length: PCKh's reference length, pixels of the view.
        area: OKS's area, pixels of the view squared.
        inverse: (2, 3) from the view to the picture.
    """
    height, width = size
    inside = ((keypoints >= -0.5) & (keypoints < (width - 0.5, height - 0.5))).all(axis=1)
    return {
        "keypoints": np.where(labelled[:, None], keypoints, 0).astype(np.float32),
        "visible": (labelled & inside).astype(np.float32),
        "labelled": labelled.astype(np.float32),
        "head_length": np.asarray(head_length, np.float32),
        "area": np.asarray(area, np.float32),
        "inverse": inverse.astype(np.float32),
    }


def _after(second: NDArray[Any], first: NDArray[Any]) -> NDArray[np.float64]:
    """Return the (2, 3) transform that does `first` and then `second`."""
    whole = np.vstack([np.asarray(first, np.float64), (0, 0, 1)])
    return np.asarray(np.asarray(second, np.float64) @ whole)
