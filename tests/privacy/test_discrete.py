"""The noise has exactly its distribution: by its digits' probabilities, by counting, and without floating point."""

import ast
import inspect
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpose.privacy import discrete
from dpose.privacy.discrete import MAX_SCALE, discrete_gaussian, discrete_laplace
from dpose.privacy.noise import AesNoise, Key, Purpose

FEW = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)]


def stream(seed: int = 1, step: int = 0):
    return AesNoise(Key.from_seed(seed)).stream(Purpose.RELEASE, step)


def laplace_pmf(scale, x):
    a = mpmath.e ** (-1 / mpmath.mpf(scale.numerator) * scale.denominator)
    return (1 - a) / (1 + a) * a ** abs(x)


def gaussian_weights(variance, reach):
    half = mpmath.mpf(variance.denominator) / (2 * variance.numerator)
    return [mpmath.e ** (-half * x * x) for x in range(-reach, reach + 1)]


def fits(drawn, probability, reach):
    """p-value of a chi-square test of integers against their probabilities, cells of at least 20 expected."""
    values = np.arange(-reach, reach + 1)
    expected = np.array([float(probability(int(x))) for x in values]) * len(drawn)
    counts = np.array([np.count_nonzero(drawn == x) for x in values])
    big = expected >= 20
    counts, expected = counts[big], expected[big]
    rest = len(drawn) - expected.sum()
    counts = np.append(counts, len(drawn) - counts.sum())
    expected = np.append(expected, rest)
    keep = expected > 1
    statistic = ((counts[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return stats.chi2.sf(statistic, keep.sum() - 1)


@pytest.mark.parametrize("scale", FEW)
def test_by_enumeration_the_tosses_give_the_discrete_laplace_law(scale):
    """Every outcome of sign, digits and overflow, with the coins' own probabilities, adds up to the closed form."""
    with mpmath.workprec(300):

        def chance(coin):
            return mpmath.mpf(coin.digits(250)) / mpmath.mpf(2) ** 250

        used, ends = discrete._laplace_coins(scale)
        digits = [chance(coin) for coin in used.coins]
        levels = len(digits)
        beyond, negative = (chance(coin) for coin in ends.coins)
        for size in [*range(20), (1 << levels) - 1, 1 << levels, (3 << levels) + 5]:
            low, loops = size % (1 << levels), size >> levels
            magnitude = beyond**loops * (1 - beyond)
            for level, p in enumerate(digits):
                magnitude *= p if low >> level & 1 else 1 - p
            for outcome, sign in ((size, 1 - negative), (-1 - size, negative)):
                want = laplace_pmf(scale, outcome)
                assert abs(magnitude * sign - want) < mpmath.mpf(2) ** -200 + want * mpmath.mpf(2) ** -150


@pytest.mark.parametrize("scale", FEW)
def test_laplace_counts(scale):
    drawn = discrete_laplace(scale, 400_000, stream())
    assert fits(drawn, lambda x: laplace_pmf(scale, x), 400) > 1e-4


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(4), Fraction(50, 3), Fraction(900)])
def test_gaussian_counts(variance):
    weights = gaussian_weights(variance, 300)
    total = sum(weights)
    drawn = discrete_gaussian(variance, 400_000, stream())
    assert fits(drawn, lambda x: weights[x + 300] / total, 300) > 1e-4


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_the_counts_would_notice_a_scale_three_percent_off(factor):
    scale = Fraction(7, 2)
    off = scale * Fraction(str(factor))
    assert fits(discrete_laplace(off, 400_000, stream()), lambda x: laplace_pmf(scale, x), 400) < 1e-6
    variance = Fraction(900)
    weights = gaussian_weights(variance, 300)
    total = sum(weights)
    drawn = discrete_gaussian(variance * Fraction(str(factor)) ** 2, 400_000, stream())
    assert fits(drawn, lambda x: weights[x + 300] / total, 300) < 1e-6


def test_large_scales_have_the_right_spread():
    n = 200_000
    laplace = discrete_laplace(Fraction(255 * 16 * 1000, 3), n, stream()) / (255 * 16 * 1000 / 3)
    assert stats.kstest(laplace, "laplace").pvalue > 1e-4
    assert stats.kstest(laplace * 1.03, "laplace").pvalue < 1e-4
    for variance in (Fraction(10**10), Fraction(10**15, 7), Fraction(3 * 10**21)):
        normal = discrete_gaussian(variance, n, stream()) / math.sqrt(variance)
        assert stats.kstest(normal, "norm").pvalue > 1e-4


def test_a_square_beyond_64_bits_does_not_wrap_around():
    """What lies eleven deviations out is refused, as it must be all but surely, however large its exponent is."""
    rule = discrete._acceptance(Fraction(3 * 10**8 + 1, 3))
    far = np.full(1000, (3_300_000_000 + rule.shift) // rule.slope)
    exponent = (int(far[0]) * rule.slope - rule.shift) ** 2
    assert 1 << 63 < exponent < 1 << 64
    assert int(far[0]) * rule.slope < 1 << 32
    assert exponent > 40 * rule.divisor
    assert not discrete._accepted(rule, far, AesNoise(Key.from_seed(3)).stream(Purpose.RELEASE)).any()


def test_each_draw_is_independent_of_the_others():
    n = 200_000
    for drawn in (discrete_laplace(Fraction(30), n, stream()), discrete_gaussian(Fraction(900), n, stream())):
        for lag in (1, 2, discrete.AT_ONCE):
            assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 5 / math.sqrt(n)
            assert abs(np.corrcoef(abs(drawn[:-lag]), abs(drawn[lag:]))[0, 1]) < 5 / math.sqrt(n)


def test_what_lies_beyond_the_digits_is_drawn_again(monkeypatch):
    """With few digits the loop runs often, and the law stays the same."""
    monkeypatch.setattr(discrete, "TAIL", 1)
    scale = Fraction(9, 2)
    discrete._laplace_coins.cache_clear()
    assert len(discrete._laplace_coins(scale)[0].coins) == 3
    drawn = discrete_laplace(scale, 400_000, stream(5))
    discrete._laplace_coins.cache_clear()
    assert (abs(drawn) >= 16).any()
    assert fits(drawn, lambda x: laplace_pmf(scale, x), 400) > 1e-4


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_shapes_types_and_streams(draw):
    for count in (0, 1, 7, discrete.AT_ONCE + 3):
        drawn = draw(Fraction(12), count, stream())
        assert drawn.shape == (count,)
        assert drawn.dtype == np.int64
    assert np.array_equal(draw(Fraction(12), 50, stream()), draw(Fraction(12), 50, stream()))
    assert not np.array_equal(draw(Fraction(12), 50, stream()), draw(Fraction(12), 50, stream(1, 1)))


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1), Fraction(MAX_SCALE**2 + 1)])
def test_scales_out_of_range_are_refused(bad):
    for draw in (discrete_laplace, discrete_gaussian):
        with pytest.raises(ValueError, match="must lie"):
            draw(bad, 1, stream())


def test_no_floating_point_in_the_sampler():
    """No float literal, no true division, no float function: of math only what maps integers to integers."""
    tree = ast.parse(inspect.getsource(discrete))
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), ast.dump(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "math":
                assert node.attr in ("ceil", "gcd", "isqrt")
            assert not (node.value.id == "np" and "float" in node.attr)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            # only fractions are divided by fractions
            assert "Fraction" in ast.unparse(node.left)
