"""Exact events cost what they cost: to the last digit where the guarantee is pure, never less where it is not."""

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.events import BOUNDLESS, Approximate, Gaussian, Laplace, Renyi, SampledGaussian, merge
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.ranges import check_delta, exact_text, parse_exact
from dpose.privacy.renyi import (
    APPROXIMATE_SHARE,
    ORDERS,
    SPLITS,
    in_two_steps,
    order_of_budget,
    zcdp_budget,
    zcdp_epsilon,
)
from dpose.privacy.statement import FLOATING_POINT_CAVEAT, PrivacyStatement
from refusals import refused
from statements import of_a_picture

LAPLACE = Laplace(Fraction(2040), Fraction(4080))
GAUSSIAN = Gaussian(Fraction(10_000**2), Fraction(4080**2))
POISSON = SampledGaussian(q=0.05, sigma=2.0, steps=30, sensitivity=1.0)


def statement(**changes) -> PrivacyStatement:
    fields = {"events": (LAPLACE,), "release": {"mechanism": "pixelization"}, "artefact_sha256": "ab" * 32}
    return of_a_picture(**{**fields, **changes})


@given(st.fractions())
def test_fractions_survive_as_text(value):
    assert parse_exact(exact_text(value), "x") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(2), "2"), (Fraction(1, 2), "0.5"), (Fraction(-3, 40), "-0.075"), (Fraction(4080, 7), "4080/7")],
)
def test_fractions_read_well(value, text):
    assert exact_text(value) == text


def test_a_number_that_nothing_can_be_computed_with_is_refused():
    with refused("fraction-too-large", where="1e400"):
        parse_exact("1e400", "--epsilon")


@pytest.mark.parametrize("text", ["", "nan", "inf", "1/0", "0x10", "1e9999", " 1", "1_000", "9" * 401, 2, None])
def test_other_texts_are_refused(text):
    with refused(("fraction-divides-by-zero", "fraction-malformed")):
        parse_exact(text, "x")


@pytest.mark.parametrize("text", ["two", "1,5", "nan"])
def test_what_a_number_may_be_is_told(text):
    with refused("fraction-malformed", where=f"epsilon: must be a number such as 2, 0.5 or 1/3, not '{text}'"):
        parse_exact(text, "epsilon")
    with refused("delta-out-of-range", where="delta must be above 0 and below 1, not 0; give --delta 1e-5"):
        check_delta(0.0)


def test_pure_epsilon_adds_up_exactly():
    tenth = Laplace(Fraction(10), Fraction(1), steps=3)
    assert cost([LAPLACE, tenth], 0.0, accountant=Accountant.PURE) == Fraction(23, 10)
    assert cost([], 0.0, accountant=Accountant.PURE) == 0


def test_equal_events_are_one_of_more_steps_and_no_others_are():
    rare, once = Approximate(1.0, 1e-6), Renyi(((2.0, 0.5),))
    wider = Laplace(Fraction(2041), Fraction(4080))
    more = Gaussian(GAUSSIAN.variance, GAUSSIAN.sensitivity_squared, 4)
    given = [GAUSSIAN, LAPLACE, rare, more, once, wider, POISSON, LAPLACE, LAPLACE, rare, POISSON]
    assert merge(given) == (
        Gaussian(GAUSSIAN.variance, GAUSSIAN.sensitivity_squared, 5),
        Laplace(LAPLACE.scale, LAPLACE.sensitivity, 3),
        rare,
        once,
        wider,
        SampledGaussian(q=0.05, sigma=2.0, steps=60, sensitivity=1.0),
        rare,
    )


