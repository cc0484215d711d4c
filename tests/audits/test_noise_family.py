"""A refuted curve becomes the epsilon of the least noise that is refuted too."""

import math

import numpy as np
import pytest

from dpose.audits.findings import Adversary, weigh
from dpose.audits.noise_family import Family
from dpose.privacy.accounting import epsilon
from dpose.privacy.events import SampledGaussian
from tiers import rest_slow

EVENT = SampledGaussian(q=1.0, sigma=2.0, steps=4, sensitivity=1.0)


@pytest.fixture(scope="module")
def family():
    return Family(EVENT, 1e-5)


def power_above(limit):
    """Refutes the curves that allow fewer than `limit` true positives at 1 %."""
    return lambda curve: bool(curve.power(0.01)[0] < limit)


@pytest.mark.parametrize("sigma", rest_slow([3.5, 1.2]))
def test_the_bound_is_the_least_noise_that_is_refuted(family, sigma):
    limit = float(family.curve(sigma).power(0.01)[0])
    found = family.bound(power_above(limit))
    assert found.sigma == pytest.approx(sigma, rel=0.03)
    assert found.sigma > sigma * 0.999  # never less noise than is refuted
    assert found.epsilon == pytest.approx(
        epsilon([SampledGaussian(q=1.0, sigma=found.sigma, steps=4, sensitivity=1.0)], 1e-5)
    )
    assert (found.sigma <= EVENT.sigma) == (sigma < EVENT.sigma)


def test_nothing_refuted_is_zero_and_everything_ends(family):
    nothing = family.bound(lambda curve: False)
    assert (nothing.epsilon, nothing.sigma) == (0.0, math.inf)
    assert family.bound(lambda curve: True).epsilon >= 30


def test_a_curves_own_epsilon_is_the_accountants(family):
    for sigma in (1.0, 2.0, 4.0):
        assert family.curve(sigma).epsilon(1e-5) == pytest.approx(family.epsilon(sigma), rel=0.02)


@pytest.mark.parametrize("fallen", [True, False])
def test_coins_that_all_fall_alike_refute_nothing(family, fallen):
    scores = np.random.default_rng(0).normal(size=10)
    adversary = Adversary("one", scores, calibration=scores[::-1].copy())
    found = weigh([adversary], np.full(10, fallen), family, 1.0, 0.05)
    assert not found.refuted
    assert (found.curve[0].tolist(), found.curve[1].tolist()) == ([0.0, 1.0], [0.0, 1.0])
