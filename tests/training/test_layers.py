"""The fast way is the plain way: every known layer, in every shape it may be met in, against `vmap(grad(...))`."""

import importlib.util
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from clipped import clipped_sum
from dpose.pose.model import PoseConfig, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.training import grad_sample, gradients
from dpose.training.bookkeeping import Bookkeeping, ghost_pays
from dpose.training.clip import Clip
from dpose.training.grad_sample import track
from dpose.training.gradients import (
    CLIP_MARGIN,
    clip_scales,
    mean_gradient,
    measured_gradients,
    per_unit_gradients,
    trainable_params,
    unit_loss,
    unit_norms,
)
from dpose.training.kernels import reference
from dpose.training.layers import Conv, Convolution
from dpose.units import UnitBatch
from layered import MODELS, Hidden, Strange, Task, distance, norm, only, setup, without

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


KNOWN = [name for name in MODELS if name != "hidden"]


def same(task, model, params, batch, dtype, normalised=(False, True)):
    plain = per_unit_gradients(task, model, params, batch, "plain")
    assert distance(per_unit_gradients(task, model, params, batch), plain) <= TOLERANCE[dtype]
    summed, measured = measured_gradients(task, model, params, batch)
    assert distance(summed, plain) <= TOLERANCE[dtype]
    norms = unit_norms(plain)
    clip = float(norms.sort().values[len(batch) // 2])  # some units are clipped and some are not
    assert ((measured - norms).abs() <= max(TOLERANCE[dtype], 2e-6) * norms).all()
    for normalise in normalised:
        a = clipped_sum(task, model, params, batch, Clip(clip, normalise))
        b = clipped_sum(task, model, params, batch, Clip(clip, normalise), way="plain")
        assert {name: v.shape for name, v in a.items()} == {name: p.shape for name, p in params.items()}
        assert not any(v.requires_grad for v in a.values())
        # numbers that differ by rounding may be truncated to neighbouring points of the grid, one for each unit
        points = len(batch) * Clip(clip, normalise).grid.step
        assert all(float((a[n] - v).abs().max()) <= TOLERANCE[dtype] * float(v.norm()) + points for n, v in b.items())


@pytest.mark.parametrize("views", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_every_layer_is_as_in_the_plain_way(name, dtype, views):
    torch.manual_seed(0)
    same(*setup(MODELS[name](), dtype, views), dtype)


@pytest.mark.parametrize("name", KNOWN)
def test_known_uses_do_not_fall_back(name):
    task, model, params, batch = setup(MODELS[name]())
    assert track(unit_loss(task, model), params, batch.parts, products=True) is not None


def test_a_hidden_use_is_found_and_the_plain_way_taken():
    task, model, params, batch = setup(Hidden())
    assert track(unit_loss(task, model), params, batch.parts, products=True) is None


def test_what_only_the_plain_way_can_do_is_left_to_it():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(6))

        def forward(self, x):
            read = self.table.index_select(0, torch.arange(6))
            read += 1
            return (x * read[:, None, None]).flatten(1)

    with pytest.warns(UserWarning, match="plain, slower way"):
        same(*setup(Written()), torch.float64)


class Lacking:
    """Torch's private module without one of its names."""

    def __getattr__(self, name):
        if name == "_unwrap_batched":
            raise AttributeError(name)
        return getattr(torch._C._functorch, name)


@pytest.mark.parametrize("found", [None, Lacking()], ids=["no module", "a name gone"])
def test_a_torch_without_the_private_functions_has_the_plain_way(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._C._functorch", found)
    spec = importlib.util.spec_from_file_location("tracking_elsewhere", grad_sample.__file__)
    elsewhere = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, elsewhere)  # dataclasses look themselves up
    spec.loader.exec_module(elsewhere)
    monkeypatch.setattr(gradients, "track", elsewhere.track)
    task, model, params, batch = setup(MODELS["windows"](), views=2)
    plain = clipped_sum(task, model, params, batch, Clip(0.3), way="plain")
    with pytest.warns(UserWarning, match="plain, slower way: torch .* beneath vmap"):
        got = clipped_sum(task, model, params, batch, Clip(0.3))
    assert all(torch.equal(got[name], value) for name, value in plain.items())


def test_a_torch_whose_private_functions_take_other_arguments_has_the_plain_way(monkeypatch):
    monkeypatch.setattr(grad_sample, "_unwrap_batched", lambda tensor, level, more: None)
    with pytest.warns(UserWarning, match="plain, slower way"):
        same(*setup(MODELS["windows"](), views=2), torch.float64)


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "2"])
@pytest.mark.parametrize("name", ["linear, ghost", "linear, whole", "conv", "depthwise", "layer norm", "group norm"])
def test_frozen_parameters_are_no_parameters(name, frozen):
    model = MODELS[name]()
    for p, value in model.named_parameters():
        if p.startswith(frozen):
            value.requires_grad_(False)
    task, model, params, batch = setup(model, views=2)
    assert params
    same(task, model, params, batch, torch.float64)