@pytest.mark.parametrize(
    ("wanted", "area", "k"), [(1, 0, 1), (4, 0, 1), (5, 0, 2), (8, 0, 2), (9, 0, 3), (9, 7, 2), (9, 8, 2), (9, 100, 3)]
)
def test_more_pixels_are_as_many_neighbours_one_after_the_other(wanted, area, k):
    """Of a mechanism bounded for 4 pixels; a picture has no more of them than its area."""
    near = Neighbours.of_pixels(wanted)
    pure = Laplace(Fraction(10), Fraction(3), pixels=4)
    assert pure.for_neighbours(near, area) == Laplace(Fraction(10), Fraction(3 * k), pixels=wanted)
    squared = Gaussian(Fraction(100), Fraction(9), pixels=4)
    assert squared.for_neighbours(near, area) == Gaussian(Fraction(100), Fraction(9 * k * k), pixels=wanted)
    known = Laplace(Fraction(10), Fraction(3), pixels=4, points=((9, Fraction(4)), (0, Fraction(100))))
    assert known.for_neighbours(near, area).sensitivity == min(3 * k, 4)
    rare = Approximate(0.5, 1e-6, 4).for_neighbours(near, area)
    assert (rare.epsilon, rare.pixels) == (0.5 * k, wanted)
    assert rare.delta == pytest.approx(1e-6 * sum(math.exp(0.5 * i) for i in range(k)), rel=1e-12)


def test_a_whole_picture_is_bounded_where_its_area_is_known():
    whole = Neighbours("image")
    for event in (Laplace(Fraction(10), Fraction(3), pixels=4), Approximate(0.5, 0.0, 4)):
        assert event.for_neighbours(whole, 0) == BOUNDLESS
        assert event.for_neighbours(whole, 10).pixels == 0
    assert Laplace(Fraction(10), Fraction(3), pixels=4).for_neighbours(whole, 10).sensitivity == 9
    everything = Laplace(Fraction(10), Fraction(3))
    assert everything.for_neighbours(Neighbours.of_pixels(9), 0).sensitivity == 3
    assert everything.for_neighbours(whole, 0).sensitivity == 3


@pytest.mark.parametrize(
    ("event", "pixels", "found"),
    [
        (Approximate(0.5, 0.0, 1), 1000, Approximate(500.0, 0.0, 1000)),
        (Approximate(0.5, 1e-300, 1), 1000, BOUNDLESS),  # of so many delta is not added up any more
        (Approximate(0.0, 1e-9, 1), 999, Approximate(0.0, 999e-9, 999)),
        (Approximate(0.875, 0.0, 1), 800, Approximate(700.0, 0.0, 800)),
        (Approximate(0.875, 0.0, 1), 801, BOUNDLESS),
        (Approximate(0.0, 0.25, 1), 3, Approximate(0.0, 0.75, 3)),
        (Approximate(0.0, 0.25, 1), 4, BOUNDLESS),
        (Approximate(1.0, 0.5, 1), 2, BOUNDLESS),
        (Approximate(math.inf, 0.0, 1), 1, BOUNDLESS),
    ],
)
def test_what_grows_beyond_all_bounds_bounds_nothing(event, pixels, found):
    assert event.for_neighbours(Neighbours.of_pixels(pixels), 0) == found


def test_divergences_of_single_events():
    """The lesser of epsilon and order * epsilon^2 / 2 where the loss is pure; order * rho for zCDP."""
    pure = Laplace(Fraction(4), Fraction(1), steps=3)
    assert pure.renyi(2.0, replaces=False) == pytest.approx(3 * 2.0 * 0.25**2 / 2, rel=1e-12)
    assert pure.renyi(100.0, replaces=True) == pytest.approx(3 * 0.25, rel=1e-12)
    assert Approximate(0.25, 1e-6).pixels == 0
    assert Approximate(0.25, 1e-6).renyi(2.0, replaces=False) == pytest.approx(0.0625, rel=1e-12)
    assert Approximate(0.25, 1e-6).renyi(100.0, replaces=True) == 0.25
    assert (Approximate(0.25, 0.0).pure(), Approximate(0.25, 1e-9).pure()) == (0.25, math.inf)
    normal = Gaussian(Fraction(8), Fraction(4), steps=3)
    assert normal.rho() == Fraction(3, 4)
    assert normal.renyi(5.0, replaces=True) == pytest.approx(3.75, rel=1e-12)
    for event in (pure, normal, Renyi(((2.0, 0.1),))):
        assert event.rho() == math.inf or event is normal
        assert event.pure() == math.inf or event is pure


