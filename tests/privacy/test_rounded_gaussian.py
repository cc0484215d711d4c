"""Exactly rounded Gaussian noise: every decision against whole numbers, and the law against the normal distribution."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpose.privacy import gaussian_noise as module
from dpose.privacy.gaussian_noise import MOST, STRIPS, V_BITS, X_BITS, rounded_gaussian
from dpose.privacy.noise import AesNoise, Key, Purpose


def stream(seed=0, step=0):
    return AesNoise(Key.from_seed(seed)).stream(Purpose.AUGMENT, step)


class Digits:
    """A stream of words that a test chooses."""

    def __init__(self, *words):
        self.words = [w.to_bytes(8, "little") for w in words]

    def bytes(self, count):
        assert count == 8
        return self.words.pop(0)


class NoMore:
    def bytes(self, count):
        raise AssertionError("more digits were asked for")


def word(x, v, negative=False):
    return v << (64 - V_BITS) | int(negative) << X_BITS | x


def density(y):
    return math.exp(-y * y / 2)


@pytest.mark.parametrize("scale", [0.01, 0.7, 3.0, 1.4 * 2**24, 2.0**40])
def test_what_the_loop_decides_whole_numbers_decide_alike(scale):
    """Where 128 bits decide, no further digit is asked for, and the value is the same."""
    words = stream(1).uint64((3000, 2))
    bounds, guide = module._table()
    values, unsure = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    kept, open_ones = module._fast(words, bounds, guide, scale, values, unsure)
    assert open_ones <= (100 if scale == 2.0**40 else 1), "128 bits decide nearly all"
    skipped = set(unsure[:open_ones].tolist())
    found = iter(v for v in values[:kept].tolist() if v != module._OPEN)
    for i, draw in enumerate(words):
        if i in skipped:
            continue
        value = module._slowly(Fraction(scale), *module._parts(draw), NoMore())
        if value is not None:
            assert next(found) == value
    assert next(found, None) is None


def test_the_search_for_a_strip_begins_at_it_and_ends_at_the_last():
    """For each word's first bits: in the strip of the smallest word that begins so."""
    bounds, guide = module._table.__wrapped__()  # the function itself, whatever another test has kept of it
    starts = np.arange(2**12, dtype=np.uint64) << np.uint64(64 - 12)
    assert (bounds[0], bounds[-1]) == (0, 2**64 - 1)
    assert len(guide) == len(starts)
    assert guide[0] == 0
    assert (bounds[guide[1:]] < starts[1:]).all()
    assert (starts <= bounds[guide + 1]).all()


def test_a_draw_on_the_edge_of_a_decision_is_left_to_whole_numbers():
    """At every place where the loop decides, words that bits so far cannot settle."""
    bounds, guide = module._table()
    strip = 40
    inside = (int(bounds[strip]) + int(bounds[strip + 1])) // 2
    x = 3 << 40
    y = strip / STRIPS + x * 2.0**-X_BITS / STRIPS
    kept = math.floor(density(y) / density(strip / STRIPS) * 2**V_BITS)
    half = (round(y * 1000) + 0.5) / 1000 / y  # this scale takes y to the middle between two numbers
    for choice, place, v, scale in (
        (int(bounds[strip + 1]), x, 0, 3.0),
        (2**64 - 1, x, 0, 3.0),
        (inside, x, kept, 3.0),
        (inside, x, 0, 1000 * half),
    ):
        words = np.array([[choice, word(place, v)]], np.uint64)
        values, unsure = np.empty(1, np.int64), np.empty(1, np.int64)
        assert module._fast(words, bounds, guide, scale, values, unsure) == (1, 1)


KEPT, OPEN, REJECTED = (1, 0), (1, 1), (0, 0)


def decided(strip, x, v, scale=1000.0):
    """What becomes of a draw well inside of a strip."""
    bounds, guide = module._table()
    choice = (int(bounds[strip]) + int(bounds[strip + 1])) // 2
    values, unsure = np.empty(1, np.int64), np.empty(1, np.int64)
    words = np.array([[choice, word(x, v)]], np.uint64)
    return module._fast(words, bounds, guide, scale, values, unsure)


