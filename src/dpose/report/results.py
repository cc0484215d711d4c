"""What a report shows: tables, figures, and the small things between them. Values; how they look is the templates'.

A `str` among blocks is a paragraph. Text of every kind may come from anywhere: it is escaped where it is written.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from markupsafe import Markup

from dpose.media.images import decode_image


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        title: What it shows.
        head: A title for each column.
        rows: Cells; the first of a row names it. `report.inline` has cells that stand out.
        style: "numbers", "numbers tight" or "words": of the page.
    """

    kind: ClassVar[str] = "table"
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    style: str = "numbers"


@dataclass(frozen=True)
class Figure:
    """A figure: a drawing for the page, a picture for a file beside it, or both.

    Attributes:
        name: Of its file, without suffix; "" where it stands in the page alone.
        caption: What it shows, in one text or in parts.
        svg: A drawing made by `report.plots`.
        png: A picture; on the page where there is no drawing.
        alt: What a reader who cannot see it should know; the caption where empty. A drawing says so itself.
    """

    kind: ClassVar[str] = "figure"
    name: str
    caption: str | tuple[str, ...]
    svg: Markup = field(default=Markup(), repr=False)
    png: bytes = field(default=b"", repr=False)
    alt: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The caption's."""
        return (self.caption,) if isinstance(self.caption, str) else self.caption

    @property
    def words(self) -> str:
        """The caption as one text."""
        return "".join(self.parts)

    @property
    def picture(self) -> PictureBlock:
        """The picture, as a page shows it."""
        height, width = decode_image(self.png, self.name).shape[:2]
        return PictureBlock(self.png, "png", (width, height), self.alt or self.words)


@dataclass(frozen=True)
class PictureBlock:
    """A picture within the page.

    Attributes:
        content: The file's.
        format: "png" or "jpeg".
        size: (width, height), pixels.
        alt: What a reader who cannot see it should know.
    """

    content: bytes = field(repr=False)
    format: str
    size: tuple[int, int]
    alt: str

    @property
    def uri(self) -> str:
        """The content, for an `src`."""
        return f"data:image/{self.format};base64,{base64.b64encode(self.content).decode('ascii')}"


@dataclass(frozen=True)
class Tile:
    """Pictures side by side under one title."""

    kind: ClassVar[str] = "tile"
    title: str
    pictures: tuple[PictureBlock, ...]


@dataclass(frozen=True)
class Text:
    """A paragraph of parts, some of which stand out.

    Attributes:
        parts: One after another; of `report.inline` or plain.
        style: "", "lead", "source", "note", "fact" or "eyebrow", as the style sheet has them.
    """

    kind: ClassVar[str] = "text"
    parts: tuple[str, ...]
    style: str = ""


@dataclass(frozen=True)
class Numbers:
    """The numbers that count, in large letters.

    Attributes:
        named: Each with its name before it.
        after: What limits them.
    """

    kind: ClassVar[str] = "numbers"
    named: tuple[tuple[str, str], ...]
    after: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of lines; nothing where there are none."""

    kind: ClassVar[str] = "bullets"
    items: Sequence[str]


@dataclass(frozen=True)
class Card:
    """Names with their values, under a title."""

    kind: ClassVar[str] = "card"
    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Command:
    """A command line to copy."""

    kind: ClassVar[str] = "command"
    line: str

    @property
    def words(self) -> list[str]:
        """A browser may break the line between them and nowhere else: it would part an option from its dashes."""
        return self.line.split(" ")


@dataclass(frozen=True)
class Group:
    """Blocks that belong together.

    Attributes:
        blocks: What is in it.
        style: "charts", "beside", "cards", "tables", "tiles", "terms", "side", "wide", "panel ..." or "".
        title: Above it.
    """

    kind: ClassVar[str] = "group"
    blocks: tuple[Block, ...]
    style: str = ""
    title: str = ""


Block = str | Text | Numbers | Bullets | Table | Figure | Tile | Card | Command | Group


@dataclass(frozen=True)
class Section:
    """A part of a page with its link; left out where it has no content.

    Attributes:
        key: Its anchor.
        title: Its heading.
        blocks: Its content.
    """

    key: str
    title: str
    blocks: tuple[Block, ...]


def cards(title: str, values: Mapping[str, str]) -> Card:
    """A card of a mapping."""
    return Card(title, tuple(values.items()))
