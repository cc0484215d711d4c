"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpose.report.results import (
    Block,
    Bullets,
    Card,
    Command,
    Figure,
    Group,
    Numbers,
    Section,
    Table,
    Text,
    Tile,
)


def markdown(title: str, head: Iterable[Block], sections: Iterable[Section]) -> str:
    """The report's text.

    Args:
        title: Of the whole.
        head: What stands above all sections.
        sections: With content.
    """
    lines = [f"# {title}", *_blocks(head, 2)]
    for section in sections:
        lines += ["", f"## {section.title}", *_blocks(section.blocks, 3)]
    return "\n".join(lines) + "\n"


def _blocks(blocks: Iterable[Block], level: int) -> Iterator[str]:
    """Lines; each block begins with an empty one."""
    for block in blocks:
        if isinstance(block, Group):
            if block.title:
                yield from ("", f"{'#' * level} {block.title}")
            yield from _blocks(block.blocks, level + bool(block.title))
        elif lines := list(_lines(block)):
            yield from ("", *lines)


def _lines(block: Block) -> Iterator[str]:
    match block:
        case str():
            yield from [block] if block else []
        case Text(parts):
            yield "".join(parts).strip()
        case Numbers(named, after):
            yield ", ".join(f"{name} {value}" for name, value in named) + (f" {after}" if after else "")
        case Bullets(items):
            yield from (f"* {item}" for item in items)
        case Table():
            yield from [block.title, ""] if block.title else []
            yield from (_row(block.head), _row(("---",) * len(block.head)), *map(_row, block.rows))
        case Figure(name):
            yield f"![{block.words}]({name}.png)" if name else block.words
        case Card(title, rows):
            yield from (f"{title}:", "", *(f"* {name}: {value}" for name, value in rows))
        case Command(line):
            yield f"    {line}"
        case Tile(title):
            yield title


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
