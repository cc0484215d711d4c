"""How every numba kernel is compiled: at its first call, cached on disk, without the interpreter's lock.

numba itself is imported at the first call of any kernel: it takes a quarter of a second that most commands do not need.

Compiled code lies in the first of these folders that can be written: `NUMBA_CACHE_DIR`, where that is set;
`__pycache__` beside the module; `numba` in the user's cache folder (`XDG_CACHE_HOME`, or `~/.cache`). Where none can,
or not the files in it, kernels are compiled in every process and do the same. numba keeps code by the processor's model
and features, so machines of several kinds may share a folder and each finds its own; it reads it with pickle, so that
no other user may write there. `NUMBA_CPU_NAME=generic` makes code for any processor of the architecture. Settings of
numba's are taken from the environment alone: a file in the current folder could name another folder to read code from.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
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
        try:
            return self._made("compiled", cache=True)
        except RuntimeError:  # no folder that a cache could be written to
            return self.uncached

    @functools.cached_property
    def uncached(self) -> Callable[..., Any]:
        """The same, compiled in this process and read and written nowhere."""
        return self._made("uncached")

    def _made(self, way: str, **options: Any) -> Callable[..., Any]:
        numba, function = load_numba(), self._function
        known = dict(function.__globals__)
        for name in function.__code__.co_names:
            if isinstance(known.get(name), _Kernel):
                known[name] = getattr(known[name], way)
        seen = FunctionType(function.__code__, known, function.__name__, function.__defaults__)
        functools.update_wrapper(seen, function)
        del seen.__dict__["__wrapped__"]  # numba would compile that
        # numba names its files so, and knows a change of the module's own source, but not of what it takes from others
        seen.__qualname__ = f"{function.__qualname__}_{self.digest[:16]}"
        return cast(Callable[..., Any], numba.njit(nogil=True, **options, **self._options)(seen))

    @functools.cached_property
    def digest(self) -> str:
        """Digest of what is compiled into it: code, options, the numbers that it names and the kernels it calls."""
        code, known = self._function.__code__, self._function.__globals__
        named = {name: known[name] for name in _names(code) if name in known}
        return hashlib.sha256("\n".join(map(_notes, (code, self._options, named))).encode()).hexdigest()

    def __call__(self, *values: Any) -> Any:
        try:
            return self.compiled(*values)
        except OSError:  # of the cache: a full disk, or another user's files; no kernel has to do with files
            self.__dict__["compiled"] = self.uncached
            return self.uncached(*values)


@functools.cache
def load_numba() -> Any:
    """The package, whose settings are those of the environment."""
    import numba
    from numba.core import config

    config._config_fname = ""  # else `.numba_config.yaml` in the current folder
    config.reload_config()
    return numba


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _notes(value: Any) -> str:
    """A word for what is compiled into a kernel: the same in every process, and another one for another number."""
    if isinstance(value, _Kernel):
        return value.digest
    if isinstance(value, CodeType):
        return _notes((value.co_code, value.co_consts, value.co_names, value.co_varnames))
    if isinstance(value, ModuleType) or callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
    if isinstance(value, dict):
        return _notes({(name, _notes(one)) for name, one in value.items()})
    if isinstance(value, tuple | list | set | frozenset):
        notes = list(map(_notes, value))
        if isinstance(value, set | frozenset):  # in another order in every process
            notes.sort()
        return f"{type(value).__name__}({', '.join(notes)})"
    if hasattr(value, "tobytes"):  # an array, whose repr is shortened
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    return repr(value)


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
