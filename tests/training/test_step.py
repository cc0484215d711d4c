"""One private step: exactly a Poisson sample, a clipped sum, Gaussian noise on the sum, and a constant divisor."""

import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from clipped import clipped_sum
from dpose.privacy.events import FLOATING, ROUNDED, SampledGaussian
from dpose.privacy.gaussian_noise import add_gaussian
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.sampling import poisson_batch
from dpose.training.clip import Clip, Grid
from dpose.training.gradients import per_unit_gradients, trainable_params
from dpose.training.loader import Loader
from dpose.training.plan import TrainingPlan
from dpose.training.step import (
    StepInputs,
    add_noise,
    noise_ahead,
    open_parts,
    plain_batches,
    plain_gradient,
    private_gradient,
)


def engine_for(dots, n=60, microbatch_size=4, seed=3, **changes):
    settings = {"epsilon": 3.0, "delta": 1e-4, "steps": 5, "expected_batch_size": 20, "clip_norm": 0.1, **changes}
    plan = TrainingPlan(**settings)
    data = dots.data(n)
    noise = AesNoise(Key.from_seed(seed))
    model = dots.task.build_model()
    return StepInputs(
        dots.task, model, Loader(dots.task, data, noise), plan.bind(n), noise, b"context", microbatch_size
    )


def without_noise(monkeypatch):
    monkeypatch.setattr("dpose.training.step.add_gaussian", lambda sums, stddev, stream, *_: dict(sums))


def flat(gradient):
    return torch.cat([g.flatten() for g in gradient.values()])


def test_the_step_is_sample_clip_sum_noise_divide(dots, monkeypatch):
    engine = engine_for(dots)
    params = trainable_params(engine.model)
    seen = {}

    def spy(sums, stddev, stream, *_):
        seen["stddev"] = stddev
        return {name: value + 1000 for name, value in sums.items()}

    monkeypatch.setattr("dpose.training.step.add_gaussian", spy)
    got = private_gradient(engine, params, 2)

    again = AesNoise(Key.from_seed(3))
    sample = poisson_batch(60, 20 / 60, again.stream(Purpose.PRIVATE_SAMPLER, 2, b"context"))
    batch = engine.task.collate([engine.loader.unit(int(i), 2) for i in sample])
    expected = clipped_sum(engine.task, engine.model, params, batch, Clip(0.1, True))
    assert seen["stddev"] == engine.bound.event.sigma * 1.0
    for name, value in expected.items():
        # noise goes onto the sum; the divisor is the expected batch size, whatever the sample's size
        torch.testing.assert_close(got[name].double(), (value + 1000) / 20, rtol=1e-6, atol=0)
    assert len(sample) != 20


def test_noise_has_the_accounted_scale_on_every_coordinate(dots):
    n, steps = 60, 150
    engine = engine_for(dots, n, steps=steps, clip_norm=1e-6, normalise=False)
    params = trainable_params(engine.model)
    draws = torch.stack([flat(private_gradient(engine, params, t)) for t in range(steps)]) * 20
    # with C = 1e-6 the sum moves by at most 60e-6 in units where the noise is sigma * 1e-6
    expected = engine.bound.noise_stddev
    assert expected == pytest.approx(engine.bound.event.sigma * 1e-6)
    noise = draws - draws.mean(0)
    assert float(noise.std()) == pytest.approx(expected, rel=0.25)
    assert float(noise.std(0).min()) > 0.3 * expected


@pytest.mark.parametrize(("kind", "grid_step"), [(ROUNDED, Grid.of(0.5).step), (FLOATING, None)])
def test_noise_is_on_the_grid_where_its_event_says_so_and_nowhere_else(kind, grid_step):
    event = SampledGaussian(0.1, 2.0, 1, 0.5, type=kind)
    sums = {"w": torch.zeros(50, dtype=torch.float64)}

    def stream():
        return AesNoise(Key.from_seed(1)).stream(Purpose.NOISE)

    expected = add_gaussian(sums, 2.0 * 0.5, stream(), grid_step)["w"]
    steps = expected / Grid.of(0.5).step
    assert torch.equal(steps, steps.round()) == (kind == ROUNDED)
    for noise in (stream(), noise_ahead(sums, event, stream())):
        assert torch.equal(add_noise(sums, event, noise)["w"], expected)


