"""Transforms before the clip: the bound holds behind them, the noise has their shape, nothing private makes them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

import dpose.training.dry_run as dry_run
import dpose.training.step as step
from clipped import clipped_sum
from dots import train
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training.clip import Clip
from dpose.training.dry_run import check_units_apart
from dpose.training.gradients import CLIP_MARGIN, per_unit_gradients, trainable_params
from dpose.training.loader import Loader
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.preclipping import COEFFICIENTS, Coefficients, Scales, fit_scales, stand_in
from dpose.training.step import FITTED, StepInputs, open_parts, private_gradient
from dpose.training.subspace import Subspace, fit_subspace, random_subspace
from dpose.units import UnitBatch
from refusals import refused

BOTH = ("subspace-sgd", "scaled-sgd")
N, RANK = 40, 3


def parts_of(dots, n=9, dtype=torch.float32):
    model = dots.task.build_model().to(dtype)
    data = dots.data(n)
    return model, trainable_params(model), dots.task.collate([data.load(i, None) for i in range(n)])


def transform_of(kind, params, seed=0):
    """One that is far from the identity: scales over four decades."""
    rng = np.random.default_rng(seed)
    if kind == "subspace-sgd":
        return Coefficients(random_subspace(params, RANK, rng))
    return Scales({name: torch.from_numpy(10.0 ** rng.uniform(-2, 2, p.shape)).to(p) for name, p in params.items()})


def flat(gradient):
    return torch.cat([gradient[name].double().flatten() for name in sorted(gradient)])


def chosen(batch, keep):
    return UnitBatch(batch.inputs[keep], {k: t[keep] for k, t in batch.targets.items()}, batch.weights[keep])


def matrix_of(transform, params):
    """The transform as a matrix, one column a parameter."""
    count = sum(p.numel() for p in params.values())
    each, at = {}, 0
    for name, p in params.items():
        block = torch.zeros(count, p.numel(), dtype=p.dtype)
        block[at : at + p.numel()] = torch.eye(p.numel(), dtype=p.dtype)
        each[name], at = block.view(count, *p.shape), at + p.numel()
    rows = transform.each(each)
    return torch.cat([rows[name].reshape(count, -1) for name in rows], 1).double().T


@pytest.mark.parametrize("kind", BOTH)
def test_the_sum_is_of_gradients_transformed_and_then_clipped(dots, kind):
    model, params, batch = parts_of(dots, dtype=torch.float64)
    transform = transform_of(kind, params)
    raw = per_unit_gradients(dots.task, model, params, batch)
    rows = torch.cat([raw[name].flatten(1) for name in params], 1) @ matrix_of(transform, params).T
    clip = float(rows.norm(dim=1).median())
    factors = (clip * (1 - CLIP_MARGIN) / rows.norm(dim=1)).clamp(max=1.0)
    got = clipped_sum(dots.task, model, params, batch, Clip(clip), transform=transform)
    whole = torch.cat([got[name].flatten() for name in transform.like(params)])
    torch.testing.assert_close(whole, (rows * factors[:, None]).sum(0), rtol=0, atol=2e-6 * clip)


@pytest.mark.parametrize("way", ["fast", "plain"])
@pytest.mark.parametrize("clip", [1e-3, 1.0])
@pytest.mark.parametrize("kind", BOTH)
def test_no_unit_moves_the_sum_by_more_than_the_sensitivity(dots, kind, clip, way):
    """Brute force: each unit left out, and each replaced by each other, exactly and not up to rounding."""
    model, params, batch = parts_of(dots)
    transform = transform_of(kind, params)

    def summed(keep):
        found = clipped_sum(dots.task, model, params, chosen(batch, keep), Clip(clip), way=way, transform=transform)
        assert {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in transform.like(params).items()}
        return flat(found)

    everyone = list(range(len(batch)))
    whole, bound, most = summed(everyone), clip, 0.0
    for u in everyone:
        without = everyone[:u] + everyone[u + 1 :]
        moved = float((whole - summed(without)).norm())
        most = max(most, moved)
        assert moved <= bound
        for other in everyone[::3]:
            assert float((whole - summed([*without, other])).norm()) <= 2 * bound
    if clip < 1e-2:
        assert most > 0.99 * bound  # the bound is met: nothing is clipped twice


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("kind", BOTH)
def test_a_gradient_that_is_not_finite_moves_nothing(dots, kind, poison, monkeypatch):
    model, params, batch = parts_of(dots, 4)
    transform, real = transform_of(kind, params), dots.task.loss
    one = batch.inputs[2, 1].sum()  # a value that no other view has

    def poisoned(model, params, inputs, targets):
        bad = inputs.flatten(1).sum(1) == one
        return real(model, params, inputs, targets) * torch.where(bad, poison, 1.0)

    expected = clipped_sum(dots.task, model, params, chosen(batch, [0, 1, 3]), Clip(0.5), transform=transform)
    monkeypatch.setattr(dots.task, "loss", poisoned)
    got = clipped_sum(dots.task, model, params, batch, Clip(0.5), transform=transform)
    assert torch.isfinite(flat(got)).all()
    moved = float((flat(got) - flat(expected)).norm())
    assert moved == 0 if poison != 1e30 else moved <= 0.5


def engine_for(dots, transform, **changes):
    settings = {"epsilon": 3.0, "delta": 1e-4, "steps": 3, "expected_batch_size": 20, "accountant": "rdp"}
    bound = TrainingPlan(**{**settings, **changes}).bind(N)
    noise, model = AesNoise(Key.from_seed(3)), dots.task.build_model()
    return StepInputs(
        dots.task, model, Loader(dots.task, dots.data(N), noise), bound, noise, b"", 8, transform=transform
    )


def inputs_of(dots, model, bound, noise, data=None):
    loader = Loader(dots.task, data or dots.data(N), noise, threads=1)
    return StepInputs(dots.task, model, loader, bound, noise, b"same", 8)


@pytest.mark.parametrize("kind", BOTH)
def test_the_step_noises_the_transformed_sum_once_and_maps_back(dots, kind, monkeypatch):
    """Noise of the event's scale on each transformed coordinate and on nothing else; the divisor is the constant."""
    params = trainable_params(dots.task.build_model())
    transform = transform_of(kind, params)
    engine, seen = engine_for(dots, transform), {}

    def spy(sums, stddev, stream, *_):
        seen.update(sums=sums, stddev=stddev)
        return {name: value + 7 for name, value in sums.items()}

    monkeypatch.setattr(step, "add_gaussian", spy)
    got = private_gradient(engine, params, 1)
    assert seen["stddev"] == engine.bound.event.sigma * engine.bound.event.sensitivity
    shapes = {name: tuple(value.shape) for name, value in seen["sums"].items()}
    if kind == "subspace-sgd":
        assert shapes == {COEFFICIENTS: (RANK,)}
    else:
        assert shapes == {name: tuple(p.shape) for name, p in params.items()}
    mean = {n: ((v + 7) / engine.bound.divisor).float() for n, v in seen["sums"].items()}
    for name, value in transform.back(mean).items():
        assert torch.equal(got[name], value)
        assert got[name].shape == params[name].shape