@pytest.mark.parametrize(("strip", "t"), [(0, 2.0**-V_BITS), (40, 0.02), (200, 0.15)])
@pytest.mark.parametrize(
    ("offset", "below", "above"),
    [(2.0**-35, KEPT, OPEN), (2.0**-37, OPEN, OPEN), (-(2.0**-37), OPEN, OPEN), (-(2.0**-35), OPEN, REJECTED)],
)
def test_a_density_near_what_it_is_compared_with_is_left_open(strip, t, offset, below, above):
    """Beside an edge of v's digits: `below` of those that end at it, `above` of those that begin there."""
    edge = round(math.exp(-t) * 2**V_BITS)
    left = mpmath.mpf(strip) / STRIPS
    with mpmath.workdps(40):
        wanted = -mpmath.log(mpmath.mpf(edge) / 2**V_BITS + offset)
        x = int(mpmath.nint((mpmath.sqrt(left**2 + 2 * wanted) - left) * STRIPS * 2**X_BITS))
        at = mpmath.mpf(x) / STRIPS / 2**X_BITS
        assert abs(mpmath.exp(-at * (left + at / 2)) - mpmath.mpf(edge) / 2**V_BITS - offset) < 2.0**-42
    assert decided(strip, x, edge - 1) == below
    assert decided(strip, x, edge) == above


@pytest.mark.parametrize("strip", [1, 100, 200, 254])
def test_a_value_near_the_middle_of_two_numbers_is_left_open(strip):
    """Also far out, where the place in a strip is as uncertain as anywhere."""
    x = 3 << 40
    y = strip / STRIPS + x * 2.0**-X_BITS / STRIPS
    assert decided(strip, x, 0, 1000.5 / y) == OPEN
    for apart in (-(2.0**-30), 2.0**-30):
        assert decided(strip, x, 0, (1000.5 + apart) / y) == KEPT


def test_further_digits_settle_a_strip_a_rejection_and_a_rounding():
    exact = {bits: module._bounds(bits) for bits in (64, 128)}
    strip = 70
    edge, deeper = exact[64][strip], exact[128][strip] & (2**64 - 1)
    low, high = Digits(deeper - 1), Digits(deeper + 1)
    y = Fraction(strip, STRIPS)
    assert module._slowly(Fraction(STRIPS), edge, 0, 0, False, low) == strip - 1
    assert module._slowly(Fraction(STRIPS), edge, 1 << 40, 0, True, high) == -strip
    choice = (exact[64][strip] + exact[64][strip + 1]) // 2
    x = 5 << 39
    at = y + Fraction(x, STRIPS << X_BITS)
    share = Fraction(density(float(at)) / density(float(y)))
    v = math.floor(share * 2**V_BITS)
    rest = math.floor((share * 2**V_BITS - v) * 2**64)
    near = 2**40  # the floating-point quotient is good to 2^-50 or so
    assert module._slowly(Fraction(1), choice, x, v, False, Digits(0, rest - near)) == round(float(at))
    assert module._slowly(Fraction(1), choice, x, v, False, Digits(0, rest + near)) is None
    # scaled so that a half is a quarter of a unit of x further
    scale = Fraction(5, 2) / (at + Fraction(1, 4 * STRIPS << X_BITS))
    assert module._slowly(scale, choice, x, 0, False, Digits(2**61)) == 2
    assert module._slowly(scale, choice, x, 0, False, Digits(2**63)) == 3


