"""RTMPose: its backbone against timm's, its head against the formula, its files, its gradients."""

import math
import re

import pytest
import timm
import torch

from dpose.pose.codec import codec_of
from dpose.pose.folder import load_model, save_model
from dpose.pose.heads import adapt_head, resize
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from dpose.pose.rtmpose import BETA, CspNext, GatedAttention
from exact_units import check_exact, shake, units
from refusals import refused

FILE = "rtmpose-t_simcc-body7_pt-body7_420e-256x192-026a1439_20230504.pth"


def small(size=(64, 32)):
    """A narrow backbone in the place of the published one."""
    torch.manual_seed(0)
    model = PoseModel(PoseConfig("rtmpose:t", size, skeleton="coco"))
    model.backbone = CspNext(0.167, 0.125)
    model.head = model.codec.head(model.backbone.channels, 17, model.config.backbone.map_size(size))
    return shake(model)


@pytest.mark.skipif(not timm.is_model("cspnext_tiny"), reason="this timm has no CSPNeXt")
def test_the_backbone_is_timms():
    theirs = shake(timm.create_model("cspnext_tiny", num_classes=0))
    ours = CspNext(0.167, 0.375).double().eval()
    ours.load_state_dict(
        {
            re.sub(r"^stages\.(\d)\.", lambda result: f"stage{int(result[1]) + 1}.", name): tensor
            for name, tensor in theirs.state_dict().items()
        }
    )
    x = torch.randn(2, 3, 128, 96, dtype=torch.float64)
    with torch.no_grad():
        wanted, result = theirs.forward_features(x), ours.forward_features(x)
    assert result.std() > 1e-3
    assert (result - wanted).norm() < 1e-12 * wanted.norm()


def test_joints_are_gated_by_each_other_as_the_paper_says():
    layer = shake(GatedAttention())
    x = torch.randn(1, 5, 256, dtype=torch.float64)
    with torch.no_grad():
        result = layer(x)[0]
        for joint in range(5):
            hidden = []
            for row in x[0]:
                row = row / (row.square().mean().sqrt()) * layer.ln.g
                row = layer.uv.weight @ row
                hidden.append(row * torch.sigmoid(row))
            query, key = ([h[1024:] * layer.gamma[n] + layer.beta[n] for h in hidden] for n in (0, 1))
            mixed = sum(
                max(0.0, float(query[joint] @ key[other]) / math.sqrt(128)) ** 2 * hidden[other][512:1024]
                for other in range(5)
            )
            wanted = layer.o.weight @ (hidden[joint][:512] * mixed) + x[0, joint] * layer.res_scale.scale
            assert (result[joint] - wanted).abs().max() < 1e-9 * wanted.abs().max()


def test_a_file_of_mmpose(tmp_path):
    torch.manual_seed(0)
    model = shake(PoseModel(PoseConfig("rtmpose:t", skeleton="coco"))).float()
    assert [tuple(o.shape) for o in model(torch.zeros(1, 3, 256, 192))] == [(1, 17, 384), (1, 17, 512)]
    tensors = dict(model.state_dict())
    for axis in ("x", "y"):
        tensors[f"head.cls_{axis}.weight"] = tensors[f"head.cls_{axis}.weight"] / BETA
    torch.save({"state_dict": tensors, "meta": {}}, tmp_path / FILE)
    result = load_model(tmp_path / FILE)
    assert result.config == model.config
    pictures = torch.rand(1, 3, 256, 192) * 255
    with torch.no_grad():
        for ours, theirs in zip(result(pictures), model(pictures), strict=True):
            assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
    save_model(result, tmp_path / "own")
    assert load_model(tmp_path / "own").config == result.config
    tensors["backbone.stem.2.conv.weight"] = torch.ones(20, 12, 3, 3)
    torch.save({"state_dict": tensors}, tmp_path / FILE)
    with refused("rtmpose-size-unknown"):
        load_model(tmp_path / FILE)


def test_a_joint_is_found_where_the_labels_say_it_is():
    made = codec_of(PoseConfig("rtmpose:m"))
    assert made.sigma == pytest.approx(1.67)
    # what mmpose teaches: a softmax over ten times a Gaussian of 4.9 bins; its width above the floor
    bins = torch.arange(384).double()
    label = torch.softmax(BETA * torch.exp(-0.5 * ((bins - 150) / 4.9) ** 2), -1)
    near = label[140:161] - label[0]
    width = float((near * (bins[140:161] - 150) ** 2).sum() / near.sum()) ** 0.5
    assert width == pytest.approx(1.67, rel=0.1)
    x = (150 - bins).abs().neg().expand(1, 16, -1)
    y = (300 - torch.arange(512).double()).abs().neg().expand(1, 16, -1)
    places, _ = made.decode((x, y))
    assert places[0, 0].tolist() == [75.0, 150.0]


@pytest.mark.parametrize("strategy", ["light", "finetune", "full"])
def test_gradients_of_units(strategy):
    model, batch = small(), units((64, 32), 17)
    folded = fold_batchnorm(model)
    with torch.no_grad():
        for a, b in zip(model(batch.inputs[0]), folded(batch.inputs[0]), strict=True):
            assert a.std() > 1e-4
            assert (a - b).norm() <= 1e-12 * a.norm()
    assert not list(folded.backbone.buffers())
    check_exact(folded, batch, strategy, plain=True)


def test_strategies_heads_and_sizes():
    model = fold_batchnorm(small())
    tuned = apply_strategy(model, "finetune")
    assert {name.split(".")[1] for name in tuned if name.startswith("backbone.")} == {"stage4"}
    adapted = adapt_head(model, "mpii")
    assert [o.shape[1] for o in adapted(torch.zeros(1, 3, 64, 32))] == [16, 16]
    with refused("input-size-fixed", where="256x192"):
        resize(PoseModel(PoseConfig("rtmpose:t")), (384, 288), 32)
    with refused("backbone-without-own-weights"):
        PoseModel(PoseConfig("rtmpose:t"), pretrained=True)
