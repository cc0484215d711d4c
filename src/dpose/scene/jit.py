"""How every numba kernel of this room is compiled: lazily, cached on disk, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

VALUES_STAY = {"nnan", "ninf", "nsz"}
"""What the compiler may assume: none of it changes a finite value. Sums that it may reorder would come out
differently when a kernel is compiled anew, and a run over these pictures could not be told from a run over others."""


def kernel(function: F) -> F:
    """Compile `function` at its first call and keep the result beside the module.

    The lock is released, so that threads render in parallel. Arithmetic is IEEE's, in the order written: a picture is
    the same whichever process compiled the kernels, and for whichever processor.
    """
    compiled = numba.njit(cache=True, nogil=True, fastmath=VALUES_STAY, error_model="numpy")(function)
    return cast(F, compiled)


def inlined(function: F) -> F:
    """A kernel that is copied into its caller: passing a dozen arrays costs more than a short function."""
    compiled = numba.njit(cache=True, nogil=True, fastmath=VALUES_STAY, error_model="numpy", inline="always")(
        function
    )
    return cast(F, compiled)
