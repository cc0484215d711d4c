"""Random changes to a crop: the ranges, one draw from them, and a view with its labels under a draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.pose.crops import after, crop_transform, invert, transform_points, warp, whole_frame, zoom_of
from dpose.units import View

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


NUMBERS = 10
"""Uniform numbers that one draw takes."""


@dataclass(frozen=True)
class Drawn:
    """One draw: arguments of `crop_transform`, and a 3x4 colour matrix or None."""

    rotation: float = 0.0
    scale: float = 1.0
    flip: bool = False
    colour: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Draws:
    """N draws, each value (N, ...): see `Drawn`."""

    rotation: NDArray[np.float64]
    scale: NDArray[np.float64]
    flip: NDArray[np.bool_]
    colour: NDArray[np.float32] | None

    @classmethod
    def none(cls, count: int) -> Draws:
        """Return `count` draws of no change."""
        return cls(np.zeros(count), np.ones(count), np.zeros(count, bool), None)


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

    def numbers(self, rng: Callable[[], np.random.Generator]) -> NDArray[np.float64] | None:
        """Take what a draw is made of: `NUMBERS` uniform ones; None for `none()`, which asks for no generator."""
        return None if self == Augment.none() else rng().random(NUMBERS)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Draw once. `none()` takes nothing from `rng`; any other takes the same amount each time."""
        numbers = self.numbers(lambda: rng)
        if numbers is None:
            return Drawn()
        drawn = self.draws(numbers[None])
        return Drawn(
            float(drawn.rotation[0]),
            float(drawn.scale[0]),
            bool(drawn.flip[0]),
            None if drawn.colour is None else drawn.colour[0],
        )

    def draws(self, numbers: NDArray[np.float64]) -> Draws:
        """Return the draws that are made of N rows of numbers, (N, `NUMBERS`)."""
        flip, turn, angle, scale = numbers[:, :4].T
        colours = 2 * numbers[:, 4:].astype(np.float32) - 1
        low, high = self.scale
        return Draws(
            rotation=np.where(turn < self.rotation_probability, (2 * angle - 1) * self.rotation, 0.0),
            scale=low + scale * (high - low),
            flip=flip < self.flip,
            colour=_colour_matrices(colours * np.float32(self.colour)) if self.colour else None,
        )


def _colour_matrices(changes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the (N, 3, 4) matrices of changes (N, 6) of contrast, brightness, saturation and three gains."""
    contrast, brightness, saturation = 1 + changes[:, 0], 255 * changes[:, 1] / 2, 1 + changes[:, 2]
    own, rest = saturation[:, None, None], (1 - saturation)[:, None, None]
    mixed = own * np.eye(3, dtype=np.float32) + rest * np.tile(_LUMA, (3, 1))
    linear = contrast[:, None, None] * mixed * (1 + changes[:, None, 3:])
    # contrast turns about mid-gray, so that it does not brighten or darken as well
    shift = np.repeat((np.float32(127.5) * (1 - contrast) + brightness)[:, None, None], 3, axis=1)
    return np.concatenate([linear, shift], axis=2).astype(np.float32)


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
            inverse=after(view.target["inverse"], invert(matrix)),
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
        keypoints: (..., J, 2), pixels of the view.
        labelled: (..., J) which of them are labelled.
        size: (H, W) of the view, pixels.
        head_length: (...), PCKh's reference length, pixels of the view.
        area: (...), OKS's area, pixels of the view squared.
        inverse: (..., 2, 3) from the view to the picture.
    """
    height, width = size
    inside = ((keypoints >= -0.5) & (keypoints < (width - 0.5, height - 0.5))).all(axis=-1)
    return {
        "keypoints": np.where(labelled[..., None], keypoints, 0).astype(np.float32),
        "visible": (labelled & inside).astype(np.float32),
        "labelled": labelled.astype(np.float32),
        "head_length": np.asarray(head_length, np.float32),
        "area": np.asarray(area, np.float32),
        "inverse": inverse.astype(np.float32),
    }
