"""The Gaussian mechanism's curve, against numerical integration, dp-accounting and exact discrete sums."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpose.privacy.accounting import Accountant, cost, epsilon
from dpose.privacy.events import Gaussian, Laplace, SampledGaussian
from dpose.privacy.gaussian import (
    discrete_epsilon,
    discrete_mu,
    gaussian_delta,
    gaussian_epsilon,
    largest_mu,
    least_variance,
)
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.renyi import zcdp_epsilon
from dpose.privacy.statement import Kind, PrivacyStatement
from refusals import refused

EVENT = Gaussian(Fraction(10_000), Fraction(2_500))


def integrated(mu, eps):
    """The area by which one Gaussian's density exceeds e^epsilon times the other's, in 30 digits."""
    with mpmath.workdps(30):
        start = mpmath.mpf(eps) / mu + mpmath.mpf(mu) / 2  # where the two are equal

        def excess(x):
            return mpmath.npdf(x, mu) - mpmath.exp(eps) * mpmath.npdf(x)

        return float(mpmath.quad(excess, [start + 2 * n for n in range(24)], maxdegree=4))


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 1.7, 6.0, 30.0])
@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0, 8.0, 60.0])
def test_delta_is_the_area_between_the_densities(mu, eps):
    exact = integrated(mu, eps)
    assert gaussian_delta(mu, eps) == pytest.approx(exact, rel=1e-9, abs=1e-25)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01, 0.4])
@pytest.mark.parametrize("mu", [0.001, 0.1, 1.0, 5.0, 40.0])
def test_epsilon_gives_delta_back(mu, delta):
    found = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, found) <= delta * (1 + 1e-9)
    if found > 1e-6:
        assert gaussian_delta(mu, found * (1 - 1e-6)) > delta


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_dp_accounting_agrees(mu):
    event = SampledGaussian(1.0, 1 / mu, 1, 1.0)
    theirs = epsilon([event], 1e-5, Relation.ADD_REMOVE, Accountant.PLD)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(theirs, rel=1e-4)


def test_the_largest_mu_meets_the_budget_and_beats_zcdp():
    for eps in (0.1, 1.0, 8.0):
        mu = largest_mu(eps, 1e-5)
        assert eps * (1 - 1e-9) < gaussian_epsilon(mu, 1e-5) <= eps
        assert zcdp_epsilon(mu**2 / 2, 1e-5) > eps  # the same noise, told apart less well


def test_extremes():
    assert gaussian_epsilon(0, 1e-5) == 0
    assert gaussian_epsilon(1e-8, 1e-5) == 0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    huge = gaussian_epsilon(1e6, 1e-5)
    assert huge == pytest.approx(5e11 + 1e6 * 4.2649, rel=1e-9)  # mu^2/2 + mu * quantile
    for wrong in (0, 1, 1.5, -0.1):
        with refused("delta-out-of-range"):
            gaussian_epsilon(1.0, wrong)
    with refused("epsilon-not-positive"):
        largest_mu(0, 1e-5)


@pytest.mark.parametrize("shift", [3, 10, 40])
def test_discrete_noise_is_no_worse_than_claimed_and_hardly_better(shift):
    """The exact hockey-stick divergence of a discrete Gaussian of variance 100 from its shifted self."""
    x = np.arange(-600, 601)
    law = np.exp(-(x.astype(np.longdouble) ** 2) / 200)
    law /= law.sum()
    mu = discrete_mu([(Fraction(shift * shift), Fraction(100), 1)])
    for eps in (0.2, 1.0, 3.0, 9.0):
        moved = np.roll(law, shift)
        exact = float(np.maximum(moved - np.exp(np.longdouble(eps)) * law, 0).sum())
        assert exact <= gaussian_delta(mu, eps)
        assert gaussian_delta(mu * 0.93, eps) < exact + 1e-12  # 4 of 100 off the variance is 2 % of mu


def test_the_smallest_square_that_is_enough():
    for squared in (Fraction(1), Fraction(10**10), Fraction(7067 * 7067, 3)):
        variance = least_variance(squared, 2.0, 1e-6)
        root = math.isqrt(variance)
        assert root * root == variance
        assert discrete_epsilon(discrete_mu([(squared, Fraction(variance), 1)]), 1e-6) <= 2.0
        less = Fraction((root - 1) ** 2)
        if less >= 100:
            assert discrete_epsilon(discrete_mu([(squared, less, 1)]), 1e-6) > 2.0


def test_squares_add_up():
    one = cost([Gaussian(Fraction(10_004), Fraction(2_500), 4)], 1e-5, accountant=Accountant.GAUSSIAN)
    assert one == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-9)
    two = cost([Gaussian(Fraction(10_004), Fraction(2_500), 2)] * 2, 1e-5, accountant=Accountant.GAUSSIAN)
    assert two == one


def test_the_account_adds_up_what_is_noised_so_by_the_same_curve():
    """A release at epsilon 8 was listed at 8.6."""
    for events in ([EVENT], [EVENT] * 3, [EVENT, Gaussian(Fraction(10_004), Fraction(2_500), 4)]):
        own, concentrated = (cost(events, 1e-5, accountant=a) for a in (Accountant.GAUSSIAN, Accountant.ZCDP))
        assert cost(events, 1e-5) == pytest.approx(own, abs=1e-9)
        assert own < concentrated
    coarse = Gaussian(Fraction(99), Fraction(1))
    assert cost([coarse], 1e-5) == pytest.approx(cost([coarse], 1e-5, accountant=Accountant.ZCDP), rel=0.1)


def test_what_it_cannot_count():
    with refused("event-unsupported"):
        cost([Laplace(Fraction(3), Fraction(1))], 1e-5, accountant=Accountant.GAUSSIAN)
    with refused("noise-too-coarse"):
        cost([Gaussian(Fraction(99), Fraction(1))], 1e-5, accountant=Accountant.GAUSSIAN)


def test_a_statement_under_this_accountant_adds_up_or_is_refused():
    from dataclasses import replace

    spent = cost([EVENT], 1e-5, accountant=Accountant.GAUSSIAN)
    made = PrivacyStatement(
        kind=Kind.PRIVATE,
        unit="pixel",
        neighbours=Neighbours.of_pixels(16, "clip"),
        epsilon=spent,
        delta=1e-5,
        accountant=Accountant.GAUSSIAN,
        events=(EVENT,),
    )
    assert PrivacyStatement.from_json(made.to_json()).verify() == spent
    assert "Gaussian mechanism's own curve" in made.paragraph()
    with refused("statement-does-not-add-up"):
        replace(made, epsilon=spent * 0.99).verify()
    frame = replace(made, neighbours=Neighbours.of_pixels(100, "one frame"))
    assert "any 100 pixels of any one frame of the clip" in frame.paragraph()
