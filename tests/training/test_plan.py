"""The plan: what it refuses, and that what is accounted for is what runs."""

import hashlib
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.entries import plan_digest
from dpose.privacy.gaussian_noise import MOST, rounded_gaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.ranges import MAX_CLIP, MAX_SIGMA, MIN_CLIP, large_delta
from dpose.runs.explain import explain_plan
from dpose.training.clip import UNITS, Grid
from dpose.training.methods import METHODS
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan, shared_budget
from refusals import refused
from tiers import rest_slow


def plan(**changes):
    return TrainingPlan(**{"epsilon": 4.0, "delta": 1e-5, "epochs": 2, "expected_batch_size": 50, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "dp-sdg"}, ("method-unknown",)),
        ({"epsilon": 0.0}, ("epsilon-not-positive",)),
        ({"epsilon": -1.0}, ("epsilon-not-positive",)),
        ({"epsilon": math.nan}, ("epsilon-not-positive",)),
        ({"epsilon": math.inf}, ("epsilon-not-positive",)),
        ({"delta": 0.0}, ("delta-out-of-range",)),
        ({"delta": 1.0}, ("delta-out-of-range",)),
        ({"delta": None}, ("delta-missing",)),
        ({"epsilon": None}, ("budget-inconsistent",)),
        ({"noise_multiplier": 1.0}, ("budget-inconsistent",)),
        ({"epochs": 0.0}, ("setting-not-positive", "epochs")),
        ({"expected_batch_size": 0}, ("setting-not-positive", "expected_batch_size")),
        ({"clip_norm": 0.0}, ("setting-not-positive", "clip_norm")),
        ({"clip_norm": 1e-320}, ("clip-norm-out-of-range", ("clip_norm", "1e-30", "1e+30"))),
        ({"clip_norm": 1e300}, ("clip-norm-out-of-range", "clip_norm")),
        ({"epsilon": None, "noise_multiplier": 70_000.0}, ("noise-out-of-range", ("0.2", "65536"))),
        ({"steps": -3}, ("setting-not-positive", "steps")),
        ({"ema_decay": 1.0}, ("ema-out-of-range", "ema_decay")),
        ({"average_last": 1.5}, ("average-last-out-of-range",)),
        ({"average_last": 0.5, "ema_decay": 0.5}, ("average-last-out-of-range",)),
        ({"relation": "replace-one"}, ("choice-unknown", "relation")),
        ({"accountant": "prv"}, ("choice-unknown", "accountant")),
        ({"relation": "add-or-remove"}, ("nominal-units-inconsistent",)),
        ({"nominal_units": 100}, ("nominal-units-inconsistent",)),
    ],
)
def test_refusals(changes, words):
    with refused(*words):
        plan(**changes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"epsilon": "8"}, "epsilon must be a number, not '8'"),
        ({"delta": "1e-5"}, "delta must be a number, not '1e-5'"),
        ({"steps": "1"}, "steps must be a number, not '1'"),
        ({"clip_norm": "1"}, "clip_norm must be a number, not '1'"),
        ({"epochs": None}, "epochs must be a number, not None"),
        ({"ema_decay": True}, "ema_decay must be a number, not True"),
        ({"relation": "add-or-remove", "nominal_units": "9"}, "nominal_units must be a number, not '9'"),
    ],
)
def test_what_is_no_number_is_named(changes, line):
    with refused("setting-not-number", where=line):
        plan(**changes)


@pytest.mark.parametrize("name", ["steps", "augmentation_multiplicity", "nominal_units"])
@pytest.mark.parametrize("value", [2.5, 2.0])
def test_a_count_that_is_not_whole_is_named(name, value):
    with refused("setting-not-whole", where=f"{name} must be a whole number, not {value}"):
        plan(**{name: value})


@pytest.mark.parametrize("name", ["lr", "warmup"])
def test_an_optimizers_number_that_is_none_is_named(name):
    with refused("setting-not-number", where=f"{name} must be a number, not 'a'"):
        OptimizerConfig(**{name: "a"})


def test_numpys_numbers_are_pythons():
    given = plan(epsilon=np.float64(4), steps=np.int64(3), clip_norm=np.float32(1), expected_batch_size=np.int32(50))
    same = plan(epsilon=4.0, steps=3, clip_norm=1.0)
    assert json.dumps(given.to_dict()) == json.dumps(same.to_dict())
    assert json.dumps(plan(epsilon=4).to_dict()["epsilon"]) == "4"  # as it was written: the digest is of it
    assert given.bind(100) == same.bind(100)


