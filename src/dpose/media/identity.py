"""What a picture or clip is, wherever it is met: digests of its file and of its decoded pixels.

    picture_hashes(data, decode_pixels(data, "a.png"))      # of a file: its bytes, and what they decode to
    clip_hashes(frames, length)                             # of a clip, and of each of its frames

Training, releases and the account of what both have cost name pictures by these. A picture has more than one digest
because each alone misses something: copies that were saved anew have other bytes, and another decoder's pixels differ
in their last bits. Who registers all and matches any of them misses neither.

What only few bits tell apart is one picture here: pixels are compared as `read_image` gives them, 8 bits of red, green
and blue. So a grey file and a colour file of the same greys are one, and so are 16 bits and their high bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.files import read_bytes
from dpose.media.images import decode_image

LINKED_FRAMES = 100_000
"""A clip of more frames is declared unlinked: its frames are not registered one by one."""


def pixel_hash(image: NDArray[Any]) -> str:
    """SHA-256 of a decoded picture's shape and pixels, hex.

    Args:
        image: uint8 or uint16, (H, W) or (H, W, C), C = 1 or 3: hashed as uint8 (H, W, 3). Of a clip in memory,
            (T, H, W, C).
    """
    shown = as_shown(image)
    total = hashlib.sha256(repr(shown.shape).encode())
    total.update(shown.data)
    return total.hexdigest()


def eight_bits(image: NDArray[Any]) -> NDArray[np.uint8]:
    """A picture (H, W) or (H, W, C) with 8 bits a value, (H, W, C): 16 bits lose their low byte."""
    deep = image.dtype == np.uint16
    shown: NDArray[np.uint8] = (image >> 8).astype(np.uint8) if deep else image
    return shown if shown.ndim == 3 else shown[:, :, None]


def as_shown(image: NDArray[Any]) -> NDArray[np.uint8]:
    """A picture or clip as `read_image` gives it, uint8 (..., 3): 16 bits lose their low byte, grey is repeated."""
    colour = image if image.ndim >= 3 else image[:, :, None]
    if colour.dtype == np.uint16:
        colour = (colour >> 8).astype(np.uint8)
    if colour.shape[-1] == 1:
        colour = colour.repeat(3, -1)
    return np.ascontiguousarray(colour)


def file_hash(data: bytes) -> str:
    """SHA-256 of a file's bytes, hex: `dpose.files.file_digest` for what is in memory."""
    return hashlib.sha256(data).hexdigest()


def picture_hashes(data: bytes, pixels: NDArray[Any]) -> tuple[str, ...]:
    """The digests of a picture file: of its bytes and of its decoded pixels; of 16 bits also of the pixels as shown.

    Args:
        data: The file's content.
        pixels: What it decodes to.
    """
    return file_hash(data), *exact_hashes(pixels)


def exact_hashes(pixels: NDArray[Any]) -> tuple[str, ...]:
    """A decoded picture's digests: of all its bits, and where it has 16 a value also `pixel_hash`, of the high ones."""
    shown = pixel_hash(pixels)
    if pixels.dtype != np.uint16:
        return (shown,)
    return file_hash(f"16 bits {pixels.shape}".encode() + np.ascontiguousarray(pixels).tobytes()), shown


def read_known(path: Path) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """A picture file as `read_image` gives it, and its digests: of what was read, whatever becomes of the file."""
    data = read_bytes(path)
    image = decode_image(data, str(path))
    return image, picture_hashes(data, image)


def clip_hashes(frames: Iterable[NDArray[Any]], shape: Sequence[int]) -> tuple[str, ...]:
    """The digest of a clip's decoded frames, then that of each frame, by which the frame is known as a picture.

    A frame of one single colour is left out, since it would link clips that have nothing in common; and all are where
    the clip has more than `LINKED_FRAMES`. One frame is in memory at a time.

    Args:
        frames: uint8, (H, W, C), in order; all of them are read.
        shape: (T, H, W), as declared.
    """
    length, height, width = shape
    whole = hashlib.sha256(repr((length, height, width, 3)).encode())
    each: dict[str, None] = {}
    for frame in frames:
        shown = as_shown(frame)
        whole.update(shown.data)
        # the first row tells of nearly all that they have more than one colour
        if length <= LINKED_FRAMES and ((shown[0] != shown[0, 0]).any() or (shown != shown[0, 0]).any()):
            each[pixel_hash(shown)] = None
    return whole.hexdigest(), *each
