import pytest
import torch

from dpose.errors import DposeError
from dpose.pose.heads import adapt_head
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import COCO, MPII

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
        found = adapt_head(coco, "mpii")(picture)
    for joint in LIMBS:
        for ours, theirs in zip(found, expected, strict=True):
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
    with pytest.raises(DposeError, match="choose from mpii, coco, lsp"):
        adapt_head(coco, "horse")
