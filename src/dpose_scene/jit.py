"""Compilation of the numba kernels of `dpose_scene`, on top of dpose's own settings."""

from __future__ import annotations

from typing import Any

from dpose import jit

VALUES_STAY = {"nnan", "ninf", "nsz"}
"""Assumptions for the compiler; none changes a finite value. Reordered sums could differ when a kernel is compiled
anew, and a run on these pictures could then not be distinguished from a run on others."""
ARITHMETIC: dict[str, Any] = {"fastmath": VALUES_STAY, "error_model": "numpy"}


def scene_kernel(function: jit.F) -> jit.F:
    """Compile `function` at its first call and keep the result beside the module.

    The lock is released, so that threads render in parallel. Arithmetic is IEEE's, in the order written: a picture is
    the same whichever process compiled the kernels, and for whichever processor.
    """
    return jit.kernel(function, **ARITHMETIC)


def inlined(function: jit.F) -> jit.F:
    """A kernel that is copied into its caller: passing a dozen arrays costs more than a short function."""
    return jit.kernel(function, inline="always", **ARITHMETIC)
