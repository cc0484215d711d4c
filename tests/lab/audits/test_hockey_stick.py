"""The black-box auditor: sound, not blind, and equal to the sum where the sum can be taken."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpose.privacy.tradeoff import gaussian
from dpose_lab.audits.hockey_stick import audit_mechanism, exact_delta, exact_epsilon


def shifted(rng, mean):
    return lambda count: rng.normal(mean, 1.0, count)


def test_a_true_claim_is_seldom_refuted_and_a_false_one_is():
    rng = np.random.default_rng(0)
    delta = norm.cdf(0.5 - 1.0) - math.e * norm.cdf(-0.5 - 1.0)  # of mu = 1 at epsilon 1 (Balle and Wang 2018)
    runs = 60
    wrong = sum(
        audit_mechanism(
            shifted(rng, 1.0), shifted(rng, 0.0), epsilon=1.0, delta=delta, samples=2000, curve=gaussian(1.0)
        ).flagged
        for _ in range(runs)
    )
    assert wrong <= binom.ppf(0.999, runs, 0.05)
    found = audit_mechanism(
        shifted(rng, 1.3), shifted(rng, 0.0), epsilon=1.0, delta=delta, samples=20000, curve=gaussian(1.0)
    )
    assert found.refuted_by == ("(epsilon, delta)", "trade-off curve")
    assert found.hockey_stick[0] > found.hockey_stick[1] > delta


def test_events_are_tested_on_other_samples_than_those_that_chose_them():
    """A score that knows the choosing half by heart gains nothing."""
    rng = np.random.default_rng(1)
    seen = []

    def draw(count):
        seen.append(rng.normal(size=count))
        return seen[-1]

    def by_heart(outputs):
        return np.isin(outputs, seen[0]).astype(float)  # the first input's choosing half

    found = audit_mechanism(draw, draw, epsilon=0.1, delta=0.0, samples=2000, scores={"by heart": by_heart})
    assert found.epsilon_bound == 0.0
    assert not found.flagged


def test_vectors_are_audited_through_a_score():
    rng = np.random.default_rng(2)
    found = audit_mechanism(
        lambda count: rng.normal(0.5, 1, (count, 3)),
        lambda count: rng.normal(0.0, 1, (count, 3)),
        epsilon=0.2,
        delta=1e-5,
        samples=10000,
        scores={"sum": lambda outputs: outputs.sum(axis=1)},
    )
    assert found.flagged
    assert "sum >=" in str(found.pair.event)


def test_the_sum_agrees_with_what_is_known():
    told = math.exp(1.5) / (1 + math.exp(1.5))
    yes, no = {0: 1 - told, 1: told}, {0: told, 1: 1 - told}
    assert exact_epsilon(yes, no, 0.0) == pytest.approx(1.5)
    assert exact_delta(yes, no, 0.0) == pytest.approx(2 * told - 1)
    # with k independent answers the loss is k times that
    twice = [{(a, b): p[a] * p[b] for a in p for b in p} for p in (yes, no)]
    assert exact_epsilon(*twice, 0.0) == pytest.approx(3.0)
    assert exact_epsilon({0: 0.9, 1: 0.1}, {0: 1.0}, 0.1) == 0.0
    assert exact_epsilon({0: 0.9, 1: 0.1}, {0: 1.0}, 0.05) == math.inf


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="at least four"):
        audit_mechanism(lambda n: np.zeros(n), lambda n: np.zeros(n), epsilon=1, delta=0, samples=3)
