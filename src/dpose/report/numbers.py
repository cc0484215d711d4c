"""Numbers as the report shows them."""

from __future__ import annotations

from datetime import datetime

from dpose.privacy.rounding import Number, lower, upper

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
