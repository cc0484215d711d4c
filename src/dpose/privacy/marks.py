"""Marks of pictures: what stands for a picture where pictures are compared, and tells nothing of how it looks.

    marks_of(content_hashes)                # sorted, each once

A mark stands in no store: what an account keeps is made of it with the account's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Marks = NDArray[np.uint64]
"""Sorted, one for each picture: the first eight bytes of a hash of its content hash."""


def marks_of(content_hashes: Iterable[str]) -> Marks:
    """Marks of the pictures with these content hashes."""
    digests = (hashlib.blake2b(h.encode(), digest_size=8, person=b"dpose/account/1") for h in content_hashes)
    return np.unique(np.frombuffer(b"".join(d.digest() for d in digests), dtype="<u8").astype(np.uint64))


NO_MARKS: Marks = marks_of(())
