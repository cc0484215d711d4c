"""How every numba kernel is compiled: lazily, cached on disk, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F, **options: Any) -> F:
    """Compile at the first call, keep the result on disk, and let other threads run meanwhile.

    Args:
        function: What is compiled.
        options: Of `numba.njit`, besides these.
    """
    return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
