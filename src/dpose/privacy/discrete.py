"""Exact discrete Laplace and discrete Gaussian noise: whole numbers from a cryptographic stream, many at a time.

    noise = discrete_laplace(Fraction(255 * 16, 2), 8160, stream)

No floating-point number occurs between the stream's bits and the noise. Floating-point Laplace noise leaks
through its low bits (Mironov 2012): many sums could not have come from the neighbouring data at all. Here every
integer has exactly the probability that the proof gives it, as far as the stream's bits are uniform. The
arithmetic is proved in docs/proofs/pixelization.md.

Coins whose probability is an exponential of a fraction, tossed exactly and many at a time.

    heads = toss(logistic(Fraction(1, 3)), 1000, stream)

A coin with probability p falls heads when a uniform number in [0, 1) is below p. Both are compared 16 bits at a
time, so almost every toss is settled by one word. Where word and digits agree (once in 65,536 words) the next 16
bits of both are compared, and so on. The digits of p are computed with integers and rounding in a known
direction, as many as are needed: no toss depends on how a floating-point number was rounded. `compare_bits` is the one
loop that exact noise spends its time in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpose.jit import kernel, without_numba
from dpose.privacy.noise import Stream

WORD = 16
"""Bits compared at a time. Few, since most of a toss's cost is in drawing them; ties are seldom all the same."""

Heads: TypeAlias = NDArray[np.bool_]
Words: TypeAlias = NDArray[np.uint16]


@dataclass(frozen=True)
class Coin:
    """A coin with probability e^-g, or e^-g / (1 + e^-g) where `odds` is set.

    Attributes:
        exponent: g, a fraction > 0. Then p is irrational (Lindemann), so its binary digits never end and no
            word is equal to p for ever.
        odds: Whether e^-g is the coin's odds rather than its probability.
    """

    exponent: Fraction
    odds: bool = False

    def __post_init__(self) -> None:
        if self.exponent <= 0:
            raise ValueError(f"a coin's exponent must be positive, not {self.exponent}")

    def digits(self, bits: int) -> int:
        """floor(2^bits p), exactly."""
        return _digits(self, bits)


def decay(exponent: Fraction) -> Coin:
    """The coin with probability e^-exponent."""
    return Coin(exponent)


def logistic(exponent: Fraction) -> Coin:
    """The coin with probability 1 / (1 + e^exponent)."""
    return Coin(exponent, odds=True)


@dataclass(frozen=True)
class Coins:
    """Several coins, with the first `WORD` digits of each at hand.

    Attributes:
        coins: The coins.
        table: Their digits, uint16, (len(coins),).
    """

    coins: tuple[Coin, ...]
    table: Words

    @classmethod
    def of(cls, coins: Sequence[Coin]) -> Coins:
        """These coins."""
        return cls(tuple(coins), np.array([coin.digits(WORD) for coin in coins], np.uint16))

    def settle_rows(self, words: Words, stream: Stream) -> Heads:
        """One toss for each word of a matrix, all of a row of the same coin.

        Args:
            words: Uniform words, (len(coins), N).
            stream: For further bits.
        """
        heads = np.empty(words.shape, np.bool_)
        # row by row: short vectors stay in the processor's nearest cache
        for row, (line, digits) in enumerate(zip(words, self.table, strict=True)):
            np.less(line, digits, out=heads[row])
            ties = line == digits
            if ties.any():
                for index in np.flatnonzero(ties):
                    heads[row, index] = _settle_slowly(int(line[index]), self.coins[row], stream)
        return heads

    def settle_bits(self, words: Words, stream: Stream) -> NDArray[np.int64]:
        """One toss for each word of a matrix, as `settle_rows`, packed: bit i of a number is the toss of row i.

        Args:
            words: Uniform words, (len(coins), N), at most 62 coins.
            stream: For further bits.

        Returns:
            int64, (N,).
        """
        values, tied = compare_bits(words, self.table)
        for row in np.flatnonzero(tied):
            for index in np.flatnonzero(words[row] == self.table[row]):
                heads = _settle_slowly(int(words[row, index]), self.coins[row], stream)
                values[index] |= int(heads) << int(row)
        return values

    def settle_each(self, words: Words, which: NDArray[np.int64], stream: Stream) -> Heads:
        """One toss for each word, each of the coin that `which` names.

        Args:
            words: Uniform words, (N,).
            which: Index of each word's coin, (N,).
            stream: For further bits.
        """
        digits = self.table[which]
        heads: Heads = words < digits
        for index in np.flatnonzero(words == digits):
            heads[index] = _settle_slowly(int(words[index]), self.coins[which[index]], stream)
        return heads


