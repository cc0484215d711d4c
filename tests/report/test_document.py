"""One writer of reports: complete pages, the same as text and numbers, and text that stays text."""

import html
import json

import numpy as np
import pytest

from dpose.media.images import encode_image
from dpose.report.document import Report
from dpose.report.inline import Mark, Strong, showable
from dpose.report.results import Bullets, Card, Command, Figure, Group, Numbers, Section, Table, Text, Tile
from run_folders import Page

PNG = encode_image(np.zeros((4, 6, 3), np.uint8), ".png")


def full(text):
    """A report in which `text` stands wherever text may stand."""
    figure = Figure("one", (Strong(text), text), png=PNG, alt=text)
    table = Table(text, (text, text), ((Strong(text), Mark(text)), (text, text)))
    blocks = (
        text,
        Text((text, Strong(text), Mark(text)), "lead"),
        Bullets((text,)),
        Card(text, ((text, text),)),
        Command(text),
        Tile(text, (figure.picture,)),
        Group((text, table), "beside", text),
        figure,
    )
    return Report(
        text,
        kind=text,
        source=text,
        subject=text,
        summary=text,
        panel=Group((Numbers(((text, text),), text), text), "panel"),
        facts={text: text},
        notes=(text,),
        tables=(table,),
        figures=(figure,),
        sections=(Section("all", text, blocks),),
        values={"text": text},
    )


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "a&b", "\"quoted\"'twice'", "</title></style><b>", "&lt;b&gt;", "<!--", "{{7*7}}"],
)
def test_text_is_escaped_wherever_it_stands(text):
    report = full(text)
    page = Page(report.html())
    plain = full("PLAIN").html()
    assert page.text.count(html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")) == plain.count(
        "PLAIN"
    )
    if "<" in text:
        assert text not in page.text
    assert page.root.find("body/header/h1").text == text
    assert all(image.get("alt") == text for image in page.root.iter("img"))


def test_what_no_page_can_hold_is_replaced():
    assert showable("a\x00b\x1bc\u202ed\ud800e\tf\ng") == "a\ufffdb\ufffdc\ufffdd\ufffde\tf\ng"
    page = full("a\x00b\u202ec\ud800").html()
    assert "a\ufffdb\ufffdc\ufffd" in page
    assert page.encode()


def test_sections_have_links_and_those_without_content_are_left_out():
    empty = (Section("none", "None", ()), Section("blank", "Blank", ("", Bullets(()))))
    page = Page(Report("t", kind="k", source="s", sections=(*empty, Section("one", "One", ("x",)))).html())
    assert list(page.sections()) == ["one"]
    assert [a.get("href") for a in page.root.iter("a")] == ["#one"]


def test_a_page_asks_for_nothing():
    page = Page(full("x").html())
    (policy,) = (m for m in page.root.iter("meta") if m.get("http-equiv"))
    assert policy.get("content").startswith("default-src 'none'")
    assert {image.get("src")[:5] for image in page.root.iter("img")} == {"data:"}
    assert not list(page.root.iter("script")) + list(page.root.iter("link"))


def test_everything_is_written_and_told_in_order(tmp_path):
    written = full("a|b").write(tmp_path)
    assert [path.name for path in written] == ["index.html", "results.md", "results.json", "one.png"]
    assert (tmp_path / "one.png").read_bytes() == PNG
    assert json.loads((tmp_path / "results.json").read_text()) == {"text": "a|b"}
    text = (tmp_path / "results.md").read_text()
    assert text.startswith("# a|b\n")
    assert "| a\\|b | a\\|b |" in text
    assert "](one.png)" in text
    for heading in ("## What was found", "## Figures", "## a|b"):
        assert heading in text


def test_other_names_and_nothing_that_is_not_there(tmp_path):
    report = Report("t", kind="k", source="s", files={"more.bin": b"1"})
    assert [path.name for path in report.write(tmp_path, page="report.html", text="")] == ["report.html", "more.bin"]


def test_a_value_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        Report("t", kind="k", source="s", values={"x": float("nan")}).write(tmp_path)
    assert not list(tmp_path.iterdir())
