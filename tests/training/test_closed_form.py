"""A method of one step: its event, its sensitivity by brute force, and what its solution may read."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.func import functional_call

from dots import Dots, train
from dpose.privacy.accounting import epsilon
from dpose.privacy.events import SampledGaussian
from dpose.privacy.noise import ONCE, AesNoise, Key, Purpose
from dpose.training import closed_form, step
from dpose.training.closed_form import SecondMoment, directions_for, solved
from dpose.training.distributed import ProcessGroup
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.plan import TrainingPlan
from dpose.training.run import ReplayError, Run
from dpose.training.step import StepDiagnostics, StepInputs
from dpose.units import View, pad_views
from refusals import refused

N, FEATURES, OUT, C = 6, 3, 2, 0.5


def plan(method="dp-head", **changes):
    return TrainingPlan(method, **{"epsilon": 1.0, "delta": 1e-4, "clip_norm": C, "normalise": False, **changes})


class Regression:
    """Squared loss of a linear layer at the end of a frozen model; a unit has one or two views."""

    name, precision = "regression", "float32"

    def loss(self, model, params, inputs, targets):
        found = functional_call(model, dict(params), (inputs,))
        return (targets["y"] - found).square().sum(-1) / 2

    def collate(self, units):
        return pad_views(units)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head(FEATURES, OUT, bias=False)
        torch.nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(x.flatten(1)[:, :FEATURES].float() / 255)


class Head(torch.nn.Linear):
    def solve(self, gradient, stddev, units, moment=None):
        return -gradient

    def moment(self, outputs):
        """Gradients hold the second moment of the first two features."""
        features, moved = outputs
        return (moved * features[:, :OUT]).sum(-1)


class Units:
    unit = "image"

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def unit_id(self, index):
        return f"row-{index}"

    def content_hashes(self, index):
        return (f"{self.rows[index]}",)

    def load(self, index, rng):
        return [
            View(np.resize(np.array(x, np.uint8), (1, FEATURES, 3)), {"y": np.array(y, np.float32)}, 1.0)
            for x, y in self.rows[index]
        ]


SMALL = [((10, 200, 30), (0.5, -2.0)), ((255, 255, 255), (9.0, 9.0)), ((0, 1, 0), (0.0, 0.0))]
ROWS = [[one] for one in SMALL] + [list(pair) for pair in combinations(SMALL, 2)]
OPPOSITE = [((255, 255, 255), (-9.0, -9.0))]  # of the second, but for the sign of what the model is wrong by
ZERO = [((0, 0, 0), (0.0, 0.0))]  # contributes nothing: the statistic of a unit that is zeroed out


class Featured(Model):
    """Gives its features beside what the layer makes of them."""

    def forward(self, x):
        features = x.flatten(1)[:, :FEATURES].float() / 255
        return features, self.head(features)


def noised_sum(rows, monkeypatch, method="dp-head"):
    """The sum that the step releases, without its noise: of a method of two steps the first."""
    monkeypatch.setattr(step, "add_noise", lambda sums, event, stream=None: sums)
    second = method == "adassp-head"
    model, noise = Featured() if second else Model(), AesNoise(Key.from_seed(1))
    task, data, bound = Regression(), Units(rows), plan(method).bind(N)
    task = SecondMoment(task) if second else task
    inputs = StepInputs(task, model, Loader(task, data, noise, 1), bound, noise, b"", 4)
    mean = step.private_gradient(inputs, trainable_params(model), 0)
    return mean["head.weight"].double() * bound.divisor


@pytest.mark.parametrize("method", ["dp-head", "adassp-head"])
def test_one_unit_moves_the_sum_by_c_and_another_in_its_place_by_two(monkeypatch, method):
    """All neighbours over a universe of units: never passed, and reached. Of a method of two sums both are so."""
    bound = plan(method).bind(N).event.sensitivity
    base = [ROWS[i % len(ROWS)] for i in range(N)]
    whole = noised_sum(base, monkeypatch, method)
    gone, exchanged = [], []
    for i in range(N):
        without = noised_sum([*base[:i], ZERO, *base[i + 1 :]], monkeypatch, method)
        gone.append(float((whole - without).norm()))
        for other in [*ROWS, OPPOSITE]:
            moved = whole - noised_sum([*base[:i], other, *base[i + 1 :]], monkeypatch, method)
            exchanged.append(float(moved.norm()))
    assert max(gone) <= bound
    # from below: what is summed is cut off at a whole step of the grid, coordinate by coordinate
    assert max(gone) == pytest.approx(C, rel=1e-5 if method == "dp-head" else 2e-5)
    # two moments are at most at a right angle; statistics of opposite errors point away from each other
    assert max(exchanged) <= (2 * bound if method == "dp-head" else 1.4143 * bound)
    assert max(exchanged) > (1.999 * C if method == "dp-head" else 0.999 * C)


def test_its_noise_has_a_purpose_of_its_own_and_is_drawn_once(monkeypatch):
    """Another method under the same key, plan and step never draws the same numbers."""
    asked = []
    stream = AesNoise.stream

    def spied(self, purpose, step=0, context=b""):
        asked.append(purpose)
        return stream(self, purpose, step, context)

    monkeypatch.setattr(AesNoise, "stream", spied)
    model, noise = Model(), AesNoise(Key.from_seed(1))
    inputs = StepInputs(Regression(), model, Loader(Regression(), Units(ROWS), noise, 1), plan().bind(N), noise, b"", 4)
    with step.open_parts(inputs, None) as sources:
        sources.gradient(trainable_params(model), 0)
    assert asked.count(Purpose.STATISTIC) == 1
    assert Purpose.NOISE not in asked
    assert Purpose.STATISTIC in ONCE


def test_every_unit_is_in_the_sum_whatever_the_batch_size_says(monkeypatch):
    """The event is that of a step over all: a rate below 1 would be accounted for and not taken."""
    for size in (1, 256):
        bound = plan(expected_batch_size=size, epochs=3).bind(1000)
        assert (bound.steps, bound.sampling_rate, bound.event.q, bound.event.steps) == (1, 1.0, 1, 1)
        own = SampledGaussian(1.0, bound.event.sigma, 1, bound.event.sensitivity, type=bound.event.type)
        assert bound.epsilon == pytest.approx(epsilon([own], 1e-4), rel=1e-6)
        assert bound.epsilon <= 1.0


def test_the_solution_reads_the_noised_sum_once_and_settings():
    """Whatever else there is, it is not asked for: sources that hold nothing but these two serve."""
    gradient = torch.tensor([[1.0, -2.0, 0.5]])
    calls, bound = [], plan(normalise=True).bind(100)

    class Layer:
        def solve(self, gradient, stddev, units, moment=None):
            assert moment is None
            calls.append((gradient.clone(), stddev, units))
            return 2 * gradient

        moment = Head.moment

    sources = SimpleNamespace(
        bound=bound,
        inputs=SimpleNamespace(model=SimpleNamespace(head=Layer())),
        noised=lambda: {"head.weight": gradient},
        state={},
    )
    update = solved(sources)
    ((seen, stddev, units),) = calls
    assert units == 100
    assert torch.equal(seen, C * gradient)  # normalised sums are in units of C
    assert stddev == pytest.approx(C * bound.event.sigma / 100)
    assert torch.equal(update["head.weight"], -2 * C * gradient)


def test_both_sums_are_bound_beforehand_as_one_event():
    """Twice the noise's variance of one sum: what two Gaussians cost, neither of them before the other."""
    one, two = (plan(method, epsilon=2.0).bind(1000) for method in ("dp-head", "adassp-head"))
    assert (two.steps, two.event.steps, two.event.q, two.event.sensitivity) == (2, 2, 1, one.event.sensitivity)
    assert float(two.event.sigma) == pytest.approx(2**0.5 * float(one.event.sigma), rel=1e-3)
    assert two.epsilon == pytest.approx(one.epsilon, rel=1e-3)


