"""Trade-off curves: exact where there is a formula, and never stricter than what they stand for."""

import numpy as np
import pytest
from scipy.stats import norm

from dpose.privacy.accounting import COARSE
from dpose.privacy.attackers import true_positives
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.tradeoff import approximate, gaussian, of_events

RATES = np.array([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99, 1.0])


def test_one_pair_is_the_bound_of_the_statement():
    for epsilon, delta in ((0.5, 1e-5), (4.0, 1e-3), (0.0, 0.1)):
        expected = [true_positives(epsilon, delta, a) for a in RATES]
        assert approximate(epsilon, delta).power(RATES) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_a_gaussian_curve_is_the_neyman_pearson_test(mu):
    exact = norm.cdf(norm.ppf(RATES[1:-1]) + mu)
    power = gaussian(mu).power(RATES[1:-1])
    assert power == pytest.approx(exact, rel=1e-3)
    assert (power >= exact - 1e-9).all()


def test_the_inverse_is_exact_and_never_too_large():
    curve = gaussian(1.3)
    for fpr in (1e-6, 1e-3, 0.02, 0.4, 0.7):
        power = curve.power(fpr)[0]
        assert curve.least_false_positive(power) == pytest.approx(fpr, rel=1e-9)
    for tpr in np.linspace(0, 1, 2001):
        assert curve.power(curve.least_false_positive(tpr))[0] >= tpr - 1e-9
        assert curve.least_false_positive(tpr) <= norm.cdf(norm.ppf(tpr) - 1.3) + 1e-9


def test_the_accountants_curve_of_an_unsampled_gaussian_is_the_gaussian_curve():
    curve = of_events([SampledGaussian(q=1.0, sigma=2.0, steps=9, sensitivity=1.0)], grid=COARSE)
    exact = norm.cdf(norm.ppf(RATES[2:-1]) + 1.5)
    assert curve.power(RATES[2:-1]) == pytest.approx(exact, rel=2e-3)
    doubled = of_events([SampledGaussian(q=1.0, sigma=2.0, steps=9, sensitivity=1.0)], Relation.REPLACE, grid=COARSE)
    assert doubled.power(0.01)[0] == pytest.approx(norm.cdf(norm.ppf(0.01) + 3.0), rel=2e-3)


def test_a_sampled_step_is_the_mixture_and_the_coarse_grid_only_more_permissive():
    q, sigma = 0.2, 1.0
    event = SampledGaussian(q=q, sigma=sigma, steps=1, sensitivity=1.0)
    fine, coarse = of_events([event]), of_events([event], grid=COARSE)
    at = norm.ppf(1 - RATES[3:-1])
    found = (1 - q) * RATES[3:-1] + q * norm.sf(at - 1 / sigma)
    assert (fine.power(RATES[3:-1]) >= found - 1e-9).all()
    assert fine.power(0.01)[0] == pytest.approx(found[0], rel=0.02)
    assert (coarse.power(RATES) >= fine.power(RATES) - 1e-4).all()