def test_an_empty_sample_is_noise_only(dots):
    engine = engine_for(dots, expected_batch_size=1, seed=6)
    params = trainable_params(engine.model)
    sizes = {}
    for step in range(5):
        stream = AesNoise(Key.from_seed(6)).stream(Purpose.PRIVATE_SAMPLER, step, b"context")
        sizes[step] = len(poisson_batch(60, 1 / 60, stream))
    empty = [step for step, size in sizes.items() if size == 0]
    assert empty, "choose another seed"
    gradient = flat(private_gradient(engine, params, empty[0]))
    assert gradient.abs().min() > 0


@pytest.mark.parametrize("microbatch_size", [1, 3, 64])
def test_the_micro_batch_changes_nothing(dots, monkeypatch, microbatch_size):
    without_noise(monkeypatch)
    reference = engine_for(dots, microbatch_size=4)
    other = engine_for(dots, microbatch_size=microbatch_size)
    params = trainable_params(reference.model)
    a, b = private_gradient(reference, params, 1), private_gradient(other, params, 1)
    torch.testing.assert_close(flat(a), flat(b), rtol=1e-4, atol=1e-6)


def test_rounding_is_last_and_once(dots, monkeypatch):
    """Sums are integers, noise comes in float64, and what is divided is rounded to the weights' type behind it."""
    engine, seen = engine_for(dots, microbatch_size=4), {}
    params = trainable_params(engine.model)

    def spy(sums, stddev, stream, *_):
        seen.update(sums)
        return {name: value + 2.0**-40 for name, value in sums.items()}

    monkeypatch.setattr("dpose.training.step.add_gaussian", spy)
    got = private_gradient(engine, params, 1)
    step = engine.bound.plan.clip.grid.step
    for name, value in seen.items():
        assert value.dtype == torch.float64
        assert torch.equal(value / step, (value / step).round())
        assert torch.equal(got[name], ((value + 2.0**-40) / engine.bound.divisor).float())


@pytest.mark.parametrize("normalise", [False, True])
def test_micro_batches_are_added_up_without_any_rounding(dots, monkeypatch, normalise):
    """On the plan's own grid, as integers: totals that no float32 holds, and parts that a coarser grid would round."""
    engine, seen, parts = engine_for(dots, microbatch_size=4, normalise=normalise), {}, []
    params = trainable_params(engine.model)
    step = Grid.of(1.0 if normalise else 0.1).step

    def spy(sums, stddev, stream, *_):
        seen.update(sums)
        return dict(sums)

    def odd(loss, params, *rest, **options):
        parts.append(2**24 + 1)
        return {n: torch.full_like(p, parts[-1] * step, dtype=torch.float64) for n, p in params.items()}

    monkeypatch.setattr("dpose.training.step.clipped_sum", odd)
    monkeypatch.setattr("dpose.training.step.add_gaussian", spy)
    private_gradient(engine, params, 1)
    assert len(parts) > 2
    for value in seen.values():
        assert torch.equal(value, torch.full_like(value, sum(parts) * step))


def test_every_sampled_unit_is_used_exactly_once(dots):
    engine = engine_for(dots)
    indices = list(range(0, 60, 2))
    weights = [b.weights for b in engine.loader.micro_batches(indices, 0, 4)]
    assert sum(len(w) for w in weights) == len(indices)
    expected = sorted(len(engine.loader.dataset.views[i]) for i in indices)
    assert sorted(int((row > 0).sum()) for w in weights for row in w) == expected
    assert all(len(w) * w.shape[1] <= 4 or len(w) == 1 for w in weights)


def test_sampler_and_noise_streams_differ_between_steps_and_purposes(dots):
    noise = AesNoise(Key.from_seed(1))
    words = {
        (purpose, step): noise.stream(purpose, step, b"c").bytes(16)
        for purpose in (Purpose.PRIVATE_SAMPLER, Purpose.NOISE)
        for step in range(3)
    }
    assert len(set(words.values())) == len(words)


def test_a_step_cannot_be_drawn_twice_from_one_key(dots):
    engine = engine_for(dots)
    params = trainable_params(engine.model)
    private_gradient(engine, params, 0)
    with pytest.raises(RuntimeError, match="twice"):
        private_gradient(engine, params, 0)