@pytest.mark.parametrize("name", ["linear, ghost", "conv", "depthwise", "layer norm", "group norm"])
def test_a_bias_beside_frozen_weights_takes_no_copies(name, monkeypatch):
    model = MODELS[name]()
    for p, value in model.named_parameters():
        value.requires_grad_(p.endswith("bias"))
    task, model, params, batch = setup(model, views=2)
    monkeypatch.setattr(grad_sample._Uses, "_copy_of", None)
    assert track(unit_loss(task, model), params, batch.parts, products=True) is not None


def test_weights_made_of_a_parameter_are_not_taken_for_frozen():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.bias = nn.Parameter(torch.ones(3, 1)), nn.Parameter(torch.zeros(3))
            self.frozen = nn.Parameter(torch.randn(3, 96), requires_grad=False)

        def forward(self, x):
            return F.linear(x.flatten(1), self.frozen * self.scale, self.bias)

    same(*setup(Scaled(), views=2), torch.float64)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("name", ["conv", "depthwise", "depthwise, wide", "pointwise, ghost", "group norm"])
def test_layouts_change_nothing(name, layout):
    task, model, _, batch = setup(MODELS[name](), views=3)
    model.to(memory_format=layout)
    inputs = batch.inputs.flatten(0, 1).contiguous(memory_format=layout).view_as(batch.inputs)
    same(task, model, trainable_params(model), UnitBatch(inputs, batch.targets, batch.weights), torch.float64)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_both_ways_of_a_convolution_agree(groups):
    torch.manual_seed(0)
    weight = torch.randn(12, 6 // groups, 3, 3, dtype=torch.float64)
    x = torch.randn(3, 2, 6, 5, 4, dtype=torch.float64)
    how = Convolution((2, 1), (1, 0), (1, 1), groups)
    conv = Conv(Bookkeeping({"w": weight.shape}, 3, products=False), "w", None, how)
    gradient = torch.randn_like(conv.forward(x, weight, None)[0])
    both = (reference.in_groups(x, gradient, weight.shape, how.steps, groups), conv.one_by_one(x, weight, gradient))
    torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["conv", "depthwise", "depthwise, wide", "shared"])
def test_the_mean_gradient_is_the_mean_of_gradients(name):
    task, model, params, batch = setup(MODELS[name](), views=2)
    mean = {n: each.mean(0) for n, each in per_unit_gradients(task, model, params, batch, "plain").items()}
    assert distance(mean_gradient(task, model, params, batch)[0], mean) <= 1e-10


