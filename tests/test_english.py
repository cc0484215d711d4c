"""Plain English in source and documentation: words, openings of docstrings and names that readers stumble over.

Docstrings, comments and messages of every module are read, and the pages of the documentation.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

import dpose

ROOT = Path(__file__).parents[1]
SOURCE = Path(dpose.__file__).parents[1]
OPENINGS = ("Of `", "Of the ", "Its ", "Whose ")
"""A docstring that opens so needs the line before it."""
WORDS = re.compile(r"\b(whoever|nobody)\b", re.IGNORECASE)
NAMES = re.compile(r"(told|asked)(_\w*)?")
"""Participles that name a value without saying what it is."""
PROMISES = ("what nobody will ever learn",)
"""Promises to the people in the data, which may say nobody."""


def text_faults(text: str) -> list[str]:
    """Refused words of a text, outside the promises."""
    for promise in PROMISES:
        text = re.sub(r"\s+".join(promise.split()), "", text)
    return [f"says {match[0]!r}" for match in WORDS.finditer(text)]


def opening_faults(text: str) -> list[str]:
    return [f"opens with {opening.strip()!r}" for opening in OPENINGS if text.lstrip().startswith(opening)]


def names_of(node: ast.AST) -> list[str]:
    """Names that a node of a syntax tree introduces or reads."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.keyword(arg=str(name)):
            return [name]
        case ast.alias(name=name, asname=asname):
            return [name, asname or ""]
    return []


def source_faults(source: str) -> list[str]:
    """Every fault of a module, each with its line."""
    tree, faults = ast.parse(source), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            faults += [(node.lineno, fault) for fault in opening_faults(node.value.value)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            faults += [(node.lineno, fault) for fault in text_faults(node.value)]
        faults += [
            (getattr(node, "lineno", 0), f"has the name {name!r}")
            for name in names_of(node)
            if NAMES.fullmatch(name.lstrip("_"))
        ]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            faults += [(token.start[0], fault) for fault in text_faults(token.string)]
    return [f"line {line}: {fault}" for line, fault in sorted(faults)]


def room(path: Path) -> str:
    """The package and the folder in it that a module stands in."""
    package, *inner, _ = path.relative_to(SOURCE).parts
    return f"{package}/{inner[0] if inner else 'top'}"


@cache
def faults() -> dict[str, list[str]]:
    """Faults of every room and page."""
    by_place: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        listed = source_faults(path.read_text(encoding="utf-8"))
        by_place.setdefault(room(path), []).extend(f"{name}, {fault}" for fault in listed)
    pages = [p for p in (ROOT / "docs").rglob("*.md") if "lab" not in p.relative_to(ROOT).parts]
    for path in sorted([*pages, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]):
        name = path.relative_to(ROOT).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        by_place[name] = [f"{name}:{k}: {fault}" for k, line in enumerate(lines, 1) for fault in text_faults(line)]
    return by_place


@pytest.mark.parametrize("place", sorted(faults()))
def test_english_is_plain(place):
    assert not faults()[place], "\n".join(faults()[place])


@pytest.mark.parametrize(
    "source",
    [
        '"""Of `Box`, the sides."""',
        'def f():\n    """Of the two, the larger."""',
        'class Box:\n    """Its sides."""',
        'SIDES = 4\n"""Whose number never changes."""',
        '"""A key for whoever asks."""',
        "x = 1  # Nobody reads it",
        'raise ValueError("nobody is in the data")',
        'print(f"{n} of nobody")',
        "told = 3",
        "def f(asked): ...",
        "def f(*, told_count): ...",
        "async def told(): ...",
        "class Box:\n    asked_at: int",
        "box.told_all = 1",
        "f(asked=1)",
        "from boxes import sides as asked_sides",
        "_told = 3",
    ],
)
def test_a_fault_of_a_module_is_noticed(source):
    assert len(source_faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""Sides of a box; itself closed."""',
        'def f():\n    """Offer a key to the caller."""',
        '"""A release proves what nobody will ever learn about a picture."""',
        "# what\n",
        "foretold = basked = 3",
        'LINE = "as you were told, and asked for"',
    ],
)
def test_plain_english_passes(source):
    assert source_faults(source) == []


def test_a_fault_of_a_page_is_noticed():
    assert text_faults("a key that nobody keeps, whoever asks") == ["says 'nobody'", "says 'whoever'"]
    assert text_faults("prove what nobody will ever learn of it") == []
