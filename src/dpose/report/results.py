"""Tables and figures, whoever made them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpose.media.images import decode_image
from dpose.report.markup import Html, figure, tag


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        title: What it shows.
        head: A title for each column.
        rows: Cells; the first of a row names it.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        name: Of its file, without suffix.
        png: Its content.
        caption: What it shows.
    """

    name: str
    png: bytes = field(repr=False)
    caption: str


def markdown_table(table: Table) -> list[str]:
    """A table with its title, as lines of Markdown."""
    head = ["", f"## {table.title}", "", _row(table.head), _row(("---",) * len(table.head))]
    return [*head, *(_row(row) for row in table.rows)]


def drawing_html(drawing: Drawing) -> Html:
    """A figure with its caption, the picture within the page."""
    height, width = decode_image(drawing.png, drawing.name).shape[:2]
    uri = "data:image/png;base64," + base64.b64encode(drawing.png).decode("ascii")
    # as large as the column lets it be: figures are drawn at twice a screen's resolution
    style = "max-width:100%;height:auto"
    image = tag("img", src=uri, alt=drawing.caption, width=width, height=height, style=style)
    return figure(image, drawing.caption)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