@pytest.mark.parametrize("where", ["input", "weights"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["linear, ghost", "pointwise, ghost", "conv", "depthwise", "windows", "strange"])
def test_a_unit_that_is_not_finite_counts_as_zero(name, value, where):
    task, model, params, batch = setup(MODELS[name](), torch.float32, views=2)
    batch.inputs[3].clamp_(-1, 1)
    clean = clipped_sum(task, model, params, without(batch, 3), Clip(0.3), way="plain")
    (batch.inputs[3, 0, 0, 0] if where == "input" else batch.weights[3]).fill_(value)
    got = clipped_sum(task, model, params, batch, Clip(0.3))
    assert distance(got, clean) <= 1e-5


@pytest.mark.parametrize("clip", [1e-6, 1e-2, 0.3, 1e3])
@pytest.mark.parametrize("name", MODELS)
def test_no_unit_contributes_more_than_the_clipping_norm(name, clip):
    torch.manual_seed(0)
    task, model, params, batch = setup(MODELS[name](), torch.float32, views=2)
    whole = clipped_sum(task, model, params, batch, Clip(clip))
    for u in range(len(batch)):
        alone = norm(clipped_sum(task, model, params, only(batch, u), Clip(clip)))
        assert alone <= clip
        assert alone > 0.99 * clip or clip > 0.1
        rest = clipped_sum(task, model, params, without(batch, u), Clip(clip))
        assert norm({n: whole[n] - rest[n] for n in whole}) <= clip * (1 + 1e-6)


@pytest.mark.parametrize("cancel", [1e-2, 1e-4, 1e-6, 0.0])
def test_the_bound_holds_where_places_cancel(cancel):
    """Two places of a unit with opposite gradients: the sum is far smaller than its terms, and rounding is not."""
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False)

    class Opposite:
        def loss(self, model, params, inputs, targets):
            out = functional_call(model, dict(params), (inputs,))  # (V, 2, 64)
            return (out[:, 0] - out[:, 1]).mul(targets["slope"]).sum(1)

    x = torch.randn(3, 1, 1, 64).repeat(1, 1, 2, 1)
    x[:, :, 1] += cancel * torch.randn(3, 1, 64)
    batch = UnitBatch(x, {"slope": torch.randn(3, 1, 64)}, torch.ones(3, 1))
    assert ghost_pays(2, 64, 64)
    params = trainable_params(model)
    for clip in (1e-8, 1e-3, 1.0):
        for u in range(3):
            assert norm(clipped_sum(Opposite(), model, params, only(batch, u), Clip(clip))) <= clip
    if cancel >= 1e-2:
        exact = norm(clipped_sum(Opposite(), model, params, only(batch, 0), Clip(1e-3), way="plain"))
        assert norm(clipped_sum(Opposite(), model, params, only(batch, 0), Clip(1e-3))) == pytest.approx(
            exact, rel=1e-3
        )


def test_norms_from_products_err_far_less_than_the_margin():
    torch.manual_seed(0)
    for places, inputs, outputs in [(1, 300, 200), (16, 192, 256), (48, 160, 640)]:
        assert ghost_pays(places, inputs, outputs)
        a, b = torch.randn(4, places, inputs), torch.randn(4, places, outputs)
        book = Bookkeeping({"w": torch.Size((outputs, inputs))}, 4, products=True)
        book.add_products("w", a, b)
        exact = (b.double().mT @ a.double()).flatten(1).norm(dim=1)
        ratio = book.norms().double() / exact
        assert (ratio >= 1 - 1e-7).all()
        assert (ratio <= 1 + CLIP_MARGIN / 2).all()


@pytest.mark.parametrize("units", [3, 5, 9, 17])
def test_a_norm_does_not_know_the_units_place(units):
    """Sums over many parameters take several units at once and the last ones alone, in another order."""
    numbers = torch.Generator().manual_seed(units)
    turn = torch.arange(units).roll(1)
    for _ in range(20):
        book, turned = (Bookkeeping({}, units, products=True) for _ in range(2))
        gradients = {str(i): torch.randn(units, 1 + i % 7, generator=numbers) for i in range(130)}
        for name, value in gradients.items():
            for each, taken in ((book, value), (turned, value[turn])):
                each._shapes[name] = value.shape[1:]
                each.add(name, taken)
        assert torch.equal(book.norms()[turn], turned.norms())
        scales = clip_scales(unit_norms(gradients), Clip(0.1))
        assert torch.equal(scales[turn], clip_scales(unit_norms({n: g[turn] for n, g in gradients.items()}), Clip(0.1)))


@pytest.mark.parametrize("products", [False, True])
def test_each_gradient_is_as_it_was_kept_whatever_its_strides(products):
    """Those of a 1x1 convolution's weights in channels last: flattened they are another view, of the same memory."""
    kept = torch.randn(3 * 64 * 16).as_strided((3, 64, 16, 1, 1), (1024, 16, 1, 16, 16))
    book = Bookkeeping({"w": kept.shape[1:], "v": torch.Size((40, 30))}, 3, products=products)
    a, b = torch.randn(3, 2, 30), torch.randn(3, 2, 40)
    book.add("w", kept)
    book.add_products("v", a, b)
    found = book.each({"w": torch.zeros(kept.shape[1:]), "v": torch.zeros(40, 30)})
    assert torch.equal(found["w"], kept)
    torch.testing.assert_close(found["v"], b.mT @ a)


