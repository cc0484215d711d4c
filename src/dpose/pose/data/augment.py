"""Random changes to a crop: what is drawn, from which ranges, and how colours change."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

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
    """Ranges to draw from; every draw is uniform.

    Attributes:
        flip: Probability of mirroring.
        rotation: Largest turn either way, degrees.
        rotation_probability: How often to turn at all.
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
        """No change: the canonical crop, the one that a public view is computed from."""
        return cls()

    @classmethod
    def public(cls) -> Augment:
        """Strong, for public data: half mirrored, six in ten turned by up to 80 degrees, scale 0.5 to 1.5."""
        return cls(flip=0.5, rotation=80.0, rotation_probability=0.6, scale=(0.5, 1.5), colour=0.25)

    @classmethod
    def private(cls) -> Augment:
        """Mild: noisy gradients leave less to learn from, so the examples stay closer to what is tested."""
        return cls(flip=0.5, rotation=30.0, rotation_probability=0.5, scale=(0.8, 1.25), colour=0.1)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """One draw. `none()` takes nothing from `rng`; any other takes the same amount each time."""
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
    """The 3x4 matrix of a change of contrast, brightness, saturation and three gains."""
    contrast, brightness, saturation = 1 + change[0], 255 * change[1] / 2, 1 + change[2]
    mixed = saturation * np.eye(3, dtype=np.float32) + (1 - saturation) * np.tile(_LUMA, (3, 1))
    linear = contrast * mixed @ np.diag(1 + change[3:])
    # contrast turns about mid-gray, so that it does not brighten or darken as well
    shift = np.full((3, 1), 127.5 * (1 - contrast) + brightness, np.float32)
    return np.concatenate([linear, shift], axis=1).astype(np.float32)


def recolour(image: NDArray[np.uint8], matrix: NDArray[np.float32] | None) -> NDArray[np.uint8]:
    """A uint8 RGB picture through a 3x4 colour matrix, rounded and held within 0 to 255."""
    if matrix is None:
        return image
    return np.asarray(cv2.transform(image, matrix), np.uint8)
