"""What every page is made of: head, sections with their links, foot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from dpose.privacy.statement import software_versions
from dpose.report.markup import Html, paragraphs, tag
from dpose.report.numbers import day
from dpose.report.style import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may load for the page: nothing. No script either, should one ever slip in."""


def document(
    title: str, header: Html, sections: Sequence[tuple[str, str, Html]], now: datetime, source: str
) -> str:
    """A whole page as text.

    Args:
        title: Of the window.
        header: What stands above everything.
        sections: (id, title, content); those without content are left out.
        now: The page's date.
        source: What it was written from, in words.
    """
    shown = [(key, name, content) for key, name, content in sections if content]
    links = [tag("a", name, href=f"#{key}") for key, name, _ in shown]
    body = [
        tag("section", tag("h2", name, id=f"{key}-title"), content, id=key, aria_labelledby=f"{key}-title")
        for key, name, content in shown
    ]
    footer = tag(
        "footer",
        paragraphs(
            f"Written by dpose {software_versions()['dpose']} on {day(now)} from {source}. This file is complete: it "
            "holds no script and loads nothing."
        ),
    )
    page = tag(
        "html",
        head(title),
        tag("body", header, tag("nav", *links, aria_label="Sections"), tag("main", *body), footer),
        lang="en",
    )
    return "<!DOCTYPE html>\n" + page + "\n"


def head(title: str) -> Html:
    """The head of a page that loads nothing."""
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )


def facts(named: Iterable[tuple[str, str]]) -> Html:
    """Names with their values, in a row; those without a value are left out."""
    shown = [tag("div", tag("dt", name), tag("dd", value)) for name, value in named if value]
    return tag("dl", *shown, class_="facts")
