"""The clipped sum: against a loop, and against its bound."""

import os
import platform
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from clipped import clipped_sum
from dpose.training import gradients
from dpose.training.arithmetic import keep_freed_memory
from dpose.training.bookkeeping import Bookkeeping
from dpose.training.clip import Clip, Grid
from dpose.training.gradients import (
    CLIP_MARGIN,
    clip_scales,
    mean_gradient,
    per_unit_gradients,
    trainable_params,
    unit_norms,
)
from dpose.units import UnitBatch, View, pad_views
from refusals import refused


def norm(gradient):
    return float(torch.stack([g.double().square().sum() for g in gradient.values()]).sum().sqrt())


def setup(dots, n=7, dtype=torch.float64):
    task = dots.task
    model = task.build_model().to(dtype)
    data = dots.data(n)
    batch = task.collate([data.load(i, None) for i in range(n)])
    return task, model, trainable_params(model), batch


def loop(task, model, batch):
    """The oracle: ordinary autograd, one view at a time, float64."""
    found = []
    for u in range(len(batch)):
        total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for v in range(batch.weights.shape[1]):
            weight = float(batch.weights[u, v]) / float(batch.weights[u].sum())
            if weight == 0:
                continue
            model.zero_grad()
            outputs = model(batch.inputs[u, v][None])
            torch.nn.functional.cross_entropy(outputs, batch.targets["way"][u, v][None]).backward()
            for name, p in model.named_parameters():
                total[name] += weight * p.grad
        found.append(total)
    return found


def test_per_unit_gradients_equal_a_loop_over_views(dots):
    task, model, params, batch = setup(dots)
    got = per_unit_gradients(task, model, params, batch)
    for u, expected in enumerate(loop(task, model, batch)):
        for name, value in expected.items():
            torch.testing.assert_close(got[name][u], value, rtol=1e-10, atol=1e-14)


def test_clipped_sum_equals_a_loop_that_clips(dots):
    task, model, params, batch = setup(dots)
    gradients = loop(task, model, batch)
    clip = sorted(norm(g) for g in gradients)[3]  # so that some are clipped and some are not
    for normalise in (False, True):
        expected = {name: torch.zeros_like(p) for name, p in params.items()}
        steps = {name: torch.zeros_like(p) for name, p in params.items()}
        step = Clip(clip, normalise).grid.step
        for g in gradients:
            scale = min(1.0, clip * (1 - CLIP_MARGIN) / norm(g)) / (clip if normalise else 1)
            for name, value in g.items():
                expected[name] += scale * value
                steps[name] += (scale * value / step).trunc()
        got = clipped_sum(task, model, params, batch, Clip(clip, normalise))
        for name, value in expected.items():
            torch.testing.assert_close(got[name], value, rtol=0, atol=len(batch) * step)
            # toward zero on the grid: but for what lies within float64's rounding of a step
            torch.testing.assert_close(got[name] / step, steps[name], rtol=0, atol=1)
            assert (got[name] / step == steps[name]).double().mean() > 0.7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("clip", [1e-3, 0.3, 1.0])
def test_no_unit_moves_the_sum_by_more_than_the_sensitivity(dots, dtype, normalise, clip):
    task, model, params, batch = setup(dots, 9, dtype)
    whole = clipped_sum(task, model, params, batch, Clip(clip, normalise))
    for u in range(len(batch)):
        keep = [i for i in range(len(batch)) if i != u]
        less = UnitBatch(batch.inputs[keep], {k: t[keep] for k, t in batch.targets.items()}, batch.weights[keep])
        without = clipped_sum(task, model, params, less, Clip(clip, normalise))
        moved = norm({name: whole[name] - without[name] for name in whole})
        assert 0 < moved <= (1.0 if normalise else clip)


def test_the_norm_is_over_all_tensors_together():
    gradients = {"a": torch.full((1, 3), 3.0), "b": torch.full((1, 4), 4.0)}
    expected = (27 + 64) ** -0.5
    assert float(clip_scales(unit_norms(gradients), Clip(1.0))[0]) == pytest.approx(
        expected * (1 - CLIP_MARGIN), rel=1e-6
    )


@pytest.mark.parametrize("over", [False, True])
def test_a_unit_that_is_one_step_over_the_bound_is_left_out(over):
    """Its squares and the sum of all units are known to the last bit, which float32 does not hold."""
    on = Grid.of(1.0)
    like = {"a": torch.zeros(1), "b": torch.zeros(1)}
    book = Bookkeeping({name: value.shape for name, value in like.items()}, 2, products=False)
    book.add("a", torch.tensor([[0.5 + on.step], [1.0]]))
    book.add("b", torch.tensor([[0.25], [on.step * over]]))
    found = book.sums(torch.ones(2), on, like)
    assert (float(found["a"]), float(found["b"])) == ((0.5 if over else 1.5) + on.step, 0.25)


