"""Tables of results on a terminal: as much as fits, unbroken."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from rich.table import Table as Printed

from dpose.experiments.papers.experiment import Table

BESIDE = 3
"""Characters that a column takes besides its text."""
CUT = "…"
"""Stands where a word was cut."""
NAMES = 24
"""Room for a row's name, whose words may be folded."""
FIGURES = 24
"""Longer text is prose, whose words may be folded."""


def print_table(table: Table, console: Console) -> None:
    """Print a table; where words would be cut, only its last columns, which sum up the others.

    Args:
        table: What to print.
        console: Where.
    """
    shown, left = fitting(table, console.width)
    console.print(_drawn(shown))
    if left:
        told = f"left out here, this terminal being narrow; results.md has all: {', '.join(left)}"
        console.print(told, style="dim", highlight=False, markup=False)


def fitting(table: Table, width: int) -> tuple[Table, tuple[str, ...]]:
    """The table as a terminal shows it, and the titles of columns that are left out.

    Args:
        table: The whole.
        width: Of the terminal, characters.
    """
    if not _is_cut(table, width):
        return table, ()
    columns = list(zip(table.head, *table.rows, strict=True))
    room = width - 1 - min(NAMES + BESIDE, _natural(columns[0]))
    first = len(columns) - 1
    while first > 1 and sum(map(_unbroken, columns[first - 1 :])) <= room:
        first -= 1

    def kept(row: tuple[str, ...]) -> tuple[str, ...]:
        return (row[0], *row[first:])

    return replace(table, head=kept(table.head), rows=tuple(map(kept, table.rows))), table.head[1:first]


def _drawn(table: Table) -> Printed:
    printed = Printed(*table.head, title=table.title, title_justify="left")
    for row in table.rows:
        printed.add_row(*row)
    return printed


def _is_cut(table: Table, width: int) -> bool:
    trial = Console(file=StringIO(), width=width)
    with trial.capture() as capture:
        trial.print(_drawn(table))
    return CUT in capture.get()


def _natural(column: tuple[str, ...]) -> int:
    return BESIDE + max(map(len, column))


def _least(column: tuple[str, ...]) -> int:
    return BESIDE + max(len(word) for text in column for word in text.split() or [""])


def _unbroken(column: tuple[str, ...]) -> int:
    natural = _natural(column)
    return natural if natural <= FIGURES + BESIDE else _least(column)
