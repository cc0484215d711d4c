"""BlazePose's outputs and joints of any skeleton that can be had of its points."""

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from dpose.pose.blaze_codec import HEAT_SIGMA, BlazePoseCodec, heat_loss
from dpose.pose.blazepose import POINTS, SIDE, STRIDE
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import BLAZEPOSE, LSP, MPII, SKELETONS, skeleton_of
from pose.astronauts import astronauts
from refusals import refused


def outputs(points, heat=None):
    """What a head gives that sees points (N, 39, 2) and nothing else."""
    coordinates = torch.zeros(len(points), POINTS, 5, dtype=points.dtype)
    coordinates[..., :2] = points
    empty = torch.full((len(points), POINTS, 64, 64), -20.0, dtype=points.dtype)
    return coordinates, empty if heat is None else heat, torch.zeros(len(points), dtype=points.dtype)


def drawn(count=2, seed=0):
    return torch.rand(count, POINTS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * SIDE


@pytest.mark.parametrize("skeleton", ["blazepose", "coco", "mpii", "lsp"])
def test_joints_are_points_or_sums_of_points(skeleton):
    points = drawn()
    joints, scores = BlazePoseCodec(skeleton).decode(outputs(points))
    assert joints.shape == (2, len(SKELETONS[skeleton]), 2)
    assert scores.shape == joints.shape[:2]
    assert scores.eq(0.5).all()
    names = {"neck": "upper_neck"}
    for place, name in enumerate(SKELETONS[skeleton].joints):
        if names.get(name, name) in BLAZEPOSE.joints:
            assert torch.allclose(joints[:, place], points[:, BLAZEPOSE.joints.index(name)])


def test_a_derived_joint_is_as_sure_as_its_least_sure_point():
    made = outputs(drawn(1))
    made[0][..., 3] = 9.0
    made[0][0, BLAZEPOSE.joints.index("l_hip"), 3] = -9.0
    scores = BlazePoseCodec("mpii").decode(made)[1][0]
    assert scores[MPII.joints.index("pelvis")] < 0.001
    assert scores[MPII.joints.index("thorax")] > 0.999


def test_a_joint_that_no_points_make_is_refused_by_name():
    made = skeleton_of(["l_hip", "r_hip", "tail"])
    with refused("skeleton-unsupported", where="tail"):
        BlazePoseCodec(made.name)
    model = PoseModel(PoseConfig(preset="blazepose:lite", norm="folded", codec="blazepose", skeleton="blazepose"))
    with refused("skeleton-unsupported", where="tail"):
        adapt_head(model, made.name)


def test_another_skeleton_changes_no_weight():
    model = load_model(find_model("blazepose:lite"))
    adapted = adapt_head(model, "mpii")
    assert adapted.config.skeleton == "mpii"
    for name, tensor in model.state_dict().items():
        assert torch.equal(adapted.state_dict()[name], tensor)
    crops = torch.from_numpy(astronauts(256)[:2]).permute(0, 3, 1, 2)
    with torch.inference_mode():
        own, other = model.codec.decode(model(crops))[0], adapted.codec.decode(adapted(crops))[0]
    knee = own[:, BLAZEPOSE.joints.index("l_knee")]
    assert torch.allclose(other[:, MPII.joints.index("l_knee")], knee)


def test_the_loss_is_least_where_points_and_heat_are_right():
    codec = BlazePoseCodec("lsp")
    points = drawn(1)
    joints, _ = codec.decode(outputs(points))
    cells = torch.arange(64, dtype=torch.float64) * STRIDE
    heat = torch.full((1, POINTS, 64, 64), -20.0, dtype=torch.float64)
    for place, name in enumerate(LSP.joints):
        if name in BLAZEPOSE.joints:
            apart = (cells - joints[0, place, 1])[:, None] ** 2 + (cells - joints[0, place, 0])[None] ** 2
            shown = torch.exp(-apart / (2 * (HEAT_SIGMA * STRIDE) ** 2)).clamp(1e-9, 1 - 1e-9)
            heat[0, BLAZEPOSE.joints.index(name)] = torch.logit(shown)
    right = codec.loss(outputs(points, heat), joints, torch.ones(1, 14))
    assert right.item() == pytest.approx(0, abs=1e-6)
    moved = joints.clone()
    moved[0, LSP.joints.index("l_knee"), 0] += 9
    assert codec.loss(outputs(points, heat), moved, torch.ones(1, 14)).item() > 0.001
    # a joint that is not visible costs nothing, and its place is never read
    hidden = torch.ones(1, 14)
    hidden[0, LSP.joints.index("l_knee")] = 0
    moved[0, LSP.joints.index("l_knee")] = torch.nan
    assert codec.loss(outputs(points, heat), moved, hidden).item() == pytest.approx(0, abs=1e-6)


def test_gradients_of_single_units_are_exact_and_finite_without_a_visible_joint():
    codec = BlazePoseCodec("mpii")
    coordinates, heat, presence = outputs(drawn(3), torch.randn(3, POINTS, 64, 64, dtype=torch.float64))
    keypoints = torch.rand(3, 16, 2, dtype=torch.float64) * 300 - 20
    keypoints[1, 3] = torch.nan
    visible = torch.ones(3, 16)
    visible[1, 3] = visible[1, 5] = 0
    visible[2] = 0

    def loss(coordinates, heat, keypoints, visible):
        return codec.loss((coordinates[None], heat[None], presence[:1]), keypoints[None], visible[None])[0]

    result = vmap(grad(loss, argnums=(0, 1)))(coordinates, heat, keypoints, visible)
    for number in range(3):
        parts = coordinates[number].clone().requires_grad_(), heat[number].clone().requires_grad_()
        value = loss(*parts, keypoints[number], visible[number])
        for mine, part in zip(result, torch.autograd.grad(value, parts), strict=True):
            assert torch.isfinite(mine[number]).all()
            assert (mine[number] - part).abs().max() < 1e-10
    assert result[0][2].abs().max() == 0
    assert result[1][2].abs().max() == 0


def test_heat_of_a_joint_outside_of_the_picture_is_not_taught():
    heat = torch.zeros(1, 3, 64, 64)
    places = torch.tensor([[[128.0, 128.0], [-9.0, 20.0], [20.0, 262.0]]])
    surprise, inside = heat_loss(heat, places)
    assert inside.tolist() == [[True, False, False]]
    assert torch.isfinite(surprise).all()
    assert (surprise >= 0).all()


def test_a_mirrored_picture_has_mirrored_joints():
    codec = BlazePoseCodec("blazepose")
    points = drawn(2)
    order = [*BLAZEPOSE.flip_order, *range(33, POINTS)]
    turned = points[:, order].clone()
    turned[..., 0] = SIDE - 1 - turned[..., 0]
    heat = torch.randn(2, POINTS, 64, 64, dtype=torch.float64)
    seen, mirrored = outputs(points, heat), outputs(turned, heat[:, order].flip(-1))
    both = codec.mirror(seen, mirrored, torch.tensor(BLAZEPOSE.flip_order))
    for one, other in zip(both, seen, strict=True):
        assert torch.allclose(one, other)


def test_the_published_network_agrees_with_itself_on_mirrored_pictures():
    """A person's left is where it should be: of one right way up the two readings differ by a few pixels."""
    model = load_model(find_model("blazepose:full"))
    crops = torch.from_numpy(astronauts(256)[9:10]).permute(0, 3, 1, 2)
    with torch.inference_mode():
        seen, mirrored = model(crops), model(crops.flip(-1))
        mean = model.codec.mirror(seen, mirrored, torch.tensor(BLAZEPOSE.flip_order))
    apart = (seen[0] - mean[0])[0, [0, 7, 8, 11, 12], :2].abs()
    assert apart.max() < 6, np.round(apart.numpy(), 1)
