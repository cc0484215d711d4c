import pytest
import torch

from dpose.pose.heads import adapt_head, resize, temper
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import COCO, MPII
from refusals import refused

LIMBS = tuple(f"{s}_{part}" for s in "rl" for part in ("ankle", "knee", "hip", "wrist", "elbow", "shoulder"))
FRESH = ("pelvis", "thorax", "upper_neck", "head_top")


@pytest.fixture(scope="module")
def coco():
    torch.manual_seed(0)
    return PoseModel(PoseConfig("nano", (64, 64), skeleton="coco")).eval()


def row(model, skeleton, joint):
    index = skeleton.joints.index(joint)
    return torch.cat([model.head.joints.weight[index].flatten(), model.head.joints.bias[index, None]])


def test_twelve_limb_rows_are_carried_over_by_name(coco):
    mpii = adapt_head(coco, "mpii")
    assert mpii.head.joints.weight.shape[0] == 16
    for joint in LIMBS:
        assert torch.equal(row(mpii, MPII, joint), row(coco, COCO, joint)), joint


def test_the_rest_is_fresh(coco):
    one, two = (adapt_head(coco, "mpii", torch.Generator().manual_seed(s)) for s in (1, 2))
    reach = coco.head.joints.in_channels**-0.5
    for joint in FRESH:
        fresh = row(one, MPII, joint)
        assert not torch.equal(fresh, row(two, MPII, joint))
        assert not any(torch.equal(fresh, row(coco, COCO, other)) for other in COCO.joints)
        assert 0 < fresh.abs().max() <= reach


def test_the_limbs_predictions_stay_and_the_original_too(coco):
    picture = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    before = {name: t.clone() for name, t in coco.state_dict().items()}
    with torch.no_grad():
        expected = coco(picture)
        result = adapt_head(coco, "mpii")(picture)
    for joint in LIMBS:
        for ours, theirs in zip(result, expected, strict=True):
            a, b = ours[0, MPII.joints.index(joint)], theirs[0, COCO.joints.index(joint)]
            assert torch.allclose(a, b, atol=1e-5)
    assert coco.config.skeleton == "coco"
    assert all(torch.equal(t, before[name]) for name, t in coco.state_dict().items())


def test_it_is_a_whole_model_of_the_other_skeleton(coco, tmp_path):
    from dpose.pose.folder import load_model, save_model

    mpii = adapt_head(coco, "mpii")
    assert (mpii.config.skeleton, mpii.training) == ("mpii", False)
    save_model(mpii, tmp_path)
    assert load_model(tmp_path).config == mpii.config
    assert adapt_head(coco, "coco").config == coco.config


def test_an_unknown_skeleton_is_refused(coco):
    with refused("skeleton-unknown"):
        adapt_head(coco, "horse")


def test_logits_are_divided_and_no_joint_moves(coco):
    coco.eval()
    remaining = {name: value.clone() for name, value in coco.state_dict().items()}
    less_sure = temper(coco, 1.5)
    picture = torch.rand(2, 3, *coco.config.input_size) * 255
    with torch.no_grad():
        result, before = less_sure(picture), coco(picture)
    for mine, theirs in zip(result, before, strict=True):
        torch.testing.assert_close(mine, theirs / 1.5)
    (places, sure), (same, surer) = (coco.codec.decode(logits) for logits in (result, before))
    assert places.equal(same)
    assert sure.mean() < surer.mean()
    assert all(value.equal(remaining[name]) for name, value in coco.state_dict().items())


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_that_is_none_is_refused(coco, temperature):
    with refused("temperature-not-positive"):
        temper(coco, temperature)


def test_a_head_resampled_to_another_size_says_the_same_of_the_same_map():
    """What a linear map of cells and a linear row of bins say is the same at twice the size."""
    torch.manual_seed(0)
    model = PoseModel(PoseConfig("lite0", (64, 64), norm="folded", upsample=1)).eval()
    height = torch.linspace(-1, 1, 9)[:-1] + 0.125
    smooth = torch.linspace(-1, 1, 128)[:, None, None] * (1 + height[:4, None] * torch.ones(4))
    with torch.no_grad():
        for layer in (model.head.x, model.head.y):
            layer.weight.copy_(smooth.reshape(128, 16))
    large = resize(model, (128, 128), 16)
    assert (large.config.input_size, large.config.norm) == ((128, 128), "folded")
    assert large.config.sigma == PoseConfig("lite0", (128, 128)).sigma
    features = torch.rand(1, model.head.joints.in_channels, 4, 4)
    with torch.no_grad():
        small = model.head(features)
        result = large.head(features.repeat_interleave(2, 2).repeat_interleave(2, 3))
    for before, after in zip(small, result, strict=True):
        between = torch.nn.functional.interpolate(before, size=256, mode="linear")
        assert torch.allclose(after, between, atol=0.02 * float(before.abs().max()))
    ours, theirs = model.backbone.state_dict(), large.backbone.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    again = resize(large, (64, 64), 16)
    assert torch.allclose(again.head.x.weight[5:-5], model.head.x.weight[5:-5], atol=0.1)


def test_a_stride_changes_what_cells_there_are():
    model = PoseModel(PoseConfig("lite0", (64, 64), norm="folded"))
    finer = resize(model, (64, 64), 8)
    assert finer.config.backbone.map_size((64, 64)) == (8, 8)
    assert finer(torch.zeros(1, 3, 64, 64))[0].shape == (1, 16, 128)


def test_a_backbone_whose_weights_are_of_one_size_is_one_line():
    fixed = PoseModel(PoseConfig("timm:vit_tiny_patch16_224", (64, 64), norm="group"))
    with refused("input-size-fixed", where="64x64"):
        resize(fixed, (128, 96), 16)
