"""Appearance of a person as a vector: colours by place, relative to the colour of the light."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

TALL, WIDE = 64, 32
"""Rows and columns that a person is resized to."""
GRID_ROWS, GRID_COLUMNS = 24, 12
STRIPES, BINS = 4, 12
RANGES = ((0.0, 100.0), (-40.0, 40.0), (-40.0, 40.0))
"""Numbers of histogram bins for L, a and b."""
GREY = 0.35
"""Mean to which each channel of a picture is scaled."""
SIZE = GRID_ROWS * GRID_COLUMNS // 2 * 3 + STRIPES * len(RANGES) * BINS

Picture = NDArray[np.uint8]
Descriptors = NDArray[np.float64]


def describe_appearance(pictures: Sequence[Picture], boxes: NDArray[np.int64]) -> Descriptors:
    """Describe pictures by vectors, (N, `SIZE`): a mirrored colour grid and histograms of four stripes, in CIELAB.

    In the spirit of what person re-identification used before networks (colours in horizontal stripes, Liao et al.
    2015). Each channel is divided by its mean over the whole picture first, as lamps differ from room to room.

    Args:
        pictures: uint8, (H, W, 3) or (H, W), of any sizes.
        boxes: (N, 4) x0, y0, x1, y1 around the person, pixels.
    """
    vectors = np.empty((len(pictures), SIZE))
    for row, picture, box in zip(vectors, pictures, boxes, strict=True):
        row[:] = _describe(picture, box)
    return vectors


def _describe(picture: Picture, box: NDArray[np.int64]) -> Descriptors:
    colour = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
    light = colour.reshape(-1, 3).mean(0) / 255 + 0.02
    x0, y0, x1, y1 = box
    person: Any = cv2.resize(colour[y0:y1, x0:x1], (WIDE, TALL), interpolation=cv2.INTER_AREA)
    even = np.clip(person.astype(np.float32) / 255 * (GREY / light.astype(np.float32)), 0, 1)
    lab: Any = cv2.cvtColor(even, cv2.COLOR_RGB2LAB)
    small: Any = cv2.resize(lab, (GRID_COLUMNS, GRID_ROWS), interpolation=cv2.INTER_AREA) / 50
    parts = [((small + small[:, ::-1]) / 2)[:, : GRID_COLUMNS // 2].ravel()]
    edge = WIDE // 8
    for stripe in np.split(lab[:, edge:-edge], STRIPES):
        values = stripe.reshape(-1, 3)
        for channel, span in enumerate(RANGES):
            counts = np.histogram(values[:, channel], BINS, span)[0]
            parts.append(np.sqrt(counts / len(values)))
    return np.concatenate(parts)
