"""What no attacker can do is never less than the truth: closed forms, the accountant itself, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dpose.privacy.accounting import COARSE, epsilon
from dpose.privacy.attackers import FALSE_ALARMS, AttackerBound, RateBound, bound_attackers, loss_grid, true_positives
from dpose.privacy.events import SampledGaussian
from dpose.privacy.gaussian import gaussian_delta
from dpose.privacy.neighbours import Relation
from dpose.privacy.tradeoff import composed_accountant, gaussian, of_events
from refusals import refused

DELTA = 1e-5
SAMPLED = SampledGaussian(0.05, 1.0, 30, 1.0)


def bounds(*pairs):
    return tuple(RateBound(fpr, tpr) for fpr, tpr in pairs)


@pytest.mark.parametrize(("relation", "factor"), [(Relation.ZERO_OUT, 1.0), (Relation.REPLACE, 2.0)])
def test_of_one_gaussian_it_is_the_gaussian(relation, factor):
    sigma, steps = 4.0, 5
    mu = factor * math.sqrt(steps) / sigma
    bound = bound_attackers([SampledGaussian(1.0, sigma, steps, 1.0)], relation, DELTA)
    assert mu <= bound.gaussian_mu <= 1.002 * mu
    assert bound.mu_excess < 2e-3
    for rate, found in bound.rates.items():
        true = norm.cdf(norm.ppf(rate) + mu)
        assert true <= found <= 1.005 * true


def test_the_gaussian_curve_is_above_the_accountants_as_far_as_the_floor():
    bound = bound_attackers([SAMPLED], Relation.ZERO_OUT, DELTA)
    spent_at = composed_accountant((SAMPLED,), Relation.ZERO_OUT, COARSE).get_epsilon
    for at in (1e-4, 1e-2):
        assert gaussian_delta(bound.gaussian_mu, spent_at(at)) >= at * (1 - 1e-9)
    # and it is the least: a little less is below it somewhere
    assert gaussian_delta(0.995 * bound.gaussian_mu, spent_at(DELTA)) < DELTA
    # matched where delta is large instead, it would be too small
    middle = spent_at(1e-2)
    matched = next(mu for mu in np.linspace(0.01, 5, 500) if gaussian_delta(mu, middle) >= 1e-2)
    assert matched < 0.9 * bound.gaussian_mu


def test_what_the_gaussian_curve_loses_is_what_it_allows_more():
    bound = bound_attackers([SAMPLED], Relation.ZERO_OUT, DELTA)
    rates = np.linspace(0.001, 0.999, 300)
    run, bell = of_events([SAMPLED], grid=COARSE), gaussian(bound.gaussian_mu)
    more = bell.power(rates) - run.power(rates)
    assert more.min() > -1e-3  # below the floor the run may exceed it
    assert more.max() <= bound.mu_excess + 1e-5 <= more.max() + 0.01


def test_every_test_between_two_sampled_batches_is_within_it():
    """The best test of one step, the likelihood ratio of the mixture: in both directions."""
    q, sigma = 0.3, 0.9
    bound = bound_attackers([SampledGaussian(q, sigma, 1, 1.0)], Relation.ZERO_OUT, DELTA)
    for rate, found in bound.rates.items():
        there = norm.isf(rate) * sigma
        removed = (1 - q) * rate + q * norm.sf((there - 1) / sigma)
        lows = np.linspace(-8, 8, 4001)
        mixed = (1 - q) * norm.cdf(lows / sigma) + q * norm.cdf((lows - 1) / sigma)
        added = np.interp(rate, mixed, norm.cdf(lows / sigma))
        assert max(removed, added) <= found + 1e-9


def test_the_curve_is_concave_rises_and_says_less_than_one_pair():
    curve, rates = of_events([SAMPLED], grid=COARSE), np.linspace(0.0, 1.0, 501)
    power = curve.power(rates)
    assert (np.diff(power) >= -1e-12).all()
    assert (np.diff(power, 2) <= 1e-9).all()
    assert (power >= rates - 1e-12).all()
    spent = epsilon([SAMPLED], DELTA)
    found = bound_attackers([SAMPLED], Relation.ZERO_OUT, DELTA).rates
    assert all(found[rate] <= true_positives(spent, DELTA, rate) + 1e-6 for rate in FALSE_ALARMS)
    assert found[0.01] < 0.5 * true_positives(spent, DELTA)


def test_it_reads_back_and_refuses_what_is_none():
    bound = bound_attackers([SAMPLED], Relation.ZERO_OUT, DELTA)
    told = bound.to_dict()
    assert AttackerBound.read(told) == bound
    for wrong in ({}, [], told | {"more": "1"}, told | {"gaussian_mu": 1.0}, told | {"tpr_bound": [{}]}):
        with refused(("field-names-wrong", "field-not-object", "decimal-malformed")):
            AttackerBound.read(wrong)
    with refused("attacker-bound-invalid"):
        AttackerBound.read(told | {"gaussian_mu": "-1.0"})


@pytest.mark.parametrize(
    "change",
    [
        {"gaussian_mu": 0.5},
        {"mu_valid_from_delta": 1e-3},
        {"tpr_bound": bounds((0.01, 0.011))},
        {"tpr_bound": bounds((0.3, 0.99), *((r, 0.99) for r in FALSE_ALARMS[1:]))},
        {"tpr_bound": bounds(*((rate, 0.45) for rate in FALSE_ALARMS))},
    ],
)
def test_one_that_was_made_prettier_is_refused(change):
    true = bound_attackers([SAMPLED], Relation.ZERO_OUT, DELTA)
    true.check(true, 1e-6)
    with refused("attacker-bound-too-small"):
        replace(true, **change).check(replace(true, tpr_bound=bounds(*((r, 0.9) for r in FALSE_ALARMS))), 1e-6)


def test_what_protects_nobody_has_none():
    assert bound_attackers([SampledGaussian(1.0, 0.2, 1000, 1.0)], Relation.ZERO_OUT, DELTA) is None
    assert bound_attackers([SAMPLED], Relation.ZERO_OUT, 1e-12) is None


def test_many_small_steps_are_told_on_the_fine_grid():
    """On the coarse one this run would look twice as bad as it is."""
    small = SampledGaussian(0.01, 50.0, 2000, 1.0)
    found = bound_attackers([small], Relation.ZERO_OUT, DELTA).rates[0.01]
    assert found <= true_positives(epsilon([small], DELTA), DELTA)
    assert loss_grid([small]) < loss_grid([SAMPLED])
    assert loss_grid([small, SAMPLED]) == loss_grid([small])
