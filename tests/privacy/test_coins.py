"""Coins have their probability to any number of digits, and ties go on to the next digits."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose.privacy.discrete import WORD, Coins, decay, draw_words, exp_bounds, logistic, toss_alike
from dpose.privacy.noise import AesNoise, Key, Purpose

fractions = st.fractions(min_value=Fraction(1, 10**9), max_value=500)


def stream(seed: int = 1):
    return AesNoise(Key.from_seed(seed)).stream(Purpose.RELEASE)


def truth(exponent, bits, odds=False):
    with mpmath.workprec(bits + 900):
        value = mpmath.e ** -(mpmath.mpf(exponent.numerator) / exponent.denominator)
        return int(mpmath.floor((value / (1 + value) if odds else value) * mpmath.mpf(2) ** bits))


@settings(deadline=None)
@given(exponent=fractions, bits=st.sampled_from([1, 32, 64, 160]))
def test_digits_are_those_of_the_probability(exponent, bits):
    assert decay(exponent).digits(bits) == truth(exponent, bits)
    assert logistic(exponent).digits(bits) == truth(exponent, bits, odds=True)


@settings(deadline=None)
@given(exponent=st.fractions(min_value=0, max_value=500), width=st.integers(1, 200))
def test_bounds_enclose_the_exponential_and_are_close(exponent, width):
    low, high = exp_bounds(exponent, width)
    assert low <= truth(exponent, width)
    assert truth(exponent, width) <= high <= low + 3


@pytest.mark.parametrize("width", range(8, 40))
def test_bounds_enclose_the_exponential_where_its_series_ends_at_once(width):
    """2^width e^-x is a little above a whole number there: an upper bound that is short by one lies below it."""
    exponent = Fraction(1, 1 << width)
    low, high = exp_bounds(exponent, width)
    assert low <= truth(exponent, width) < high


def test_an_impossible_or_certain_coin_is_refused():
    for exponent in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="positive"):
            decay(exponent)


class Scripted:
    """A stream that gives the words it was told to."""

    def __init__(self, *words):
        self.words = list(words)

    def bytes(self, count):
        assert count == 2
        return int(self.words.pop(0)).to_bytes(2, "little")


def test_a_tie_is_settled_by_the_next_digits():
    coin = decay(Fraction(1, 3))
    first = coin.digits(WORD)
    second = coin.digits(2 * WORD) & 0xFFFF
    third = coin.digits(3 * WORD) & 0xFFFF
    tied = np.array([first], np.uint16)
    coins = Coins.of([coin])
    for words, heads in (
        ([second - 1], True),
        ([second + 1], False),
        ([second, third - 1], True),
        ([second, third + 1], False),
    ):
        assert coins.settle_rows(tied[None], Scripted(*words)).tolist() == [[heads]]
        assert coins.settle_each(tied, np.array([0]), Scripted(*words)).tolist() == [heads]
        assert coins.settle_bits(tied[None], Scripted(*words)).tolist() == [int(heads)]
    for word, heads in ((0, True), (first - 1, True), (first + 1, False), (2**16 - 1, False)):
        assert coins.settle_rows(np.array([[word]], np.uint16), Scripted()).tolist() == [[heads]]


def test_packed_tosses_are_the_same_tosses():
    """Bit i of a number is the toss of row i: against one toss at a time, ties among them."""
    exponents = [Fraction(1 << level, 9) for level in range(12)]
    coins = Coins.of([logistic(exponent) for exponent in exponents])
    words = stream().uint64((12, 500)).astype(np.uint16)
    words[3, 7] = coins.table[3]
    words[11, ::50] = coins.table[11]
    packed = coins.settle_bits(words, stream(1))
    rows = coins.settle_rows(words, stream(1))
    assert packed.tolist() == [sum(int(rows[i, n]) << i for i in range(12)) for n in range(500)]
    assert Coins.of([]).settle_bits(words[:0], stream()).tolist() == [0] * 500


def test_a_tie_is_settled_by_its_own_word_and_its_own_coin():
    """Of several coins that tie at once, in whichever order they are tossed."""
    coins = Coins.of([decay(Fraction(1, k)) for k in (1, 2, 3, 5)])
    for row, coin in enumerate(coins.coins):
        below = coin.digits(2 * WORD) & 0xFFFF
        words = np.zeros((4, 3), np.uint16)  # far below every coin's digits: heads
        words[0] = 2**16 - 1  # tails
        words[row, 1] = coins.table[row]
        for next_word, heads in ((below - 1, 1), (below + 1, 0)):
            wanted = np.array([[0, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
            wanted[row, 1] = heads
            assert coins.settle_rows(words, Scripted(next_word)).astype(int).tolist() == wanted.tolist()
            packed = coins.settle_bits(words, Scripted(next_word))
            assert packed.tolist() == [sum(int(wanted[i, n]) << i for i in range(4)) for n in range(3)]
            which = np.array([0, 1, 2, 3, row])
            each = np.append(words[:, 0], words[row, 1])
            found = coins.settle_each(each, which, Scripted(next_word))
            assert found.astype(int).tolist() == [*wanted[:, 0].tolist(), heads]


def test_every_row_has_its_coin():
    coins = Coins.of([decay(Fraction(1, 3))])
    with pytest.raises(ValueError, match="zip"):
        coins.settle_rows(np.zeros((2, 3), np.uint16), stream())


def test_frequencies():
    n = 400_000
    for coin, p in ((decay(Fraction(1, 7)), np.exp(-1 / 7)), (logistic(Fraction(3)), 1 / (1 + np.exp(3)))):
        heads = toss_alike(coin, n, stream()).sum()
        assert abs(heads - n * p) < 5 * np.sqrt(n * p * (1 - p))


def test_words_are_the_streams_own_bytes():
    assert draw_words(5, stream()).tobytes() == stream().bytes(10)
