"""Membership by shadows: the likelihood ratio is the one of the paper, chance stays chance, overfitting is found."""

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import norm

from dots import Dots, DotsTask
from dpose.audits.findings import epsilon_bound, guess
from dpose.training.canaries import toss_coins
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose_lab.audits.lira import MANY, ScoredUnits, adversaries, logit_scaled, offline, online
from dpose_lab.audits.shadow_run import shadow_run, unit_losses


def made(rng, runs, units, gap, spread=0.0):
    """Gaussian scores around a level of each unit's own, `gap` higher where it is in."""
    level = np.linspace(-5, 5, units)
    included = rng.random((runs, units)) < 0.5
    std = np.exp(spread * np.linspace(-1, 1, units))
    return ScoredUnits(level + std * (gap * included + rng.normal(size=(runs, units))), included)


def test_scores_are_the_logit_of_the_confidence():
    losses = np.array([0.01, 0.7, 3.0])
    p = np.exp(-losses)
    assert logit_scaled(losses) == pytest.approx(np.log(p / (1 - p)))
    assert np.isfinite(logit_scaled([0.0, 1e4])).all()
    assert (np.diff(logit_scaled(np.geomspace(1e-6, 1e3, 50))) < 0).all()


def test_with_many_shadows_online_is_the_exact_likelihood_ratio():
    rng = np.random.default_rng(0)
    shadows = made(rng, 20_000, 5, 2.0, spread=1.0)
    level, std = np.linspace(-5, 5, 5), np.exp(np.linspace(-1, 1, 5))
    scores = level + std * np.array([-1.0, 0.5, 1.0, 2.0, 3.0])
    exact = norm.logpdf(scores, level + 2 * std, std) - norm.logpdf(scores, level, std)
    assert online(scores, shadows) == pytest.approx(exact, abs=0.1)
    assert offline(scores, shadows) == pytest.approx((scores - level) / std, abs=0.05)


def test_few_shadows_share_one_variance_and_each_unit_keeps_its_level():
    rng = np.random.default_rng(1)
    shadows = made(rng, MANY - 1, 200, 2.0)
    easy = np.linspace(-5, 5, 200) + 1.0  # halfway: whatever the level, the ratio is about even
    assert np.abs(online(easy, shadows)).mean() < 0.6
    assert np.corrcoef(online(easy, shadows), easy)[0, 1] < 0.2


def test_a_unit_that_was_never_in_or_never_out_is_still_judged():
    rng = np.random.default_rng(2)
    shadows = made(rng, 8, 6, 3.0)
    shadows.included[:, 0], shadows.included[:, 1] = False, True
    assert np.isfinite(online(np.zeros(6), shadows)).all()
    assert np.isfinite(offline(np.zeros(6), shadows)).all()


def test_nothing_is_found_where_nothing_is_and_much_where_much_is():
    rng = np.random.default_rng(3)
    for gap, low, high in ((0.0, 0.4, 0.6), (3.0, 0.85, 1.0)):
        targets, shadows = made(rng, 4, 150, gap), made(rng, 16, 150, gap)
        for adversary in adversaries(targets, shadows):
            right = guess(adversary.scores, targets.included.ravel(), 200)
            assert low < right.correct / right.made <= high
            assert not adversary.independent


def test_thresholds_come_from_shadows_that_did_not_judge_themselves():
    rng = np.random.default_rng(4)
    targets, shadows = made(rng, 2, 40, 0.0), made(rng, 10, 40, 0.0)
    first = adversaries(targets, shadows)[0]
    assert len(first.calibration) == (~shadows.included).sum()
    changed = ScoredUnits(targets.scores + 100, targets.included)
    assert adversaries(changed, shadows)[0].calibration == pytest.approx(first.calibration)
    # judged by the others, scores of pure chance lie about zero and not below, as they would with a part in the mean
    assert first.calibration.mean() == pytest.approx(0.0, abs=0.25)


def test_shapes_that_do_not_fit_are_refused():
    rng = np.random.default_rng(5)
    with pytest.raises(ValueError, match="cannot judge"):
        adversaries(made(rng, 2, 5, 0.0), made(rng, 8, 6, 0.0))
    with pytest.raises(ValueError, match="of coins"):
        ScoredUnits(np.zeros((2, 3)), np.zeros((3, 2), bool))


class Memory(torch.nn.Module):
    """Enough weights to know every clip by heart."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4 * 36 * 3, 48), torch.nn.ReLU(), torch.nn.Linear(48, 4))

    def forward(self, inputs):
        return self.layers(inputs.to(torch.float32).flatten(1) / 255)


class MemoryTask(DotsTask):
    def build_model(self, config=None):
        torch.manual_seed(0)
        return Memory()


def test_positive_control_an_overfitted_model_gives_its_few_units_away(tmp_path):
    rng, data, task = np.random.default_rng(0), Dots(50, seed=1, most=1), MemoryTask()
    plan = TrainingPlan("non-private", epochs=24, expected_batch_size=25)
    rows, coins = [], []
    for k in range(7):
        coins.append(toss_coins(len(data), rng))
        _, scores = shadow_run(
            task,
            task.build_model(),
            data,
            coins[-1],
            plan,
            tmp_path / str(k),
            optimizer=OptimizerConfig("adam", lr=0.004),
            options=RunOptions(seed=k, threads=1, state_dir=tmp_path, console=Console(quiet=True)),
        )
        rows.append(scores)
    shadows = ScoredUnits(np.stack(rows[:5]), np.stack(coins[:5]))
    targets = ScoredUnits(np.stack(rows[5:]), np.stack(coins[5:]))
    adversary = adversaries(targets, shadows)[0]
    found = guess(adversary.scores, targets.included.ravel(), 60)
    assert epsilon_bound(found, 1e-5, 0.05) > 1.0  # no (1, 1e-5)-private training would give so much away


def test_losses_are_weighted_means_over_a_units_plain_views(dots):
    data, task = dots.data(9), dots.task
    model = task.build_model()
    losses = unit_losses(task, model, data)
    from dpose.training.canaries import view_losses

    for index in (0, 2, 8):
        views = data.load(index, None)
        weights = [view.weight for view in views]
        assert losses[index] == pytest.approx(np.average(view_losses(task, model, views), weights=weights))