def test_back_is_the_transpose_of_coefficients_and_the_inverse_of_scales(dots):
    params = trainable_params(dots.task.build_model().double())
    for kind in BOTH:
        transform = transform_of(kind, params)
        matrix = matrix_of(transform, params)
        y = {name: torch.randn_like(value) for name, value in transform.like(params).items()}
        row = torch.cat([value.flatten() for value in y.values()])
        back = transform.back(y)
        expected = matrix.T @ row if kind == "subspace-sgd" else torch.linalg.solve(matrix, row)
        torch.testing.assert_close(torch.cat([back[name].flatten() for name in params]), expected, rtol=1e-6, atol=1e-7)


def test_scales_are_the_roots_of_public_second_moments(dots, monkeypatch):
    monkeypatch.setattr("dpose.training.preclipping.SCALE_FLOOR", 0.0)
    model, params, batch = parts_of(dots, dtype=torch.float64)
    raw = per_unit_gradients(dots.task, model, params, batch)
    moments = torch.cat([raw[name].flatten(1) for name in params], 1).square().mean(0)
    batches = [chosen(batch, [0, 1, 2, 3]), chosen(batch, [4, 5, 6, 7, 8])]
    factors = fit_scales(dots.task, model, params, batches)
    found = torch.cat([factors[name].flatten() for name in params])
    torch.testing.assert_close(found**2 * moments.sqrt(), (found**2 * moments.sqrt())[0].expand(20))
    assert float((found**2 * moments).sum()) == pytest.approx(float(moments.sum()))
    # of all diagonal maps this one has the least noise for its mean squared norm: the spread of the scales
    spread = float(moments.sqrt().sum() ** 2 / (20 * moments.sum()))
    noise = float((found**-2).sum()) * float((found**2 * moments).sum())
    assert noise / (20 * float(moments.sum())) == pytest.approx(spread)
    for other in (found * 1.1 ** torch.arange(20), found**0, found**2):
        assert float((other**-2).sum()) * float((other**2 * moments).sum()) > noise


