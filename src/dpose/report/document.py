"""The one writer of reports: a page that is complete in itself, and beside it the same as text and as numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dpose.files import write_atomic
from dpose.privacy.statement import software_versions
from dpose.report.inline import PALETTE, Inline, day, showable
from dpose.report.results import Block, Bullets, Card, Command, Figure, Group, Numbers, Section, Table, Text, Tile

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may load for the page: nothing. No script either, should one ever slip in."""


@dataclass(frozen=True)
class Report:
    """All that a report shows. It knows nothing of what was trained, audited or attacked.

    Attributes:
        title: Of the page.
        kind: What kind of report it is, in a few words.
        source: What it was written from, in words.
        subject: Of what it is, for the window's title; "" where the title says so.
        summary: The title in a sentence.
        panel: The main message, above everything else.
        facts: Names with their values; those without a value are left out.
        notes: What the reader must know before all else.
        tables: What was found.
        figures: Pictures of it.
        sections: All else, in order.
        values: All of it as JSON; None for no such file.
        files: Further files, by name.
        now: The report's date.
    """

    title: str
    kind: str
    source: str
    subject: str = ""
    summary: str = ""
    panel: Group | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()
    values: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def all_sections(self) -> tuple[Section, ...]:
        """The sections that have content; tables and figures have one each, before the others."""
        tables = (Group((replace(table, title=""),), title=table.title) for table in self.tables)
        found = (
            Section("found", "What was found", tuple(tables)),
            Section("figures", "Figures", self.figures),
            *self.sections,
        )
        return tuple(section for section in found if any(map(_is_there, section.blocks)))

    def html(self) -> str:
        """The page: one file that needs no other, holds no script and loads nothing."""
        page: str = _template().render(report=self, policy=POLICY, version=software_versions()["dpose"])
        return page

    def markdown(self) -> str:
        """The same as Markdown, with links to the figures' files."""
        head: list[Block] = [*([self.panel] if self.panel else []), Bullets(self.notes)]
        head += [Bullets([f"{name}: {value}" for name, value in self.facts.items() if value])]
        return _markdown(self.title, head, self.all_sections)

    def write(
        self,
        folder: Path,
        *,
        page: str = "index.html",
        text: str = "results.md",
        data: str = "results.json",
        mode: int = 0o644,
    ) -> list[Path]:
        """Write the page, the text, the values, the figures' files and all further files into `folder`.

        Args:
            folder: Where to.
            page: The page's name.
            text: The Markdown file's; "" for none.
            data: The JSON file's; none is written where there are no values.
            mode: Who may read them.

        Returns:
            The files, those that a reader opens first coming first.

        Raises:
            DposeError: the disk is full or may not be written to.
            ValueError: a value is no number that JSON can hold.
        """
        content: dict[str, str | bytes] = {page: self.html()}
        if text:
            content[text] = self.markdown()
        if self.values is not None:
            content[data] = json.dumps(self.values, indent=1, allow_nan=False) + "\n"
        content |= {f"{f.name}.png": f.png for f in _figures(self.all_sections) if f.name and f.png}
        content |= self.files
        for name, what in content.items():
            write_atomic(folder / name, what, mode=mode)
        return [folder / name for name in content]


def _is_there(block: Block) -> bool:
    return bool(block.items) if isinstance(block, Bullets) else bool(block)


def _figures(sections: Iterable[Section]) -> Iterator[Figure]:
    return _within(block for section in sections for block in section.blocks)


def _within(blocks: Iterable[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Group):
            yield from _within(block.blocks)


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("dpose.report"),
        autoescape=True,  # whatever is no Markup becomes text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: showable(value) if type(value) is str or isinstance(value, Inline) else value,
    )
    environment.globals["palette"] = PALETTE
    environment.filters["day"] = day
    environment.tests["inline"] = lambda value: isinstance(value, Inline)
    return environment.get_template("page.html.j2")


def _markdown(title: str, head: Iterable[Block], sections: Iterable[Section]) -> str:
    """The text of a report: `head` stands above all sections, which have content."""
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
