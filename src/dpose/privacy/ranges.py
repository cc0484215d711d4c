"""What epsilon, delta, rates, steps and noise may be: refused in one line where they are something else.

How a number that bounds something is written: never better than it is.

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
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, SupportsFloat

from dpose.errors import DposeError

Number = SupportsFloat | Rational

UNITS = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
"""Seconds of a unit of time."""
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


MIN_SIGMA = 0.2
"""Below this the accountants get slow, and one unsampled step alone costs an epsilon above 25."""
MAX_SIGMA = 2.0**16
"""Above this exact noise is not drawn (`dpose.privacy.gaussian_noise.MOST`, on the grid that clipped sums are on),
and nothing is left to learn."""
MIN_CLIP, MAX_CLIP = 1e-30, 1e30
"""Clipping norms that leave room in a float32 for a gradient's steps on that grid, and for the noise."""
MIN_DELTA = 1e-300
"""Below this 1 / delta is no float64."""
MOST_DELTA = 0.1
"""The largest delta of what is released."""
MAX_DIGITS = 400
"""A number in a statement may have this many digits; a longer one is an attack on anyone who reads it."""


def plain_number(value: Any, name: str, whole: bool = False) -> Any:
    """A number as it is, but one of NumPy's as Python's own, of the same value.

    Raises:
        DposeError: it is no number, such as text; or, where it must be `whole`, another one than an integer.
    """
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise DposeError("setting-not-number", f"{name} must be a number, not {value!r:.40}")
    if whole and not isinstance(value, Integral):
        raise DposeError("setting-not-whole", f"{name} must be a whole number, not {value!r:.40}")
    return value.item() if hasattr(value, "item") else value


def check_epsilon(value: float) -> None:
    """Refuse an epsilon that is not a positive, finite number.

    Raises:
        DposeError: it is not.
    """
    plain_number(value, "epsilon")
    if not (math.isfinite(value) and value > 0):
        raise DposeError("epsilon-not-positive", f"epsilon must be a positive number, not {value}")


def check_delta(value: float, n: int | None = None) -> None:
    """Refuse a delta outside (0, 1), below `MIN_DELTA`, or not below 1/n.

    Raises:
        DposeError: it is.
    """
    plain_number(value, "delta")
    if not 0 < value < 1:
        raise DposeError(
            "delta-out-of-range",
            f"delta must be above 0 and below 1, not {as_given(value)}",
            fix="give --delta 1e-5, say",
        )
    if value < MIN_DELTA:
        raise DposeError(
            "delta-too-small",
            f"delta {as_given(value)} is below {as_given(MIN_DELTA)}, the least that is computed with",
            fix="give --delta 1e-5, say",
        )
    if n is not None and value >= 1 / n:
        raise DposeError(
            "delta-above-one-in-n",
            f"delta above 1/n: {as_given(value)} for {n} units would allow publishing one unit whole",
            fix=f"choose a delta well below {lower(1 / n, 2)}",
        )


def check_released_delta(value: float, of: str) -> None:
    """Refuse a delta of what is released that is no delta, or above `MOST_DELTA`; `of` names one of those protected.

    Raises:
        DposeError: it is.
    """
    check_delta(value)
    if value > MOST_DELTA:
        raise DposeError(
            "delta-of-release-large",
            f"with delta {as_given(value)} the guarantee may fail for one {of} in {max(1, int(1 / value)):,}",
            "delta",
            "give 1e-5 or less",
        )


def few_units(count: int) -> str | None:
    """A warning about a private run on `count` units; None if there are enough.

    The noise is as large as one unit's share must be hidden, whatever their number: what many units agree on stands out
    from it, what a few agree on does not.
    """
    if count >= 500:
        return None
    units = "1 unit is" if count == 1 else f"{count:,} units are"
    return (
        f"Warning: {units} few: the noise that hides any one of them hides most of what they all teach. Expect a model "
        "hardly better than the weights it starts from, and take its scores on so few units as chance. Thousands are "
        "usual."
    )


def large_delta(value: float | None, n: int | None) -> str | None:
    """A warning about a delta above 1 / (10 n), in one line; None if it is below, or one of the two is not known."""
    if not value or not n or value <= 1 / (10 * n):
        return None
    return (
        f"Warning: delta {as_given(value)} is above 1/(10 n), {lower(1 / (10 * n), 2)} for {n:,} units: what publishes "
        f"each unit whole with that probability keeps the claim, and shows {upper(value * n, 2)} of them on average. "
        "Choose a delta far below 1/n."
    )