@pytest.mark.parametrize(
    ("given", "sizes"), [({}, [32, 32]), ({"microbatch_size": 16}, [16] * 3), ({"microbatch_size": None}, [40])]
)
def test_units_are_computed_so_many_at_a_time(given, sizes, monkeypatch):
    seen, real = [], gradients._measurable

    def measurable(loss, params, units, *how):
        seen.append(len(units[0]))
        return real(loss, params, units, *how)

    monkeypatch.setattr(gradients, "_measurable", measurable)
    params, units = {"w": torch.zeros(2)}, (torch.ones(40, 2),)
    found = gradients.clipped_sum(lambda p, x: p["w"] @ x, params, units, 0.5, **given)
    assert seen == sizes
    assert float(found["w"].norm()) == pytest.approx(40 * 0.5, rel=1e-4)
    none = gradients.clipped_sum(lambda p, x: p["w"] @ x, params, (torch.ones(0, 2),), 0.5, **given)
    assert none["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_gradient_that_is_not_finite_counts_as_zero(dots, poison, monkeypatch):
    task, model, params, batch = setup(dots, 4, torch.float32)
    real = task.loss

    def poisoned(model, params, inputs, targets):
        loss = real(model, params, inputs, targets)
        bad = inputs.flatten(1).sum(1) == target_sum
        return loss * torch.where(bad, poison, 1.0)

    target_sum = batch.inputs[2, 1].sum()  # a value that no other view has
    monkeypatch.setattr(task, "loss", poisoned)
    got = clipped_sum(task, model, params, batch, Clip(0.5))
    monkeypatch.undo()
    keep = [0, 1, 3]
    rest = UnitBatch(batch.inputs[keep], {k: t[keep] for k, t in batch.targets.items()}, batch.weights[keep])
    expected = clipped_sum(task, model, params, rest, Clip(0.5))
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value)


def test_padding_changes_nothing(dots):
    task, model, params, _ = setup(dots)
    views = dots.data(3).views[1]  # two views
    alone = task.collate([views])
    padded = task.collate([views, [*views, *views]])  # padded to four
    a = per_unit_gradients(task, model, params, alone)
    b = per_unit_gradients(task, model, params, padded)
    for name in a:
        torch.testing.assert_close(a[name][0], b[name][0], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(b[name][0], b[name][1], rtol=1e-12, atol=1e-15)  # doubled views, same mean


def test_mean_gradient_is_the_mean_of_per_unit_gradients(dots):
    task, model, params, batch = setup(dots)
    gradient, loss = mean_gradient(task, model, params, batch)
    for name, value in per_unit_gradients(task, model, params, batch).items():
        torch.testing.assert_close(gradient[name], value.mean(0), rtol=1e-10, atol=1e-14)
    assert loss > 0


def test_collate_refuses_what_it_cannot_bound(dots):
    view = dots.data(1).views[0][0]
    for units in ([], [[]], [[view] * 9], [[View(view.image, view.target, 0.0)]]):
        with pytest.raises(ValueError, match=r"units|views|weight"):
            dots.task.collate(units)


X, Y, W = torch.rand(5, 3), torch.rand(5), {"w": torch.ones(3)}


def square(params, x, y):
    return (params["w"] @ x - y).square()


@pytest.mark.parametrize(
    ("code", "named", "given"),
    [
        ("units-differ-in-number", ("5", "9"), {"units": (X, torch.rand(9))}),
        ("units-differ-in-number", ("5", "9"), {"units": ({"x": X}, torch.rand(9))}),
        ("units-differ-in-number", ("5", "3"), {"units": (X, Y[:3])}),
        ("units-not-tensors", None, {"units": (X, Y.tolist())}),
        ("units-not-tensors", None, {"units": (X, torch.tensor(1.0))}),
        ("units-not-tensors", None, {"units": ()}),
        ("microbatch-too-small", "0", {"microbatch_size": 0}),
        ("microbatch-too-small", "-2", {"microbatch_size": -2}),
        ("way-unknown", "quick", {"way": "quick"}),
        ("params-empty", None, {"params": {}}),
        ("loss-not-scalar", "(1,)", {"loss": lambda p, x, y: square(p, x, y)[None]}),
        ("loss-not-scalar", "(3,)", {"loss": lambda p, x, y: p["w"] * x * y}),
        ("loss-not-scalar", "float", {"loss": lambda p, x, y: 1.0}),
        ("model-draws-random", None, {"loss": lambda p, x, y: square(p, torch.nn.functional.dropout(x), y)}),
    ],
)
@pytest.mark.parametrize("way", ["fast", "plain"])
def test_a_sum_of_ones_own_refuses_what_it_cannot_bound(code, named, given, way):
    arguments = {"loss": square, "params": W, "units": (X, Y), "clip": 0.5, "microbatch_size": 2, "way": way, **given}
    with warnings.catch_warnings(), refused(code, where=named):
        warnings.simplefilter("ignore")
        gradients.clipped_sum(**arguments)


@pytest.mark.parametrize("way", ["fast", "plain"])
def test_a_batch_norm_in_a_sum_of_ones_own_is_refused_in_one_line(way):
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))

    def loss(params, x):
        return torch.func.functional_call(layers, params, (x[None],)).sum()

    with warnings.catch_warnings(), refused("model-stores-state"):
        warnings.simplefilter("ignore")
        gradients.clipped_sum(loss, trainable_params(layers), (torch.rand(5, 3, 8, 8),), 0.5, way=way)


