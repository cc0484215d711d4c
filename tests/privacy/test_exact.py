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
from dpose.privacy.events import Approximate, Gaussian, Laplace, Renyi, SampledGaussian
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.ranges import exact_text, parse_exact
from dpose.privacy.renyi import zcdp_budget, zcdp_epsilon
from dpose.privacy.statement import FLOATING_POINT_CAVEAT, PrivacyStatement
from refusals import refused
from statements import of_a_picture

LAPLACE = Laplace(Fraction(2040), Fraction(4080))
GAUSSIAN = Gaussian(Fraction(10_000**2), Fraction(4080**2))
POISSON = SampledGaussian(q=0.05, sigma=2.0, steps=30, sensitivity=1.0)


def statement(**changes) -> PrivacyStatement:
    fields = {
        "events": (LAPLACE,),
        "release": {"mechanism": "pixelization"},
        "artefact_sha256": "ab" * 32,
    }
    return of_a_picture(**{**fields, **changes})


@given(st.fractions())
def test_fractions_survive_as_text(value):
    assert parse_exact(exact_text(value), "x") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(2), "2"),
        (Fraction(1, 2), "0.5"),
        (Fraction(-3, 40), "-0.075"),
        (Fraction(4080, 7), "4080/7"),
    ],
)
def test_fractions_read_well(value, text):
    assert exact_text(value) == text


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "1/0", "0x10", "1e9999", " 1", "1_000", "9" * 401, 2, None]
)
def test_other_texts_are_refused(text):
    with refused(("fraction-divides-by-zero", "fraction-malformed")):
        parse_exact(text, "x")


def test_pure_epsilon_adds_up_exactly():
    tenth = Laplace(Fraction(10), Fraction(1), steps=3)
    assert cost([LAPLACE, tenth], 0.0, accountant=Accountant.PURE) == Fraction(23, 10)
    assert cost([], 0.0, accountant=Accountant.PURE) == 0


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
            accountant=Accountant.PLD,
            events=(POISSON,),
            delta=1e-5,
            epsilon=9.0,
            unit="image",
            neighbours=unit,
        )
        assert FLOATING_POINT_CAVEAT in mixed.caveats

    def test_the_new_fields_stay_out_where_they_are_empty(self):
        content = json.loads(statement(release={}, artefact_sha256="").to_json())
        assert "release" not in content
        assert "artefact_sha256" not in content

    @pytest.mark.parametrize(
        ("edit", "word"),
        [
            (
                {"scale": "0"},
                (("fraction-divides-by-zero", "fraction-malformed", "fraction-not-positive"), "scale"),
            ),
            (
                {"scale": "1/0"},
                (("fraction-divides-by-zero", "fraction-malformed", "fraction-not-positive"), "scale"),
            ),
            (
                {"scale": 2040},
                (("fraction-divides-by-zero", "fraction-malformed", "fraction-not-positive"), "scale"),
            ),
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
        ("scope", "words"),
        [("picture", "of the picture"), ("clip", "over all its frames"), ("frame", "every frame")],
    )
    def test_the_paragraph_says_what_may_differ(self, scope, words):
        text = statement(neighbours=Neighbours.of_pixels(16, scope)).paragraph()
        assert f"any 16 pixels {'in ' if scope == 'frame' else ''}{words}" in text or words in text
        assert "epsilon = 2 and delta = 0 (pure differential privacy" in text
        assert "7.39%" in text  # e^2 times one percent is 7.3890..: a bound is rounded up
