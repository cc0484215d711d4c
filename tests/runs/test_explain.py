"""The figures of a plan: what is shown again is what was computed, and only of the same question."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from dpose.privacy.neighbours import Relation
from dpose.runs import explain
from dpose.runs.explain import PlanFigures, explain_plan, plan_figures
from dpose.training.plan import TrainingPlan
from tiers import rest_slow

PLAN = TrainingPlan(epsilon=3.0, delta=1e-4, steps=4, expected_batch_size=100)


@pytest.fixture
def computed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls, before = [], explain._computed
    monkeypatch.setattr(explain, "_computed", lambda *a: calls.append(1) or before(*a))
    return calls


@pytest.mark.parametrize("plan", rest_slow([PLAN, replace(PLAN, relation=Relation.REPLACE)]))
def test_a_plan_that_was_looked_at_is_not_computed_again(computed, plan):
    first = plan_figures(plan, 1000)
    assert plan_figures(plan, 1000) == first
    assert len(computed) == 1
    bound = plan.bind(1000)
    assert (first.n, first.steps, first.rate) == (1000, 4, 0.1)
    assert first.noise[0].sigma == bound.event.sigma
    assert first.noise[0].epsilon == bound.epsilon
    assert (first.noise[1].sigma is None) == (plan.relation is Relation.REPLACE)
    assert first.attackers.tpr_bound[0].tpr < 1


@pytest.mark.slow
def test_another_question_is_another_answer(computed):
    plan_figures(PLAN, 1000)
    plan_figures(replace(PLAN, epsilon=2.5), 1000)
    plan_figures(PLAN, 1001)
    assert len(computed) == 3


def test_a_plan_without_noise_has_a_schedule():
    found = plan_figures(TrainingPlan(method="non-private", epochs=2, expected_batch_size=100), 1000)
    assert (found.steps, found.noise, found.attackers) == (20, (), None)
    assert PlanFigures.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_limit_below_the_nominal_number_is_what_a_run_samples_from():
    plan = replace(PLAN, relation=Relation.ADD_REMOVE, nominal_units=1000)
    found, run = plan_figures(plan, 400), plan.bind(7, 400)
    assert (found.n, found.rate, found.noise[0].sigma) == (400, run.sampling_rate, run.event.sigma)


def test_a_claim_is_never_taken_from_what_is_remembered(computed, tmp_path):
    first = plan_figures(PLAN, 1000)
    (file,) = tmp_path.rglob("plans/*.json")
    entry = json.loads(file.read_text())
    entry["answer"]["noise"][0][2] = "0.001"
    explain.memo.remember(explain.KIND, {"plan": PLAN.to_dict(), "units": 1000}, entry["answer"])
    assert plan_figures(PLAN, 1000).noise[0].epsilon == 0.001  # a forgery is shown
    assert PLAN.bind(1000).epsilon == first.noise[0].epsilon  # and trains, states and verifies nothing


def test_a_delta_that_loss_distributions_do_not_resolve_has_no_row_of_them():
    """The table computed both, and refused the accountant that its own message recommends."""
    tiny = replace(PLAN, delta=1e-12, accountant="rdp")
    pld, rdp = plan_figures(tiny, 1000).noise
    assert (pld.sigma, rdp.sigma) == (None, tiny.bind(1000).event.sigma)
    shown = Console(file=io.StringIO(), width=300)
    shown.print(explain_plan(tiny, 1000))
    assert "pld        │ has no bound for a delta below 1e-10" in shown.file.getvalue()
    assert "no curve is computed for a delta below 1e-10" in shown.file.getvalue()