def test_scales_that_nothing_gives_are_refused(dots):
    model, params, batch = parts_of(dots, 2)
    nothing = replace(batch, inputs=torch.full_like(batch.inputs, float("nan"), dtype=torch.float32))
    with refused("public-gradients-missing"):
        fit_scales(dots.task, model, params, [nothing])
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with refused("scales-not-positive"):
            Scales({"a": torch.ones(2), "b": torch.tensor([1.0, bad])})
    with refused("scales-without-random"):
        a_plan("scaled-sgd", subspace=SubspaceConfig("random"))


def a_plan(method, **changes):
    settings = {
        "epsilon": 8.0,
        "delta": 1e-4,
        "steps": 4,
        "expected_batch_size": 20,
        "accountant": "rdp",
        "subspace": SubspaceConfig(rank=RANK, units=20, refresh=2),
    }
    return TrainingPlan(method, **{**settings, **changes})


def taken(dots, method, private=None, first=0, state=None, weights=0.0, **changes):
    """The gradients of all steps from `first` on, at weights that `weights` moves a little, and the parts' state."""
    model = dots.task.build_model().train()
    bound, noise = a_plan(method, **changes).bind(N), AesNoise(Key.from_seed(3))
    params = {name: p + weights for name, p in trainable_params(model).items()}
    public = dots.data(30, seed=5) if bound.plan.fits_public else None
    with open_parts(inputs_of(dots, model, bound, noise, private), public) as parts:
        if state:
            parts.resume_at(first, *state)
        found = [parts.gradient(params, k) for k in range(first, 4)]
        projection = parts.projection
        assert projection
        return found, (projection.subspace, projection.fitted, dict(parts.state))


