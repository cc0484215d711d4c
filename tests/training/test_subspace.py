"""The public subspace: the right directions from the right gradients, no made-up ones, and a plain projection."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch.func import functional_call

from dpose.training import gradients as gradients_module
from dpose.training import subspace as subspace_module
from dpose.training.gradients import trainable_params
from dpose.training.preclipping import fit_scales
from dpose.training.subspace import fit_subspace, project_onto, random_subspace
from dpose.units import UnitBatch
from refusals import refused


def setup(dots, n=30, dtype=torch.float32, size=10):
    task = dots.task
    model = task.build_model().to(dtype)
    data = dots.data(n)
    units = [data.load(i, None) for i in range(n)]
    batches = [task.collate(units[at : at + size]) for at in range(0, n, size)]
    return task, model, trainable_params(model), batches


def rows(task, model, batches):
    """The oracle's G, (m, P) float64: ordinary autograd, one view at a time, the weighted mean over views."""
    found = []
    model = model.double()
    for batch in batches:
        for u in range(len(batch)):
            total = 0.0
            for v in range(batch.weights.shape[1]):
                model.zero_grad()
                targets = {k: t[u, v][None] for k, t in batch.targets.items()}
                task.loss(model, dict(model.named_parameters()), batch.inputs[u, v][None], targets).sum().backward()
                share = float(batch.weights[u, v] / batch.weights[u].sum())
                total = total + share * torch.cat([p.grad.flatten() for p in model.parameters()])
            found.append(total)
    return torch.stack(found)


def matrix(subspace):
    return torch.cat([b.flatten(1) for b in subspace.basis.values()], 1).double()


def projector(subspace):
    v = matrix(subspace)
    return v.T @ v


def some_gradient(params, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(p.shape, generator=generator).to(p) for name, p in params.items()}


def flat(gradient):
    return torch.cat([g.flatten() for g in gradient.values()]).double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_the_directions_are_the_top_right_singular_vectors(dots, dtype, k):
    task, model, params, batches = setup(dots, dtype=dtype)
    got = fit_subspace(task, model, params, batches, k)
    _, singular, right = torch.linalg.svd(rows(task, model, batches), full_matrices=False)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-8
    torch.testing.assert_close(projector(got), right[:k].T @ right[:k], atol=tolerance, rtol=0)
    energy = float((singular[:k] ** 2).sum() / (singular**2).sum())
    assert got.energy == pytest.approx(energy, rel=1e-5)
    assert (got.directions, got.units, got.dropped) == (k, 30, 0)
    assert all(got.basis[name].shape == (k, *p.shape) for name, p in params.items())


def test_rows_are_orthonormal_over_all_parameters_together(dots):
    task, model, params, batches = setup(dots)
    v = matrix(fit_subspace(task, model, params, batches, 9))
    torch.testing.assert_close(v @ v.T, torch.eye(9, dtype=torch.float64), atol=1e-6, rtol=0)


