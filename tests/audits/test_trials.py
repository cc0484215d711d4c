"""Exact intervals, and operating points whose thresholds come from elsewhere."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpose.audits.trials import Trials, epsilon_by, operating_points, refuted_by, roc
from dpose.privacy.tradeoff import gaussian


def test_clopper_pearson_inverts_the_binomial_tails():
    found = Trials(7, 50)
    low, high = found.interval(0.1)
    assert binom.sf(6, 50, low) == pytest.approx(0.05)
    assert binom.cdf(7, 50, high) == pytest.approx(0.05)
    assert Trials(0, 50).at_least(0.05) == 0.0
    assert Trials(50, 50).at_most(0.05) == 1.0
    assert Trials(0, 50).at_most(0.05) == pytest.approx(1 - 0.05 ** (1 / 50))


def test_epsilon_by_is_the_log_of_the_worst_ratio():
    true, false = Trials(90, 100), Trials(10, 100)
    expected = np.log((true.at_least(0.025) - 1e-3) / false.at_most(0.025))
    assert epsilon_by(true, false, 1e-3, 0.05) == pytest.approx(expected)
    assert epsilon_by(Trials(1, 100), false, 0.5, 0.05) == 0.0


def test_thresholds_come_from_the_calibration_samples_alone():
    calibration = np.arange(1000.0)
    points = operating_points(np.array([989.0, 990.0, 999.5]), np.array([989.5, 10.0]), calibration, (0.01, 0.5))
    assert [p.true for p in points] == [Trials(2, 3), Trials(3, 3)]
    assert [p.false for p in points] == [Trials(1, 2), Trials(1, 2)]


def test_equal_scores_are_not_above_their_own_threshold():
    points = operating_points(np.zeros(5), np.zeros(5), np.zeros(100), (0.1,))
    assert points[0].false == points[0].true == Trials(0, 5)


def test_false_refutations_are_rare_and_true_ones_are_not():
    rng = np.random.default_rng(0)
    curve, runs = gaussian(1.0), 400

    def refutations(mu):
        count = 0
        for _ in range(runs):
            true = Trials(int((rng.normal(mu, 1, 250) > 2.0).sum()), 250)
            false = Trials(int((rng.normal(0, 1, 4000) > 2.0).sum()), 4000)
            count += refuted_by(true, false, curve, 0.05)
        return count

    assert refutations(1.0) <= binom.ppf(0.999, runs, 0.05)
    assert refutations(2.0) == runs


def test_the_curve_begins_and_ends_in_the_corners():
    rng = np.random.default_rng(0)
    fpr, tpr = roc(rng.normal(1, 1, 3000), rng.normal(0, 1, 30000))
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()
    assert len(fpr) <= 410
    assert np.interp(0.1, fpr, tpr) == pytest.approx(norm.cdf(norm.ppf(0.1) + 1), abs=0.03)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="cannot be"):
        Trials(0, 0)
