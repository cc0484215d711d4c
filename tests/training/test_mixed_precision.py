"""Private steps in bfloat16: what is clipped, measured and summed, and that units stay apart."""

import contextlib
import itertools
import os

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F

from clipped import clipped_sum
from dpose.errors import DposeError
from dpose.pose.model import PoseConfig, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.noise import AesNoise, Key
from dpose.training import dry_run, layers
from dpose.training import step as steps
from dpose.training.arithmetic import products_repeat, slow_in_bfloat16
from dpose.training.clip import Clip
from dpose.training.dry_run import check_units_apart
from dpose.training.grad_sample import track
from dpose.training.gradients import (
    clip_scales,
    measured_gradients,
    per_unit_gradients,
    trainable_params,
    unit_loss,
    unit_norms,
)
from dpose.training.loader import Loader
from dpose.training.plan import TrainingPlan
from dpose.training.step import StepInputs, private_gradient
from dpose.units import UnitBatch, pad_units
from layered import MODELS, MixedTask, distance, emptied, norm, only, setup
from refusals import refused
from tiers import rest_slow

VIEWS = [1, 3]


def in_bfloat16(name, views=1):
    _, model, params, batch = setup(MODELS[name](), torch.float32, views)
    return MixedTask(), model, params, batch


def pose(strategy, views, units=4, precision="bf16"):
    torch.manual_seed(0)
    task = PoseTask(precision=precision)
    model = fold_batchnorm(task.build_model(PoseConfig(preset="nano", input_size=(64, 48), norm="batch")))
    if strategy == "scratch":
        model = task.build_model(PoseConfig(preset="nano", input_size=(64, 48), norm="group"))
    for p in model.parameters():  # zeros at the ends of branches would hide what stands before them
        p.data += 0.02 * torch.randn_like(p)
    apply_strategy(model, strategy)
    weights = torch.rand(units, views) + 0.2
    batch = UnitBatch(
        torch.randint(0, 256, (units, views, 3, 64, 48), dtype=torch.uint8),
        {
            "keypoints": torch.rand(units, views, 16, 2) * torch.tensor([48, 64]),
            "visible": torch.ones(units, views, 16),
        },
        weights,
    )
    return task, model.train(), trainable_params(model), batch


def bounds_every_unit(task, model, params, batch, clip):
    """Brute force: each unit by itself, and each one taken out while the micro-batch keeps its shape."""
    whole = clipped_sum(task, model, params, batch, Clip(clip))
    assert {value.dtype for value in whole.values()} == {torch.float64}
    for u in range(len(batch)):
        alone = clipped_sum(task, model, params, pad_units(only(batch, u), len(batch)), Clip(clip))
        assert norm(alone) <= clip
        rest = clipped_sum(task, model, params, emptied(batch, [u]), Clip(clip))
        assert norm({n: whole[n] - rest[n] for n in whole}) <= clip
        assert distance({n: rest[n] + alone[n] for n in whole}, whole) <= 1e-6


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("clip", [1e-3, 0.3, 1e3])
@pytest.mark.parametrize("name", MODELS)
def test_no_unit_contributes_more_than_the_clipping_norm(name, clip, views):
    bounds_every_unit(*in_bfloat16(name, views), clip)


@pytest.mark.parametrize("views", rest_slow(VIEWS, -1))
@pytest.mark.parametrize("strategy", ["light", "finetune", "full", "scratch"])
def test_no_person_contributes_more_than_the_clipping_norm(strategy, views):
    bounds_every_unit(*pose(strategy, views), 0.05)


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "hidden"])
def test_the_sum_is_nearly_that_of_the_plain_way(name, views):
    """Under the same autocast, which rounds elsewhere; and it is not the plain way that was taken."""
    task, model, params, batch = in_bfloat16(name, views)
    assert track(unit_loss(task, model), params, batch.parts, products=True).mixed
    got, plain = (clipped_sum(task, model, params, batch, Clip(0.3), way=way) for way in ("fast", "plain"))
    largest = max(float(v.norm()) for v in plain.values())
    assert all(float((got[n] - v).norm()) <= 0.05 * largest for n, v in plain.items())


