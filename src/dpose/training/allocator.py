"""Memory that a step frees stays with the process, for the next step.

glibc takes each large block fresh from the kernel and gives it back when it is freed. The kernel then clears every page
of it again when it is first written, step after step: ten to fifteen thousand page faults for a private step of 32
pictures, which is more than a plain one has, because per-unit gradients are large (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

BLOCK = 32 * 2**20
"""Blocks up to this size, in bytes, are kept; larger ones go back to the kernel as before, so that a
gigabyte of gradients leaves no holes."""
KEPT = 1024 * 2**20
"""Free memory at the end of the heap, in bytes, above which it goes back after all."""


@cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed, once for the process; whether it does.

    False, and nothing is changed, where the C library is not glibc, or where the environment has settings of its own
    for it (any of MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_MAX_, GLIBC_TUNABLES).
    """
    if sys.platform != "linux" or any(name in os.environ for name in _OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
