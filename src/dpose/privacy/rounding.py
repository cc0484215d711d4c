"""How a number that bounds something is written: never better than it is.

    f"epsilon {upper(7.9954)}"                 # 7.996: a cost is rounded up
    f"sigma {lower(1.23456)}"                  # 1.234: noise, and what an audit showed, is rounded down
    f"a budget of {as_given(0.8)}"             # 0.8: what somebody typed keeps all its digits

Rounded to nearest, every second epsilon reads smaller than what was spent, and every second lower bound larger than
what was shown. Nothing else in dpose formats an epsilon, a delta, a noise multiplier, an attacker's bound or an
audit's; `tests/privacy/test_rounding.py` reads the source for it.

**Guarantee.** `upper(x)` read back is at least x, and `lower(x)` at most x: exactly for fractions and whole numbers;
for floats in the sense of floats, so that the float 0.8, which is a little more than 8/10, is written 0.8 and not
0.8001.
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Rational
from typing import SupportsFloat

Number = SupportsFloat | Rational

_PLAIN = (Fraction(1, 10_000), Fraction(10) ** 15)
"""What lies outside is written with an exponent."""


def upper(value: Number, digits: int = 4, *, places: int | None = None, times: int = 1) -> str:
    """An upper bound (epsilon, delta, what an attacker can reach at most) as text, rounded up.

    >>> upper(7.99511), upper(1 / 3, places=2), upper(1 / 3, places=1, times=100)
    ('7.996', '0.34', '33.4')

    Args:
        value: The number; a fraction is taken exactly.
        digits: Significant digits, at least 1. Digits before the point are never dropped below 10^15.
        places: Digits after the point instead, all of them written.
        times: The text is of this many times the number, multiplied before it is rounded: 100 for per cent.

    Returns:
        As in "7.996", "50,000", "1e-05", "inf".
    """
    return _written(value, digits, places, times, up=True)


def lower(value: Number, digits: int = 4, *, places: int | None = None, times: int = 1) -> str:
    """A lower bound (what an audit showed, an attacker's error, the noise that was added) as text, rounded down.

    >>> lower(7.99599), lower(2 / 3, places=2)
    ('7.995', '0.66')

    Args:
        value: The number; a fraction is taken exactly.
        digits: Significant digits, at least 1. Digits before the point are never dropped below 10^15.
        places: Digits after the point instead, all of them written.
        times: The text is of this many times the number, multiplied before it is rounded: 100 for per cent.
    """
    return _written(value, digits, places, times, up=False)


def between(low: Number, high: Number, *, places: int, times: int = 1) -> str:
    """An interval that holds all of (low, high): as in "12.3 to 45.7"."""
    return f"{lower(low, places=places, times=times)} to {upper(high, places=places, times=times)}"


def not_below(value: float | Fraction) -> float:
    """The least float that is not below `value`."""
    found = float(value)
    return math.nextafter(found, math.inf) if found < value else found


def as_given(value: Number) -> str:
    """All digits of what somebody typed or a constant is: 8.0 as "8", 0.85 as "0.85", never rounded."""
    return repr(float(value)).removesuffix(".0")


def _written(value: Number, digits: int, places: int | None, times: int, *, up: bool) -> str:
    if not isinstance(value, Rational):
        value = float(value)
        if not math.isfinite(value):
            return f"{value * times}"
    # the shortest text that gives the float back stands for it: what is above that text is above the float
    exact = times * (Fraction(value) if isinstance(value, Rational) else Fraction(repr(value)))
    if places is None and not exact:
        return "0"
    last = -places if places is not None else _magnitude(exact) - max(digits, 1) + 1
    if places is None and abs(exact) < _PLAIN[1]:
        last = min(last, 0)
    scaled = exact / Fraction(10) ** last
    count = math.ceil(scaled) if up else math.floor(scaled)
    sign, figures = "-" if count < 0 else "", str(abs(count))
    if places is None and not _PLAIN[0] <= abs(exact) < _PLAIN[1]:
        return sign + _with_exponent(figures, last)
    return sign + _plain(figures, last, keep=places is not None)


def _magnitude(value: Fraction) -> int:
    """The power of ten of the first digit of `value`, which is not zero."""
    guess = len(str(abs(value.numerator))) - len(str(value.denominator))
    return guess if Fraction(10) ** guess <= abs(value) else guess - 1


def _plain(figures: str, last: int, *, keep: bool) -> str:
    """`figures`, the last of them worth 10^last, with thousands apart; needless zeros only where they are kept."""
    if last >= 0:
        return f"{int(figures + '0' * last):,}"
    figures = figures.rjust(1 - last, "0")
    whole, rest = f"{int(figures[:last]):,}", figures[last:]
    rest = rest if keep else rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def _with_exponent(figures: str, last: int) -> str:
    if not int(figures):
        return "0"
    rest = figures[1:].rstrip("0")
    return f"{figures[0]}{'.' if rest else ''}{rest}e{last + len(figures) - 1:+03d}"