@pytest.mark.parametrize("name", ["linear, ghost", "tokens", "conv", "depthwise", "windows", "tied", "strange"])
def test_the_sum_is_that_of_the_gradients_that_were_measured(name):
    """Per-unit gradients as they are, scaled by the factors of their own norms: no sum is taken in bfloat16."""
    task, model, params, batch = in_bfloat16(name, 3)
    whole = track(unit_loss(task, model), params, batch.parts, products=False).gradients(params)
    scales, on = clip_scales(unit_norms(whole), Clip(0.05)), Clip(0.05).grid
    expected = {}
    for n, g in whole.items():
        rows = g.flatten(1) * (scales / on.step)[:, None]
        expected[n] = (rows.trunc().double().sum(0) * on.step).view(g.shape[1:])
    book = track(unit_loss(task, model), params, batch.parts, products=False)
    got = book.sums(scales, on, params)
    assert all(torch.equal(got[n], value) for n, value in expected.items())
    assert norm({n: v - clipped_sum(task, model, params, batch, Clip(0.05))[n] for n, v in got.items()}) <= 0.01 * norm(
        got
    )


def test_bfloat16_changes_a_little_and_not_much():
    task, model, params, batch = pose("full", 1)
    exact = clipped_sum(PoseTask(), model, params, batch, Clip(0.05))
    rough = clipped_sum(task, model, params, batch, Clip(0.05))
    flat, other = (torch.cat([g.flatten() for g in found.values()]) for found in (exact, rough))
    assert not torch.equal(flat, other)
    assert F.cosine_similarity(flat, other, dim=0) > 0.99


