"""Canaries through the real engine: the true mechanism stands, each visible fault is flagged, others are not seen."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

import dpose.training.step as step
from dpose.audits.canary_run import PIXEL, ToyTask, ToyUnits, canary_run
from dpose.audits.faults import FAULTS, UNSEEN, planted, undetected_words
from dpose.audits.findings import weigh
from dpose.audits.noise_family import Family, NoiseBound
from dpose.training.canaries import PARAMETER, CanaryUnits, GradientCanaries, InputCanaries, toss_coins
from dpose.training.clip import Clip
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose_lab.audits.shadow_run import PresentUnits
from quick import quick  # noqa: F401
from refusals import refused

CANARIES, REAL = 500, 100
VISIBLE = tuple(name for name in FAULTS if name not in UNSEEN)
PLAN = TrainingPlan(noise_multiplier=0.8, delta=1e-5, steps=12, expected_batch_size=150, accountant="rdp")


class Verdict(Family):
    """Only asks whether the claimed curve falls, which is what decides; the number beside it takes far longer."""

    def bound(self, refuted):
        return NoiseBound(0.0, self.event.sigma if refuted(self.claimed) else math.inf)


@pytest.fixture(scope="module")
def family():
    return Verdict(PLAN.bind(CANARIES + REAL).event, 1e-5)


def audited(folder, fault, seed, plan=PLAN):
    included = toss_coins(CANARIES, np.random.default_rng(seed))
    units = CanaryUnits(ToyUnits(REAL), GradientCanaries(included, PIXEL, plan.clip, plan.relation))
    task = ToyTask()
    with planted(fault):
        run, adversaries = canary_run(
            task,
            task.build_model(),
            units,
            plan,
            folder / "run",
            options=RunOptions(seed=seed, state_dir=folder, console=Console(quiet=True)),
        )
    return SimpleNamespace(run=run, adversaries=adversaries, included=included)


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_faults_are_flagged_and_nothing_else(fault, family, tmp_path):
    done = audited(tmp_path, fault, seed=11)
    found = weigh(done.adversaries, done.included, family, PLAN.bind(CANARIES + REAL).epsilon, 0.05 / (len(FAULTS) + 1))
    assert found.flagged == (fault in VISIBLE), fault
    assert bool(undetected_words(fault)) == (fault in UNSEEN)


def test_a_fixed_order_is_seen_by_the_adversary_who_supposes_it_and_its_rates_are_shown(family, tmp_path):
    done = audited(tmp_path, "wrong-sampling", seed=3)
    found = weigh(done.adversaries, done.included, family, PLAN.bind(CANARIES + REAL).epsilon, 0.05)
    assert found.adversary == done.adversaries[1].name
    assert found.points[1].true.rate > 5 * found.points[1].false.rate


def test_faults_end_with_their_block():
    real = {name: getattr(step, name) for name in ("add_gaussian", "clipped_sum", "poisson_batch")}
    for fault in FAULTS:
        with planted(fault):
            assert any(getattr(step, name) is not value for name, value in real.items())
        assert all(getattr(step, name) is value for name, value in real.items())


def test_a_canary_is_at_the_clipping_norm_and_alone_on_its_coordinate(tmp_path):
    """Without noise and sampling, the update of one step is the coins themselves."""
    plan = TrainingPlan(noise_multiplier=1.0, delta=1e-5, steps=1, expected_batch_size=CANARIES + REAL)
    done = audited(tmp_path, "noise-missing", 5, plan)
    scores = done.adversaries[0].scores
    assert scores == pytest.approx(done.included.astype(float), abs=1e-4)
    assert PARAMETER in dict(done.run.model.named_parameters())


def test_under_replacement_a_canary_that_is_out_pushes_the_other_way(tmp_path):
    plan = TrainingPlan(
        noise_multiplier=1.0, delta=1e-5, steps=1, expected_batch_size=CANARIES + REAL, relation="replace"
    )
    done = audited(tmp_path, "noise-missing", 5, plan)
    assert done.adversaries[0].scores == pytest.approx(np.where(done.included, 1.0, -1.0), abs=1e-4)
    assert done.adversaries[0].absent is None


def test_input_canaries_are_learnt_where_they_are_in(dots, tmp_path):
    data, rng = dots.data(30, most=1), np.random.default_rng(0)
    views = [dots.data(12, seed=5, most=1).load(k, rng)[0] for k in range(12)]
    included = np.arange(12) % 2 == 0
    outsiders = [dots.data(8, seed=6, most=1).load(k, rng)[0] for k in range(8)]
    plan = TrainingPlan(noise_multiplier=1.0, delta=1e-5, steps=2, expected_batch_size=10, accountant="rdp")
    task = dots.task
    _, (adversary,) = canary_run(
        task,
        task.build_model(),
        CanaryUnits(data, InputCanaries(included, views)),
        plan,
        tmp_path / "run",
        outsiders=outsiders,
        options=RunOptions(seed=0, state_dir=tmp_path, console=Console(quiet=True)),
    )
    assert adversary.scores.shape == (12,)
    assert (adversary.calibration.shape, adversary.absent.shape) == ((4,), (4,))
    assert not adversary.independent


def test_a_unit_that_is_out_contributes_nothing(dots):
    from dpose.training.canaries import CanaryTask
    from dpose.training.gradients import per_unit_gradients, trainable_params

    task, units = CanaryTask(dots.task), PresentUnits(dots.data(4), np.array([True, False, True, False]))
    batch = task.collate([units.load(k, np.random.default_rng(0)) for k in range(4)])
    model = dots.task.build_model()
    norms = torch.stack(
        [g.flatten(1).norm(dim=1) for g in per_unit_gradients(task, model, trainable_params(model), batch).values()]
    ).sum(0)
    assert (norms > 0).tolist() == [True, False, True, False]


def test_what_cannot_be_planted_says_where_it_is_caught():
    with refused("fault-unseen", where=("floored-batch", "floored expected", "size]")):
        planted("floored-batch").__enter__()
    with refused("fault-unknown"):
        planted("noise-mising").__enter__()


def test_other_methods_are_refused(dots, tmp_path):
    plan = TrainingPlan("non-private", steps=1, expected_batch_size=4)
    units = CanaryUnits(ToyUnits(3), GradientCanaries(np.ones(20, bool), PIXEL, Clip(1.0)))
    with refused("method-without-canaries", where="cannot be audited"):
        canary_run(ToyTask(), ToyTask().build_model(), units, plan, tmp_path / "run")
