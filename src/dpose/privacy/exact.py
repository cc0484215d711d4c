"""Exact numbers as text, and what zero-concentrated differential privacy means as an epsilon.

exact_text(Fraction(4080, 7)), parse_exact("1e-3", "epsilon")
zcdp_epsilon(Fraction(1, 50), delta=1e-5)
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.ranges import check_delta
from dpose.privacy.rounding import as_given

MAX_DIGITS = 400
"""A number in a statement may have this many digits; a longer one is an attack on whoever reads it."""


def zcdp_epsilon(rho: Fraction | float, delta: float) -> float:
    """The epsilon that rho-zCDP implies at `delta`.

    For every order a > 1: epsilon = a rho + log(1 - 1/a) - (log(delta) + log(a)) / (a - 1) (Canonne, Kamath and
    Steinke 2020, Proposition 12). Any order gives a valid bound; this takes the best, found by golden section
    search on log(a - 1).

    Args:
        rho: >= 0.
        delta: In (0, 1).

    Raises:
        DposeError: delta is out of range.
    """
    check_delta(delta)
    cost = float(rho)
    if cost == 0:
        return 0.0
    if not math.isfinite(cost):
        return math.inf

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        bound = order * cost + math.log(excess) - math.log(order)
        return bound - (math.log(delta) + math.log(order)) / excess

    return max(0.0, at(_lowest(at, -30.0, 60.0)))


@lru_cache(maxsize=64)
def zcdp_budget(epsilon: float, delta: float) -> float:
    """The largest rho whose `zcdp_epsilon` at `delta` is at most `epsilon`, to twelve digits and never above.

    Raises:
        DposeError: no rho is small enough.
    """
    low, high = 0.0, max(1.0, epsilon)
    while zcdp_epsilon(high, delta) < epsilon:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
        if high < 1e-30:
            raise DposeError(
                "epsilon-unreachable",
                f"no noise meets epsilon {as_given(epsilon)} at delta {as_given(delta)}",
                fix="choose a larger epsilon",
            )
    return low


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


def _lowest(function: Any, left: float, right: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    a, b = right - ratio * (right - left), left + ratio * (right - left)
    at_a, at_b = function(a), function(b)
    for _ in range(120):
        if at_a < at_b:
            right, b, at_b = b, a, at_a
            a = right - ratio * (right - left)
            at_a = function(a)
        else:
            left, a, at_a = a, b, at_b
            b = left + ratio * (right - left)
            at_b = function(b)
    return (left + right) / 2
