"""How every numba kernel of this room is compiled: lazily, cached on disk, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` at its first call and keep the result beside the module.

    The lock is released, so that threads render in parallel. Floating-point sums may be reordered: pictures
    are identical from run to run on one machine; another processor may differ in a last bit.
    """
    compiled = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")(function)
    return cast(F, compiled)


def inlined(function: F) -> F:
    """A kernel that is copied into its caller: passing a dozen arrays costs more than a short function."""
    compiled = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy", inline="always")(
        function
    )
    return cast(F, compiled)
