"""How every numba kernel is compiled: at its first call, cached on disk, without the interpreter's lock.

numba itself is imported at the first call of any kernel: it takes a quarter of a second that most commands do not need.
It keeps what it compiles in the folder that `NUMBA_CACHE_DIR` names, else beside the source, else, where that cannot be
written, in the user's cache folder. What is kept is named by processor and features, so machines may share a folder.
Where none can be written, kernels are compiled in each process, and only for work that is worth it (`without_numba`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

WORTH = 100_000_000
"""Whole numbers that NumPy adds up in a third of the time that numba takes to load."""
_spared = 0


class _Kernel:
    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        """The object that numba makes, of a function that sees compiled kernels where this one names kernels."""
        import numba

        function = self._function
        known = dict(function.__globals__)
        for name in function.__code__.co_names:
            if isinstance(known.get(name), _Kernel):
                known[name] = known[name].compiled
        seen = FunctionType(function.__code__, known, function.__name__, function.__defaults__)
        functools.update_wrapper(seen, function)
        del seen.__dict__["__wrapped__"]  # numba would compile that
        try:
            return cast(Callable[..., Any], numba.njit(cache=True, nogil=True, **self._options)(seen))
        except RuntimeError:  # no folder that a cache could be written to: compiled in each process
            return cast(Callable[..., Any], numba.njit(nogil=True, **self._options)(seen))

    def __call__(self, *values: Any) -> Any:
        return self.compiled(*values)


def kernel(function: F, **options: Any) -> F:
    """Compile at the first call, keep the result on disk, and let other threads run meanwhile.

    Args:
        function: What is compiled.
        options: Of `numba.njit`, besides these.
    """
    return cast(F, _Kernel(cast(FunctionType, function), options))


def without_numba(values: int) -> bool:
    """Whether this many numbers are better handled by NumPy: numba is not loaded, and little was handled so far.

    For a kernel that has such a way beside it with the very same answers: whole numbers, or none that are rounded.
    """
    global _spared
    if "numba" in sys.modules or _spared + values > WORTH:
        return False
    _spared += values
    return True
