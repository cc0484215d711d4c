"""One-run auditing: right where the answer is known, sound under mechanisms whose epsilon is known, and not blind."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from dpose.audits.findings import LARGEST, Guesses, epsilon_bound, guess, p_values, refuted
from dpose.privacy.tradeoff import approximate, gaussian
from quick import quick  # noqa: F401


def p_value(guesses, epsilon, delta):
    return float(p_values(guesses, np.array([epsilon]), delta)[0])


def test_pure_epsilon_is_a_binomial_tail():
    assert p_value(Guesses(100, 40, 33), 1.0, 0.0) == pytest.approx(binom.sf(32, 40, expit(1.0)))
    assert p_value(Guesses(100, 40, 0), 1.0, 0.0) == 1.0


def test_delta_adds_what_the_theorem_says():
    guesses, epsilon, delta = Guesses(50, 20, 18), 1.2, 1e-3
    outcome = [binom.pmf(k, 20, expit(epsilon)) for k in range(21)]
    worst = max(sum(outcome[18 - i : 18]) / i for i in range(1, 19))
    expected = sum(outcome[18:]) + 2 * 50 * delta * worst
    assert p_value(guesses, epsilon, delta) == pytest.approx(expected, rel=1e-9)


def test_a_bound_stops_where_the_p_value_passes_alpha():
    guesses = Guesses(400, 120, 100)
    bound = epsilon_bound(guesses, 1e-5, 0.05)
    assert p_value(guesses, bound, 1e-5) <= 0.05 < p_value(guesses, bound + 0.011, 1e-5)
    assert epsilon_bound(Guesses(100, 50, 25), 1e-5, 0.05) == 0.0
    assert epsilon_bound(Guesses(5000, 5000, 5000), 0.0, 0.05) < LARGEST


def test_the_highest_are_guessed_in_and_the_lowest_out():
    scores = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    included = np.array([True, False, True, True, False])
    assert guess(scores, included, 4) == Guesses(5, 4, 3)
    assert guess(scores, included, 3) == Guesses(5, 3, 3)
    with pytest.raises(ValueError, match="6 guesses"):
        guess(scores, included, 6)


def test_ties_carry_no_information():
    included = np.array([False, True] * 50)
    assert guess(np.zeros(100), included, 40) == Guesses(100, 40, 20)


def randomized_response(epsilon, canaries, rng):
    """Scores from an exactly epsilon-DP mechanism: each coin is told truly with probability e^eps / (1 + e^eps)."""
    included = rng.random(canaries) < 0.5
    truthful = rng.random(canaries) < expit(epsilon)
    return np.where(truthful, included, ~included) + 1e-6 * rng.random(canaries), included


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_bounds_hold_on_randomized_response_and_are_tight(epsilon):
    rng = np.random.default_rng(1)
    alpha, runs, canaries = 0.1, 200, 300
    made = [guess(*randomized_response(epsilon, canaries, rng), 150) for _ in range(runs)]
    bounds = np.array([epsilon_bound(g, 1e-6, alpha) for g in made])
    # wrong with probability at most 0.1: of 200 runs, at most 34 with probability 0.999
    assert (bounds > epsilon).sum() <= binom.ppf(0.999, runs, alpha)
    assert (bounds > epsilon).sum() >= 1
    assert np.median(bounds) > epsilon - 0.5
    curve = approximate(epsilon, 0.0)
    wrong = sum(refuted(g, curve, alpha) for g in made)
    assert wrong <= binom.ppf(0.999, runs, alpha)


def test_the_curve_test_is_sound_where_all_canaries_fall_together():
    """The hardest case that a Gaussian curve allows: with small probability everything is told at once."""
    rng = np.random.default_rng(2)
    delta, canaries, runs, alpha = 0.03, 100, 400, 0.05
    curve = approximate(0.0, delta)  # all or nothing: (0, delta)-DP
    wrong = 0
    for _ in range(runs):
        included = rng.random(canaries) < 0.5
        told = rng.random() < delta
        scores = included + rng.random(canaries) if told else rng.random(canaries)
        wrong += refuted(guess(scores, included, 40), curve, alpha)
    assert wrong <= binom.ppf(0.999, runs, alpha)


def test_the_curve_test_is_sound_on_a_gaussian_and_sees_a_stronger_one():
    rng = np.random.default_rng(3)
    curve, canaries, runs = gaussian(1.0), 2000, 100

    def refutations(mu):
        count = 0
        for _ in range(runs):
            included = rng.random(canaries) < 0.5
            count += refuted(guess(mu * included + rng.normal(size=canaries), included, 100), curve, 0.05)
        return count

    assert refutations(1.0) <= binom.ppf(0.999, runs, 0.05)
    assert refutations(3.0) >= 95


def test_the_greedy_choice_is_the_optimum():
    """The largest tail that the inequalities of one-run auditing allow, by convex programming."""
    from scipy.optimize import minimize

    curve, m, made, correct = gaussian(1.5), 12, 6, 5
    counts = np.arange(made + 1)

    def slack(p):
        right = np.cumsum((counts * p)[::-1])[::-1] / m
        wrong = np.cumsum(((made - counts) * p)[::-1])[::-1] / m
        return np.array([wrong[i] - curve.least_false_positive(right[i + 1]) for i in range(made)])

    found = 0.0
    for tail in (0.2, 0.5, 0.9):
        start = np.full(made + 1, (1 - tail) / correct)
        start[correct:] = tail / 2
        answer = minimize(
            lambda p: -p[correct:].sum(),
            start,
            method="SLSQP",
            bounds=[(0, 1)] * (made + 1),
            constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1}, {"type": "ineq", "fun": slack}],
            options={"maxiter": 500, "ftol": 1e-10},
        )
        if slack(answer.x).min() > -1e-6:
            found = max(found, -answer.fun)
    guesses = Guesses(m, made, correct)
    assert refuted(guesses, curve, 1.01 * found)
    assert not refuted(guesses, curve, 0.99 * found)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="cannot be"):
        Guesses(10, 5, 6)
