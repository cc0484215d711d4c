"""Poisson batches are Poisson: every unit for itself, at the rate that is accounted for, never cut."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpose.privacy import sampling
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.sampling import poisson_batch, shuffled_batches


def draws(n: int, rate: float, count: int, seed: int = 11) -> np.ndarray:
    """(count, n) bool: who was in which batch."""
    source = AesNoise(Key.from_seed(seed))
    drawn = np.zeros((count, n), bool)
    for step in range(count):
        drawn[step, poisson_batch(n, rate, source.stream(Purpose.PRIVATE_SAMPLER, step))] = True
    return drawn


def test_every_unit_is_drawn_at_the_rate():
    n, rate, count = 50, 0.13, 4000
    hits = draws(n, rate, count).sum(0)
    statistic = ((hits - count * rate) ** 2 / (count * rate * (1 - rate))).sum()
    assert 1e-4 < stats.chi2.sf(statistic, n) < 1 - 1e-4


def test_units_are_drawn_independently_of_each_other():
    n, rate, count = 6, 0.3, 20_000
    patterns = draws(n, rate, count) @ (1 << np.arange(n))
    observed = np.bincount(patterns, minlength=1 << n)
    ones = np.array([bin(p).count("1") for p in range(1 << n)])
    expected = count * rate**ones * (1 - rate) ** (n - ones)
    assert 1e-4 < stats.chisquare(observed, expected).pvalue < 1 - 1e-4


def test_steps_are_drawn_independently_of_each_other():
    drawn = draws(1, 0.5, 20_000)[:, 0]
    pairs = 2 * drawn[:-1:2] + drawn[1::2]
    assert 1e-4 < stats.chisquare(np.bincount(pairs, minlength=4)).pvalue < 1 - 1e-4


def test_batch_sizes_are_binomial_with_nothing_cut_off():
    n, rate, count = 40, 0.1, 8000
    sizes = draws(n, rate, count).sum(1)
    edges = np.arange(10)
    expected = count * np.append(stats.binom.pmf(edges, n, rate), stats.binom.sf(9, n, rate))
    observed = np.append(np.bincount(sizes, minlength=10)[:10], (sizes > 9).sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-4
    assert (sizes == 0).any()  # empty batches are kept
    assert sizes.max() > 2 * n * rate  # and so are large ones


def test_indices_are_sorted_and_of_type_int64():
    batch = poisson_batch(1000, 0.5, AesNoise(Key.from_seed(0)).stream(Purpose.PRIVATE_SAMPLER))
    assert batch.dtype == np.int64
    assert (np.diff(batch) > 0).all()
    assert 0 <= batch[0] < batch[-1] < 1000


def test_sampling_in_chunks_changes_nothing(monkeypatch):
    whole = poisson_batch(1000, 0.2, AesNoise(Key.from_seed(0)).stream(Purpose.PRIVATE_SAMPLER))
    monkeypatch.setattr(sampling, "WORDS_AT_ONCE", 64)
    parts = poisson_batch(1000, 0.2, AesNoise(Key.from_seed(0)).stream(Purpose.PRIVATE_SAMPLER))
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 1024 / 22146, 2.0**-64, 1 - 2.0**-53])
def test_the_rate_is_never_exceeded(rate):
    class Edge:
        """Gives the words on both sides of the threshold that the rate allows."""

        def uint64(self, count):
            threshold = int(Fraction(rate) * 2**64)
            return np.array([threshold - 1, threshold], np.uint64)

    assert poisson_batch(2, rate, Edge()).tolist() == [0]


def test_rate_one_takes_everybody_and_no_unit_gives_an_empty_batch():
    stream = AesNoise(Key.from_seed(0)).stream(Purpose.PRIVATE_SAMPLER)
    assert poisson_batch(5, 1.0, stream).tolist() == [0, 1, 2, 3, 4]
    assert poisson_batch(0, 0.5, stream).shape == (0,)


@pytest.mark.parametrize(("n", "rate"), [(np.int64(1000), np.float32(0.5)), (1000, Fraction(1, 2))])
def test_numbers_of_any_type_draw_the_same(n, rate):
    one, other = (AesNoise(Key.from_seed(0)).stream(Purpose.PRIVATE_SAMPLER) for _ in range(2))
    assert np.array_equal(poisson_batch(n, rate, one), poisson_batch(1000, 0.5, other))


@pytest.mark.parametrize(
    ("n", "rate"), [(5, 0.0), (5, -0.1), (5, 1.1), (-1, 0.5), (5, float("nan")), (5.5, 0.5), ("5", 0.5), (5, "half")]
)
def test_impossible_rates_are_refused(n, rate):
    with pytest.raises(ValueError, match="cannot sample"):
        poisson_batch(n, rate, AesNoise(Key.from_seed(0)).stream(Purpose.PRIVATE_SAMPLER))


def test_shuffled_batches_use_every_unit_once():
    source = AesNoise(Key.from_seed(0))
    batches = list(shuffled_batches(10, 4, source.stream(Purpose.PUBLIC_SAMPLER, 0)))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert sorted(np.concatenate(batches).tolist()) == list(range(10))
    other = list(shuffled_batches(10, 4, source.stream(Purpose.PUBLIC_SAMPLER, 1)))
    assert np.concatenate(other).tolist() != np.concatenate(batches).tolist()
    assert list(shuffled_batches(0, 4, source.stream(Purpose.PUBLIC_SAMPLER, 2))) == []
    assert [len(b) for b in shuffled_batches(3, 1, source.stream(Purpose.PUBLIC_SAMPLER, 3))] == [1, 1, 1]
    for step, (n, size) in enumerate(((10, 0), (-1, 4), (-1, 0)), 4):
        with pytest.raises(ValueError, match="cannot make batches"):
            list(shuffled_batches(n, size, source.stream(Purpose.PUBLIC_SAMPLER, step)))
