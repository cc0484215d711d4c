"""Prediction puts joints where they are in the picture, mirrored or not."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dpose.media.drawing import draw_skeleton
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.predict import (
    Pose,
    for_prediction,
    predict_frames,
    predict_image,
    predict_outputs,
    predict_people,
    to_supervision,
)
from dpose.pose.skeletons import MPII
from refusals import refused

SIZE = (64, 48)
RIGHT, LEFT = 0, 5  # ankles: each other's partner in the mirror
RED, GREEN = 0, 1


class Finder(PoseModel):
    """An ideal model: right and middle joints are at the reddest pixel, left joints at the greenest.

    A blue corner at the top right tells it that the picture is mirrored: it then takes right for left, as a
    true model takes a mirrored right ankle for a left one.
    """

    def forward(self, images):
        images = images.double()
        height, width = SIZE
        x_logits = torch.zeros(len(images), 16, 2 * width, dtype=torch.float64)
        y_logits = torch.zeros(len(images), 16, 2 * height, dtype=torch.float64)
        for n, image in enumerate(images):
            mirrored = image[2, 0, -1] > image[2, 0, 0]
            for joint, name in enumerate(MPII.joints):
                side = {"r_": RED, "l_": GREEN}.get(name[:2])
                channel = RED if side is None else (GREEN - side if mirrored else side)
                y, x = divmod(int(image[channel].argmax()), width)
                x_logits[n, joint] = -((torch.arange(2 * width) - 2 * x) ** 2)
                y_logits[n, joint] = -((torch.arange(2 * height) - 2 * y) ** 2)
        return x_logits, y_logits


def finder() -> Finder:
    return Finder(PoseConfig("nano", SIZE)).eval()


def dots(red, green, size=SIZE) -> np.ndarray:
    image = np.zeros((*size, 3), np.uint8)
    image[red[1], red[0], RED] = 200
    image[green[1], green[0], GREEN] = 200
    image[0, 0, 2] = 255
    return image


@pytest.mark.parametrize("flip_test", [False, True])
@pytest.mark.parametrize("red", [(0, 3), (20, 30), (47, 63)])
@pytest.mark.parametrize("green", [(0, 60), (31, 9), (47, 3)])
def test_a_picture_of_the_models_size_is_not_moved(red, green, flip_test):
    prediction = predict_image(finder(), dots(red, green), flip_test=flip_test)
    np.testing.assert_allclose(prediction.keypoints[RIGHT], red, atol=1e-9)
    np.testing.assert_allclose(prediction.keypoints[LEFT], green, atol=1e-9)
    assert prediction.scores[[RIGHT, LEFT]].min() > 0.9


def test_the_flip_test_of_a_model_that_mirrors_perfectly_changes_nothing():
    crops = torch.from_numpy(dots((12, 40), (40, 12))).permute(2, 0, 1)[None]
    plain = predict_outputs(finder(), crops)
    averaged = predict_outputs(finder(), crops, flip_test=True)
    for a, b in zip(plain, averaged, strict=True):
        torch.testing.assert_close(b, a)


def test_the_flip_test_makes_a_model_blind_to_mirroring():
    # an untrained model with the test on is equivariant: mirrored in, mirrored out, joints renamed
    torch.manual_seed(0)
    model = PoseModel(PoseConfig("nano", SIZE, norm="group")).double().eval()
    crops = torch.randint(0, 256, (2, 3, *SIZE), dtype=torch.uint8)
    order = list(MPII.flip_order)
    x, y = predict_outputs(model, crops, flip_test=True)
    x_mirrored, y_mirrored = predict_outputs(model, crops.flip(-1), flip_test=True)
    last = x.shape[-1] - 1  # bin 95 lies beyond the last pixel and has no mirror image
    torch.testing.assert_close(x_mirrored[:, order, :last].flip(-1), x[..., :last])
    torch.testing.assert_close(y_mirrored[:, order], y)
    assert not torch.allclose(model(crops)[1], y)


@pytest.mark.parametrize("flip_test", [False, True])
def test_keypoints_come_back_to_the_picture_through_the_box(flip_test):
    image = np.zeros((300, 500, 3), np.uint8)
    image[..., 2] = np.linspace(255, 0, 500).astype(np.uint8)  # bluer on the left: not mirrored
    image[117:124, 237:244, RED] = 255  # middle (240, 120)
    image[190:197, 259:266, GREEN] = 255  # middle (262, 193)
    image[120, 240, RED] = image[193, 262, GREEN] = 255
    box = (215, 95, 290, 215)
    prediction = predict_image(finder(), image, box, flip_test=flip_test)
    pixel = 1.25 * 120 / 64  # picture pixels a crop pixel; a dot is three of them wide
    assert np.abs(prediction.keypoints[RIGHT] - (240, 120)).max() < 2 * pixel
    assert np.abs(prediction.keypoints[LEFT] - (262, 193)).max() < 2 * pixel
    whole = predict_image(finder(), image)
    assert np.abs(whole.keypoints[RIGHT] - (240, 120)).max() < 2 * 500 / 48


def test_prediction_is_in_evaluation_mode_and_leaves_the_model_as_it_was():
    torch.manual_seed(0)
    model = PoseModel(PoseConfig("nano", SIZE)).train()
    before = {name: b.clone() for name, b in model.named_buffers()}
    crops = torch.randint(0, 256, (3, 3, *SIZE), dtype=torch.uint8)
    together, _ = predict_outputs(model, crops)
    assert model.training
    assert not together.requires_grad
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    # BatchNorm in training mode would mix the pictures
    torch.testing.assert_close(predict_outputs(model, crops[:1])[0][0], together[0], rtol=1e-4, atol=1e-5)


def test_predict_image_decodes_the_models_logits():
    torch.manual_seed(0)
    model = PoseModel(PoseConfig("nano", SIZE, norm="group"))
    image = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8)
    logits = predict_outputs(model, torch.from_numpy(image).permute(2, 0, 1)[None])
    keypoints, scores = model.codec.decode(logits)
    prediction = predict_image(model, image)
    np.testing.assert_allclose(prediction.keypoints, keypoints[0].numpy(), atol=1e-9)
    np.testing.assert_allclose(prediction.scores, scores[0].numpy(), atol=1e-6)
    assert prediction.keypoints.shape == (16, 2)


@pytest.mark.parametrize("at_once", [2, 32])
def test_people_of_many_pictures_come_back_to_their_own(at_once):
    spots = [((5, 7), (40, 50)), ((20, 30), (9, 3)), ((40, 60), (1, 20))]
    images = [dots(*spot) for spot in spots] + [np.zeros((10, 30, 3), np.uint8)]
    whole = [(0.0, 0.0, SIZE[1], SIZE[0])]
    boxes = [None, whole, whole * 2, []]
    result = predict_frames(finder(), images, boxes, at_once=at_once)
    assert [len(people) for people in result] == [1, 1, 2, 0]
    for people, (red, green) in zip(result, spots, strict=False):
        for person in people:
            np.testing.assert_allclose(person.keypoints[RIGHT], red, atol=1.0)
            np.testing.assert_allclose(person.keypoints[LEFT], green, atol=1.0)


@pytest.mark.parametrize("preset", ["nano", "lite0"])
def test_a_copy_for_prediction_predicts_the_same(preset):
    torch.manual_seed(0)
    model = PoseModel(PoseConfig(preset, (128, 96)))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.8, 1.2)
    crops = torch.randint(0, 256, (3, 3, 128, 96), dtype=torch.uint8)
    for ours, theirs in zip(predict_outputs(for_prediction(model), crops), predict_outputs(model, crops), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert model.training


@pytest.mark.parametrize(
    "image",
    [
        *(
            np.zeros((8, 8), np.uint8),
            np.zeros((8, 8, 4), np.uint8),
            np.zeros((8, 8, 3)),
            np.zeros((0, 8, 3), np.uint8),
        ),
        *(Image.new("RGB", (8, 8)), Path("a.png"), "a.png", [[[0, 0, 0]]], torch.zeros(8, 8, 3, dtype=torch.uint8)),
    ],
    ids=lambda image: type(image).__name__,
)
def test_what_is_no_picture_is_refused(image):
    codes = ("image-not-array", "image-type-unsupported", "image-empty", "image-of-wrong-shape")  # as `dpose.pixelize`
    with refused(codes) as caught:
        predict_image(finder(), image)
    assert re.fullmatch(r"a picture is a uint8 \(H, W, 3\) RGB array, not .*", str(caught.value))


@pytest.mark.parametrize("boxes", [(1, 2, 3, 4), [(1, 2, 3)], [(1, 2, 3, 4, 0.9)], [[(1, 2, 3, 4)]]])
def test_boxes_of_another_shape_are_refused(boxes):
    with refused("box-malformed") as caught:
        predict_people(finder(), dots((0, 3), (0, 60)), boxes)
    assert re.fullmatch(r"a box is x0, y0, x1, y1, of shape \(4,\), not \(.*\)", str(caught.value))


@pytest.mark.parametrize(
    ("box", "code"),
    [
        ((10, 10, 5, 5), "box-empty"),
        ((1, 1, 1, 9), "box-empty"),
        ((0, 0, np.nan, 9), "box-empty"),
        ((0, 0, np.inf, 9), "box-empty"),
        ("0,0,9,9", "box-malformed"),
        ([(1, 2), 3], "box-malformed"),
        ((0, 0, "a", 9), "box-malformed"),
        ((0, 0, 10**400, 9), "box-malformed"),
    ],
)
def test_a_box_that_holds_nothing_is_refused(box, code):
    with refused(code, where="box"):
        predict_image(finder(), dots((0, 3), (0, 60)), box)


@pytest.mark.parametrize("at_once", [0, -1])
def test_no_crop_at_once_is_refused(at_once):
    with pytest.raises(ValueError, match=f"^at_once must be at least 1, not {at_once}$"):
        predict_people(finder(), dots((0, 3), (0, 60)), [(0, 0, 9, 9)], at_once=at_once)


def test_drawing_shows_confident_joints_only():
    image = np.full((100, 100, 3), 90, np.uint8)
    keypoints = np.random.default_rng(0).uniform(20, 80, (16, 2))
    drawn = draw_skeleton(image, keypoints, np.ones(16), MPII.edges, MPII.colours)
    assert drawn.shape == image.shape
    assert (drawn != image).any()
    assert (image == 90).all()
    unsure = draw_skeleton(image, keypoints, np.full(16, 0.1), MPII.edges, MPII.colours, threshold=0.3)
    assert (unsure == image).all()
    shown = draw_skeleton(image, keypoints, np.full(16, 0.1), MPII.edges, MPII.colours, threshold=0.05)
    assert (shown == drawn).all()


def test_people_go_to_supervision():
    pytest.importorskip("supervision")
    one, other = (Pose(np.arange(32.0).reshape(16, 2) + k, np.linspace(0, 1, 16)) for k in (0, 1))
    result = one.to_supervision()
    assert result.xy.shape == (1, 16, 2)
    assert np.array_equal(result.xy[0], one.keypoints)
    assert np.allclose(result.keypoint_confidence[0], one.scores)
    both = to_supervision([one, other])
    assert np.array_equal(both.xy[1], other.keypoints)
    assert len(to_supervision([])) == 0
