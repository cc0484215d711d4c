"""Does a picture follow from released values? What is shown must be what the cells restore to, within one gray level.

A statement that adds up says nothing about the pixels beside it. These checks need no secret: a released picture is a
public function of its cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.container import opened_video
from dpose.media.images import decode_pixels
from dpose.release.embed import encoded
from dpose.release.released import Shown

LEVEL = 1
"""Gray levels that a picture may differ from what its cells restore to: decoders round differently."""
TINT = 2
"""Levels of chroma that a grey picture may have after lossy coding."""


def check_restored(pixels: NDArray[Any], released: Shown, suffix: str, where: str) -> None:
    """Refuse a picture that is not what its archive restores to, encoded the same way.

    Args:
        pixels: As decoded, (H, W) or (H, W, C).
        released: The archive's.
        suffix: Suffix of the picture's file: how it was encoded.
        where: The file, for errors.

    Raises:
        DposeError: some pixel differs by more than a gray level.
    """
    restored = decode_pixels(encoded(released, suffix), where)
    if restored.shape != pixels.shape or restored.dtype != pixels.dtype:
        raise DposeError(
            "archive-of-other-picture",
            "is another picture than its archive holds",
            where,
            "do not rely on it",
        )
    off = np.abs(restored.astype(np.int32) - pixels.astype(np.int32)).max(initial=0)
    if off > LEVEL:
        raise DposeError(
            "archive-does-not-follow",
            f"does not follow from its archive: pixels differ by up to {off} gray levels",
            where,
            "do not rely on it",
        )


def check_cells(pixels: NDArray[Any], side: int, where: str) -> None:
    """Refuse a lossless picture that is not of one colour within each cell.

    Args:
        pixels: (H, W) or (H, W, C).
        side: Side of the smallest cells that the record allows, pixels.
        where: The file, for errors.

    Raises:
        DposeError: a cell has several colours.
    """
    wide = pixels.reshape(*pixels.shape[:2], -1)
    tall, across = (np.arange(0, length, side) for length in wide.shape[:2])
    highest = np.maximum.reduceat(np.maximum.reduceat(wide, tall, axis=0), across, axis=1)
    lowest = np.minimum.reduceat(np.minimum.reduceat(wide, tall, axis=0), across, axis=1)
    if (highest.astype(np.int32) - lowest.astype(np.int32)).max(initial=0) > LEVEL:
        raise DposeError(
            "cells-differ",
            f"is no picture of cells of {side} x {side} pixels, as its statement says",
            where,
            "do not rely on it",
        )


def check_grey(path: Path) -> None:
    """Refuse a video with colours in it, whose statement is about one channel.

    Raises:
        DposeError: it has some, or cannot be decoded.
    """
    with opened_video(path) as container:
        for frame in container.decode(video=0):
            if frame.format.name.startswith("gray"):
                continue
            chroma = frame.to_ndarray(format="yuv444p")[1:].astype(np.int32)
            if np.abs(chroma - 128).max(initial=0) > TINT:
                raise DposeError(
                    "channels-differ",
                    "has channels 3: there are colours in it, but its statement is about 1",
                    str(path),
                )
