"""ROC of pairs against brute force."""

import numpy as np
import pytest

from dpose_lab.attacks.linkage import Pairs


def made(seed=0, people=8, levels=None):
    rng = np.random.default_rng(seed)
    similarity = rng.normal(size=(people, people)) + 1.2 * np.eye(people)
    if levels:
        similarity = np.round(similarity * levels) / levels
    return similarity, Pairs.across(similarity, np.arange(people), np.arange(people))


@pytest.mark.parametrize("levels", [None, 1])
def test_the_area_is_the_share_of_pairs_of_pairs_in_the_right_order(levels):
    similarity, pairs = made(levels=levels)
    same, two = np.diag(similarity), similarity[~np.eye(len(similarity), dtype=bool)]
    wins = [(a > b) + 0.5 * (a == b) for a in same for b in two]
    found = pairs.auc()
    assert found.value == pytest.approx(np.mean(wins))
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize("most", [0.0, 0.05, 0.3])
def test_found_at_few_false_alarms(most):
    similarity, pairs = made(3, levels=4)
    same, two = np.diag(similarity), similarity[~np.eye(len(similarity), dtype=bool)]
    thresholds = [t for t in [*similarity.ravel(), np.inf] if (two >= t).mean() <= most]
    assert pairs.tpr_at(most).value == pytest.approx(max((same >= t).mean() for t in thresholds))


def test_the_curve_goes_from_nothing_to_everything():
    false, true = made()[1].roc()
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()


def test_a_person_drawn_twice_counts_as_two():
    similarity, pairs = made(5, people=4)
    rows = [0, 0, 2, 3]
    again = similarity[np.ix_(rows, rows)]
    same = np.equal.outer(rows, rows)
    weights = np.array([2.0, 0.0, 1.0, 1.0])
    false, true = pairs._roc(weights)
    t = float(np.median(similarity))
    kept = pairs.score >= t
    assert false[kept.sum()] == pytest.approx((again[~same] >= t).mean())
    # somebody drawn twice is one more person of the same kind, not a pair with oneself
    expected = (weights * (np.diag(similarity) >= t)).sum() / weights.sum()
    assert true[kept.sum()] == pytest.approx(expected)


def test_pairs_of_one_kind_tell_nothing():
    with pytest.raises(ValueError, match="pairs of two are needed"):
        Pairs.across(np.zeros((1, 1)), np.array([0]), np.array([0]))