PIXELS = np.full((2, 2, 3), 7, np.uint8)


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        (View(PIXELS, {"y": 1}), View(PIXELS, {"y": 0.9}), ("y", "int64", "float64")),
        (View(PIXELS, {"y": [1.0]}), View(PIXELS, {"y": np.float32([1.0])}), ("y", "float64", "float32")),
        (View(PIXELS, {"y": np.zeros(2)}), View(PIXELS, {"y": np.zeros(1)}), ("y", "(2,)", "(1,)")),
        (View(PIXELS, {"y": 1}), View(PIXELS, {"y": 1, "z": 1}), ("z", "none")),
        (View(PIXELS, {"y": 1, "z": 1}), View(PIXELS, {"y": 1}), ("z", "none")),
        (View(PIXELS, {}), View(PIXELS[:1], {}), ("image", "(2, 2, 3)", "(1, 2, 3)")),
        (View(PIXELS, {}), View(PIXELS / 255, {}), ("image", "uint8", "float64")),
    ],
)
def test_no_unit_takes_its_types_from_another(one, other, named):
    """A label of 0.9 beside a whole one became 0: taking out the one moved what the other says."""
    for units in ([[one], [other]], [[one, other]]):
        with refused("views-not-alike", where=named) as caught:
            pad_views(units)
        assert "0.9" not in caught.value.line()


def test_pictures_of_other_types_do_not_turn_black():
    with refused("image-not-uint8", where="float32"):
        pad_views([[View(np.float32(PIXELS / 255), {})]])


def test_views_that_fill_up_can_be_computed():
    """A mean over the joints that are seen divided by none of them, in views of zeros."""
    views = [View(PIXELS + np.uint8(i), {"seen": np.float32([i, 1])}) for i in range(3)]
    batch = pad_views([views, views[1:2]])
    assert batch.weights.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    for tensor in (batch.inputs, batch.targets["seen"]):
        assert torch.equal(tensor[0, 3], tensor[0, 0])
        assert all(torch.equal(tensor[1, v], tensor[1, 0]) for v in range(4))
        assert torch.equal(tensor[1, 0], tensor[0, 1])


@pytest.mark.parametrize("size", [1, 2047, 2048, 1_228_800])
def test_norms_in_float32_err_far_less_than_the_margin(size):
    """Or a unit of a million parameters could pass the clip with more than C."""
    torch.manual_seed(size)
    rows = torch.rand(3, size) * torch.tensor([1e-6, 1.0, 1e4])[:, None]
    exact = rows.double().square().sum(1).sqrt()
    scales = clip_scales(unit_norms({"a": rows}), Clip(1e-7)).double()
    assert ((scales * exact / 1e-7 - (1 - CLIP_MARGIN)).abs() < CLIP_MARGIN / 5).all()


# ------------------------------------------------------------------ what is freed stays with the process


FAULTS = """
import resource, torch
from dpose.training.arithmetic import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(8_000_000)  # 32 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
kept = keep_freed_memory()
faults()
print(kept, faults())
"""


def in_a_process(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_"))},
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is of glibc")
def test_blocks_are_used_again():
    kept, faults = in_a_process(FAULTS)
    assert kept == "True"
    assert int(faults) < 100


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_settings_of_the_environment_stand(name, monkeypatch):
    monkeypatch.setenv(name, "131072")
    monkeypatch.setattr("ctypes.CDLL", lambda *_: pytest.fail("a setting was looked for to be changed"))
    assert not keep_freed_memory.__wrapped__()


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_left_alone(error, monkeypatch):
    def nothing(name):
        raise error

    monkeypatch.setattr("ctypes.CDLL", nothing)
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert not keep_freed_memory.__wrapped__()
