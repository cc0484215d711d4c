"""Models: per-unit gradients are those of a loop, nothing mixes clips, weights come from safetensors alone."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dpose.action.model import ActionConfig, ActionModel, apply_action_strategy, fresh_model, headless, load_pretrained
from dpose.action.task import ActionTask
from dpose.errors import DposeError
from dpose.training.gradients import per_unit_gradients, trainable_params, unit_loss
from dpose.training.guards import check_model, only_gradients
from dpose.units import View
from refusals import refused

CLASSES = ("walk", "wave", "kick")


def small():
    return ActionConfig(CLASSES, frames=4, input_size=(16, 16))


def tiny_mvit():
    """torchvision's MViT with three small blocks, as `ActionModel` holds it."""
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    blocks = [
        MSBlockConfig(1, 16, 16, [3, 3, 3], [1, 2, 2], [1, 1, 1], [3, 3, 3]),
        MSBlockConfig(2, 16, 32, [3, 3, 3], [1, 1, 1], [1, 2, 2], [3, 3, 3]),
        MSBlockConfig(2, 32, 32, [3, 3, 3], [1, 1, 1], [1, 1, 1], [3, 3, 3]),
    ]
    model = ActionModel(ActionConfig(CLASSES, frames=4, input_size=(32, 32)))
    net, features = headless(MViT((32, 32), 4, blocks, False, True, False, False, dropout=0.0, num_classes=5))
    model.net, model.head = net, torch.nn.Linear(features, len(CLASSES))
    return model


def units(config, task, counts=(1, 3, 2)):
    rng = np.random.default_rng(0)
    shape = (config.frames, *config.input_size, 3)
    return task.collate(
        [
            [
                View(rng.integers(0, 256, shape).astype(np.uint8), {"action": np.int64(rng.integers(3))}, 1.0 + v)
                for v in range(count)
            ]
            for count in counts
        ]
    )


@pytest.mark.parametrize("build", [lambda: fresh_model(small(), 0), tiny_mvit], ids=["nano", "mvit"])
def test_per_unit_gradients_equal_a_loop(build):
    model = build().double().train()
    task = ActionTask(CLASSES)
    check_model(model)
    batch = units(model.config, task)
    params = trainable_params(model)
    with only_gradients(model):
        together = per_unit_gradients(task, model, params, batch)
    loss = unit_loss(task, model)
    for u in range(3):
        leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
        one = loss(leaves, batch.inputs[u], {k: t[u] for k, t in batch.targets.items()}, batch.weights[u])
        alone = torch.autograd.grad(one, list(leaves.values()))
        for (name, result), expected in zip(together.items(), alone, strict=True):
            torch.testing.assert_close(result[u], expected, rtol=1e-7, atol=1e-9, msg=name)


def test_a_clip_does_not_see_the_others():
    model = fresh_model(small(), 0).train()
    clips = torch.randint(0, 256, (3, 3, 4, 16, 16))
    torch.testing.assert_close(model(clips)[:1], model(clips[:1]))


def test_nano_sees_the_order_of_frames():
    model = fresh_model(small(), 0)
    clip = torch.randint(0, 256, (1, 3, 4, 16, 16))
    assert (model(clip) - model(clip.flip(2))).abs().max() > 1e-4


def test_finetuning_trains_the_end_and_the_norms_only():
    model = fresh_model(small(), 0)
    trained = apply_action_strategy(model, "finetune")
    assert "net.spatial.0.weight" not in trained
    assert {"net.norms.0.weight", "net.spatial.3.weight", "head.weight"} <= set(trained)


def test_a_config_survives_json_and_refuses_the_impossible():
    assert ActionConfig.from_dict(small().to_dict()) == small()
    assert ActionConfig(CLASSES, "mvit-b").input_size == (224, 224)
    with refused("setting-unknown", where="stride"):
        ActionConfig.from_dict({"classes": ["a"], "strid": 1})
    for wrong in ({"preset": "5m"}, {"frames": 3}, {"preset": "mvit-b", "frames": 8}, {"input_size": (8, 8)}):
        with pytest.raises(DposeError):
            ActionConfig(CLASSES, **wrong)


def test_pretrained_weights_are_a_safetensors_file_of_that_model(tmp_path):
    model = tiny_mvit()
    with refused("pretrained-weights-unsuitable"):
        load_pretrained(model, tmp_path / "none")
    object.__setattr__(model.config, "preset", "mvit-b")
    with refused("pretrained-weights-missing"):
        load_pretrained(model, tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"no")
    with refused("weights-damaged"):
        load_pretrained(model, tmp_path / "bad")
    other = {name: torch.full_like(t, 0.5) for name, t in model.net.state_dict().items()}
    save_file({**other, "head.1.weight": torch.zeros(5, 32)}, tmp_path / "good")
    head = model.head.weight.clone()
    load_pretrained(model, tmp_path / "good")
    assert all((t == 0.5).all() for t in model.net.state_dict().values())
    torch.testing.assert_close(model.head.weight, head)
    other.popitem()
    save_file(other, tmp_path / "short")
    with refused("weights-of-other-model"):
        load_pretrained(model, tmp_path / "short")