@pytest.mark.parametrize("method", BOTH)
def test_the_transform_is_of_public_units_and_released_weights(dots, method, monkeypatch):
    """Other private units and other samples give the same transform; other weights or public units another one."""
    transforms = []
    real = step.private_gradient

    def watched(engine, *rest):
        params = rest[0]
        transforms.append(flat({"m": matrix_of(engine.transform, params)}))
        return real(engine, *rest)

    monkeypatch.setattr(step, "private_gradient", watched)
    for private in (dots.data(N), dots.data(N, seed=11)):
        found, _ = taken(dots, method, private)
        ages = [one.diagnostics.get("subspace_age") for _, one in found]
        assert ages == ([0, 1, 0, 1] if method == "subspace-sgd" else [None] * 4)
    for one, other in zip(transforms[:4], transforms[4:8], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(transforms[0], transforms[1])  # fitted every second step
    assert torch.equal(transforms[2], transforms[3])
    assert not torch.equal(transforms[1], transforms[2])
    taken(dots, method, weights=0.5)
    assert not torch.equal(transforms[0], transforms[8])


@pytest.mark.parametrize("method", BOTH)
def test_a_run_that_goes_on_has_the_transform_it_had(dots, method):
    whole, _ = taken(dots, method, subspace=SubspaceConfig(rank=RANK, units=20, refresh=3))
    bound = a_plan(method, subspace=SubspaceConfig(rank=RANK, units=20, refresh=3)).bind(N)
    noise = AesNoise(Key.from_seed(3))
    model = dots.task.build_model().train()
    with open_parts(inputs_of(dots, model, bound, noise), dots.data(30, seed=5)) as parts:
        parts.gradient(trainable_params(model), 0)
        parts.gradient(trainable_params(model), 1)
        assert parts.projection
        kept = (parts.projection.subspace, parts.projection.fitted, dict(parts.state))
    assert (FITTED in kept[2]) == (method == "scaled-sgd")
    again, _ = taken(dots, method, first=2, state=kept, subspace=SubspaceConfig(rank=RANK, units=20, refresh=3))
    for (one, _), (other, _) in zip(whole[2:], again, strict=True):
        assert torch.equal(flat(one), flat(other))


@pytest.mark.parametrize("method", BOTH)
def test_the_identity_is_dp_sgd(dots, method):
    found, _ = taken(dots, method, subspace=SubspaceConfig("identity"))
    model = dots.task.build_model().train()
    inputs = inputs_of(dots, model, a_plan("dp-sgd").bind(N), AesNoise(Key.from_seed(3)))
    with open_parts(inputs, None) as parts:
        for k, (gradient, _) in enumerate(found):
            assert torch.equal(flat(gradient), flat(parts.gradient(trainable_params(model), k)[0]))


def test_noise_lies_in_the_subspace_and_has_its_dimension(dots):
    """An empty sample: V^T z, whose coefficients in V are the noise; across V there is nothing."""
    params = trainable_params(dots.task.build_model().double())
    transform = transform_of("subspace-sgd", params)
    engine = engine_for(dots, transform, expected_batch_size=1)
    engine = replace(engine, model=engine.model.double())
    draws = torch.stack([flat(private_gradient(engine, params, t)) for t in range(60)])
    basis = torch.cat([transform.subspace.basis[n].reshape(RANK, -1) for n in sorted(params)], 1).double()
    assert float((draws - draws @ basis.T @ basis).norm() / draws.norm()) < 1e-6
    scale = float((draws @ basis.T).std()) * engine.bound.divisor
    assert scale == pytest.approx(engine.bound.noise_stddev, rel=0.35)


def test_a_transform_that_mixes_units_is_seen(dots):
    """What keeps units apart is checked with the transform: one that centres the batch is refused."""
    model, params, batch = parts_of(dots, 4)

    class Centred(Coefficients):
        def each(self, gradients):
            rows = super().each(gradients)[COEFFICIENTS]
            return {COEFFICIENTS: rows - rows.mean(0)}

    one = chosen(batch, [0])
    good = stand_in(params, RANK)
    check_units_apart(dots.task, model, one, 4, 1, good)
    with refused("units-not-apart"):
        check_units_apart(dots.task, model, one, 4, 1, Centred(good.subspace))


def test_coefficients_of_public_gradients_are_projected_gradients(dots):
    model, params, batch = parts_of(dots, dtype=torch.float64)
    subspace = fit_subspace(dots.task, model, params, [batch], RANK)
    assert isinstance(subspace, Subspace)
    raw = per_unit_gradients(dots.task, model, params, batch)
    coefficients = Coefficients(subspace).each(raw)[COEFFICIENTS]
    energy = float(coefficients.square().sum()) / sum(float(g.square().sum()) for g in raw.values())
    assert energy == pytest.approx(subspace.energy, rel=1e-6)


def test_a_subspace_of_fewer_directions_computes_in_the_shape_that_was_tried(dots):
    """Public gradients of a lower rank give rows of zeros: no gradient has a part there, and noise there goes away."""
    model, params, batch = parts_of(dots)
    subspace = fit_subspace(dots.task, model, params, [chosen(batch, [0, 0, 1])], RANK)
    assert subspace.directions == 2
    fit = SimpleNamespace(
        at=lambda *given: subspace, diagnostics=lambda step: {}, config=SubspaceConfig(rank=RANK, units=3)
    )
    sources = SimpleNamespace(
        _once=lambda *given: fit, projection=None, _params=params, _step=0, _found=step.StepDiagnostics()
    )
    transform = step.GradientSources.coefficients(sources)
    raw = per_unit_gradients(dots.task, model, params, batch)
    rows, plain = (each.each(raw)[COEFFICIENTS] for each in (transform, Coefficients(subspace)))
    assert rows.shape == stand_in(params, RANK).each(raw)[COEFFICIENTS].shape == (len(batch), RANK)
    torch.testing.assert_close(rows[:, :2], plain)
    assert not rows[:, 2].any()
    noise = torch.tensor([0.0, 0.0, 7.0])
    assert not any(bool(back.any()) for back in transform.back({COEFFICIENTS: noise}).values())


FITTING = ("pdp-sgd", *BOTH)


@pytest.mark.parametrize("method", FITTING)
def test_streams_of_fits_are_drawn_once(dots, method):
    """A fit's units come from the stream of subspaces, which gives no second draw under one key and step."""
    noise = AesNoise(Key.from_seed(3))
    noise.stream(Purpose.SUBSPACE, 0, b"same")
    model = dots.task.build_model().train()
    inputs = inputs_of(dots, model, a_plan(method).bind(N), noise)
    with open_parts(inputs, dots.data(30, seed=5)) as parts, pytest.raises(RuntimeError):
        parts.gradient(trainable_params(model), 0)


@pytest.mark.parametrize("method", FITTING)
def test_a_fit_reads_each_of_its_public_units_once(dots, method, monkeypatch):
    """All of them where there are just enough; one fewer is refused."""
    read, model = [], dots.task.build_model().train()
    real = Loader.micro_batches

    def watched(self, indices, number, microbatch_size, **options):
        if self.label == b"public":
            read.append((sorted(indices), number, microbatch_size))
        return real(self, indices, number, microbatch_size, **options)

    monkeypatch.setattr(Loader, "micro_batches", watched)
    bound, noise = a_plan(method).bind(N), AesNoise(Key.from_seed(3))
    inputs = inputs_of(dots, model, bound, noise)
    with open_parts(inputs, dots.data(20, seed=5)) as parts:
        for k in range(3):
            parts.gradient(trainable_params(model), k)
    assert read == [(list(range(20)), 0, 8), (list(range(20)), 2, 8)]
    with refused("public-units-too-few", where=("20 public", "are 19")), open_parts(inputs, dots.data(19, seed=5)):
        pass


@pytest.mark.parametrize("method", FITTING)
def test_the_machine_is_tried_with_a_transform_of_the_runs_shape(dots, tmp_path, method, monkeypatch):
    tried = []
    real = dry_run.check_units_apart
    monkeypatch.setattr(dry_run, "check_units_apart", lambda *given: tried.append(given[5]) or real(*given))
    done = train(
        dots.task,
        dots.task.build_model(),
        private=dots.data(N),
        public=dots.data(30, seed=5),
        plan=a_plan(method),
        out=tmp_path / "run",
        optimizer=OptimizerConfig("sgd", lr=0.1, options={"momentum": 0.9}),
        state_dir=tmp_path / "state",
        console=Console(quiet=True),
    )
    shapes = [t and {n: tuple(v.shape) for n, v in t.tensors().items()} for t in tried]
    params = trainable_params(done.model)
    coefficients = {name: (RANK, *p.shape) for name, p in params.items()}
    alone = {name: tuple(p.shape) for name, p in params.items()}
    assert shapes == [{"subspace-sgd": coefficients, "scaled-sgd": alone}.get(method)]
    assert any("fitted on" in fact for fact in done.statement.public)
    assert done.statement.verify() <= 8.0
    (event,) = done.statement.events
    assert event.type == "poisson-rounded-gaussian"
