"""The pose task under `vmap(grad(...))`: per-unit gradients are what one backward pass a unit gives."""

import contextlib
import functools

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from dpose.pose.data import open_data
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from dpose.pose.skeletons import MPII
from dpose.pose.task import PoseTask
from dpose.units import Task, View
from refusals import refused

SIZE = (64, 48)
WEIGHTS = {
    1: [[1.0], [1.0], [0.5]],
    4: [[1.0, 0.0, 0.0, 0.0], [0.3, 2.0, 1.0, 0.0], [1.0, 0.5, 0.25, 4.0]],  # 0 is padding
}


@functools.cache
def shaken(norm: str) -> PoseModel:
    """A float64 model in which no tensor is at a value that hides its gradient (timm starts several at 0)."""
    torch.manual_seed(3)
    model = PoseModel(PoseConfig("nano", SIZE, norm="batch" if norm == "folded" else norm)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer += 0.1 * torch.randn_like(buffer)
            if name.endswith("running_var"):
                buffer *= 0.5 + torch.rand_like(buffer)
    return fold_batchnorm(model) if norm == "folded" else model


def unit_batch(views: int):
    """Three units: pictures uint8 (3, V, 3, H, W), targets, weights; padding is black and unlabelled."""
    rng = np.random.default_rng(5)
    weights = torch.tensor(WEIGHTS[views])
    pictures = torch.from_numpy(rng.integers(0, 256, (3, views, 3, *SIZE), np.uint8))
    keypoints = torch.from_numpy(rng.uniform(0, SIZE[::-1], (3, views, 16, 2)).astype(np.float32))
    visible = torch.from_numpy(rng.random((3, views, 16)) < 0.8)
    real = weights > 0
    targets = {"keypoints": keypoints * real[..., None, None], "visible": visible & real[..., None]}
    return pictures * real[..., None, None, None], targets, weights


def per_unit(model: PoseModel, pictures, targets, weights) -> dict[str, torch.Tensor]:
    task = PoseTask()

    def unit_loss(params, inputs, labels, share):
        return (task.loss(model, params, inputs, labels) * share).sum() / share.sum()

    params = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return vmap(grad(unit_loss), in_dims=(None, 0, 0, 0))(params, pictures, targets, weights)


def one_unit_backward(model: PoseModel, pictures, targets, weights, unit: int) -> dict[str, torch.Tensor]:
    """The oracle: the module itself, not `functional_call`, on the real views of one unit; one backward pass.

    The SimCC cross-entropy is written out again. No BatchNorm is in the model: a batch of one view is fine.
    """
    real = weights[unit] > 0
    config = model.config
    total = torch.zeros((), dtype=torch.float64)
    for axis, logits in enumerate(model(pictures[unit][real])):
        centre = (targets["keypoints"][unit][real][..., axis].double() * config.split_ratio).round()
        offset = torch.arange(logits.shape[-1]) - centre[..., None]
        label = torch.exp(-offset.square() / (2 * config.sigma**2))
        label = label / label.sum(-1, keepdim=True)
        cross_entropy = -(label * logits.log_softmax(-1)).sum(-1)
        per_view = (cross_entropy * targets["visible"][unit][real]).sum(-1) / 16
        total = total + (per_view * weights[unit][real]).sum() / weights[unit].sum()
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    gradients = torch.autograd.grad(total, [p for p in model.parameters() if p.requires_grad])
    return dict(zip(names, gradients, strict=True))


@pytest.mark.parametrize("views", [1, 4])
@pytest.mark.parametrize("strategy", ["light", "finetune", "full", "scratch"])
@pytest.mark.parametrize("norm", ["folded", "group"])
def test_per_unit_gradients_are_those_of_units_alone(norm, strategy, views):
    model = shaken(norm).train()
    trainable = apply_strategy(model, strategy)
    batch = unit_batch(views)
    result = per_unit(model, *batch)
    assert sorted(result) == sorted(trainable)
    for unit in range(3):
        expected = one_unit_backward(model, *batch, unit)
        for name, gradient in expected.items():
            scale = gradient.norm()
            assert scale > 1e-12, f"{name}: nothing to compare"
            assert (result[name][unit] - gradient).norm() / scale <= 1e-10, name


@pytest.mark.parametrize("norm", ["folded", "group"])
def test_gradients_predict_finite_differences(norm):
    # independent of autograd: the loss moves along a random direction as the gradient says
    model = shaken(norm).train()
    apply_strategy(model, "full")
    pictures, targets, weights = unit_batch(1)
    gradients = per_unit(model, pictures, targets, weights)
    params = {name: p.detach() for name, p in model.named_parameters()}
    direction = {name: torch.randn_like(p) for name, p in params.items()}
    step = 1e-6
    task = PoseTask()

    def losses(sign):
        moved = {name: p + sign * step * direction[name] for name, p in params.items()}
        labels = {name: t[:, 0] for name, t in targets.items()}
        with torch.no_grad():
            return task.loss(model, moved, pictures[:, 0], labels)

    measured = (losses(1) - losses(-1)) / (2 * step)
    predicted = sum((gradients[name].flatten(1) @ direction[name].flatten()) for name in params)
    torch.testing.assert_close(predicted, measured, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("norm", ["folded", "group"])
def test_a_views_loss_does_not_depend_on_the_others(norm):
    model = shaken(norm).train()
    pictures, targets, _ = unit_batch(4)
    inputs, labels = pictures[2], {name: t[2] for name, t in targets.items()}
    task = PoseTask()
    with torch.no_grad():
        before = task.loss(model, {}, inputs, labels)
        inputs, labels = inputs.clone(), {name: t.clone() for name, t in labels.items()}
        inputs[1] = 255 - inputs[1]
        labels["keypoints"][1] += 5
        after = task.loss(model, {}, inputs, labels)
        alone = task.loss(model, {}, inputs[:1], {name: t[:1] for name, t in labels.items()})
    others = [0, 2, 3]
    torch.testing.assert_close(after[others], before[others], rtol=1e-12, atol=0)
    torch.testing.assert_close(alone[0], before[0], rtol=1e-12, atol=0)
    assert abs(after[1] - before[1]) > 1e-3


@pytest.mark.parametrize("norm", ["folded", "group"])
def test_training_writes_no_buffer_and_draws_nothing(norm):
    model = shaken(norm).train()
    apply_strategy(model, "full")
    before = {name: b.clone() for name, b in model.named_buffers()}
    state = torch.get_rng_state()
    first = per_unit(model, *unit_batch(1))
    second = per_unit(model, *unit_batch(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())


def test_evaluation_mode_has_the_same_gradients():
    # timm's cached attention biases made these zero
    model = shaken("folded")
    apply_strategy(model, "full")
    expected = per_unit(model.train(), *unit_batch(1))
    model.eval()
    with torch.no_grad():
        model(unit_batch(1)[0][:, 0])
    result = per_unit(model, *unit_batch(1))
    model.train()
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_the_loss_reads_the_parameters_it_is_given():
    model = shaken("folded").eval()
    pictures, targets, _ = unit_batch(1)
    labels = {name: t[:, 0] for name, t in targets.items()}
    task = PoseTask()
    with torch.no_grad():
        before = task.loss(model, {}, pictures[:, 0], labels)
        for name, parameter in model.named_parameters():
            if name.endswith("attention_biases"):
                moved = {name: parameter + torch.randn_like(parameter)}
                assert (task.loss(model, moved, pictures[:, 0], labels) != before).all(), name


def test_float_pictures_are_as_uint8():
    model = shaken("folded").eval()
    pictures = unit_batch(1)[0][:, 0]
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(model(pictures), model(pictures.float()), strict=True))


def test_it_is_a_task_and_collates_views():
    task: Task = PoseTask()
    rng = np.random.default_rng(0)
    target = {"keypoints": np.zeros((16, 2), np.float32), "visible": np.ones(16, bool)}
    views = [View(rng.integers(0, 256, (*SIZE, 3), np.uint8), target, weight=w) for w in (1.0, 2.0, 3.0)]
    batch = task.collate([views, views[:1]])
    assert batch.inputs.shape == (2, 4, 3, *SIZE)
    assert batch.weights.tolist() == [[1, 2, 3, 0], [1, 0, 0, 0]]
    assert torch.equal(batch.inputs[0, 1].permute(1, 2, 0), torch.from_numpy(views[1].image))


def test_the_metric_decodes_logits():
    keypoints = torch.rand(4, 16, 2) * torch.tensor([47.0, 63.0])
    x = -((torch.arange(96) - (keypoints[..., :1] * 2).round()) ** 2).float()
    y = -((torch.arange(128) - (keypoints[..., 1:] * 2).round()) ** 2).float()
    targets = {"keypoints": keypoints, "labelled": torch.ones(4, 16), "head_length": torch.full((4,), 10.0)}
    metric = PoseTask().metric()
    metric.update((x, y), targets)
    assert metric.compute().to_dict()["columns"]["Mean"] == 100
    metric.update((x.roll(24, -1), y), targets)  # 12 pixels off, more than half a head; those at the edge further
    assert metric.compute().to_dict()["columns"]["Mean"] == 50


def test_labels_of_another_skeleton_are_refused(pose_fixtures):
    model = PoseModel(PoseConfig("nano"))
    own = open_data(f"coco:{pose_fixtures}/coco", input_size=model.config.input_size)
    for units, joints in ((own, 17), (own.with_skeleton(MPII), 16)):
        batch = PoseTask().collate([units.load(0, np.random.default_rng(0))])
        targets = {name: value[0] for name, value in batch.targets.items()}
        assert targets["keypoints"].shape[-2] == joints
        with refused("joints-differ", where="17") if units is own else contextlib.nullcontext():
            PoseTask().loss(model, dict(model.named_parameters()), batch.inputs[0], targets)


def test_models_of_another_kind_are_refused():
    with refused("skeleton-differs", where="coco"):
        PoseTask().build_model(PoseConfig("nano", skeleton="coco"))
    with refused("codec-differs"):
        PoseTask().build_model({"preset": "nano", "split_ratio": 1.0})
    with refused("skeleton-unknown"):
        PoseTask("octopus")
    with refused("model-of-other-task"):
        PoseTask().loss(torch.nn.Linear(1, 1), {}, torch.zeros(1), {})
    assert PoseTask().build_model({"preset": "nano"}).config == PoseConfig("nano")