def toss_alike(coin: Coin, count: int, stream: Stream) -> Heads:
    """`count` independent tosses of one coin."""
    heads: Heads = Coins.of([coin]).settle_rows(draw_words(count, stream)[None], stream)[0]
    return heads


def draw_words(count: int, stream: Stream) -> Words:
    """`count` uniform words."""
    return np.frombuffer(stream.bytes(WORD // 8 * count), dtype="<u2")


def _settle_slowly(drawn: int, coin: Coin, stream: Stream) -> bool:
    bits = WORD
    while drawn == coin.digits(bits):
        drawn = (drawn << WORD) + int.from_bytes(stream.bytes(WORD // 8), "little")
        bits += WORD
    return drawn < coin.digits(bits)


@lru_cache(maxsize=4096)
def _digits(coin: Coin, bits: int) -> int:
    spare = 8
    while True:
        width = bits + spare
        low, high = exp_bounds(coin.exponent, width)
        if coin.odds:
            low, high = (low << width) // ((1 << width) + low), -((-high << width) // ((1 << width) + high))
        if low >> spare == high >> spare:
            return low >> spare
        spare *= 2


def exp_bounds(exponent: Fraction, width: int) -> tuple[int, int]:
    """Integers that enclose 2^width e^-exponent, a few units apart.

    The exponent is halved until it is below 1. The alternating series for e^-x then falls from the first term
    on, so the truth lies within the last term of any partial sum. Squaring undoes the halving. Every step
    rounds the lower bound down and the upper one up.

    Args:
        exponent: >= 0.
        width: Bits after the binary point.
    """
    halvings = max(0, (exponent.numerator // exponent.denominator).bit_length())
    numerator, denominator = exponent.numerator, exponent.denominator << halvings
    spare = halvings + 8
    one = 1 << (width + spare)
    low = high = term_low = term_high = one
    order = 0
    while term_high > 1:
        order += 1
        term_low = term_low * numerator // (denominator * order)
        term_high = -(-term_high * numerator // (denominator * order))
        if order % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    low, high = max(0, low - 1), min(one, high + 1)
    for _ in range(halvings):
        low, high = low * low >> (width + spare), -(-high * high >> (width + spare))
    return low >> spare, -(-high >> spare)


def compare_bits(words: NDArray[np.uint16], digits: NDArray[np.uint16]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole numbers whose bit i tells whether the word of row i is below that row's digits.

    Args:
        words: (rows, N), rows at most 62.
        digits: (rows,).

    Returns:
        The numbers, (N,), and which rows have a word that equals its digits, (rows,): their bits are 0 and undecided.
    """
    if without_numba(words.size):
        limits = digits[:, None]
        places = np.arange(words.shape[0], dtype=np.int64)[:, None]
        below = (words < limits).astype(np.int64) << places
        return np.bitwise_or.reduce(below, axis=0), (words == limits).any(axis=1)
    values = np.empty(words.shape[1], np.int64)
    tied = np.empty(words.shape[0], np.bool_)
    _compare(words, digits, values, tied)
    return values, tied


@kernel
def _compare(
    words: NDArray[np.uint16], digits: NDArray[np.uint16], values: NDArray[np.int64], tied: NDArray[np.bool_]
) -> None:
    values[:] = 0
    for row in range(words.shape[0]):
        line, limit, equal = words[row], digits[row], False
        for i in range(values.size):
            values[i] |= np.int64(line[i] < limit) << row
            equal |= line[i] == limit
        tied[row] = equal


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
