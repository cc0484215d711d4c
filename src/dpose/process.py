"""What dpose sets of the process that it runs in: when a command or a run begins, and never by being imported.

settle_environment()       # a command does this first; a program that trains may do it before it imports torch
keep_freed_memory()        # when a run begins
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

KEPT_BLOCK = 32 * 2**20
"""Blocks up to this size, in bytes, are kept; larger ones go back to the kernel as before, so that a
gigabyte of gradients leaves no holes."""
KEPT_FREE = 1024 * 2**20
"""Free memory at the end of the heap, in bytes, above which it goes back after all."""


def settle_environment() -> None:
    """Set the variables of the environment by which torch's libraries compute as a run wants; those that are set stay.

    Each library reads its variables once: torch's threads when torch is imported, MKL and cuBLAS when they are first
    used. A run that begins later than that says what it lacks.
    """
    # torch's OpenMP threads wait for each other by spinning. Where anything else wants a core (a second run, a test, a
    # browser) that can cost ten times the speed; sleeping at once costs a third of it on an idle machine. So they spin
    # briefly, then sleep (docs/lab/results.md, "Waiting threads")
    if "OMP_WAIT_POLICY" not in os.environ and "torch" not in sys.modules:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # MKL may take other instructions for the first rows of a product, depending on where in memory its numbers begin;
    # on an AMD processor the bits of a matrix times a vector then change from run to run, and a run that was stopped
    # cannot take a step again as it was. In this mode they do not, at no cost that could be measured
    # (docs/performance.md, "Bits")
    os.environ.setdefault("MKL_CBWR", "AUTO")
    # cuBLAS is deterministic only with a workspace of its own
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep what a step frees for the next one, once for the process; whether it does.

    glibc takes each large block fresh from the kernel and gives it back when it is freed. The kernel then clears every
    page of it again when it is first written, step after step: ten to fifteen thousand page faults for a private step
    of 32 pictures, more than a plain one has, because per-unit gradients are large (docs/performance.md).

    False, and nothing is changed, where the C library is not glibc, or where the environment has settings of its own
    for it (any of MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_MAX_, GLIBC_TUNABLES).
    """
    if sys.platform != "linux" or any(name in os.environ for name in _MALLOC_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_FREE))