def test_an_autocast_around_the_sum_rounds_nothing():
    task, model, params, batch = setup(MODELS["linear, whole"](), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = clipped_sum(task, model, params, batch, Clip(1e-3))
        gradients = per_unit_gradients(task, model, params, batch, "plain")
    expected = {n: torch.tensordot(clip_scales(unit_norms(gradients), Clip(1e-3)), g, 1) for n, g in gradients.items()}
    assert distance(got, expected) <= 1e-6


@pytest.mark.parametrize("name", ["linear, ghost", "conv", "windows", "strange"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_unit_that_is_not_finite_counts_as_zero(name, value):
    task, model, params, batch = in_bfloat16(name, 2)
    clean = clipped_sum(task, model, params, emptied(batch, [3]), Clip(0.3))
    batch.inputs[3, 0, 0, 0] = value
    assert distance(clipped_sum(task, model, params, batch, Clip(0.3)), clean) <= 1e-6


def test_strided_convolutions_in_groups_run_in_float32_between_layers_in_bfloat16(monkeypatch):
    """Their backward pass in bfloat16 takes 30 times as long on a processor."""
    seen, real = [], layers.Conv.forward

    def noted(self, x, weight, bias):
        seen.append((self.how.stride, self.how.groups, x.dtype, weight.dtype))
        return real(self, x, weight, bias)

    monkeypatch.setattr(layers.Conv, "forward", noted)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(6, 6, 3, 2, 1, groups=6), torch.nn.Conv2d(6, 6, 1, groups=6), torch.nn.Flatten()
    )
    _, model, params, batch = setup(model, torch.float32, 2)
    clipped_sum(MixedTask(), model, params, batch, Clip(1.0))
    full, short = (torch.float32,) * 2, (torch.bfloat16,) * 2
    assert seen == [((2, 2), 6, *full), ((1, 1), 6, *short)]


def test_empty_units_add_nothing():
    task, model, params, batch = in_bfloat16("windows", 3)
    assert not any(v.any() for v in clipped_sum(task, model, params, emptied(batch, range(5)), Clip(1.0)).values())
    padded = pad_units(batch, 9)
    assert (len(padded), padded.inputs.dtype) == (9, batch.inputs.dtype)
    got, expected = (clipped_sum(task, model, params, b, Clip(0.3)) for b in (padded, batch))
    assert distance(got, expected) <= 0.02  # of another shape


def test_a_loss_that_does_not_say_what_it_computes_in_is_refused():
    class Silent(MixedTask):
        precision = "float32"

    _, model, params, batch = in_bfloat16("tokens")
    with refused("precision-not-declared"):
        clipped_sum(Silent(), model, params, batch, Clip(1.0))


# ---------------------------------------------------------------------------------------- one shape, and its check


@pytest.mark.parametrize("sampled", [1, 2, 7, 8, 9, 30])
def test_micro_batches_in_bfloat16_have_one_shape_for_each_number_of_views(dots, sampled):
    data = dots.data(30)
    loader = Loader(dots.task, data, AesNoise(Key.from_seed(0)))
    batches = list(loader.micro_batches(range(sampled), 0, 8, padded=True))
    assert {(b.weights.shape[1], len(b)) for b in batches} <= {(1, 8), (2, 4), (4, 2)}
    held = torch.cat([b.weights.sum(1) for b in batches])
    assert int((held > 0).sum()) == sampled
    unpadded = loader.micro_batches(range(sampled), 0, 8)
    assert sorted(held[held > 0]) == sorted(torch.cat([b.weights.sum(1) for b in unpadded]))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_private_step_pads_in_every_precision(dots, precision, monkeypatch):
    monkeypatch.setattr(dots.task, "precision", precision, raising=False)
    data, noise = dots.data(60), AesNoise(Key.from_seed(3))
    plan = TrainingPlan(epsilon=3.0, delta=1e-4, steps=5, expected_batch_size=20).bind(60)
    model = dots.task.build_model()
    engine = StepInputs(dots.task, model, Loader(dots.task, data, noise), plan, noise, b"", microbatch_size=8)
    seen, real = [], steps.clipped_sum

    def watched(loss, params, units, *more, **options):
        *_, weights = units
        seen.append((weights.shape[1], len(weights)))
        return real(loss, params, units, *more, **options)

    monkeypatch.setattr(steps, "clipped_sum", watched)
    for number in range(4):
        private_gradient(engine, trainable_params(model), number)
    assert set(seen) == {(1, 8), (2, 4), (4, 2)}


def test_a_neighbour_changes_nothing_but_its_own_contribution(monkeypatch):
    """The step itself, without noise: one unit more or less in the sample, in bfloat16, by brute force."""
    task, model, params, batch = pose("full", 1, units=9)

    class Units:
        def __len__(self):
            return len(batch)

        def load(self, index, rng):
            return index

    class Loading(Loader):
        def unit(self, index, step):
            return [index]

    task.collate = lambda units: UnitBatch(
        batch.inputs[[u for (u,) in units]],
        {n: t[[u for (u,) in units]] for n, t in batch.targets.items()},
        batch.weights[[u for (u,) in units]],
    )
    noise = AesNoise(Key.from_seed(0))
    plan = TrainingPlan(epsilon=3.0, delta=1e-2, steps=5, expected_batch_size=3, clip_norm=0.05, normalise=False).bind(
        9
    )
    engine = StepInputs(task, model, Loading(task, Units(), noise), plan, noise, b"", microbatch_size=4)
    monkeypatch.setattr(steps, "add_gaussian", lambda sums, stddev, stream, *_: dict(sums))

    number = itertools.count()

    def total(sample):
        monkeypatch.setattr(steps, "poisson_batch", lambda *arguments: torch.tensor(sample).numpy())
        return private_gradient(engine, params, next(number))

    for size in (2, 5, 9):
        whole = total(list(range(size)))
        for gone in (0, size - 1):
            rest = total([u for u in range(size) if u != gone])
            difference = norm({n: whole[n].double() - rest[n].double() for n in whole}) * plan.divisor
            assert difference <= 0.05 * (1 + 1e-6)  # rounded to float32 behind the sum


def test_a_unit_whose_gradient_depends_on_where_memory_begins_can_not_be_taken_again(monkeypatch):
    def gradients(task, model, params, batch, transform):
        found, norms = measured_gradients(task, model, params, batch, transform)
        at = min(p.data_ptr() % 64 for p in params.values())
        return {n: v * (1 + at * 1e-6 * n.startswith("head.joints")) for n, v in found.items()}, norms

    task, model, _, batch = pose("finetune", 1, precision="float32")
    monkeypatch.setattr(dry_run, "measured_gradients", gradients)
    differing = check_units_apart(task, model, only(batch, 0), 2, 1)
    assert differing == ["head.joints.weight (Conv2d)", "head.joints.bias (Conv2d)"]


def mixing(change):
    """Gradients in which units are not apart."""

    def gradients(task, model, params, batch, transform):
        found, norms = measured_gradients(task, model, params, batch, transform)
        return {name: change(value) for name, value in found.items()}, norms

    return gradients


FAULTS = {
    "place": lambda g: g * (1 + 1e-7 * (torch.arange(len(g)) > 2).view(-1, *[1] * (g.ndim - 1))),
    "others": lambda g: g + 1e-6 * g.nan_to_num().abs().amax(),
    "an empty unit": lambda g: g + 0 * g.sum(0),
}


@pytest.mark.parametrize("precision", rest_slow(["float32", "bf16"]))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_that_does_not_keep_units_apart_is_refused(fault, precision, monkeypatch):
    task, model, _, batch = pose("finetune", 1, precision=precision)
    monkeypatch.setattr(dry_run, "measured_gradients", mixing(FAULTS[fault]))
    with refused("units-not-apart") as raised:
        check_units_apart(task, model, only(batch, 0), 6)
    assert "\n" not in raised.value.line()


@pytest.mark.bits
def test_gradients_of_weights_in_channels_last_repeat():
    """As `dpose train` lays them: a copy of another layout would take other kernels and differ nearly everywhere."""
    task, model, _, batch = pose("full", 1, precision="float32")
    model.to(memory_format=torch.channels_last)
    assert not check_units_apart(task, model, only(batch, 0), 1, 1) or not products_repeat()


@pytest.mark.bits
@pytest.mark.parametrize("precision", rest_slow(["float32", "bf16"]))
def test_this_machine_keeps_them_apart(precision):
    task, model, _, batch = pose("full", 1, precision=precision)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not check_units_apart(task, model, only(batch, 0), 1) or not products_repeat()
    # MKL's oldest instructions take the last rows of a product otherwise: then it may be refused, and not trained
    may_refuse = os.environ.get("MKL_CBWR") == "COMPATIBLE"
    for at_once in (2, 5):
        with contextlib.suppress(DposeError) if may_refuse else contextlib.nullcontext():
            assert not check_units_apart(task, model, only(batch, 0), at_once) or not products_repeat()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_every_shape_is_checked(monkeypatch):
    task, model, _, batch = pose("finetune", 1)
    shapes = set()

    def noted(task, model, params, batch, transform):
        shapes.add(tuple(batch.weights.shape))
        return {"w": torch.zeros(len(batch), 1)}, torch.zeros(len(batch))

    monkeypatch.setattr(dry_run, "measured_gradients", noted)
    check_units_apart(task, model, only(batch, 0), 16)
    assert shapes == {(16, 1), (8, 2), (4, 4), (2, 8)}
    for most, expected in ((1, {(16, 1)}), (2, {(16, 1), (8, 2)}), (3, {(16, 1), (8, 2), (4, 4)})):
        shapes.clear()
        check_units_apart(task, model, only(batch, 0), 16, most)
        assert shapes == expected


def test_gradients_that_cannot_be_had_are_told_in_one_line(monkeypatch):
    class Broken(PoseTask):
        def loss(self, model, params, inputs, targets):
            raise RuntimeError("no such kernel\nfor bfloat16")

    _, model, _, batch = pose("finetune", 1)
    with refused("precision-unsupported", where="such kernel"):
        check_units_apart(Broken(precision="bf16"), model, only(batch, 0), 4)


def test_the_units_of_the_check_are_not_those_of_the_data(monkeypatch):
    task, model, _, batch = pose("finetune", 1)
    seen = []

    def noted(task, model, params, batch, transform):
        seen.append(batch)
        return {"w": torch.zeros(len(batch), 1)}, torch.zeros(len(batch))

    monkeypatch.setattr(dry_run, "measured_gradients", noted)
    for u in (0, 1):
        check_units_apart(task, model, only(batch, u), 4)
    half = len(seen) // 2
    for a, b in itertools.zip_longest(seen[:half], seen[half:]):
        assert torch.equal(a.inputs, b.inputs)
        assert all(torch.equal(a.targets[n], b.targets[n]) for n in a.targets)


@pytest.mark.parametrize(
    ("found", "slow"), [({"amx_bf16": True}, False), ({"avx512_bf16": True}, False), ({"avx2": True}, True)]
)
def test_a_processor_without_bfloat16_is_known(found, slow, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    assert slow_in_bfloat16(torch.device("cpu")) is slow
    assert not slow_in_bfloat16(torch.device("cuda"))


def test_a_torch_that_does_not_know_its_processor_says_nothing(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not slow_in_bfloat16(torch.device("cpu"))


def test_the_mixed_task_is_mixed():
    """Or the tests above would be of float32."""
    _, model, params, batch = in_bfloat16("linear, whole")
    with torch.autocast("cpu", torch.bfloat16):
        assert functional_call(model, dict(params), (batch.inputs[0],)).dtype == torch.bfloat16
    float32 = setup(MODELS["linear, whole"](), torch.float32)[0]
    rough, exact = (per_unit_gradients(t, model, params, batch) for t in (MixedTask(), float32))
    assert 1e-4 < distance(rough, exact) < 0.1
