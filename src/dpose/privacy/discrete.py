"""Exact discrete Laplace and discrete Gaussian noise: whole numbers from a cryptographic stream, many at a time.

    noise = discrete_laplace(Fraction(255 * 16, 2), 8160, stream)

No floating-point number occurs between the stream's bits and the noise. Floating-point Laplace noise leaks
through its low bits (Mironov 2012): many sums could not have come from the neighbouring data at all. Here every
integer has exactly the probability that the proof gives it, as far as the stream's bits are uniform. The
arithmetic is proved in docs/proofs/pixelization.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.coins import Coins, decay, draw_words, logistic, toss_alike
from dpose.privacy.noise import Stream

Integers = NDArray[np.int64]

MAX_SCALE = 1 << 48
"""Larger scales are refused: the sums of 64-bit integers behind the noise could overflow."""
AT_ONCE = 1 << 14
"""Samples drawn at a time, so that the words in work stay in the processor's cache."""
TAIL = 64
"""The binary digits of a geometric variable are tossed up to this many scales; e^-64 is left to a loop."""
RADIX = 16


def discrete_laplace(scale: Fraction, count: int, stream: Stream) -> Integers:
    """Independent integers X with P(X = x) proportional to e^(-|x| / scale).

    The sign is one toss of a coin with odds e^(-1/scale); heads gives -1 - G, tails G, where G is geometric,
    P(G = g) proportional to e^(-g / scale). The binary digits of a geometric variable are independent, digit i
    being 1 with odds e^(-2^i / scale), so each is one toss. What lies beyond the highest digit tossed is again
    geometric and is counted in a loop that almost never runs. There is no rejection, so the time taken does not
    tell the magnitude of what was drawn (but for about one toss in 65,536, which needs a second word).

    Args:
        scale: > 0, at most `MAX_SCALE`.
        count: How many, >= 0.
        stream: A stream that nothing else draws from.

    Returns:
        int64, (count,).

    Raises:
        ValueError: the scale is out of range.
    """
    if not 0 < scale <= MAX_SCALE:
        raise ValueError(f"a scale must lie between 0 and 2^48, not {scale}")
    out = np.empty(count, np.int64)
    for start in range(0, count, AT_ONCE):
        part = out[start : start + AT_ONCE]
        part[:] = _laplace(scale, len(part), stream)
    return out


def _laplace(scale: Fraction, count: int, stream: Stream) -> Integers:
    digits, ends = _laplace_coins(scale)
    levels = len(digits.coins)
    words = draw_words((levels + 2) * count, stream).reshape(levels + 2, count)
    value = digits.settle_bits(words[:levels], stream)
    more, negative = ends.settle_rows(words[levels:], stream)
    left, beyond = np.flatnonzero(more), ends.coins[0]
    while left.size:
        value[left] += 1 << levels
        if value[left].max() >= 1 << 62:
            raise OverflowError("a draw beyond 64 bits; its probability is below e^-1000")
        left = left[toss_alike(beyond, left.size, stream)]
    # x or -1 - x: the latter is what inverting all bits gives
    value ^= -negative.astype(np.int64)
    return value


@lru_cache(maxsize=256)
def _laplace_coins(scale: Fraction) -> tuple[Coins, Coins]:
    """The coins of the digits; and those of what lies beyond the digits, and of the sign."""
    levels = max(0, math.ceil(TAIL * scale) - 1).bit_length()
    digits = [logistic(Fraction(1 << level) / scale) for level in range(levels)]
    return Coins.of(digits), Coins.of([decay(Fraction(1 << levels) / scale), logistic(Fraction(1) / scale)])


def discrete_gaussian(variance: Fraction, count: int, stream: Stream) -> Integers:
    """Independent integers X with P(X = x) proportional to e^(-x^2 / (2 variance)).

    Rejection from discrete Laplace noise of scale t (Canonne, Kamath and Steinke 2020, Algorithm 3): Y is kept
    with probability e^-(|Y| - variance/t)^2 / (2 variance). That exponent is a whole number N over a constant
    M, and e^(-N/M) is the product of e^(-d 16^j / M) over the hexadecimal digits d of N: one toss a digit, each
    of a coin whose probability is known beforehand.

    Args:
        variance: sigma^2, > 0. A sigma that is a whole number is fastest.
        count: How many, >= 0.
        stream: A stream that nothing else draws from.

    Returns:
        int64, (count,). `variance` is the parameter of the distribution; its own variance is slightly smaller.

    Raises:
        ValueError: the variance is out of range.
    """
    if not 0 < variance <= MAX_SCALE**2:
        raise ValueError(f"a variance must lie between 0 and 2^96, not {variance}")
    rule = _acceptance(variance)

    def draw(wanted: int) -> Integers:
        proposed = _laplace(rule.scale, wanted, stream)
        return proposed[_accepted(rule, proposed, stream)]

    return draw_until(count, lambda left: left * 3 // 2 + 16, draw)


def draw_until(count: int, wanted: Callable[[int], int], draw: Callable[[int], Integers]) -> Integers:
    """`count` draws by rejection.

    Args:
        count: How many, >= 0.
        wanted: How many to propose for so many that are missing; at most `AT_ONCE` are proposed at a time.
        draw: Proposes so many and returns those that are kept.

    Returns:
        int64, (count,), in the order in which they were kept.
    """
    out = np.empty(count, np.int64)
    done = 0
    while done < count:
        kept = draw(min(AT_ONCE, wanted(count - done)))[: count - done]
        out[done : done + len(kept)] = kept
        done += len(kept)
    return out


@dataclass(frozen=True)
class _Acceptance:
    """Keep Y with probability exp(-(|Y| slope - shift)^2 / divisor)."""

    scale: Fraction
    slope: int
    shift: int
    divisor: int


@lru_cache(maxsize=64)
def _acceptance(variance: Fraction) -> _Acceptance:
    top, bottom = variance.numerator, variance.denominator
    root = math.isqrt(top // bottom)
    t = root if variance == root * root else root + 1
    common = math.gcd(bottom * t, top)
    slope, shift = bottom * t // common, top // common
    return _Acceptance(Fraction(t), slope, shift, 2 * shift * slope * t)


def _accepted(rule: _Acceptance, proposed: Integers, stream: Stream) -> NDArray[np.bool_]:
    size = np.abs(proposed)
    largest = max(int(size.max(initial=0)) * rule.slope, rule.shift)
    # beyond 31 bits the square leaves 64; Python's integers are slower and never overflow
    wide = largest >= 1 << 31
    away = (size.astype(object) if wide else size) * rule.slope - rule.shift
    exponent = away * away
    alive = np.arange(len(proposed))
    place = (int(exponent.max(initial=0)).bit_length() + 3) // 4
    while place > 0 and alive.size:
        place -= 1
        digit = ((exponent[alive] >> (4 * place)) & (RADIX - 1)).astype(np.int64)
        # digit 0 needs no coin; its word is drawn all the same and falls on the last one, unheeded
        heads = _decays(rule.divisor, place).settle_each(draw_words(alive.size, stream), digit - 1, stream)
        alive = alive[heads | (digit == 0)]
    accepted = np.zeros(len(proposed), np.bool_)
    accepted[alive] = True
    return accepted


@lru_cache(maxsize=1024)
def _decays(divisor: int, place: int) -> Coins:
    """The coins of digits 1 to 15 at a place of the exponent."""
    return Coins.of([decay(Fraction(digit * RADIX**place, divisor)) for digit in range(1, RADIX)])