def test_of_two_steps_the_first_is_of_the_features_alone_and_the_second_solves_with_it():
    """The first reads no label and changes no weight; each takes one noised sum."""
    asked, bound = [], plan("adassp-head", normalise=True).bind(100)
    sums = [{"head.weight": torch.full((2, 3), float(value))} for value in (1, 2)]

    class Layer(Head):
        def solve(self, gradient, stddev, units, moment=None):
            asked.append((gradient.clone(), moment.clone(), stddev, units))
            return gradient

    def noised(task=None):
        asked.append(type(task))
        return sums[len(asked) - 1]

    model = SimpleNamespace(head=Layer(FEATURES, OUT))
    sources = SimpleNamespace(
        bound=bound,
        inputs=SimpleNamespace(model=model, task=Regression(), ranks=ProcessGroup()),
        noised=noised,
        state={},
    )
    assert not solved(sources)["head.weight"].any()
    solved(sources)
    first, second, (gradient, moment, stddev, units) = asked
    assert (first, second, units) == (SecondMoment, type(None), 100)
    assert torch.equal(moment, C * sums[0]["head.weight"])
    assert torch.equal(gradient, C * sums[1]["head.weight"])
    assert stddev == pytest.approx(C * bound.event.sigma / 100)


@pytest.mark.parametrize("method", ["adassp-head", "dp-sgd"])
def test_a_kept_sum_that_comes_out_otherwise_is_not_used(method):
    """It changes no weight: what is compared with the log is the sum itself, whatever method keeps it."""
    logged = []

    def run(moment, taken):
        made = object.__new__(Run)
        made.__dict__.update(
            bound=plan(method).bind(100), ranks=ProcessGroup(), chain=None, taken=taken, params={}, leaves=[]
        )
        gradient = {"head.weight": 0 * moment}
        state = {"head.weight": moment}
        made.sources = SimpleNamespace(state=state, gradient=lambda *given: (gradient, StepDiagnostics()))
        made.schedule = SimpleNamespace(get_last_lr=lambda: [1.0], step=lambda: None)
        made.optimizer, made.average = SimpleNamespace(step=lambda: None), None
        made.log = SimpleNamespace(write=lambda *given, update, **more: logged.append(update))
        return made

    moment = torch.full((2, 3), 5.0)
    run(moment, {})._step(0)
    run(moment.clone(), {0: logged[0]})._step(0)
    with pytest.raises(ReplayError):
        run(moment * (1 + 1e-6), {0: logged[0]})._step(0)


def test_directions_follow_from_public_numbers():
    assert [directions_for(n, s, 32) for n, s in ((10, 50), (400, 4.2), (400, 0.6), (8000, 4.2), (10**6, 1))] == [
        4,
        4,
        16,
        16,
        32,
    ]
    # a second moment of few public people is known in few directions
    assert [directions_for(10**6, 1, 32, m) for m in (1, 40, 64, 200, 255, 256)] == [4, 4, 8, 16, 16, 32]


def test_models_and_plans_that_it_does_not_fit_are_refused(dots, tmp_path):
    with refused("steps-of-one-step-method"):
        plan(steps=3)
    with refused("model-without-correction"):
        train(dots.task, dots.task.build_model(), private=Dots(20), plan=plan(), out=tmp_path / "r", public=Dots(5, 1))
    assert closed_form.solvable(Model()) is not None
    assert replace(plan(), epochs=1).kind.solves