def test_what_is_cheaper_as_products():
    assert ghost_pays(1, 1280, 1000)  # a classifier
    assert ghost_pays(48, 160, 640)  # the last stage of nano
    assert not ghost_pays(768, 32, 128)  # an early stage
    assert not ghost_pays(1, 2, 2)


@pytest.mark.parametrize(
    ("norm_", "strategy"), [("folded", "light"), ("folded", "finetune"), ("folded", "full"), ("group", "scratch")]
)
@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_pose_model_under_every_strategy(norm_, strategy, views, dtype):
    torch.manual_seed(0)
    task = PoseTask()
    model = fold_batchnorm(
        task.build_model(PoseConfig(preset="nano", input_size=(64, 48), norm="batch" if norm_ == "folded" else norm_))
    )
    for p in model.parameters():  # zeros at the ends of branches would hide what stands before them
        p.data += 0.02 * torch.randn_like(p)
    apply_strategy(model, strategy)
    model.to(dtype).train()
    units = 3
    weights = torch.rand(units, views) + 0.2
    weights[0, 1:] = 0
    batch = UnitBatch(
        torch.randint(0, 256, (units, views, 3, 64, 48), dtype=torch.uint8),
        {
            "keypoints": torch.rand(units, views, 16, 2) * torch.tensor([48, 64]),
            "visible": (torch.rand(units, views, 16) > 0.2).float(),
        },
        weights,
    )
    params = trainable_params(model)
    assert track(unit_loss(task, model), params, batch.parts, products=True) is not None
    same(task, model, params, batch, dtype, normalised=(False,))


def test_the_second_task_is_as_in_the_plain_way(dots):
    model = dots.task.build_model().double()
    data = dots.data(9)
    batch = dots.task.collate([data.load(i, None) for i in range(9)])
    same(dots.task, model, trainable_params(model), batch, torch.float64)


def test_a_loss_with_transforms_of_its_own():
    class Inner(Task):
        def loss(self, model, params, inputs, targets):
            each = torch.func.vmap(lambda x: functional_call(model, dict(params), (x[None],))[0])
            return each(inputs).flatten(1).square().mean(1) * targets["wanted"]

    _, model, params, batch = setup(MODELS["linear, ghost"](), views=2)
    same(Inner(), model, params, batch, torch.float64)


def test_a_loss_that_reaches_nothing_gives_zeros():
    class Constant:
        def loss(self, model, params, inputs, targets):
            return inputs.flatten(1).sum(1)

    _, model, params, batch = setup(MODELS["conv"]())
    for gradient in clipped_sum(Constant(), model, params, batch, Clip(1.0)).values():
        assert not gradient.any()


def test_the_model_stays_as_it_is_and_no_gradient_appears():
    task, model, params, batch = setup(Strange())
    before = {name: (t, t._version, t.clone()) for name, t in model.state_dict(keep_vars=True).items()}
    clipped_sum(task, model, params, batch, Clip(1.0))
    for name, t in model.state_dict(keep_vars=True).items():
        assert t is before[name][0]
        assert t._version == before[name][1]
        assert torch.equal(t, before[name][2])
    assert all(p.grad is None for p in [*model.parameters(), *params.values()])


def test_mixed_precision_takes_the_plain_way():
    task, model, params, batch = setup(MODELS["linear, ghost"](), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        same(task, model, params, batch, torch.float32)


@pytest.mark.filterwarnings("ignore")
def test_products_are_not_kept_where_their_sum_is_rounded(monkeypatch):
    """Or the gradient that is summed is another than the one that was measured."""
    task, model, params, batch = setup(MODELS["linear, ghost"](), torch.float32)
    asked = []
    real = Bookkeeping.__init__

    def watched(self, shapes, units, *, products):
        asked.append(products)
        real(self, shapes, units, products=products)

    monkeypatch.setattr(Bookkeeping, "__init__", watched)
    try:
        clipped_sum(task, model, params, batch, Clip(1.0))
        torch.set_float32_matmul_precision("medium")
        clipped_sum(task, model, params, batch, Clip(1.0))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert asked == [True, False]
