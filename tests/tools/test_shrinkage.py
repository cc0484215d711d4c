"""Shrinkage: the noise in the weights against simulation, the factor against its risk, and what is refused."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from dpose.training.optim import OptimizerConfig, weight_average
from dpose.training.plan import TrainingPlan
from refusals import refused

FILE = Path(__file__).parents[2] / "benchmarks" / "shrinkage.py"
SPEC = importlib.util.spec_from_file_location("shrinkage", FILE)
shrinkage = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(shrinkage)
MOMENTUM = OptimizerConfig("sgd", 0.3, options={"momentum": 0.9, "nesterov": True})


def bound_plan(method="dp-sgd", **given):
    private = {"noise_multiplier": 2.0, "delta": 1e-5} if method != "non-private" else {}
    return TrainingPlan(method, steps=30, expected_batch_size=50, **private, **given).bind(1000)


@pytest.mark.parametrize("average", [{}, {"ema_decay": 0.8}, {"average_last": 0.4}])
def test_the_noise_in_the_weights_is_that_of_training_on_noise_alone(average):
    bound = bound_plan(**average)
    weights = torch.nn.Parameter(torch.zeros(20_000))
    optimizer, schedule = MOMENTUM.build([weights], bound.steps)
    followed = {"w": weights.data}
    mean = weight_average(followed, bound.plan.ema_decay, bound.plan.average_last, bound.steps)
    generator = torch.Generator().manual_seed(0)
    for _ in range(bound.steps):
        noise = torch.randn(weights.shape, generator=generator)
        weights.grad = noise * bound.noise_stddev / bound.divisor
        optimizer.step()
        schedule.step()
        if mean:
            mean.update(followed)
    found = (mean.values if mean else followed)["w"].std()
    assert float(found) == pytest.approx(shrinkage.noise_in_weights(MOMENTUM, bound), rel=0.02)


def test_the_factor_lowers_the_error_whatever_the_signal():
    generator, tau = torch.Generator().manual_seed(0), 0.3
    for length in (0.0, 1.0, 10.0):
        signal = torch.full((200,), length / math.sqrt(200))
        noisy = signal + tau * torch.randn(200, generator=generator)
        better = (shrinkage.factor(noisy, tau) * noisy - signal).square().sum()
        assert better < (noisy - signal).square().sum()
    assert shrinkage.factor(torch.full((4,), 0.1), 1.0) == 0.0
    assert shrinkage.factor(torch.tensor([3.0, 0.0, 4.0]), 1.0) == pytest.approx(1 - 1 / 25)
    assert shrinkage.factor(torch.ones(2), 100.0) == shrinkage.factor(torch.zeros(5), 1.0) == 1.0


def test_weights_go_back_to_the_first_ones():
    first = {"a": torch.full((4,), 5.0), "b": torch.full((4,), -1.0)}
    released = {"a": torch.full((4,), 5.1), "b": torch.full((4,), 9.0)}
    tensors = shrinkage.shrink(released, first, 1.0, "tensors")
    assert torch.equal(tensors["a"], first["a"])
    assert torch.allclose(tensors["b"], first["b"] + (1 - 2 / 400) * 10)
    whole = shrinkage.shrink(released, first, 1.0, "whole")
    share = 1 - 6 / float(4 * 0.1**2 + 400)
    assert torch.allclose(whole["a"], first["a"] + share * 0.1)
    assert shrinkage.shrink(released, first, 1.0, "none") is released


@pytest.mark.parametrize(
    ("optimizer", "method", "word"),
    [
        (OptimizerConfig("adamw"), "dp-sgd", ("optimizer-unsupported", "fixed multiples")),
        (OptimizerConfig("sgd", options={"weight_decay": 0.1}), "dp-sgd", ("optimizer-unsupported", "fixed multiples")),
        (MOMENTUM, "pdp-sgd", ("method-unsupported", "noised sum")),
        (MOMENTUM, "scaled-sgd", ("method-unsupported", "noised sum")),
        (MOMENTUM, "non-private", ("method-unsupported", "noised sum")),
    ],
)
def test_noise_that_is_not_known_in_the_weights_is_refused(optimizer, method, word):
    with refused(*word):
        shrinkage.noise_in_weights(optimizer, bound_plan(method))