def check_rate(value: float) -> None:
    """Refuse a sampling rate outside (0, 1].

    Raises:
        DposeError: it is.
    """
    plain_number(value, "the sampling rate")
    if not 0 < value <= 1:
        raise DposeError("sampling-rate-out-of-range", f"the sampling rate must lie in (0, 1], not {value}")


def check_steps(value: int) -> None:
    """Refuse a number of steps that is not an integer from 1 to 2^53.

    Raises:
        DposeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= value < 1 << 53:
        raise DposeError("steps-not-positive", f"steps must be a whole number from 1 to 2^53, not {value!r:.40}")


def check_sigma(value: float) -> None:
    """Refuse a noise multiplier outside [MIN_SIGMA, MAX_SIGMA].

    Raises:
        DposeError: it is.
    """
    plain_number(value, "the noise multiplier")
    if not MIN_SIGMA <= value <= MAX_SIGMA:
        raise DposeError(
            "noise-out-of-range",
            f"the noise multiplier must lie between {as_given(MIN_SIGMA)} and {as_given(MAX_SIGMA)}, not {value}",
            fix="a smaller one gives no useful protection, a larger one leaves nothing to learn",
        )


def parse_decimal(text: Any, where: str) -> float:
    """The number that a decimal string names.

    Raises:
        DposeError: `text` is not a finite decimal number in a string.
    """
    if not isinstance(text, str) or not re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text):
        raise DposeError("decimal-malformed", f"must be a decimal number in a string, not {text!r}", where)
    value = float(text)
    if not math.isfinite(value):
        raise DposeError("number-too-large", f"is too large: {text}", where)
    return value


def parse_exact(text: Any, where: str) -> Fraction:
    """The fraction that a decimal ("0.5", "1e-3") or rational ("4080/7") string names.

    Raises:
        DposeError: it is no such string, or too long.
    """
    pattern = r"-?\d+(/\d+|(\.\d+)?([eE][+-]?\d{1,3})?)"
    if not isinstance(text, str) or len(text) > MAX_DIGITS or not re.fullmatch(pattern, text):
        such = "a number such as 2, 0.5 or 1/3" if isinstance(text, str) else "a number in a string"
        raise DposeError("fraction-malformed", f"must be {such}, not {str(text)[:40]!r}", where)
    try:
        float(found := Fraction(text))
    except ZeroDivisionError:
        raise DposeError("fraction-divides-by-zero", f"divides by zero: {text}", where) from None
    except OverflowError:
        raise DposeError(
            "fraction-too-large", f"is larger than any number that is computed with: {text}", where
        ) from None
    return found


def parse_duration(text: str, where: str) -> Fraction:
    """The seconds that "30s", "20min", "1h", "1day" or a number of seconds names; 0 for "".

    Raises:
        DposeError: it names none.
    """
    found = re.fullmatch(r"([0-9./]+) ?(s|min|h|day)?", text.strip() or "0")
    if found is None:
        raise DposeError("duration-malformed", f"{text[:40]!r} is no duration", where, "say 30s or 20min")
    return parse_exact(found[1], where) * UNITS[found[2] or "s"]


def parse_whole(value: Any, where: str, most: int = 10**6) -> int:
    """The whole number from 1 to `most` that a number or its digits are.

    Raises:
        DposeError: they are none.
    """
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", str(value)) or not 1 <= int(value) <= most:
        raise DposeError("count-not-whole", f"must be a whole number from 1 to {most:,}, not {str(value)[:30]}", where)
    return int(value)


def exact_text(value: Fraction) -> str:
    """The shortest string that `parse_exact` reads back: decimal where the fraction is one, else rational.

    >>> exact_text(Fraction(1, 8)), exact_text(Fraction(4080, 7)), parse_exact("1e-3", "epsilon")
    ('0.125', '4080/7', Fraction(1, 1000))
    """
    value = Fraction(value)
    bottom, twos, fives = value.denominator, 0, 0
    while bottom % 2 == 0:
        bottom, twos = bottom // 2, twos + 1
    while bottom % 5 == 0:
        bottom, fives = bottom // 5, fives + 1
    places = max(twos, fives)
    if bottom != 1 or places > 30:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def most_frames(times: Sequence[Fraction], seconds: Fraction) -> int:
    """The most frames that lie within so many seconds of each other; floor(seconds * rate) + 1 at a constant rate.

    Args:
        times: When each is shown, in order.
        seconds: At least 0.
    """
    most = first = 0
    for last, time in enumerate(times):
        while time - times[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