def test_units_that_share_a_batch_keep_their_own_directions(dots):
    """Gradients of whole batches would have rank 3 here, whatever k is."""
    task, model, params, batches = setup(dots)
    assert len(batches) == 3
    got = fit_subspace(task, model, params, batches, 8)
    assert got.directions == 8
    alone = fit_subspace(task, model, params, setup(dots, size=1)[3], 8)
    torch.testing.assert_close(projector(got), projector(alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("hold_bytes", "slice_bytes"), [(0, 0), (0, 400), (1000, 700), (10**9, 0)])
def test_memory_bounds_change_nothing(dots, hold_bytes, slice_bytes):
    task, model, params, batches = setup(dots)
    whole = fit_subspace(task, model, params, batches, 7)
    bounded = fit_subspace(task, model, params, batches, 7, hold_bytes=hold_bytes, slice_bytes=slice_bytes)
    torch.testing.assert_close(projector(bounded), projector(whole), atol=1e-5, rtol=0)
    assert bounded.rank == whole.rank
    assert bounded.energy == pytest.approx(whole.energy, rel=1e-6)


@pytest.mark.parametrize("hold_bytes", [0, 10**9])
def test_with_room_all_gradients_are_computed_in_the_shape_of_steps(dots, hold_bytes, monkeypatch):
    """Even where such a batch passes what slices may take: for another shape a GPU plans its convolutions anew."""
    task, model, params, batches = setup(dots)
    whole, scales = fit_subspace(task, model, params, batches, 7), fit_scales(task, model, params, batches)
    shapes, real = [], gradients_module._book

    def noted(loss, params, units, *given, **named):
        shapes.append(units[-1].shape)
        return real(loss, params, units, *given, **named)

    monkeypatch.setattr(gradients_module, "_book", noted)
    at_room = fit_subspace(task, model, params, batches, 7, hold_bytes=hold_bytes, slice_bytes=0, room=64)
    assert len(shapes) > len(batches) or hold_bytes
    torch.testing.assert_close(projector(at_room), projector(whole), atol=1e-5, rtol=0)
    found = fit_scales(task, model, params, batches, room=64)
    torch.testing.assert_close(found, scales)
    assert {shape.numel() for shape in shapes} == {64}


def test_scales_are_fitted_slice_by_slice(dots, monkeypatch):
    task, model, params, batches = setup(dots)
    whole, seen, real = fit_scales(task, model, params, batches), [], subspace_module.per_unit_gradients

    def noted(*given, **named):
        seen.append(len(given[3]))
        return real(*given, **named)

    monkeypatch.setattr(subspace_module, "per_unit_gradients", noted)
    monkeypatch.setitem(subspace_module.SLICE_BYTES, "cpu", 400)
    torch.testing.assert_close(fit_scales(task, model, params, batches), whole)
    assert max(seen) == 400 // sum(4 * p.numel() for p in params.values())


def test_small_directions_are_still_orthonormal():
    """G^T U S^-1 alone loses orthogonality in float32 where singular values differ by a factor of a thousand."""
    task, model, params, batch = linear(24, 64, scale=lambda u: 2e3 ** (-u / 24))
    got = fit_subspace(task, model, params, [batch], 20)
    v = matrix(got)
    torch.testing.assert_close(v @ v.T, torch.eye(20, dtype=torch.float64), atol=2e-6, rtol=0)


def test_no_direction_is_made_of_rounding(dots):
    task, model, params, _ = setup(dots)
    views = dots.data(9).views
    repeated = [views[i % 4] for i in range(20)]
    got = fit_subspace(task, model, params, [task.collate(repeated)], 10)
    span = rows(task, dots.task.build_model(), [task.collate(views[:4])])
    assert (got.rank, got.directions) == (4, 4)
    right = torch.linalg.svd(span, full_matrices=False)[2]
    torch.testing.assert_close(projector(got), right.T @ right, atol=1e-4, rtol=0)
    assert got.energy == pytest.approx(1.0)


def test_too_few_units_are_refused(dots):
    task, model, params, batches = setup(dots, 5)
    with refused("public-units-too-few", where=("6 public", "are 5")):
        fit_subspace(task, model, params, batches, 6)
    with refused("subspace-size-out-of-range"):
        fit_subspace(task, model, params, batches, 0)


def test_gradients_that_are_not_finite_count_as_zero(dots, monkeypatch):
    task, model, params, batches = setup(dots)
    clean = [
        UnitBatch(b.inputs[1:], {n: t[1:] for n, t in b.targets.items()}, b.weights[1:]) if i == 0 else b
        for i, b in enumerate(batches)
    ]
    expected = fit_subspace(task, model, params, clean, 6)
    real, poison = task.loss, batches[0].inputs[0, 0]

    def poisoned(model, params, inputs, targets):
        bad = (inputs == poison).flatten(1).all(1)
        return real(model, params, inputs, targets) * torch.where(bad, float("nan"), 1.0)

    monkeypatch.setattr(task, "loss", poisoned)
    got = fit_subspace(task, model, params, batches, 6)
    assert (got.dropped, got.units) == (1, 30)
    torch.testing.assert_close(projector(got), projector(expected), atol=1e-5, rtol=0)
    everything = fit_subspace(task, model, params, batches, 6, hold_bytes=0)
    assert everything.dropped == 1
    monkeypatch.setattr(task, "loss", lambda *a: real(*a) * float("nan"))
    with refused("public-gradients-missing"):
        fit_subspace(task, model, params, batches, 6)


def test_the_model_is_left_alone(dots):
    task, model, params, batches = setup(dots)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit_subspace(task, model, params, batches, 5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_projection_is_v_v_transposed(dots):
    task, model, params, batches = setup(dots)
    subspace = fit_subspace(task, model, params, batches, 6)
    gradient = some_gradient(params)
    got, share = project_onto(gradient, subspace)
    expected = projector(subspace) @ flat(gradient)
    torch.testing.assert_close(flat(got), expected, atol=1e-5, rtol=0)
    assert share == pytest.approx(float(expected.norm() / flat(gradient).norm()), rel=1e-5)
    assert {name: g.shape for name, g in got.items()} == {name: p.shape for name, p in params.items()}


def test_what_lies_within_stays_and_what_lies_outside_goes(dots):
    task, model, params, batches = setup(dots)
    subspace = fit_subspace(task, model, params, batches, 6)
    gradient = some_gradient(params)
    within, _ = project_onto(gradient, subspace)
    again, share = project_onto(within, subspace)
    assert share == pytest.approx(1.0, abs=1e-5)
    torch.testing.assert_close(flat(again), flat(within), atol=1e-5, rtol=0)
    outside = {name: gradient[name] - within[name] for name in gradient}
    assert project_onto(outside, subspace)[1] < 1e-5
    zero = {name: torch.zeros_like(g) for name, g in gradient.items()}
    assert project_onto(zero, subspace)[1] == 0.0


def test_a_subspace_of_another_model_is_refused(dots):
    task, model, params, batches = setup(dots)
    subspace = fit_subspace(task, model, params, batches, 3)
    for bad in ({}, {"classify.weight": params["classify.weight"]}, {n: p.flatten() for n, p in params.items()}):
        with refused("subspace-of-other-model"):
            project_onto(bad, subspace)


def test_random_directions_are_the_same_for_the_same_seed_and_orthonormal(dots):
    _, _, params, _ = setup(dots)
    a, b, other = (random_subspace(params, 8, np.random.default_rng(seed)) for seed in (1, 1, 2))
    torch.testing.assert_close(matrix(a), matrix(b), rtol=0, atol=0)
    assert (projector(a) - projector(other)).norm() > 1
    torch.testing.assert_close(matrix(a) @ matrix(a).T, torch.eye(8, dtype=torch.float64), atol=2e-6, rtol=0)
    assert (a.rank, a.energy, a.units) == (8, None, 0)
    full = random_subspace(params, 20, np.random.default_rng(0))
    torch.testing.assert_close(projector(full), torch.eye(20, dtype=torch.float64), atol=1e-5, rtol=0)
    for k in (0, 21):
        with refused("subspace-size-out-of-range", where="20 directions"):
            random_subspace(params, k, np.random.default_rng(0))


def test_noise_keeps_the_square_root_of_k_over_p():
    params = {"a": torch.zeros(30, 40), "b": torch.zeros(800)}
    subspace = random_subspace(params, 50, np.random.default_rng(0))
    shares = [project_onto(some_gradient(params, seed), subspace)[1] for seed in range(30)]
    assert np.mean(shares) == pytest.approx((50 / 2000) ** 0.5, rel=0.1)


class Linear(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))

    def forward(self, inputs):
        return inputs @ self.weight


class LinearTask:
    def loss(self, model, params, inputs, targets):
        return functional_call(model, dict(params), (inputs,))


def linear(units, size, scale=lambda u: 1.0):
    """A model whose per-unit gradient is the unit's input."""
    torch.manual_seed(0)
    inputs = torch.stack([torch.randn(1, size) * scale(u) for u in range(units)])
    model = Linear(size)
    return LinearTask(), model, trainable_params(model), UnitBatch(inputs, {}, torch.ones(units, 1))


PEAK = """
    import torch
    torch.set_num_threads(1)
    from dpose.training.subspace import fit_subspace
    from dpose.units import UnitBatch

    class Task:
        def loss(self, model, params, inputs, targets):
            return (inputs.sin() * params["w"].view(500, 1000).sum(0)).sum(1)

    def memory(field):  # getrusage would count what the parent process had when it forked
        with open("/proc/self/status") as file:
            return int(next(line for line in file if line.startswith(field)).split()[1]) * 1024

    def extra(hold):
        subspace = fit_subspace(Task(), None, params, batches, 20, hold_bytes=hold, slice_bytes=4_000_000)
        assert subspace.directions == 20
        return memory("VmHWM") - before

    params = {"w": torch.zeros(500_000)}
    batches = [UnitBatch(torch.randn(4, 1, 1000), {}, torch.ones(4, 1)) for _ in range(15)]
    fit_subspace(Task(), None, params, batches[:1], 1)  # the libraries' own first use
    before = memory("VmRSS")
    print(extra(25_000_000), extra(10**9))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in use from /proc")
def test_memory_stays_near_that_of_the_basis():
    """60 gradients of 0.5 M parameters take 120 MB, the basis 40: in bounds, only the basis and some slices."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PEAK)], capture_output=True, text=True, check=True)
    bounded, whole = (int(word) for word in done.stdout.split())
    assert 40e6 < bounded < 75e6
    assert whole > 120e6


def spread(units=24, size=1 << 17, least=1.0):
    """Singular values from 1 down to about `least`, in more parameters than float64 products are taken for."""
    return linear(units, size, scale=lambda u: least ** (u / (units - 1)))


def asked(monkeypatch):
    """How each of the subspace's products was asked for, from now on."""
    found, real = [], subspace_module._products

    def watched(a, b, *, quick=False):
        found.append(quick)
        return real(a, b, quick=quick)

    monkeypatch.setattr(subspace_module, "_products", watched)
    return found


@pytest.mark.parametrize("least", [1.0, 0.1, 1e-2, 2e-3])
def test_many_parameters_give_the_same_directions_from_cheaper_products(least, monkeypatch):
    task, model, params, batch = spread(least=least)
    exact = torch.linalg.svd(batch.inputs[:, 0].double(), full_matrices=False)
    kinds = asked(monkeypatch)
    got = fit_subspace(task, model, params, [batch], 12)
    assert all(kinds)
    v = matrix(got)
    assert (v @ v.T - torch.eye(12, dtype=torch.float64)).abs().max() <= 1e-6
    # nothing of v lies outside of the gradients' span, and what it holds of their energy is what it may hold
    assert ((v @ exact.Vh.T).norm(dim=1) - 1).abs().max() <= 1e-6
    energy = float(exact.S[:12].square().sum() / exact.S.square().sum())
    assert got.energy == pytest.approx(energy, rel=1e-6)
    caught = (v @ batch.inputs[:, 0].double().T).square().sum() / exact.S.square().sum()
    assert float(caught) == pytest.approx(energy, rel=1e-6)
    assert got.rank == 24


@pytest.mark.parametrize("least", [5e-4, 2e-5])
def test_where_float32_products_do_not_tell_the_rank_float64_ones_do(least, monkeypatch):
    task, model, params, batch = spread(least=least)
    values = torch.linalg.svdvals(batch.inputs[:, 0].double())
    kinds = asked(monkeypatch)
    got = fit_subspace(task, model, params, [batch], 20)
    assert kinds[:2] == [True, False]
    assert got.rank == int((values > subspace_module.RANK_TOLERANCE * values[0]).sum())
    v = matrix(got)
    assert (v @ v.T - torch.eye(len(v), dtype=torch.float64)).abs().max() <= 1e-6


def test_repeated_units_and_empty_ones_are_no_directions_among_many_parameters():
    task, model, params, batch = spread(8)
    inputs = torch.cat([batch.inputs, batch.inputs, torch.zeros_like(batch.inputs[:1])])
    got = fit_subspace(task, model, params, [UnitBatch(inputs, {}, torch.ones(17, 1))], 12)
    assert (got.rank, got.directions) == (8, 8)


def test_products_that_overflow_are_taken_in_float64():
    task, model, params, batch = spread(6)
    large = UnitBatch(batch.inputs * 1e16, {}, batch.weights)  # norms of 4e18: their squares are not below 3.4e38
    large.inputs[0] *= 3
    got = fit_subspace(task, model, params, [large], 3)
    assert (got.rank, got.directions, got.dropped) == (6, 3, 0)


def test_a_shorter_matmul_precision_is_not_used(monkeypatch):
    task, model, params, batch = spread()
    kinds = asked(monkeypatch)
    torch.set_float32_matmul_precision("medium")
    try:
        fit_subspace(task, model, params, [batch], 12)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert kinds
    assert not any(kinds)


def test_random_directions_in_many_dimensions_are_orthonormal():
    v = matrix(random_subspace({"a": torch.zeros(300, 400), "b": torch.zeros(31)}, 30, np.random.default_rng(0)))
    assert (v @ v.T - torch.eye(30, dtype=torch.float64)).abs().max() <= 1e-6


@pytest.mark.parametrize("slice_bytes", [0, 3 << 19])
def test_slices_are_put_together_and_none_is_lost(slice_bytes):
    task, model, params, batch = spread(21)
    whole = fit_subspace(task, model, params, [batch], 9)
    sliced = fit_subspace(task, model, params, [batch], 9, hold_bytes=0, slice_bytes=slice_bytes)
    singular = torch.linalg.svdvals(matrix(whole) @ matrix(sliced).T)
    torch.testing.assert_close(singular, torch.ones(9, dtype=torch.float64), atol=1e-5, rtol=0)