def test_times_as_much_is_known_of_no_other_pixels():
    points = ((9, Fraction(5)),)
    pure = Laplace(Fraction(4), Fraction(2), 3, 4, points)
    assert pure.times(3) == Laplace(Fraction(4), Fraction(6), 3, 4)
    normal = Gaussian(Fraction(8), Fraction(2), 3, 4, points)
    assert normal.times(3) == Gaussian(Fraction(8), Fraction(18), 3, 4)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        *(
            (lambda m=m, v=v: m(*v), "fraction-not-positive")
            for m in (Laplace, Gaussian)
            for v in ((0, 1), (1, 0), (-1, 1), (1, -1))
        ),
        (lambda: Laplace(1, 1, points=((4, Fraction(0)),)), "fraction-not-positive"),
        (lambda: Gaussian(1, 1, points=((4, Fraction(0)),)), "fraction-not-positive"),
        (lambda: Approximate(-0.1, 0.0), "cost-negative"),
        (lambda: Approximate(math.nan, 0.0), "cost-negative"),
        (lambda: Approximate(1.0, -0.1), "delta-out-of-range"),
        (lambda: Approximate(1.0, 1.1), "delta-out-of-range"),
        (lambda: Renyi(((2.0, -0.1),)), "cost-negative"),
        (lambda: Renyi(((1.0, 0.1),)), "renyi-orders-invalid"),
        (lambda: Renyi(((2.0, 0.1), (2.0, 0.2))), "renyi-orders-invalid"),
        (lambda: Renyi(((3.0, 0.1), (2.0, 0.2))), "renyi-orders-invalid"),
        (lambda: Renyi(()), "renyi-orders-invalid"),
    ],
)
def test_events_that_cannot_be_are_refused(make, code):
    with refused(code):
        make()


@pytest.mark.parametrize("order", [1.125, 2.0, 7.0])
def test_out_and_in_again_is_the_weak_triangle_inequality(order):
    """For a curve c a + d, whose bound at p, 1/p + 1/q = 1, is computed in fractions."""
    c, d, a = Fraction(3, 7), Fraction(1, 5), Fraction(order)

    def bound(p):
        q = p / (p - 1)
        return (a - 1 / p) / (a - 1) * (c * p * a + d) + c * q * (a - 1 / p) + d

    least = min(bound(Fraction(p)) for p in SPLITS)
    assert in_two_steps(lambda a: float(c) * a + float(d), order) == pytest.approx(float(least), rel=1e-12)
    curve = Renyi(tuple((float(k), 0.25 * k) for k in range(2, 200)))
    assert curve.renyi(order, replaces=False) == 0.25 * max(2, math.ceil(order))
    assert curve.renyi(order, replaces=True) == in_two_steps(curve.at, order)


@pytest.mark.parametrize(("budget", "delta"), [(0.1, 1e-9), (1.0, 1e-5), (8.0, 1e-5), (60.0, 1e-3)])
def test_the_order_of_a_budget_lets_most_in(budget, delta):
    assert (ORDERS[0], ORDERS[-1], len(ORDERS)) == (1.125, 16_384.0, 69)
    assert sorted(set(ORDERS)) == list(ORDERS)
    assert all(order == round(order) for order in ORDERS if order > 9)
    order, cap = order_of_budget(budget, delta)

    def most(a):
        rest = mpmath.mpf(delta) * (1 - mpmath.mpf(APPROXIMATE_SHARE))
        return budget - (mpmath.log(1 - 1 / mpmath.mpf(a)) - (mpmath.log(rest) + mpmath.log(a)) / (a - 1))

    assert cap == pytest.approx(float(most(order)), rel=1e-9)
    assert all(most(other) / other <= cap / order * (1 + 1e-9) for other in ORDERS)
    assert APPROXIMATE_SHARE == 0.1


