"""Which code a worker runs: digest of dpose's own source, and the versions of what decides its bits."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata

from dpose.extensions import source_files

DECIDING = ("numpy", "cryptography")
"""Beside dpose's source and Python: what sums whole numbers, and what draws noise."""


@cache
def worker_code() -> str:
    """Digest of everything that must be the same where an item is worked on again: 16 hexadecimal digits."""
    digest = hashlib.sha256(platform.python_version().encode())
    for name in DECIDING:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    for name, file in source_files():
        digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
