"""Several units of one person: closed forms, dp-accounting's own mixture, and vectors by brute force."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpose.privacy.accounting import epsilon
from dpose.privacy.events import SampledGaussian
from dpose.privacy.gaussian import gaussian_epsilon
from dpose.privacy.neighbours import Relation
from dpose.privacy.sections import MOST, _losses, group_epsilons

DELTA = 1e-5


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.ADD_REMOVE])
def test_without_sampling_it_is_a_gaussian_k_times_as_far(relation):
    found = group_epsilons([SampledGaussian(1.0, 8.0, 4, 1.0)], DELTA, relation)
    assert len(found) == MOST - 1
    for k, spent in enumerate(found, 2):
        true = gaussian_epsilon(k * 2 / 8.0, DELTA)
        assert true <= spent <= 1.001 * true


def test_two_kinds_of_events_compose():
    both = [SampledGaussian(1.0, 8.0, 2, 1.0), SampledGaussian(1.0, 4.0, 1, 1.0)]
    (two,) = group_epsilons(both, DELTA, Relation.ZERO_OUT, most=2)
    true = gaussian_epsilon(2 * (2 / 64 + 1 / 16) ** 0.5, DELTA)
    assert true <= two <= 1.001 * true


@pytest.mark.parametrize(("q", "sigma", "k"), [(0.05, 1.0, 2), (0.3, 0.8, 3)])
def test_one_step_is_the_mixture_of_dp_accounting(q, sigma, k):
    from dp_accounting.pld import privacy_loss_distribution

    theirs = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        sigma, np.arange(k + 1.0), binom.pmf(np.arange(k + 1), k, q), value_discretization_interval=0.05
    )
    ours = _losses(SampledGaussian(q, sigma, 1, 1.0), k, 0.05)
    for at in (0.1, 1.0, 2.5):
        assert ours.get_delta_for_epsilon(at) == pytest.approx(theirs.get_delta_for_epsilon(at), rel=1e-4, abs=1e-12)


def test_no_vectors_of_two_units_exceed_it():
    """Two units whose gradients point anywhere, in the plane: hockey-stick divergence by quadrature."""
    q, sigma = 0.3, 1.0
    grid = np.linspace(-6, 7, 281)
    x, y = np.meshgrid(grid, grid)
    cell = (grid[1] - grid[0]) ** 2

    def density(centre):
        return norm.pdf(x, centre[0], sigma) * norm.pdf(y, centre[1], sigma)

    ours = _losses(SampledGaussian(q, sigma, 1, 1.0), 2, 1e-3)
    none = density((0.0, 0.0))
    for angle, length in itertools.product((0.0, 1.0, np.pi), (1.0, 0.6)):
        a, b = np.array([1.0, 0.0]), length * np.array([np.cos(angle), np.sin(angle)])
        mixed = (1 - q) ** 2 * none + q * (1 - q) * (density(a) + density(b)) + q**2 * density(a + b)
        for at in (0.0, 0.3, 1.0):
            one = np.maximum(mixed - np.exp(at) * none, 0).sum() * cell
            other = np.maximum(none - np.exp(at) * mixed, 0).sum() * cell
            bound = ours.get_delta_for_epsilon(at)
            assert max(one, other) <= bound + 5e-5  # of the quadrature
            if angle == 0.0 and length == 1.0:
                assert max(one, other) == pytest.approx(bound, rel=5e-3)


def test_more_units_cost_more_and_one_costs_least():
    event = SampledGaussian(0.05, 2.0, 30, 1.0)
    found = group_epsilons([event], DELTA, Relation.ZERO_OUT, most=5)
    assert list(found) == sorted(found)
    assert found[0] > 2 * epsilon([event], DELTA)  # at the same delta two units cost more than twice one


def test_exchanging_is_bounded_by_blanking_out_twice():
    for sigma in (30.0, 6.0):
        found = group_epsilons([SampledGaussian(1.0, sigma, 1, 1.0)], DELTA, Relation.REPLACE, 4)
        for k, spent in enumerate(found, 2):
            assert spent >= gaussian_epsilon(2 * k / sigma, DELTA)
            assert spent <= 1.2 * gaussian_epsilon(2 * k / sigma, DELTA)
    # where what convolutions resolve is not enough, no bound is told
    assert group_epsilons([SampledGaussian(1.0, 1.5, 1, 1.0)], DELTA, Relation.REPLACE, 5)[-1] is None


def test_what_protects_nobody_is_not_put_in_numbers():
    assert group_epsilons([SampledGaussian(1.0, 0.2, 1000, 1.0)], DELTA, Relation.ZERO_OUT) == (None,) * 9
    assert group_epsilons([SampledGaussian(0.1, 1.0, 10, 1.0)], 1e-12, Relation.ZERO_OUT) == (None,) * 9
    strong, *_, weak = group_epsilons([SampledGaussian(0.5, 1.0, 20, 1.0)], DELTA, Relation.ZERO_OUT)
    assert strong is not None
    assert weak is None
