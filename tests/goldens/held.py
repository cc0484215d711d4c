"""Values that are kept in files and compared: `hold(file, case, found)`.

python -m pytest tests/goldens                  # compares
GOLDENS=write python -m pytest tests/goldens    # writes, and prints each changed value as old -> new
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

VALUES = Path(__file__).with_name("values")
WRITING = os.environ.get("GOLDENS") == "write"
ABSENT = "(absent)"


def hold(file: str, case: str, found: Any, *, close: float = 0.0, least: float = 0.0, writing: bool = WRITING) -> None:
    """Compare what was found with the kept value of a case, or keep it.

    Args:
        file: Of `values/`, without its suffix.
        case: Name of the value.
        found: Plain JSON values.
        close: The relative difference that numbers may have which are not whole, decimal strings and fractions.
        least: The absolute difference that they may have.
        writing: Whether the value is kept where it differs.

    Raises:
        AssertionError: a value differs; all that do are named, old and new.
    """
    found = json.loads(json.dumps(found))  # tuples become lists, as they stand in the file
    kept = read(file)
    differing = differences(kept.get(case, ABSENT), found, close, least)
    if not differing:
        return
    told = [f"{file}: {case}{path}: {old} -> {new}" for path, old, new in differing]
    if not writing:
        raise AssertionError("\n".join(["a golden value changed (tests/goldens/README.md)", *told]))
    if case in kept:
        print("\n".join(told))
    _write(file, {**kept, case: found})


def hold_cases(file: str, cases: Iterable[str]) -> None:
    """Compare the names of all cases with those in the file: none is lost in silence."""
    kept, cases = read(file), set(cases)
    if not WRITING:
        assert set(kept) == cases
        return
    for case in sorted(set(kept) - cases):
        print(f"{file}: {case}: dropped")
    _write(file, {case: value for case, value in kept.items() if case in cases})


def read(file: str) -> dict[str, Any]:
    """The kept values of a file by case; none where there is no file yet."""
    path = VALUES / f"{file}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _write(file: str, values: dict[str, Any]) -> None:
    VALUES.mkdir(exist_ok=True)
    text = json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False)
    (VALUES / f"{file}.json").write_text(text + "\n", encoding="utf-8")


def differences(old: Any, new: Any, close: float = 0.0, least: float = 0.0) -> list[tuple[str, str, str]]:
    """Paths below which two JSON values differ, with the old and the new text of each.

    >>> differences({"a": [1, 2]}, {"a": [1, 3], "b": None})
    [('.a.1', '2', '3'), ('.b', '(absent)', 'null')]
    """
    before, after = dict(_leaves(old)), dict(_leaves(new))
    return [
        (path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in sorted({*before, *after})
        if not _same(before.get(path, ABSENT), after.get(path, ABSENT), close, least)
    ]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if value == ABSENT:
        return
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in pairs:
            yield from _leaves(each, f"{path}.{name}")
        return
    yield path, json.dumps(value, ensure_ascii=False)


def _same(old: str, new: str, close: float, least: float) -> bool:
    if old == new:
        return True
    if not close and not least:
        return False
    numbers = [_decimal(text) for text in (old, new)]
    if None in numbers:
        return False
    return math.isclose(*numbers, rel_tol=close, abs_tol=least)  # type: ignore[arg-type]


def _decimal(leaf: str) -> float | None:
    """The number that a JSON leaf is, or that its text says; None of whole numbers, which are compared exactly."""
    text = leaf.strip('"')
    if not any(mark in text for mark in ".e/"):
        return None
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return None
