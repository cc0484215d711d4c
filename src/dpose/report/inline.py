"""Text, and the few words that stand out in it. Anything but `Markup` is escaped on a page.

Numbers as the report shows them.

The colours of pages and of the charts in them, on light paper and on dark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import ClassVar

from dpose.privacy.ranges import Number, lower, upper

PALETTE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "paper": ("#fbfaf8", "#14171a"),
        "raised": ("#ffffff", "#1b1f23"),
        "ink": ("#1d2329", "#e4e7ea"),
        "soft": ("#59626c", "#a2acb6"),
        "rule": ("#dcdfe1", "#343b42"),
        "grid": ("#e6e8e9", "#2a3036"),
        "base": ("#77818b", "#8f99a3"),
        "accent": ("#1b5e7b", "#86c5e0"),
        "wash": ("#eaf1f4", "#172a34"),
        "ruled-out": ("#dfe9ee", "#1b3542"),
        "warn": ("#97361f", "#f4a78f"),
        "warn-wash": ("#faeee9", "#36201a"),
        "slate": ("#22303c", "#cbd5e1"),
        "orange": ("#c2410c", "#fb923c"),
        "blue": ("#1d4ed8", "#7aa5ff"),
        "teal": ("#0d9488", "#2dd4bf"),
        "violet": ("#7c3aed", "#b79bff"),
        "amber": ("#b45309", "#f5b942"),
        "rose": ("#be185d", "#f783b5"),
        "olive": ("#4d7c0f", "#a3d65c"),
        "green": ("#15803d", "#4ade80"),
    }
)
"""By name: on light and on dark paper. No colour stands for two names: charts are told apart by it."""

LIGHT: Mapping[str, str] = MappingProxyType({name: light for name, (light, _) in PALETTE.items()})
SERIES = ("slate", "orange", "blue", "teal", "violet", "amber", "rose", "olive")
"""For lines that are told apart by colour, in this order."""


MISSING = "–"
MINUS = "\u2212"


def brief(value: float) -> str:
    """Four significant digits of what bounds nothing; thousands apart; 1e-5 and not 1e-05."""
    if value == 0:
        return "0"
    return tidy(f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}")


def at_most(value: Number, digits: int = 4, *, places: int | None = None, times: int = 1) -> str:
    """An upper bound, rounded up: see `rounding.upper`."""
    return tidy(upper(value, digits, places=places, times=times))


def at_least(value: Number, digits: int = 4, *, places: int | None = None, times: int = 1) -> str:
    """A lower bound, rounded down: see `rounding.lower`."""
    return tidy(lower(value, digits, places=places, times=times))


def tidy(number: str) -> str:
    """A number with a true minus sign and without needless zeros in its exponent, which keeps its hyphen."""
    mantissa, e, exponent = number.partition("e")
    return mantissa.replace("-", MINUS) + (f"e{int(exponent)}" if e else "")


def percentage(value: float | None) -> str:
    """A percentage with one decimal."""
    return MISSING if value is None else f"{value:.1f}"


def change(before: float | None, after: float | None) -> str:
    """The difference of two percentages as they are shown, with its sign."""
    if before is None or after is None:
        return MISSING
    difference = round(after, 1) - round(before, 1)
    if abs(difference) < 0.05:
        return "0.0"
    return f"{'+' if difference > 0 else MINUS}{abs(difference):.1f}"


def day(moment: datetime) -> str:
    """As in "3 May 2026"."""
    return f"{moment.day} {moment:%B %Y}"


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


class Mark(Inline):
    """A label."""

    style = "mark"


class Warned(Inline):
    """A label that warns."""

    style = "mark warned"
