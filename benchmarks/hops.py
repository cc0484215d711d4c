"""How many files a setting passes through on its way from the command line to where it acts.

    python benchmarks/hops.py [--source src/dpose] [--also OTHER/src/dpose]

A file is passed if its code mentions the setting by name, can be reached from the command's module by imports, and
reaches the module where the setting acts. Printed beside it: all files whose code mentions it.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1] / "src" / "dpose"
WAYS = {
    "clip_norm": ("cli.train", "training.gradients"),
    "epsilon": ("cli.train", "privacy.accounting"),
    "noise_multiplier": ("cli.train", "privacy.accounting"),
    "microbatch_size": ("cli.train", "training.loader"),
}
"""Where each setting is given and where it acts."""
Graph = Mapping[str, frozenset[str]]


def modules(root: Path) -> dict[str, Path]:
    """Every module below `root` by its name behind "dpose."."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph(files: Mapping[str, Path]) -> Graph:
    """What each module imports of the others, at its head and inside functions."""
    return {name: frozenset(m for m in _imports(path) if m in files) for name, path in files.items()}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpose"):
            module = (node.module or "").removeprefix("dpose").lstrip(".")
            yield module
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"dpose(\.\w+)+", str(node.value)):
            yield str(node.value).removeprefix("dpose.")  # a registry's, imported when it is asked for


def _words(path: Path) -> set[str]:
    """The names in a module's code: of values, arguments, attributes and keys; not in comments or docstrings."""
    kinds = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg", ast.Constant: "value"}
    kinds |= {ast.FunctionDef: "name", ast.alias: "name"}
    nodes = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if type(node) in kinds)
    return {str(getattr(node, kinds[type(node)])) for node in nodes}


def reached(edges: Graph, start: str) -> set[str]:
    """Every module that `start` imports, directly or not, and `start`."""
    found, waiting = {start}, [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def passed(root: Path, name: str) -> tuple[list[str], list[str]]:
    """The modules that a setting passes, and all that mention it."""
    files = modules(root)
    edges = graph(files)
    mention = [module for module, path in files.items() if name in _words(path)]
    start, end = WAYS[name]
    below = reached(edges, start)
    return [m for m in mention if m in below and end in reached(edges, m)], mention


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=ROOT)
    parser.add_argument("--also", type=Path, help="another tree, to stand beside")
    parser.add_argument("--list", action="store_true", help="name the files")
    arguments = parser.parse_args()
    trees = [tree for tree in (arguments.source, arguments.also) if tree]
    table = Table(title="Files that a setting passes, and all that mention it")
    table.add_column("setting")
    for tree in trees:
        table.add_column(f"{tree}: passed", justify="right")
        table.add_column("mention", justify="right")
    console = Console(width=140)
    for name in WAYS:
        counts = [passed(tree, name) for tree in trees]
        table.add_row(name, *(str(len(part)) for pair in counts for part in pair))
        if arguments.list:
            console.print(f"{name}: {', '.join(counts[0][0])}", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
