"""How an object of dpose is found by its path, and what another is made to look like."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

Make = Callable[[Any], Any]


def find(path: str) -> tuple[Any, str]:
    """The module or class that "dpose.privacy.entries:Seal.check" is in, and its name there.

    Raises:
        LookupError: it is not there.
    """
    module, _, name = path.partition(":")
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise LookupError(f"there is no {path}: {error}") from error
    *outer, last = name.split(".")
    for part in outer:
        owner = vars(owner).get(part)
    if owner is None or last not in vars(owner):
        raise LookupError(f"there is no {path}")
    return owner, last


def remade(held: Any, make: Make) -> Any:
    """What `make` makes of an object, or of the function of a property, a class method or a static method."""
    if isinstance(held, classmethod | staticmethod):
        return type(held)(_dressed(held.__func__, make))
    if isinstance(held, property):
        return property(_dressed(held.fget, make), held.fset, held.fdel, held.__doc__)
    if isinstance(held, functools.cached_property):
        return functools.cached_property(_dressed(held.func, make))
    return _dressed(held, make)


def _dressed(held: Any, make: Make) -> Any:
    new = make(held)
    if isinstance(new, FunctionType) and "<l" in new.__qualname__ and callable(held):
        functools.update_wrapper(new, held)  # as its name: it is pickled, and asked for its signature
    return new


def only_within(old: Any, new: Any, within: str) -> Any:
    """A function that is `new` for one caller, "Class.method", and `old` for all others."""

    def called(*args: object, **kw: object) -> object:
        caller = sys._getframe(1).f_code.co_qualname.split(".<locals>")[0]
        return (new if caller == within else old)(*args, **kw)

    return called


class Except:
    """Another module, but for one name."""

    def __init__(self, module: object, name: str, value: object) -> None:
        self._module = module
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
