"""Faces are where the joints say: of a person whose measures are known, the face lies in what is filled."""

import numpy as np
import pytest

from dpose.pose.people import COLOUR, has_head, head_circle, hide_faces
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO, LSP, MPII, SKELETONS, joint_map, skeleton_of

# metres, x to the right and y down, of somebody who faces the camera: the face reaches from the hair (-0.1) to the chin
FRONT = {
    "nose": (0, 0), "l_eye": (0.033, -0.035), "r_eye": (-0.033, -0.035),
    "l_ear": (0.075, -0.02), "r_ear": (-0.075, -0.02),
    "l_shoulder": (0.18, 0.26), "r_shoulder": (-0.18, 0.26), "l_hip": (0.13, 0.75), "r_hip": (-0.13, 0.75),
}  # fmt: skip
CHIN, HAIR, CHEEKS = (0, 0.09), (0, -0.1), ((0.07, 0.02), (-0.07, 0.02))
# the same from the side: nose and ears lie one behind the other
SIDE = FRONT | {
    "nose": (0.1, 0), "l_eye": (0.08, -0.035), "r_eye": (0.085, -0.035), "l_ear": (0, -0.02), "r_ear": (0.005, -0.02),
    "l_shoulder": (0, 0.26), "r_shoulder": (0.02, 0.26), "l_hip": (0, 0.75), "r_hip": (0.01, 0.75),
}  # fmt: skip


def pose(metres, scale=200.0, at=(300.0, 150.0), turn=0.0):
    places = np.array([metres.get(joint, (0, 1)) for joint in COCO.joints]) * scale
    cos, sin = np.cos(turn), np.sin(turn)
    return Pose(places @ np.array([[cos, sin], [-sin, cos]]) + at, np.full(17, 0.9))


def inside(circle, points):
    x, y, radius = circle
    return all(np.hypot(px - x, py - y) <= radius for px, py in points)


@pytest.mark.parametrize("turn", [0.0, 1.0, np.pi])
def test_the_face_lies_inside_however_the_person_is_turned(turn):
    at = np.array([300.0, 150.0])
    cos, sin = np.cos(turn), np.sin(turn)

    def there(points):
        return np.array(points) * 200 @ np.array([[cos, sin], [-sin, cos]]) + at

    circle = head_circle(pose(FRONT, turn=turn), COCO)
    assert inside(circle, there([CHIN, HAIR, *CHEEKS]))
    assert circle[2] < 0.2 * 200  # and not the chest
    assert inside(head_circle(pose(SIDE, turn=turn), COCO), there([(0.1, 0), (0.08, 0.09), (0.09, -0.09), (0, 0)]))


def test_mpii_and_lsp_know_the_head_by_neck_and_top():
    for skeleton in (MPII, LSP):
        way = joint_map(COCO, skeleton, predicted=True)
        result = pose(FRONT)
        circle = head_circle(Pose(way.points(result.keypoints), way.values(result.scores)), skeleton)
        assert inside(circle, np.array([CHIN, HAIR, *CHEEKS]) * 200 + [300, 150])


def test_which_skeletons_have_a_head():
    assert all(has_head(SKELETONS[name]) for name in ("coco", "mpii", "lsp", "blazepose"))
    owl = skeleton_of(["beak", "left_wing", "right_wing"])
    assert not has_head(owl)
    assert head_circle(Pose(np.ones((3, 2)), np.ones(3)), owl) is None


def test_joints_that_are_nowhere_do_not_count_and_low_scores_do():
    result = pose(FRONT)
    points = result.keypoints.copy()
    points[0] = np.nan
    assert head_circle(Pose(points, np.zeros(17)), COCO) is not None
    points[:] = np.nan
    assert head_circle(Pose(points, np.zeros(17)), COCO) is None


def test_hidden_faces_are_filled_and_counted_and_the_rest_is_as_it_was():
    image = np.random.default_rng(0).integers(0, 120, (400, 640, 3), np.uint8)
    before = image.copy()
    outside = pose(FRONT, at=(5000.0, 5000.0))
    shown, hidden = hide_faces(image, [pose(FRONT), pose(SIDE, at=(500.0, 200.0)), outside], COCO)
    assert hidden == 2
    assert np.array_equal(image, before)
    x, y, radius = head_circle(pose(FRONT), COCO)
    rows, columns = np.mgrid[:400, :640]
    near = np.hypot(columns - x, rows - y) <= radius - 1
    assert (shown[near] == COLOUR).all()
    assert near.sum() > 1000
    changed = (shown != before).any(axis=2)
    assert changed.mean() < 0.05


def test_a_pose_that_went_astray_is_no_crash():
    image = np.zeros((60, 60, 3), np.uint8)
    far = Pose(np.random.default_rng(0).uniform(-1e7, 1e7, (17, 2)), np.ones(17))
    hide_faces(image, [far], COCO)
