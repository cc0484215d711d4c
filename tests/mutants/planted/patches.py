"""Faults planted on objects: what dpose's functions, methods and constants are exchanged for, and how it is undone.

A path names an object of dpose, "dpose.privacy.entries:Seal.check"; one that leads nowhere is a LookupError. What a
fault needs of dpose it gets by its path, too, when it is planted: nothing of dpose is imported before.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mutants.planted.objects import Except, Make, find, only_within, remade


@dataclass(frozen=True)
class Planted:
    """A fault with a name.

    Attributes:
        plant: Plants it.
        tests: Those that find it, below tests/: "privacy/test_seal.py::test_name", or a whole file.
    """

    name: str
    plant: Callable[[Patches], object]
    tests: tuple[str, ...]


class Patches:
    """Exchanges objects, and puts them back."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._before: list[tuple[Any, str, Any]] = []

    def get(self, path: str) -> Any:
        """An object, as it is now; of a class method, the function."""
        owner, name = self._find(path)
        held = vars(owner)[name]
        return held.__func__ if isinstance(held, classmethod | staticmethod) else held

    def replace(self, path: str, make: Make) -> None:
        """Exchange an object for what `make` makes of it, in all modules that have imported it.

        Of a property, a class method or a static method, `make` gets and gives the function.
        """
        owner, name = self._find(path)
        held = vars(owner)[name]
        new = remade(held, make)
        self._set(owner, name, new)
        if isinstance(owner, ModuleType):
            for module in [m for n, m in sys.modules.items() if n.startswith("dpose")]:
                for other, value in list(vars(module).items()):
                    if value is held and (other == name or callable(held)):
                        self._set(module, other, new)

    def constant(self, path: str, value: object) -> None:
        """Give a constant another value."""
        self.replace(path, lambda _: value)

    def nothing(self, path: str, returned: object = None) -> None:
        """Let a function do nothing."""
        self.replace(path, lambda _: lambda *args, **kw: returned)

    def result(self, path: str, change: Callable[..., Any]) -> None:
        """Change what a function returns: `change` gets that and the function's own arguments."""
        self.replace(path, lambda original: lambda *args, **kw: change(original(*args, **kw), *args, **kw))

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
        if within:
            self._find(f"{module}:{within}")
        first, _, rest = name.partition(".")
        seen = vars(held).get(first, getattr(builtins, first, None))
        old = getattr(seen, rest, None) if rest else seen
        if old is None:
            raise LookupError(f"{module} sees no {name}")
        self.paths.append(f"{module}:{name}")
        new = only_within(old, make(old), within) if within else make(old)
        self._set(held, first, Except(seen, rest, new) if rest else new)

    def undo(self) -> None:
        """Put everything back."""
        while self._before:
            owner, name, value = self._before.pop()
            delattr(owner, name) if value is Except else setattr(owner, name, value)

    def _find(self, path: str) -> tuple[Any, str]:
        self.paths.append(path)
        return find(path)

    def _set(self, owner: Any, name: str, value: object) -> None:
        self._before.append((owner, name, vars(owner).get(name, Except)))
        setattr(owner, name, value)
        if hasattr(type(value), "__set_name__"):
            value.__set_name__(owner, name)
