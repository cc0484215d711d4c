"""Bounds on Renyi divergences at orders that the accountant does not know, against integration."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from dpose.account.composition import renyi_cost
from dpose.privacy.events import SampledGaussian
from dpose.privacy.renyi import HIGHEST_SAMPLED

Q, SIGMA = 0.25, 1.5
ONE = SampledGaussian(q=Q, sigma=SIGMA, steps=1, sensitivity=1.0)


GRID = np.linspace(-80, 120, 400_001)


def divergence(order, first, second):
    """Of two densities, given by their logarithms on `GRID`."""
    return (logsumexp(order * first + (1 - order) * second) + np.log(GRID[1] - GRID[0])) / (order - 1)


def without():
    return norm.logpdf(GRID, 0, SIGMA)


def sampled(by=1.0):
    return np.logaddexp(np.log1p(-Q) + without(), np.log(Q) + norm.logpdf(GRID, by, SIGMA))


@pytest.mark.parametrize("order", [1.125, 1.5, 2.0, 2.5, 5.3, 9.7])
def test_a_sampled_gaussian_costs_no_less_than_it_does(order):
    bound, failing = renyi_cost([ONE], order, replaces=False)
    true = max(divergence(order, sampled(), without()), divergence(order, without(), sampled()))
    assert true * (1 - 1e-6) <= bound < 4 * true
    assert failing == 0


@pytest.mark.parametrize("order", [1.125, 2.0, 5.3])
def test_nor_does_a_replacement(order):
    bound, _ = renyi_cost([ONE], order, replaces=True)
    true = divergence(order, sampled(), sampled(-1.0))
    assert true * (1 - 1e-6) <= bound < 20 * true


def test_beyond_the_highest_order_a_replacement_is_bounded_without_sampling():
    order = 2.0 * HIGHEST_SAMPLED
    assert renyi_cost([ONE], order, replaces=True)[0] == pytest.approx(2 * order / SIGMA**2)