def test_a_delta_above_a_tenth_of_one_over_n_is_warned_of():
    """Just below 1/n, publishing units whole passes."""
    shown = Console(file=io.StringIO(), width=300)
    shown.print(explain_plan(plan(delta=9e-4, accountant="rdp"), 1000))
    assert "Warning: delta 0.0009 is above 1/(10 n), 0.0001 for 1,000 units" in shown.file.getvalue()
    assert "0.9 of them on average" in shown.file.getvalue()
    assert large_delta(1e-4, 1000) is None
    assert "\n" not in large_delta(1.001e-4, 1000)
    assert large_delta(None, 1000) is large_delta(0.5, None) is None


def test_what_a_plan_allows_exact_noise_can_be_drawn_for():
    """A plan of more noise was charged, and then ended in a traceback."""
    for clip in (MIN_CLIP, 0.3, 1.0, 1.0 + 2**-52, 2.0 - 2**-52, MAX_CLIP):
        bound = plan(epsilon=None, noise_multiplier=MAX_SIGMA, clip_norm=clip, normalise=False).bind(1000)
        scale = bound.noise_stddev / Grid.of(bound.event.sensitivity).step
        assert 0 < scale <= MOST
    assert len(rounded_gaussian(scale, 3, AesNoise(Key.fresh()).stream(Purpose.NOISE))) == 3


def test_a_plans_digest_is_of_all_its_settings_noise_among_them():
    bound, exact = plan(noise="float").bind(100), plan().bind(100)
    assert bound.event.type == "poisson-gaussian"
    assert exact.event.type == "poisson-rounded-gaussian"
    without = {name: value for name, value in bound.plan.to_dict().items() if name != "noise"}
    digests = {bound.sha256, exact.sha256}
    digests |= {plan_digest(without, **one.constants()) for one in (bound, exact)}
    assert len(digests) == 4


def test_delta_above_one_over_n_is_refused():
    with refused("delta-above-one-in-n"):
        plan(delta=0.01).bind(100)
    plan(delta=0.009).bind(100)


def test_no_units():
    with refused("units-missing"):
        plan().bind(0)


def test_more_units_than_sums_are_exact_for():
    given = plan(delta=1e-10, steps=1, epsilon=None, noise_multiplier=1.0, accountant="rdp")
    nominal = replace(given, relation="add-or-remove", nominal_units=UNITS + 1)
    for one, n in ((plan(delta=1e-10), UNITS + 1), (given, UNITS + 1), (nominal, 1000)):
        with refused("units-too-many"):
            one.bind(n)
    assert given.bind(UNITS).n == nominal.bind(1000, UNITS).n == UNITS
    assert TrainingPlan(method="non-private").bind(UNITS + 1).n == UNITS + 1


def test_one_unit_is_enough():
    assert TrainingPlan(method="non-private", expected_batch_size=1).bind(1).n == 1


def test_bound_constants():
    bound = plan().bind(1010)
    assert bound.sampling_rate == 50 / 1010
    assert bound.steps == math.ceil(2 * 1010 / 50)
    assert bound.divisor == pytest.approx(50)
    event = bound.event
    assert (event.q, event.steps, event.sensitivity) == (bound.sampling_rate, bound.steps, 1.0)
    assert bound.epsilon == epsilon([event], 1e-5)
    assert 3.99 < bound.epsilon <= 4.0


@pytest.mark.parametrize("clip", rest_slow([0.01, 3.0], 1))
def test_noise_scales_with_the_sensitivity(clip):
    relative = plan(clip_norm=clip).bind(1000)
    plain = plan(clip_norm=clip, normalise=False).bind(1000)
    assert relative.noise_stddev == relative.event.sigma
    assert plain.noise_stddev == pytest.approx(clip * plain.event.sigma)
    assert plain.event.sigma == relative.event.sigma
    assert plain.sha256 != relative.sha256


def test_batch_larger_than_the_data_takes_every_unit_every_time():
    bound = plan(expected_batch_size=500).bind(120)
    assert (bound.sampling_rate, bound.divisor, bound.steps) == (1.0, 120, 2)


def test_add_or_remove_never_uses_the_true_number():
    fixed = plan(relation="add-or-remove", nominal_units=1000)
    assert fixed.bind(990) == fixed.bind(1013)
    assert fixed.bind(990).n == 1000
    # a limit keeps some of the nominal number in expectation, and never makes more of them
    assert [fixed.bind(990, limit).n for limit in (200, 1000, 2000, None)] == [200, 1000, 1000, 1000]


def test_without_a_guarantee_the_number_of_units_is_what_it_is():
    fixed = plan(method="non-private", epsilon=None, delta=None, relation="add-or-remove", nominal_units=1000)
    assert fixed.bind(40).n == 40


def test_replacement_needs_more_noise_than_zero_out():
    # the sum moves by 2C instead of C: in the regime of many steps, twice the noise
    zero_out = plan(epsilon=0.5, epochs=40).bind(1000)
    replaced = plan(epsilon=0.5, epochs=40, relation="replace").bind(1000)
    assert 1.8 * zero_out.event.sigma < replaced.event.sigma < 2.01 * zero_out.event.sigma
    assert replaced.event.sensitivity == zero_out.event.sensitivity


