"""Text, and the few words that stand out in it. Anything but `Markup` is escaped on a page."""

from __future__ import annotations

import re
from typing import ClassVar

_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, those that turn the direction of writing, and half characters that no file can hold."""


def showable(text: str) -> str:
    """`text` with U+FFFD for each character that cannot be shown."""
    return _UNSHOWABLE.sub("\ufffd", text)


class Inline(str):
    """Text that a page sets apart; elsewhere it is a `str` like any other."""

    tag: ClassVar[str] = "span"
    style: ClassVar[str] = ""


class Strong(Inline):
    """What counts most."""

    tag = "b"


class Best(Inline):
    """The best of several."""

    tag = "strong"


class Code(Inline):
    """As it is typed."""

    tag = "code"


class Small(Inline):
    """What goes before a large number, or behind it."""

    tag = "small"


class Mark(Inline):
    """A label."""

    style = "mark"


class Warned(Inline):
    """A label that warns."""

    style = "mark warned"
