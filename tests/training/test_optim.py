"""Schedules, refusals and weight averaging."""

import math

import pytest
import torch

from dpose.training.optim import USUAL, OptimizerConfig, WeightAverage, weight_average
from refusals import refused


def test_any_torch_optimizer_by_name():
    weight = torch.nn.Parameter(torch.ones(3))
    for name, options in (("sgd", {"momentum": 0.9}), ("AdamW", {"weight_decay": 0.1}), ("rmsprop", {})):
        built, _ = OptimizerConfig(name, lr=0.1, options=options).build([weight], 10)
        assert type(built).__name__.lower() == name.lower()


@pytest.mark.parametrize("name", USUAL)
def test_what_is_taken_to_be_in_torch_is_there(name):
    assert OptimizerConfig(name)._class().__name__.lower() == name


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "adamx"}, "optimizer-unknown"),
        ({"name": "lbfgs"}, "optimizer-unknown"),  # it would evaluate the loss again, off the sample
        ({"schedule": "steps"}, "schedule-unknown"),
        ({"schedule": "ReduceLROnPlateau"}, "schedule-unknown"),  # it would follow a score
        ({"lr": -1.0}, "lr-not-positive"),
        ({"lr": math.nan}, "lr-not-positive"),
        ({"warmup": 1.0}, "warmup-out-of-range"),
    ],
)
def test_refusals(arguments, code):
    with refused(code):
        OptimizerConfig(**arguments)


def test_an_option_the_optimizer_does_not_know():
    with refused("optimizer-option-refused"):
        OptimizerConfig("sgd", options={"betas": 1}).build([torch.nn.Parameter(torch.ones(1))], 5)


def test_schedule_rises_then_falls():
    config = OptimizerConfig(schedule="cosine", warmup=0.2)
    factors = [config.factor(s, 100) for s in range(100)]
    assert factors[:20] == sorted(factors[:20])
    assert factors[20] == 1.0
    assert factors[20:] == sorted(factors[20:], reverse=True)
    assert 0 < factors[0] < 0.1
    assert factors[99] < 0.01
    assert [OptimizerConfig(schedule="constant", warmup=0).factor(s, 5) for s in range(5)] == [1.0] * 5
    assert OptimizerConfig(schedule="linear", warmup=0).factor(5, 10) == 0.5


def test_weight_average_against_the_recurrence():
    weights = {"w": torch.tensor([0.0])}
    average = WeightAverage(weights, 0.5)
    expected = 0.0
    for t, value in enumerate([1.0, 2.0, 3.0, 4.0, 5.0]):
        weights["w"].fill_(value)
        average.update(weights)
        decay = min(0.5, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * value
        assert float(average.values["w"]) == pytest.approx(expected)
    assert float(weights["w"]) == 5.0


def test_any_torch_schedule_by_name():
    weight = torch.nn.Parameter(torch.ones(3))
    config = OptimizerConfig("sgd", lr=0.1, schedule="StepLR", schedule_options={"step_size": 2, "gamma": 0.5})
    optimizer, schedule = config.build([weight], 10)
    rates = []
    for _ in range(5):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])
    with refused("schedule-option-refused", where="StepLR"):
        OptimizerConfig(schedule="StepLR").build([weight], 10)


@pytest.mark.parametrize(("share", "last"), [(0.4, [4.0, 5.0]), (0.5, [3.0, 4.0, 5.0]), (1.0, [1, 2, 3, 4, 5])])
def test_a_tail_is_the_mean_of_the_last_weights(share, last):
    weights = {"w": torch.tensor([7.0])}
    average = weight_average(weights, 0.0, share, 5)
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        weights["w"].fill_(value)
        average.update(weights)
        if value < last[0]:  # a run that ends before its tail releases its last weights
            assert float(average.values["w"]) == value
    assert float(average.values["w"]) == pytest.approx(sum(last) / len(last))
    assert weight_average(weights, 0.0, 0.0, 5) is None