def test_the_ratio_of_two_shifted_laws_is_e_to_the_epsilon():
    with mpmath.workprec(200):
        a = mpmath.e ** (-mpmath.mpf(1) / 2040)
        ratio = a ** abs(0) / a ** abs(4080)
        assert abs(mpmath.log(ratio) - mpmath.mpf(2)) < mpmath.mpf(2) ** -150


def test_one_accountant_does_not_count_anothers_events():
    for name, wrong in (("pure", GAUSSIAN), ("zcdp", LAPLACE), ("pure", POISSON), ("gaussian", LAPLACE)):
        with refused("event-unsupported"):
            cost([wrong], 1e-5, accountant=Accountant(name))
    for accountant, event in (("pld", LAPLACE), ("rdp", GAUSSIAN)):
        with refused("accountant-unsuited"):
            statement(accountant=Accountant(accountant), events=(event,), delta=1e-5, epsilon=9.0).verify()


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.2, 1.0, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_zcdp_converts_to_a_bound_that_holds_for_gaussians(rho, delta):
    """The continuous Gaussian of sensitivity 1 has rho = 1/(2 sigma^2) and a known curve; no bound lies below it."""
    claim = zcdp_epsilon(rho, delta)
    mu = math.sqrt(2 * rho)
    true = norm.cdf(-claim / mu + mu / 2) - math.exp(claim) * norm.cdf(-claim / mu - mu / 2)
    assert true <= delta
    # and the older conversion rho + 2 sqrt(rho log(1/delta)) is no better
    assert claim <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-12


@pytest.mark.parametrize("rho", [0.003, 0.3, 30.0])
def test_zcdp_conversion_takes_the_best_order(rho):
    delta = 1e-6

    def at(a):
        return a * rho + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)

    best = min(at(a) for a in 1 + np.geomspace(1e-3, 1e6, 200_000))
    assert zcdp_epsilon(rho, delta) == pytest.approx(max(best, 0), rel=1e-6)


def test_a_discrete_gaussian_stays_within_its_converted_epsilon():
    """Enumerated: the hockey-stick divergence of two discrete Gaussians one sensitivity apart."""
    sigma2, shift, delta = 25, 10, 1e-4
    claim = cost([Gaussian(Fraction(sigma2), Fraction(shift**2))], delta, accountant=Accountant.ZCDP)
    x = np.arange(-120, 131)
    p = np.exp(-(x**2) / (2 * sigma2))
    q = np.exp(-((x - shift) ** 2) / (2 * sigma2))
    p, q = p / p.sum(), q / q.sum()
    assert np.maximum(p - math.exp(claim) * q, 0).sum() <= delta


@settings(deadline=None)
@given(st.floats(1e-3, 50), st.sampled_from([1e-10, 1e-5, 1e-2]))
def test_the_budget_is_met_and_not_wasted(epsilon, delta):
    rho = zcdp_budget(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-6), delta) > epsilon * (1 - 1e-9)


def test_no_cost_and_endless_cost():
    assert zcdp_epsilon(0, 1e-5) == 0
    assert zcdp_epsilon(math.inf, 1e-5) == math.inf


