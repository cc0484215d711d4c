"""Near copies of a picture: the same photograph saved again, resized, recoloured, or taken a moment later.

Files that show the same photograph seldom share a byte, so a cryptographic hash finds none of them. A
fingerprint here has 128 bits, half of each kind, and two pictures are near copies when few bits differ:

* 64 bits of the DCT: is each of the 8x8 lowest frequencies of a 32x32 copy above their median?
* 64 bits of gradients: in a 9x8 copy, is each pixel brighter than its left neighbour?

The two err on different pictures, so their sum separates better than either alone.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

BITS = 128
VERSION = "dct64+gradient64/1"
"""Changes when a fingerprint does: what was kept of another version must not be read."""


def fingerprint(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 128-bit fingerprint of a uint8 (H, W, 3) RGB picture, packed into (16,) uint8."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(gray, (32, 32), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:8, :8].ravel()
    # the first coefficient is the mean brightness; it would pull the median, so it has no say in it
    waves = low > np.median(low[1:])
    tiny = cv2.resize(gray, (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    gradients = (tiny[:, 1:] > tiny[:, :-1]).ravel()
    return np.packbits(np.concatenate([waves, gradients]))


def distances(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How many of the 128 bits differ: (N, 16) and (M, 16) packed fingerprints give (N, M)."""
    a, b = (2.0 * np.unpackbits(x, axis=1).astype(np.float32) - 1 for x in (first, second))
    return np.asarray(np.rint((BITS - a @ b.T) / 2), np.int64)


def near_any(pictures: NDArray[np.uint8], others: NDArray[np.uint8], threshold: int) -> NDArray[np.bool_]:
    """(N,), true for each of N fingerprints that at most `threshold` bits separate from one of `others`."""
    if not len(pictures) or not len(others):
        return np.zeros(len(pictures), bool)
    return np.asarray((distances(pictures, others) <= threshold).any(axis=1))
