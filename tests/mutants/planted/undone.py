"""Plants every fault in turn and takes it back: what is then not as it was, or never changed, is told.

python tests/mutants/planted/undone.py      # JSON: of each fault by name, what is wrong, "" where nothing is
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mutants.planted.patches import Planted

HERE = Path(__file__).resolve().parent
MODULE = re.compile(r'"(dpose\w*(?:\.\w+)+)[":]')

Owner = ModuleType | type
Bound = dict[Owner, dict[str, int]]


def import_named() -> None:
    """Import all that faults name: what is imported while a fault is there would keep it."""
    named = {name for path in HERE.glob("*.py") for name in MODULE.findall(path.read_text(encoding="utf-8"))}
    for name in sorted(named):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue  # the fault that names it cannot be planted, and is told


def owners() -> list[Owner]:
    """Modules of ours and their classes."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("dpose")]
    held = [(module, value) for module in modules for value in vars(module).values()]
    return [*modules, *{v for m, v in held if isinstance(v, type) and v.__module__ == m.__name__}]


def bound(places: list[Owner]) -> Bound:
    """Which object each name is bound to."""
    return {place: dict(zip(vars(place), map(id, vars(place).values()), strict=True)) for place in places}


def changed(before: Bound) -> list[str]:
    """The names that are bound to something else than before."""
    now = bound(list(before))
    return [
        f"{place.__module__ if isinstance(place, type) else ''}.{place.__name__}.{name}".lstrip(".")
        for place, names in now.items()
        if names != before[place]
        for name in sorted(names.keys() | before[place].keys())
        if names.get(name) != before[place].get(name)
    ]


def wrong_with(fault: Planted, before: Bound) -> str:
    """What is wrong with a fault; "" where nothing is."""
    from mutants.planted.patches import Patches

    patch = Patches()
    told = ""
    try:
        fault.plant(patch)
        told = "" if changed(before) else "changes nothing"
    except Exception as error:
        told = f"cannot be planted: {type(error).__name__}: {error}"
    patch.undo()
    left = changed(before)
    return f"is left behind in {', '.join(left)}" if left else told


def main() -> None:
    """Print what is wrong."""
    from mutants.planted.rooms import planted_faults

    import_named()
    before = bound(owners())
    rooms = planted_faults().values()
    print(json.dumps({fault.name: wrong_with(fault, before) for room in rooms for fault in room}))


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "helpers")]
    main()
