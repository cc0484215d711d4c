"""Tables of results on a terminal: as much as fits, no figure broken and no word lost."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console, OverflowMethod
from rich.table import Table as Printed

from dpose.report.results import Table

BESIDE = 3
"""Characters that a column takes besides its text."""
CUT = "…"
"""Stands where a word was cut."""
NAMES = 24
"""Room for a row's name, whose words may be folded."""
FIGURES = 24
"""Longer text is prose, which may be folded, as a word may."""


def print_table(table: Table, console: Console) -> None:
    """Print a table; of figures that would be broken only the last columns, which sum up the others.

    Args:
        table: What to print.
        console: Where.
    """
    shown, left = fitting(table, console.width)
    console.print(_drawn(shown))
    if left:
        omitted = f"left out here, this terminal being narrow; results.md has all: {', '.join(left)}"
        console.print(omitted, style="dim", highlight=False, markup=False)


def fitting(table: Table, width: int) -> tuple[Table, tuple[str, ...]]:
    """The table as a terminal shows it, and the titles of columns that are left out.

    Args:
        table: The whole; one with prose is never cut down.
        width: Of the terminal, characters.
    """
    if not all(_is_figure(text) for row in table.rows for text in row[1:]) or not _is_cut(table, width):
        return table, ()
    columns = zip(table.head, *table.rows, strict=True)
    names, *figures = (BESIDE + max(map(len, column)) for column in columns)
    room = width - 1 - min(NAMES + BESIDE, names)
    first = len(figures)
    while first > 1 and sum(figures[first - 2 :]) <= room:
        first -= 1

    def kept(row: tuple[str, ...]) -> tuple[str, ...]:
        return (row[0], *row[first:])

    return replace(table, head=kept(table.head), rows=tuple(map(kept, table.rows))), table.head[1:first]


def _is_figure(text: str) -> bool:
    bare = text.replace("not run", "")
    return len(text) <= FIGURES and (any(map(str.isdigit, bare)) or not any(map(str.isalpha, bare)))


def _drawn(table: Table, overflow: OverflowMethod = "fold") -> Printed:
    printed = Printed(title=table.title, title_justify="left")
    for title in table.head:
        printed.add_column(title, overflow=overflow)
    for row in table.rows:
        printed.add_row(*row)
    return printed


def _is_cut(table: Table, width: int) -> bool:
    trial = Console(file=StringIO(), width=width)
    with trial.capture() as capture:
        trial.print(_drawn(table, "ellipsis"))
    return CUT in capture.get()
