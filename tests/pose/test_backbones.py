"""A backbone from outside: one module, one entry, and everything knows it."""

import pytest
import torch
from torch import nn

from dpose.errors import DposeError
from dpose.pose.backbones import BACKBONES, Backbone, register_backbone
from dpose.pose.folder import load_model, save_model
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy
from refusals import refused


class Small(nn.Module):
    """Two strided convolutions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 8, 8)
        self.body = nn.Conv2d(8, 12, 2, 2)

    def forward_features(self, pictures):
        return self.body(self.stem(pictures).relu())


def build(input_size, norm, pretrained):
    if pretrained:
        raise DposeError("pretrained-weights-missing", "there are no pretrained weights", "small")
    return Small(), nn.GroupNorm(3, 12), 12


@pytest.fixture
def small():
    backbone = Backbone("small", build, stride=16, input_size=(64, 48), frozen=("stem.",))
    register_backbone(backbone)
    yield backbone
    del BACKBONES["small"]


def test_it_has_its_own_sizes_and_strategies_and_is_loaded_again(small, tmp_path):
    model = PoseModel(PoseConfig(preset="small", norm="group")).eval()
    assert model.config.input_size == (64, 48)
    pictures = torch.randint(0, 256, (2, 3, 64, 48), dtype=torch.uint8)
    x, y = model(pictures)
    assert (x.shape, y.shape) == ((2, 16, 96), (2, 16, 128))
    trained = apply_strategy(model, "finetune")
    assert "backbone.body.weight" in trained
    assert not any(name.startswith("backbone.stem.") for name in trained)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert all(torch.equal(a, b) for a, b in zip(model(pictures), again(pictures), strict=True))


def test_a_name_is_one_backbone(small):
    with refused("backbone-exists"):
        register_backbone(small)


def test_sizes_are_multiples_of_its_stride(small):
    with refused("input-size-unsupported", where="of 16"):
        PoseConfig(preset="small", input_size=(60, 48))


def test_an_unknown_one_names_those_that_are_there(small):
    with refused("preset-unknown") as error:
        PoseConfig(preset="smal")
    assert "nano" in str(error.value)
    assert "small" in str(error.value)
