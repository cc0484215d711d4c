"""Text stays text, whatever is in it."""

import pytest

from dpose.report.markup import Html, bullets, escaped, paragraphs, scrolling_table, tag, together


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "a & b", "\"quoted\" 'twice'", "</title><b>", "&lt;b&gt;", "<!--"],
)
def test_text_is_escaped_wherever_it_stands(text):
    import html

    safe = html.escape(text)
    assert tag("p", text) == f"<p>{safe}</p>"
    assert tag("p", title=text) == f'<p title="{safe}"></p>'
    assert together([text]) == safe
    assert paragraphs(text) == f"<p>{safe}</p>"
    assert bullets([text]) == f"<ul><li>{safe}</li></ul>"
    table = scrolling_table(text, [text], [(text, text)])
    assert table.count(safe) == 4
    assert text not in table or text == safe


def test_markup_is_not_escaped_twice():
    assert tag("p", tag("b", "a & b")) == "<p><b>a &amp; b</b></p>"
    assert escaped(Html("<br>")) == "<br>"


def test_what_no_page_can_hold_is_replaced():
    shown = escaped("a\x00b\x1bc\u202ed\ud800e\tf\ng")
    assert shown == "a\ufffdb\ufffdc\ufffdd\ufffde\tf\ng"
    assert shown.encode()


def test_attributes_and_empty_elements():
    assert tag("img", alt="", src="x") == '<img alt="" src="x">'
    assert tag("td", class_="a", aria_label="b", colspan=None) == '<td class="a" aria-label="b"></td>'
    assert paragraphs("", "a") == "<p>a</p>"
    assert bullets([]) == ""
