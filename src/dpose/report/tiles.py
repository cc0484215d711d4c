"""Pictures of a report: the true and the predicted skeleton side by side, within a budget of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.media.images import encode_image
from dpose.report.results import PictureBlock, Tile

LARGEST = 384
"""Longer sides are scaled down to this: pictures are shown in columns of some 150 pixels."""
BUDGET = 2_000_000
"""Bytes that all pictures of a page may take together."""
QUALITIES = (88, 75, 60, 40, 20)


@dataclass(frozen=True)
class PosePair:
    """One person, drawn twice.

    Attributes:
        title: The unit's name.
        true: uint8, (H, W, 3) RGB, with the labels drawn in.
        predicted: The same picture with the prediction drawn in.
    """

    title: str
    true: NDArray[np.uint8]
    predicted: NDArray[np.uint8]


def tiles_of(pairs: Sequence[PosePair]) -> tuple[Tile, ...]:
    """A tile for each pair, all of them within `BUDGET` bytes.

    Raises:
        ValueError: a picture is not uint8 (H, W, 3), or there are far too many.
    """
    small = [(pair.title, _fitted(pair.true), _fitted(pair.predicted)) for pair in pairs]
    for quality in QUALITIES:
        tiles = tuple(
            Tile(
                title,
                (
                    _encoded(true, quality, f"{title}: the labelled skeleton"),
                    _encoded(predicted, quality, f"{title}: the predicted skeleton"),
                ),
            )
            for title, true, predicted in small
        )
        if sum(len(picture.uri) for tile in tiles for picture in tile.pictures) <= BUDGET:
            return tiles
    raise ValueError(f"{len(pairs)} pictures do not fit on a page")


def _fitted(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    ratio = LARGEST / max(image.shape[:2])
    if ratio >= 1:
        return image
    size = (max(1, round(image.shape[1] * ratio)), max(1, round(image.shape[0] * ratio)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def _encoded(image: NDArray[np.uint8], quality: int, alt: str) -> PictureBlock:
    height, width = image.shape[:2]
    return PictureBlock(encode_image(image, ".jpg", quality), "jpeg", (width, height), alt)
