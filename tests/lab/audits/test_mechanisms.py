"""The mechanisms by name: the true ones stand, and each fault that one can have is flagged."""

import math

import numpy as np
import pytest

from dpose_lab.audits.hockey_stick import audit_mechanism, exact_epsilon
from dpose_lab.audits.mechanism_audit import audit_named_mechanism
from dpose_lab.audits.mechanisms import MECHANISMS, build
from quick import quick  # noqa: F401
from refusals import refused

CASES = [(name, fault) for name, (_, faults) in MECHANISMS.items() for fault in (None, *faults)]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_true_mechanisms_stand_and_faults_are_flagged(name, fault):
    engine = "gaussian" in name
    mechanism = build(name, 1.0, 1e-5, fault, seed=5)
    found = audit_mechanism(
        mechanism.first,
        mechanism.second,
        epsilon=1.0,
        delta=1e-5 if engine else 0.0,
        samples=8000 if name == "gaussian" else 20000,
        curve=mechanism.curve,
        scores=mechanism.scores,
        alpha=0.05 / len(CASES),
    )
    assert found.flagged == (fault is not None)
    assert bool(mechanism.fault) == (fault is not None)


def test_the_textbook_mechanisms_add_up_to_their_epsilon():
    for name in ("laplace", "randomized-response"):
        assert exact_epsilon(*build(name, 1.25, 1e-5).exact, 0.0) == pytest.approx(1.25)
        assert exact_epsilon(*build(name, 1.25, 1e-5, "double-counting").exact, 0.0) == pytest.approx(2.5)
        assert exact_epsilon(*build(name, 1.25, 1e-5, "noise-missing").exact, 0.0) == math.inf


@pytest.mark.parametrize("epsilon", [1e-3, 12.4, 20.0, 37.0, 45.0])
@pytest.mark.parametrize("name", ["laplace", "randomized-response"])
def test_a_true_claim_of_any_size_is_not_refuted_by_adding_up(name, epsilon):
    """A probability too small to be a number, of one input alone, was an infinite loss."""
    assert exact_epsilon(*build(name, epsilon, 1e-5).exact, 0.0) == pytest.approx(epsilon, rel=1e-6)
    assert exact_epsilon(*build(name, epsilon, 1e-5, "half-noise").exact, 0.0) == pytest.approx(2 * epsilon, rel=1e-6)
    for beyond in (1e-17, 46.0):
        with refused("epsilon-beyond-audit"):
            build(name, beyond, 1e-5)


@pytest.mark.parametrize("given", [{"alpha": 3.0}, {"alpha": math.nan}, {"delta": -0.1}, {"delta": math.nan}])
def test_levels_that_are_none_are_refused(given):
    code = "level-out-of-range" if "alpha" in given else "delta-out-of-range"
    with refused(code):
        audit_named_mechanism("laplace", 1.0, **{"delta": 0.0, **given}, samples=100)


def test_samples_follow_the_distribution_that_is_added_up():
    mechanism = build("laplace", 1.0, 1e-5, seed=1)
    drawn = mechanism.first(40000)
    for outcome, probability in mechanism.exact[0].items():
        assert abs((drawn == outcome).mean() - probability) < 5 * np.sqrt(probability / 40000) + 1e-4
    assert math.fsum(mechanism.exact[0].values()) == pytest.approx(1.0)


def test_unknown_names_are_refused():
    with refused("mechanism-unknown"):
        build("gausian", 1.0, 1e-5)
    with refused("fault-unsupported"):
        build("gaussian", 1.0, 1e-5, "float-laplace")