def test_a_draw_left_to_whole_numbers_stands_among_the_others_in_its_place():
    """An open draw is settled by further digits and kept or rejected by them alone, like any other."""
    exact = {bits: module._bounds(bits) for bits in (64, 128)}
    strip = 70
    edge, deeper = exact[64][strip], exact[128][strip] & (2**64 - 1)
    inside = [(exact[64][j] + exact[64][j + 1]) // 2 for j in (3, 40)]
    x = 5 << 39
    y = Fraction(40, STRIPS) + Fraction(x, STRIPS << X_BITS)
    touching = math.floor(density(float(y)) / density(40 / STRIPS) * 2**V_BITS)
    draws = [(inside[0], word(0, 0)), (edge, word(1 << 40, 0, True)), (inside[1], word(x, touching))]
    words = np.array([*draws, (inside[1], word(x, 0))], np.uint64)
    scale = 1000.0
    first, last = round(scale * 3 / STRIPS), round(scale * float(y))
    for choice, v, found in (
        (deeper + 1, 0, [first, -math.floor(scale * (strip + 2.0**-4) / STRIPS + 0.5), last, last]),
        (deeper + 1, 2**64 - 1, [first, -math.floor(scale * (strip + 2.0**-4) / STRIPS + 0.5), last]),
    ):
        more = Digits(choice, 0, v)
        assert module._draws(scale, words, more).tolist() == found
        assert not more.words


def test_strips_have_their_share_of_the_density():
    """Against 60-digit arithmetic of another kind: theta's series by mpmath."""
    with mpmath.workdps(60):
        total = mpmath.nsum(lambda j: mpmath.exp(-((j / STRIPS) ** 2) / 2), [0, mpmath.inf])
        weights = [mpmath.exp(-((mpmath.mpf(j) / STRIPS) ** 2) / 2) / total for j in range(200)]
        for bits in (64, 128):
            bounds = module._bounds(bits)
            for j in (1, 2, 31, 150, 199):
                assert bounds[j] == int(mpmath.floor(mpmath.fsum(weights[:j]) * 2**bits))


@pytest.mark.parametrize("scale", [0.3, 1.0, 6.5])
def test_whole_numbers_have_the_normal_distributions_shares(scale):
    count = 400_000
    found = rounded_gaussian(scale, count, stream(2))
    reach = math.ceil(4 * scale)
    edges = np.concatenate([[-np.inf], np.arange(-reach, reach + 1) - 0.5, [np.inf]])
    seen = np.histogram(found, np.nan_to_num(edges, posinf=1e18, neginf=-1e18))[0]
    expected = np.diff(stats.norm.cdf(edges / scale)) * count
    enough = expected > 5
    assert (
        stats.chisquare(
            np.append(seen[enough], seen[~enough].sum() + 1e-9),
            np.append(expected[enough], expected[~enough].sum() + 1e-9),
        ).pvalue
        > 1e-4
    )


def test_large_scales_keep_the_law_inside_a_strip_and_in_the_tail():
    scale = 1.4 * 2.0**24
    z = rounded_gaussian(scale, 1_000_000, stream(3)) / scale
    assert stats.kstest(z, "norm").pvalue > 1e-4
    far = np.abs(z[np.abs(z) > 2.5])
    assert stats.kstest(far, lambda t: 1 - stats.norm.sf(t) / stats.norm.sf(2.5)).pvalue > 1e-4
    # inside a strip the density falls: points lie w y / 12 of its width before the middle, on average
    place = STRIPS * np.abs(z) % 1
    assert place.mean() == pytest.approx(0.5 - math.sqrt(2 / math.pi) / STRIPS / 12, abs=0.001)
    assert abs((z < 0).mean() - 0.5) < 0.0025
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.005


def test_a_stream_gives_the_same_again_and_another_another():
    one, same, other = (rounded_gaussian(1e6, 40_000, s) for s in (stream(4), stream(4), stream(4, 1)))
    assert np.array_equal(one, same)
    assert len(np.intersect1d(one, other)) < 2000
    assert len(np.unique(one)) > 38_000


def test_scales_out_of_range_are_refused():
    for scale in (0.0, -1.0, math.nan, math.inf, MOST * 1.01):
        with pytest.raises(ValueError, match="scale"):
            rounded_gaussian(scale, 1, stream())
    assert rounded_gaussian(5.0, 0, stream()).shape == (0,)