def test_augmentation_of_a_unit_does_not_depend_on_the_others(dots):
    class Jittered:
        def __init__(self, data):
            self.data = data

        def __len__(self):
            return len(self.data)

        def load(self, index, rng):
            self.drawn = rng.random()
            return self.data.load(index, rng)

    loader = Loader(dots.task, Jittered(dots.data(9)), AesNoise(Key.from_seed(0)), threads=1)
    loader.unit(4, 7)
    alone = loader.dataset.drawn
    for i in (0, 1, 8):
        loader.unit(i, 7)
        assert loader.dataset.drawn != alone
    loader.unit(4, 7)
    assert loader.dataset.drawn == alone
    loader.unit(4, 8)
    assert loader.dataset.drawn != alone


def test_the_next_micro_batch_is_read_while_one_is_computed(dots):
    class Counted:
        def __init__(self, data):
            self.data, self.loaded, self.enough = data, [], threading.Event()

        def __len__(self):
            return len(self.data)

        def load(self, index, rng):
            self.loaded.append(index)
            if len(self.loaded) >= 40:
                self.enough.set()
            return self.data.load(index, rng)

    units = dots.data(60)
    units.views = [views[:1] for views in units.views]
    data = Counted(units)
    loader = Loader(dots.task, data, AesNoise(Key.from_seed(0)), threads=1)
    batches = loader.micro_batches(range(60), 0, microbatch_size=20)
    next(batches)  # nobody asks for another one, and it is read all the same
    assert data.enough.wait(60)
    rest = list(batches)
    assert len(rest) == 2
    assert sorted(data.loaded) == list(range(60))


def test_a_loader_knows_how_long_it_was_waited_for(dots):
    class Slow:
        def __init__(self, data):
            self.data = data

        def __len__(self):
            return len(self.data)

        def load(self, index, rng):
            time.sleep(0.02)
            return self.data.load(index, rng)

    loader = Loader(dots.task, Slow(dots.data(3)), AesNoise(Key.from_seed(0)), threads=1)
    assert loader.waited == 0
    assert len(list(loader.units(range(3), 0))) == 3
    assert loader.waited > 0.02


def test_a_unit_with_many_views_gives_eight_of_them(dots):
    data = dots.data(1)
    data.views[0] = data.views[0] * 30
    loader = Loader(dots.task, data, AesNoise(Key.from_seed(0)))
    assert len(loader.unit(0, 0)) == 8


def test_plain_gradient_and_batches(dots):
    engine = engine_for(dots, method="non-private", epsilon=None, delta=None)
    params = trainable_params(engine.model)
    batches = plain_batches(engine)
    epoch = np.concatenate([next(batches) for _ in range(3)])
    assert sorted(epoch) == list(range(60))
    sample = np.arange(10)
    gradient, loss = plain_gradient(engine, params, sample, 0)
    whole = engine.task.collate([engine.loader.unit(i, 0) for i in range(10)])
    each = per_unit_gradients(engine.task, engine.model, params, whole)
    unclipped = {name: value.sum(0) for name, value in each.items()}
    torch.testing.assert_close(flat(gradient), flat(unclipped) / 10, rtol=1e-4, atol=1e-6)
    assert loss > 0


@pytest.mark.parametrize("first", [0, 1])
def test_parts_begin_with_the_first_batch_or_with_the_one_that_they_are_told(dots, first):
    engine, again = (engine_for(dots, method="non-private", epsilon=None, delta=None) for _ in range(2))
    params, batches = trainable_params(engine.model), list(itertools.islice(plain_batches(again), 3))
    with open_parts(engine, None) as parts:
        if first:
            parts.resume_at(first)
        for step in range(first, 3):
            expected, _ = plain_gradient(parts.open_data, params, batches[step], step)
            assert torch.equal(flat(parts.gradient(params, step)[0]), flat(expected))


@pytest.mark.slow
def test_what_measures_a_step_on_a_gpu_runs_and_prints_its_page(tmp_path):
    file = tmp_path / "gpu.json"
    script = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "gpu.py")]
    small = ["--device", "cpu", "--rows", "1", "--batch", "2", "--rounds", "1", "--limit", "0"]
    subprocess.run([*script, "measure", str(file), *small], check=True)
    part = json.loads(file.read_text())["parts"]["step: nano, light"]
    assert "error" not in part, part
    assert part["largest difference, float32"] == part["largest difference, bf16"] == 0
    printed = subprocess.run([*script, "page", str(file)], check=True, capture_output=True, text=True).stdout
    assert "| 2 `nano` light | " in printed
