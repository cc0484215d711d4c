"""Faults planted on objects: what dpose's functions, methods and constants are exchanged for, and how it is undone.

A path names an object of dpose, "dpose.privacy.seal:Seal.check"; one that leads nowhere is a LookupError.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

Make = Callable[[Any], Any]


@dataclass(frozen=True)
class Planted:
    """A fault with a name.

    Attributes:
        plant: Plants it.
        tests: Those that find it, below tests/: "privacy/test_seal.py::test_name", or a whole file.
    """

    name: str
    plant: Callable[[Patches], None]
    tests: tuple[str, ...]


class Patches:
    """Exchanges objects, and puts them back."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._before: list[tuple[Any, str, Any]] = []

    def replace(self, path: str, make: Make) -> None:
        """Exchange an object for what `make` makes of it, in all modules that have imported it.

        Of a property, a class method or a static method, `make` gets and gives the function.
        """
        owner, name = self._find(path)
        held = vars(owner)[name]
        new = _remade(held, make)
        self._set(owner, name, new)
        if isinstance(owner, ModuleType):
            for module in [m for n, m in sys.modules.items() if n.startswith("dpose")]:
                for other, value in list(vars(module).items()):
                    if value is held and (other == name or callable(held)):
                        self._set(module, other, new)

    def constant(self, path: str, value: object) -> None:
        """Give a constant another value."""
        self.replace(path, lambda _: value)

    def result(self, path: str, change: Callable[..., Any]) -> None:
        """Change what a function returns: `change` gets that and the function's own arguments."""
        self.replace(path, lambda original: lambda *args, **kw: change(original(*args, **kw), *args, **kw))

    def nothing(self, path: str, returned: object = None) -> None:
        """A function that does nothing."""
        self.replace(path, lambda _: lambda *args, **kw: returned)

    def argument(self, path: str, name: str, change: Make) -> None:
        """Change one argument, given or left out, before a function gets it."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(original)
            if name not in signature.parameters:
                raise LookupError(f"{path} has no argument {name}")

            def called(*args: object, **kw: object) -> object:
                bound = signature.bind(*args, **kw)
                bound.apply_defaults()
                bound.arguments[name] = change(bound.arguments[name])
                return original(*bound.args, **bound.kwargs)

            return called

        self.replace(path, make)

    def seen_by(self, module: str, name: str, make: Make, within: str = "") -> None:
        """Exchange what one module alone sees under a name: its own, a builtin, or "np.max", of another module.

        `within` names the one function, "Class.method", that sees it; then the name must be a function's.
        """
        held = importlib.import_module(module)
        self.paths.append(f"{module}:{within}")
        if within:
            _walk(held, within)
        first, _, rest = name.partition(".")
        seen = getattr(held, first, getattr(builtins, first, None))
        old = getattr(seen, rest, None) if rest else seen
        if old is None:
            raise LookupError(f"{module} sees no {name}")
        new = _only_within(old, make(old), within) if within else make(old)
        self._set(held, first, _Except(seen, rest, new) if rest else new)

    def undo(self) -> None:
        """Put everything back."""
        while self._before:
            owner, name, value = self._before.pop()
            delattr(owner, name) if value is _Except else setattr(owner, name, value)

    def _find(self, path: str) -> tuple[Any, str]:
        self.paths.append(path)
        module, _, name = path.partition(":")
        *outer, last = name.split(".")
        owner = _walk(importlib.import_module(module), ".".join(outer))
        if last not in vars(owner):
            raise LookupError(f"there is no {path}")
        return owner, last

    def _set(self, owner: Any, name: str, value: object) -> None:
        self._before.append((owner, name, vars(owner).get(name, _Except)))
        setattr(owner, name, value)
        if hasattr(type(value), "__set_name__"):
            value.__set_name__(owner, name)


class _Except:
    """Another module, but for one name."""

    def __init__(self, module: object, name: str, value: object) -> None:
        self._module = module
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _walk(owner: Any, names: str) -> Any:
    for name in filter(None, names.split(".")):
        if not hasattr(owner, name):
            raise LookupError(f"there is no {names} in {owner}")
        owner = getattr(owner, name)
    return owner


def _remade(held: Any, make: Make) -> Any:
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


def _only_within(old: Any, new: Any, within: str) -> Any:
    def called(*args: object, **kw: object) -> object:
        caller = sys._getframe(1).f_code.co_qualname.split(".<locals>")[0]
        return (new if caller == within else old)(*args, **kw)

    return called