class TestStatement:
    def test_it_reads_back_as_it_was(self):
        for made in (
            statement(),
            statement(epsilon=Fraction(2, 3), events=(Laplace(Fraction(6120), Fraction(4080)),)),
            statement(accountant=Accountant.ZCDP, epsilon=2.5, delta=1e-5, events=(GAUSSIAN,), release={}),
        ):
            assert PrivacyStatement.from_json(made.to_json()) == made

    def test_exact_numbers_are_text(self):
        content = json.loads(statement().to_json())
        assert content["epsilon"] == "2"
        assert content["events"][0] == {
            "type": "discrete-laplace", "scale": "2040", "sensitivity": "4080", "steps": 1,
        }  # fmt: skip

    def test_pure_claims_are_compared_exactly(self):
        assert statement().verify() == 2
        with refused("statement-does-not-add-up"):
            statement(epsilon=Fraction(2) - Fraction(1, 10**30)).verify()

    def test_gaussian_claims_are_recomputed(self):
        spent = cost([GAUSSIAN], 1e-5, accountant=Accountant.ZCDP)
        fields = {"accountant": Accountant.ZCDP, "events": (GAUSSIAN,), "delta": 1e-5}
        assert statement(epsilon=spent, **fields).verify() == spent
        with refused("statement-does-not-add-up"):
            statement(epsilon=spent * 0.999, **fields).verify()

    def test_delta_zero_is_for_pure_differential_privacy_alone(self):
        for changes in (
            {"accountant": Accountant.ZCDP, "events": (GAUSSIAN,), "epsilon": 2.0},
            {"accountant": Accountant.PLD, "events": (POISSON,), "epsilon": 2.0},
        ):
            with refused("delta-out-of-range"):
                statement(delta=0.0, **changes)
        for changes in ({"delta": 1e-5}, {"epsilon": 2.0}):
            with refused("delta-not-zero"):
                statement(**changes)

    def test_exact_noise_needs_no_caveat_about_floating_point(self):
        assert FLOATING_POINT_CAVEAT not in statement().caveats
        unit = Neighbours("image", Relation.REPLACE)
        mixed = statement(
            accountant=Accountant.PLD, events=(POISSON,), delta=1e-5, epsilon=9.0, unit="image", neighbours=unit
        )
        assert FLOATING_POINT_CAVEAT in mixed.caveats

    def test_the_new_fields_stay_out_where_they_are_empty(self):
        content = json.loads(statement(release={}, artefact_sha256="").to_json())
        assert "release" not in content
        assert "artefact_sha256" not in content

    @pytest.mark.parametrize(
        ("edit", "word"),
        [
            ({"scale": "0"}, (("fraction-divides-by-zero", "fraction-malformed", "fraction-not-positive"), "scale")),
            ({"scale": "1/0"}, (("fraction-divides-by-zero", "fraction-malformed", "fraction-not-positive"), "scale")),
            ({"scale": 2040}, (("fraction-divides-by-zero", "fraction-malformed", "fraction-not-positive"), "scale")),
            ({"steps": 0}, ("steps-not-positive",)),
            ({"type": "discrete-uniform"}, ("event-type-unknown",)),
            ({"extra": "1"}, ("field-names-wrong",)),
            ({"pixels": 16}, ("event-fields-wrong", "events")),
            ({"points": [[0, "2"]]}, ("event-fields-wrong", "events")),
        ],
    )
    def test_broken_events_are_refused(self, edit, word):
        content = json.loads(statement().to_json())
        content["events"][0].update(edit)
        with refused(*word):
            PrivacyStatement.from_json(json.dumps(content))

    @pytest.mark.parametrize("event", [Approximate(0.1, 0.0), Renyi(((2.0, 0.1),))])
    def test_what_only_the_account_charges_is_no_event_of_a_statement(self, event):
        content = json.loads(statement().to_json())
        content["events"] = [event.to_dict()]
        with refused("event-type-unknown", "events[0]"):
            PrivacyStatement.from_json(json.dumps(content))

    @pytest.mark.parametrize(
        ("scope", "words"), [("picture", "of the picture"), ("clip", "over all its frames"), ("frame", "every frame")]
    )
    def test_the_paragraph_says_what_may_differ(self, scope, words):
        text = statement(neighbours=Neighbours.of_pixels(16, scope)).paragraph()
        assert f"any 16 pixels {'in ' if scope == 'frame' else ''}{words}" in text or words in text
        assert "epsilon = 2 and delta = 0 (pure differential privacy" in text
        assert "7.39%" in text  # e^2 times one percent is 7.3890..: a bound is rounded up
