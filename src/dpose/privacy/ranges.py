"""What epsilon, delta, rates, steps and noise may be: refused in one line where they are something else."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.rounding import as_given, lower, upper

MIN_SIGMA = 0.2
"""Below this the accountants get slow, and one unsampled step alone costs an epsilon above 25."""
MAX_SIGMA = 2.0**16
"""Above this exact noise is not drawn (`dpose.privacy.rounded_gaussian.MOST`, on the grid that clipped sums are on),
and nothing is left to learn."""
MIN_CLIP, MAX_CLIP = 1e-30, 1e30
"""Clipping norms that leave room in a float32 for a gradient's steps on that grid, and for the noise."""
MAX_DIGITS = 400
"""A number in a statement may have this many digits; a longer one is an attack on anyone who reads it."""


def check_epsilon(value: float) -> None:
    """Refuse an epsilon that is not a positive, finite number.

    Raises:
        DposeError: it is not.
    """
    if not (math.isfinite(value) and value > 0):
        raise DposeError("epsilon-not-positive", f"epsilon must be a positive number, not {value}")


def check_delta(value: float, n: int | None = None) -> None:
    """Refuse a delta outside (0, 1), or not below 1/n.

    Raises:
        DposeError: it is.
    """
    if not 0 < value < 1:
        raise DposeError("delta-out-of-range", f"delta must lie between 0 and 1, not {value}")
    if n is not None and value >= 1 / n:
        raise DposeError(
            "delta-above-one-in-n",
            f"delta above 1/n: {as_given(value)} for {n} units would allow publishing one unit whole",
            fix=f"choose a delta well below {lower(1 / n, 2)}",
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
    if not 0 < value <= 1:
        raise DposeError("sampling-rate-out-of-range", f"the sampling rate must lie in (0, 1], not {value}")


def check_steps(value: int) -> None:
    """Refuse a number of steps that is not an integer >= 1.

    Raises:
        DposeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DposeError("steps-not-positive", f"steps must be a whole number of at least 1, not {value!r}")


def check_sigma(value: float) -> None:
    """Refuse a noise multiplier outside [MIN_SIGMA, MAX_SIGMA].

    Raises:
        DposeError: it is.
    """
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
        raise DposeError(
            "fraction-malformed",
            f"must be a decimal or rational number in a string, not {str(text)[:40]!r}",
            where,
        )
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise DposeError("fraction-divides-by-zero", f"divides by zero: {text}", where) from None


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
