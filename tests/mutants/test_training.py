"""Every known fault of private training, planted in the real code path; each is rejected by the check meant for it.

A check runs the engine and asserts what must hold. It passes on the true code, and it must not on the faulty one: an
assertion fails, or a guard refuses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from rich.console import Console

import dpose.training.charging as charging
import dpose.training.plan as plan_module
import dpose.training.public_view as public_view
import dpose.training.run as loop
import dpose.training.step as step
import dpose.training.subspace as subspace
from dots import train
from dpose.errors import DposeError
from dpose.privacy.events import SampledGaussian
from dpose.privacy.noise import AesNoise, Key
from dpose.training.checkpoint import checkpoints, load_checkpoint
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView, PublicViews
from dpose.training.step import StepInputs
from dpose.training.subspace import fit_subspace
from dpose.training.validation import Validation
from dpose.units import View
from dpose_scene.render import render_person
from dpose_scene.splits import scene_seed

N, BATCH = 200, 60
FAST = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
SMALL_VIEW = PublicView("pixelize", width=86.0)  # blocks of 2x2 in pictures of 6x6
LOGGED = {"update", "type", "step", "lr", "noisy_gradient_norm", "public_loss", "public_gradient_norm"}


def a_plan(method="dp-sgd", **changes):
    values = {
        "epsilon": 8.0,
        "delta": 1e-4,
        "steps": 6,
        "expected_batch_size": BATCH,
        "accountant": "rdp",
        "public_view": SMALL_VIEW,
        "subspace": {"rank": 3, "units": 20, "refresh": 2},
        **changes,
    }
    values["subspace"] = plan_module.SubspaceConfig(**values["subspace"])
    return TrainingPlan(method, **values)


def a_run(dots, folder: Path, plan=None, model=None, **options):
    return train(
        dots.task,
        model or dots.task.build_model(),
        private=dots.data(N),
        plan=plan or a_plan(),
        out=folder / "run",
        optimizer=FAST,
        state_dir=folder / "state",
        console=Console(quiet=True),
        **options,
    )


def an_engine(dots, plan, seed=0, n=N):
    model = dots.task.build_model()
    noise = AesNoise(Key.from_seed(seed))
    loader = Loader(dots.task, dots.data(n), noise)
    return StepInputs(dots.task, model, loader, plan.bind(n), noise, b"", 64), trainable_params(model)


def without_noise(monkeypatch):
    """What `private_gradient` makes of the sums when the noise is left out, so that the rest can be seen."""
    monkeypatch.setattr(step, "add_gaussian", lambda sums, stddev, stream, *_: sums)


# ---------------------------------------------------------------------------------------------------- the checks


def public_units_are_nobodys(dots, folder, monkeypatch):
    a_run(dots, folder, a_plan("pdp-sgd"), public=dots.data(40, seed=5))


def the_subspace_is_of_units(dots, folder, monkeypatch):
    """Thirty-two units in four batches: their gradients span more than four directions."""
    model = dots.task.build_model()
    data = dots.data(32)
    batches = [dots.task.collate([data.load(i, None) for i in range(k, k + 8)]) for k in range(0, 32, 8)]
    assert fit_subspace(dots.task, model, trainable_params(model), batches, 3).rank > len(batches)


def public_and_private_batches_are_independent(dots, folder, monkeypatch):
    """The overlap of the two batches is that of independent draws, within five standard deviations."""
    private, public = [], []
    real_poisson, real_plain = step.poisson_batch, step.plain_gradient

    def watch_plain(engine, params, sample, number):
        public.append({int(i) for i in sample})
        return real_plain(engine, params, sample, number)

    monkeypatch.setattr(step, "poisson_batch", lambda *a: private.append(real_poisson(*a)) or private[-1])
    monkeypatch.setattr(step, "plain_gradient", watch_plain)
    a_run(dots, folder, a_plan("fdp-sgd", steps=30), seed=1)
    overlap = sum(len(b & set(a.tolist())) for a, b in zip(private, public, strict=True))
    chance = [len(a) * len(b) / N for a, b in zip(private, public, strict=True)]
    spread = math.sqrt(sum(c * (1 - len(b) / N) for c, b in zip(chance, public, strict=True)))
    assert abs(overlap - sum(chance)) < 5 * spread


def a_unit_counts_once(dots, folder, monkeypatch):
    """Brute force: without any one unit, the sum of the same sample moves by at most the sensitivity."""
    plan = a_plan(clip_norm=0.05, normalise=False)
    engine, params = an_engine(dots, plan, n=24)
    without_noise(monkeypatch)
    divisor = engine.bound.divisor

    def total(units):
        with monkeypatch.context() as patch:
            patch.setattr(step, "poisson_batch", lambda *a: np.array(units))
            gradient = step.private_gradient(replace(engine, noise=AesNoise(Key.from_seed(0))), params, 0)
        return torch.cat([g.flatten() for g in gradient.values()]) * divisor

    everyone = list(range(24))
    whole = total(everyone)
    moved = [float((whole - total([k for k in everyone if k != i])).norm()) for i in everyone]
    assert max(moved) <= engine.bound.event.sensitivity * (1 + 1e-5)
    assert max(moved) > 0.9 * engine.bound.event.sensitivity


def the_claimed_epsilon_is_what_the_steps_cost(dots, folder, monkeypatch):
    done = a_run(dots, folder)
    (event,) = done.statement.events
    accountant = rdp_privacy_accountant.RdpAccountant()
    accountant.compose(dp_event.PoissonSampledDpEvent(BATCH / N, dp_event.GaussianDpEvent(event.sigma)), event.steps)
    assert done.statement.epsilon == pytest.approx(accountant.get_epsilon(1e-4), rel=1e-6)
    assert event.steps == done.steps == 6


def batches_are_poisson(dots, folder, monkeypatch):
    """Sizes of Poisson batches vary as the binomial does; shuffled ones do not."""
    engine, params = an_engine(dots, a_plan())
    sizes = sample_sizes(engine, params, monkeypatch, 200)
    q = BATCH / N
    assert 0.6 < np.var(sizes) / (N * q * (1 - q)) < 1.6


def the_divisor_is_a_constant(dots, folder, monkeypatch):
    engine, params = an_engine(dots, a_plan(), n=24)
    without_noise(monkeypatch)
    made = {}
    real = step.clipped_sum

    def kept(*arguments, **options):
        part = real(*arguments, **options)
        for name, value in part.items():
            made["sums"][name] = made["sums"].get(name, 0) + value
        return part

    monkeypatch.setattr(step, "clipped_sum", kept)
    for number, units in enumerate(([0, 1], list(range(17)))):
        made["sums"] = {}
        with monkeypatch.context() as patch:
            patch.setattr(step, "poisson_batch", lambda *a, units=units: np.array(units))
            gradient = step.private_gradient(engine, params, number)
        for name, value in gradient.items():
            # q n = 24: all of them, expected
            assert torch.allclose(value.double() * 24.0, made["sums"][name], atol=1e-6)


def nothing_is_stored_of_a_batch(dots, folder, monkeypatch):
    a_run(dots, folder)


def the_last_average_is_what_is_released(dots, folder, monkeypatch):
    watch = Validation(dots.data(9, seed=9), "held-out dots", public=False)
    done = a_run(dots, folder, a_plan(ema_decay=0.5), validation_data=watch)
    last = load_checkpoint(checkpoints(folder / "run")[-1])
    assert last.step == done.steps
    assert torch.equal(done.model.classify.weight, last.average["classify.weight"])


def units_are_drawn_as_often_as_is_counted(dots, folder, monkeypatch):
    """q n units a batch on average: 200 batches, within five standard deviations of what the event says."""
    engine, params = an_engine(dots, a_plan())
    drawn = sum(sample_sizes(engine, params, monkeypatch, 200))
    q = engine.bound.event.q
    assert engine.bound.divisor == pytest.approx(BATCH)
    assert abs(drawn - 200 * N * q) < 5 * math.sqrt(200 * N * q * (1 - q))


def the_public_view_cannot_be_undone(dots, folder, monkeypatch):
    """Regularised inversion of the blur, which restores a picture from its blur in floating point, gains nothing."""
    image = render_person("studio", scene_seed("studio", "val", 3)).image
    view = PublicView()
    low = view.low(image)
    rows, columns = (public_view._sampling("blur", extent, view._width(image.shape[0])) for extent in image.shape[:2])
    rows, columns = (m / m.sum(1, keepdims=True) for m in (rows, columns))
    back = np.einsum("hr,rcx,wc->hwx", np.linalg.pinv(rows, 1e-6), low.astype(float), np.linalg.pinv(columns, 1e-6))
    restored = np.clip(np.rint(back), 0, 255).astype(np.uint8)
    assert cv2.PSNR(restored, image) < 28
    assert low.dtype == np.uint8
    assert low.size < image.size / 10


def the_public_view_is_of_the_canonical_crop(dots, folder, monkeypatch):
    """However often a unit is loaded and however it is augmented, one grid is all that is ever made of it."""
    grids = []
    real = PublicView.low

    def watched(self, image):
        grids.append(real(self, image).tobytes())
        return real(self, image)

    monkeypatch.setattr(PublicView, "low", watched)
    views = PublicViews(dots.data(4, most=1), SMALL_VIEW)
    rng = np.random.default_rng(0)
    shown = {views.load(2, rng)[0].image.tobytes() for _ in range(12)}
    assert len(shown) > 3  # it is augmented ...
    assert len(set(grids)) == 1  # ... after it was made


def streams_share_nothing(dots, folder, monkeypatch):
    """The first bytes of every stream of a run differ, but for those that may be drawn again: augmentation."""
    starts: dict[bytes, tuple] = {}
    real = AesNoise.stream

    def watched(self, purpose, number=0, context=b""):
        name = (str(purpose), number, context)
        if str(purpose) != "augment":
            start = peek(self, real, purpose, number, context)
            assert starts.setdefault(start, name) == name, f"{name} repeats {starts[start]}"
        return real(self, purpose, number, context)

    monkeypatch.setattr(AesNoise, "stream", watched)
    a_run(dots, folder, a_plan("fpdp-sgd"), public=dots.data(40, seed=5))
    assert {name for name, *_ in starts.values()} >= {"noise", "private-sampler", "public-sampler", "subspace"}


def the_log_holds_nothing_un_noised(dots, folder, monkeypatch):
    a_run(dots, folder, a_plan("fdp-sgd"))
    for line in (json.loads(text) for text in (folder / "run" / "log.jsonl").open()):
        if line["type"] == "step":
            assert set(line) <= LOGGED


def sample_sizes(engine, params, monkeypatch, count):
    sizes = []
    real = step.poisson_batch
    with monkeypatch.context() as patch:
        patch.setattr(step, "poisson_batch", lambda *a: sizes.append(len(real(*a))) or np.empty(0, np.int64))
        for number in range(count):
            step.private_gradient(engine, params, number)
    return sizes


def peek(noise, real, purpose, number, context):
    """The first bytes of a stream, drawn from a second source of the same key."""
    return real(AesNoise(noise._key), purpose, number, context).bytes(16)


# ---------------------------------------------------------------------------------------------------- the faults


def public_from_private(monkeypatch, dots):
    monkeypatch.setattr(charging, "_public_units", lambda plan, public: dots.data(N))


def gradients_of_batches(monkeypatch, dots):
    real = subspace.per_unit_gradients

    def averaged(*arguments, **named):
        return {n: g.mean(0, keepdim=True).expand_as(g).clone() for n, g in real(*arguments, **named).items()}

    monkeypatch.setattr(subspace, "per_unit_gradients", averaged)


def the_same_batch(monkeypatch, dots):
    drawn = []
    real = step.poisson_batch
    monkeypatch.setattr(step, "poisson_batch", lambda *a: drawn.append(real(*a)) or drawn[-1])

    def same(engine, first):
        while True:
            yield drawn[-1]

    monkeypatch.setattr(step, "plain_batches", same)


def units_enter_twice(monkeypatch, dots):
    real = step.clipped_sum
    monkeypatch.setattr(step, "clipped_sum", lambda *a, **k: {n: 2 * v for n, v in real(*a, **k).items()})


def a_history_that_is_ignored(monkeypatch, dots):
    monkeypatch.setattr(plan_module, "epsilon", lambda *a, **k: 1e-9)


def shuffled_batches_counted_as_poisson(monkeypatch, dots):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(step, "poisson_batch", lambda n, q, stream: rng.permutation(n)[: round(q * n)])


def division_by_the_realised_batch(monkeypatch, dots):
    sizes = [1]
    real = step.Loader.micro_batches

    def counted(self, indices, *rest, **options):
        sizes.append(max(1, len(indices)))
        return real(self, indices, *rest, **options)

    monkeypatch.setattr(step.Loader, "micro_batches", counted)
    monkeypatch.setattr(step.BoundPlan, "divisor", property(lambda self: sizes[-1]))


def batch_normalisation(monkeypatch, dots):
    real = dots.task.build_model

    def built():
        model = real()
        model.norm = torch.nn.BatchNorm1d(4)
        return model

    monkeypatch.setattr(dots.task, "build_model", built)


def a_buffer_that_is_written(monkeypatch, dots):
    """Not a BatchNorm by name, and written outside vmap, so that only the guard around the step can see it."""
    real = dots.task.build_model

    def built():
        model = real()
        model.register_buffer("seen", torch.zeros(1))
        return model

    monkeypatch.setattr(dots.task, "build_model", built)
    summed = step.clipped_part

    def writing(inputs, *rest):
        part = summed(inputs, *rest)
        inputs.model.seen += part["classify.weight"].sum()
        return part

    monkeypatch.setattr(step, "clipped_part", writing)


def a_gradient_past_the_clip(monkeypatch, dots):
    """A backward pass over private data beside the per-unit one, as a hook or a second loss would make it."""
    summed = step.clipped_part

    def second(given, params, batch):
        inputs = batch.inputs.flatten(0, 1)
        given.task.loss(
            given.model, dict(given.model.named_parameters()), inputs, {"way": batch.targets["way"].flatten()}
        ).sum().backward()
        return summed(given, params, batch)

    monkeypatch.setattr(step, "clipped_part", second)


def the_best_epoch(monkeypatch, dots):
    best = []
    real = loop.Run._score

    def watching(self, number, *rest):
        real(self, number, *rest)
        if not best:
            best.append({n: p.clone() for n, p in self.params.items()})

    def load_best(self):
        for name, value in best[0].items() if best else ():
            self.params[name].copy_(value)

    monkeypatch.setattr(loop.Run, "_score", watching)
    monkeypatch.setattr(loop.Run, "load_average", torch.no_grad()(load_best))


def a_floored_batch_size(monkeypatch, dots):
    """The sampler works with one over a whole number of batches; the accountant and the divisor do not."""
    real = step.poisson_batch
    monkeypatch.setattr(step, "poisson_batch", lambda n, q, stream: real(n, 1 / math.floor(1 / q), stream))


def a_view_in_floating_point(monkeypatch, dots):
    """The blur at every pixel, unrounded."""
    whole = lambda kind, extent, spacing: extent  # noqa: E731
    monkeypatch.setattr(public_view, "_cells", whole)
    public_view._sampling.cache_clear()

    def exact(rows, columns, image):
        rows, columns = (m / m.sum(1, keepdims=True) for m in (rows, columns))
        return np.einsum("rh,hwx,cw->rcx", rows, image.astype(np.float64), columns)

    monkeypatch.setattr(public_view, "_transform", exact)


def a_view_of_what_was_augmented(monkeypatch, dots):
    def load(self, index, rng):
        varied = [self.augmented(view, rng) for view in self.dataset.canonical(index)]
        return [View(self.view(view.image), view.target, view.weight) for view in varied]

    monkeypatch.setattr(PublicViews, "load", load)


def a_shared_stream(monkeypatch, dots):
    real = AesNoise.stream
    monkeypatch.setattr(AesNoise, "stream", lambda self, purpose, number=0, context=b"": real(self, "noise", 0, b""))
    monkeypatch.setattr("dpose.privacy.noise.ONCE", frozenset())


def a_logged_private_loss(monkeypatch, dots):
    real = step.GradientSources.gradient

    def telling(self, params, number, chain=b""):
        gradient, found = real(self, params, number, chain)
        loss = step.plain_gradient(self.private, params, np.arange(8), number)[1]
        found.shown["private_loss"] = loss
        return gradient, found

    monkeypatch.setattr(step.GradientSources, "gradient", telling)


@dataclass(frozen=True)
class Mutant:
    """A fault, how it is planted, and the check that must reject it."""

    fault: str
    plant: Callable
    check: Callable


MUTANTS = [
    Mutant("01 public subset taken from the private data", public_from_private, public_units_are_nobodys),
    Mutant("02 subspace from gradients of batches", gradients_of_batches, the_subspace_is_of_units),
    Mutant("03 one batch for public and private", the_same_batch, public_and_private_batches_are_independent),
    Mutant("04 every unit enters the sum twice", units_enter_twice, a_unit_counts_once),
    Mutant("05 accountant's history ignored", a_history_that_is_ignored, the_claimed_epsilon_is_what_the_steps_cost),
    Mutant("06 shuffled batches counted as Poisson", shuffled_batches_counted_as_poisson, batches_are_poisson),
    Mutant("07 division by the realised batch size", division_by_the_realised_batch, the_divisor_is_a_constant),
    Mutant("08 BatchNorm in training mode", batch_normalisation, nothing_is_stored_of_a_batch),
    Mutant("08b a buffer that private data write", a_buffer_that_is_written, nothing_is_stored_of_a_batch),
    Mutant("08c a gradient past the clip", a_gradient_past_the_clip, nothing_is_stored_of_a_batch),
    Mutant("09 best epoch by test score released", the_best_epoch, the_last_average_is_what_is_released),
    Mutant("10 floored expected batch size", a_floored_batch_size, units_are_drawn_as_often_as_is_counted),
    Mutant("11 public view in floating point", a_view_in_floating_point, the_public_view_cannot_be_undone),
    Mutant("12 public view after augmentation", a_view_of_what_was_augmented, the_public_view_is_of_the_canonical_crop),
    Mutant("13 a shared random stream", a_shared_stream, streams_share_nothing),
    Mutant("14 a logged private loss", a_logged_private_loss, the_log_holds_nothing_un_noised),
]


@pytest.fixture
def task(dots):
    """The dots with a task of this test's own, so that a fault stays in it."""
    yield SimpleNamespace(task=type(dots.task)(), data=dots.data)
    public_view._sampling.cache_clear()


@pytest.mark.parametrize("check", dict.fromkeys(m.check for m in MUTANTS), ids=lambda c: c.__name__)
def test_the_true_code_passes(check, task, tmp_path, monkeypatch):
    check(task, tmp_path, monkeypatch)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.fault)
def test_fault_is_rejected(mutant, task, tmp_path, monkeypatch):
    mutant.plant(monkeypatch, task)
    with pytest.raises((AssertionError, DposeError)):
        mutant.check(task, tmp_path, monkeypatch)


def test_events_are_what_ran():
    """The event that is accounted for carries the sampler's rate and the noise's scale, not copies of them."""
    bound = a_plan(clip_norm=0.5, normalise=False).bind(N)
    assert isinstance(bound.event, SampledGaussian)
    assert bound.event.q == bound.sampling_rate == BATCH / N
    assert bound.noise_stddev == bound.event.sigma * 0.5
