"""HTML and SVG that are escaped by construction: whatever is not `Html` already becomes text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, those that turn the direction of writing, and half characters that no file can hold."""

_VOID = frozenset({"br", "img", "meta"})


class Html(str):
    """Markup; a plain `str` is text."""


def escaped(text: str) -> Html:
    """`text` as markup that shows exactly it; characters that cannot be shown become U+FFFD."""
    return text if isinstance(text, Html) else Html(html.escape(_UNSHOWABLE.sub("\ufffd", text)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element.

    Args:
        name: Of the element.
        children: Its content: `Html` as it is, anything else escaped.
        attributes: In HTML's spelling, with "_" for "-" and a last "_" dropped (`class_`); None leaves one out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{together(children)}</{name}>")


def together(parts: Iterable[str]) -> Html:
    """The parts one after another, escaped where they are text."""
    return Html("".join(escaped(part) for part in parts))


def paragraphs(*texts: str) -> Html:
    """A `<p>` for each text that is not empty."""
    return together(tag("p", text) for text in texts if text)


def bullets(items: Iterable[str]) -> Html:
    """A list; nothing where there are no items."""
    found = [tag("li", item) for item in items]
    return tag("ul", *found) if found else Html("")


def figure(picture: Html, *caption: str, class_: str | None = None) -> Html:
    """A figure with its caption beneath."""
    return tag("figure", picture, tag("figcaption", *caption), class_=class_)


def scrolling_table(
    caption: str, head: Iterable[str], rows: Iterable[tuple[str, ...]], *, class_: str = "numbers"
) -> Html:
    """A table that scrolls inside its own box where the screen is too narrow.

    Args:
        caption: What it shows.
        head: A title for each column.
        rows: Cells; the first of a row is the row's title.
        class_: For the style sheet.
    """
    columns = tag("tr", *(tag("th", title, scope="col") for title in head))
    body = (
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells))
        for first, *cells in rows
    )
    table = tag("table", tag("caption", caption), tag("thead", columns), tag("tbody", *body), class_=class_)
    # the keyboard must reach what only scrolling shows
    return tag("div", table, class_="scroll", tabindex="0", role="group", aria_label="table")