def test_the_relation_and_the_accountant_asked_for_are_those_that_count():
    found = {}
    for relation, accountant in (("replace", "pld"), ("zero-out", "rdp"), ("zero-out", "pld")):
        bound = plan(relation=relation, accountant=accountant, epsilon=None, noise_multiplier=1.5).bind(1000)
        counted = epsilon([bound.event], 1e-5, Relation(relation), Accountant(accountant))
        assert bound.epsilon == counted
        found[relation, accountant] = counted
    assert len(set(found.values())) == 3
    # calibrated and counted by one accountant: what the other needs is less, and would not be reached
    bound = plan(accountant="rdp").bind(1000)
    assert 3.96 < bound.epsilon == epsilon([bound.event], 1e-5, accountant=Accountant.RDP) <= 4 * (1 + 1e-6)


@pytest.mark.parametrize("changes", [{}, {"method": "non-private", "epsilon": None, "delta": None}])
def test_the_digest_is_of_settings_constants_and_event(changes):
    """As a reader of a ledger computes it."""
    bound = plan(**changes).bind(1000)
    content = {
        "plan": bound.plan.to_dict(),
        "n": 1000,
        "steps": 40,
        "event": bound.event.to_dict() if bound.event else None,
    }
    assert bound.sha256 == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


BUDGETS = [
    {},
    {"relation": "replace"},
    {"accountant": "rdp"},
    {"relation": "add-or-remove", "nominal_units": 900},
    {"epsilon": 0.3, "clip_norm": 4.0, "normalise": False},
]


@pytest.mark.parametrize("changes", BUDGETS)
@pytest.mark.parametrize("share", rest_slow([0.3, 0.9], 1))
def test_two_plans_on_one_budget_cost_it_together_and_no_more(changes, share):
    whole = plan(**changes)
    behind = replace(whole, method="dp-head", epsilon=share * whole.epsilon)
    first = shared_budget(whole, behind, 1000)
    events = [one.bind(1000).event for one in (first, behind)]
    both = epsilon(events, 1e-5, whole.relation, whole.accountant)
    assert 0.99 * whole.epsilon <= both <= whole.epsilon
    assert events[0].steps == whole.bind(1000).steps
    alone = epsilon(events[:1], 1e-5, whole.relation, whole.accountant)
    assert 0 < alone < both


@pytest.mark.parametrize("changes", [{"delta": 2e-5}, {"relation": "replace"}, {"accountant": "rdp"}])
def test_plans_that_protect_something_else_share_no_budget(changes):
    with refused("budgets-differ"):
        shared_budget(plan(), plan(**changes), 1000)
    with refused("budgets-differ"):
        shared_budget(plan(epsilon=None, noise_multiplier=1.0), plan(), 1000)


def test_a_plan_behind_that_takes_the_whole_budget_leaves_none():
    with refused("epsilon-unreachable"):
        shared_budget(plan(), plan(epsilon=4.1), 1000)


def test_given_noise_is_priced():
    bound = plan(epsilon=None, noise_multiplier=1.0).bind(1000)
    assert bound.event.sigma == 1.0
    assert bound.epsilon == epsilon([bound.event], 1e-5, Relation.ZERO_OUT)


@pytest.mark.parametrize("share", rest_slow([0.5, 0.95], 1))
def test_a_calibration_that_understates_is_not_believed(monkeypatch, share):
    honest = plan().bind(1000).event.sigma
    monkeypatch.setattr("dpose.training.plan.noise_multiplier", lambda *a, **k: share * honest)
    with refused("calibration-failed"):
        plan().bind(1000)


def test_non_private_adds_no_noise_and_claims_nothing():
    bound = TrainingPlan(method="non-private", epochs=3, expected_batch_size=10).bind(95)
    assert (bound.event, bound.epsilon, bound.steps) == (None, None, 29)
    with pytest.raises(ValueError, match="no noise"):
        _ = bound.noise_stddev


def test_a_budget_that_a_method_without_noise_does_not_use_is_told():
    asked = plan(method="non-private", epsilon=3)
    assert list(asked.notes(10)) == ["non-private adds no noise, so that epsilon and delta are not used."]
    assert list(plan(method="non-private", epsilon=None, delta=None).notes(10)) == []
    shown = Console(file=io.StringIO(), width=300)
    shown.print(explain_plan(asked, 100))
    assert "epsilon and delta are not used" in shown.file.getvalue()
    (note,) = plan().notes(10)
    assert "which needs less noise" in note


def test_every_method_says_what_it_does_not_protect():
    for method in METHODS.values():
        assert method.leaves_open
        assert bool(method.protects) == method.reads_private_data
        assert bool(method.relations) == method.private
        # a unit that is added would bring its public view along
        assert not (method.public_views and Relation.ADD_REMOVE in method.relations)
