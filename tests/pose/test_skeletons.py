import json

import numpy as np
import pytest

from dpose.pose.model import PoseConfig
from dpose.pose.skeletons import (
    BLAZEPOSE,
    COCO,
    LSP,
    MPII,
    SKELETONS,
    declared_skeleton,
    joint_map,
    lsp_to_mpii,
    plain_joint,
    skeleton_of,
)
from refusals import refused


def swapped(name):
    return {"r_": "l_", "l_": "r_"}.get(name[:2], name[:2]) + name[2:]


@pytest.mark.parametrize("skeleton", SKELETONS.values(), ids=SKELETONS)
class TestEverySkeleton:
    def test_joint_names_are_unique_and_edges_join_them_all(self, skeleton):
        assert len(set(skeleton.joints)) == len(skeleton)
        reached, frontier = set(), {0}
        while frontier:
            reached |= frontier
            frontier = {b for e in skeleton.edges for a, b in (e, e[::-1]) if a in reached} - reached
        # COCO's face hangs on nothing: its skeleton has no neck
        expected = set(range(5)) if skeleton.name == "coco" else set(range(len(skeleton)))
        assert reached == expected
        assert all(a != b for a, b in skeleton.edges)

    def test_flipping_swaps_exactly_the_sides(self, skeleton):
        order = skeleton.flip_order
        assert [skeleton.joints[j] for j in order] == [swapped(name) for name in skeleton.joints]
        assert [order[j] for j in order] == list(range(len(skeleton)))

    def test_edges_are_symmetric(self, skeleton):
        order = skeleton.flip_order
        edges = {frozenset(e) for e in skeleton.edges}
        assert {frozenset((order[a], order[b])) for a, b in skeleton.edges} == edges
        assert len(edges) == len(skeleton.edges)

    def test_sides_have_their_own_colours(self, skeleton):
        colours = skeleton.colours
        assert len({colours[a] for pair in skeleton.flip_pairs for a in pair}) == 2
        assert all(colours[a] != colours[b] for a, b in skeleton.flip_pairs)


def test_orders_are_the_datasets_own():
    assert (len(MPII), len(COCO), len(LSP)) == (16, 17, 14)
    assert [MPII.joints.index(n) for n in ("pelvis", "thorax", "upper_neck", "head_top")] == [6, 7, 8, 9]
    assert LSP.joints[12:] == ("neck", "head_top")
    assert len(COCO.sigmas) == 17
    assert COCO.sigmas[11] == 0.107


def test_coco_maps_to_the_joints_of_the_same_name():
    way = joint_map("coco", "mpii")
    assert set(way.shared) == {
        (16, 0), (14, 1), (12, 2), (11, 3), (13, 4), (15, 5),
        (10, 10), (8, 11), (6, 12), (5, 13), (7, 14), (9, 15),
    }  # fmt: skip
    assert way.derived == ((6, ((12, 0.5), (11, 0.5))), (7, ((6, 0.5), (5, 0.5))))
    assert way.missing == (8, 9)


def test_mpii_maps_to_coco_without_a_face():
    way = joint_map(MPII, COCO)
    assert {(c, m) for m, c in way.shared} == set(joint_map(COCO, MPII).shared)
    assert way.derived == ()
    assert way.missing == (0, 1, 2, 3, 4)


def test_lsp_maps_to_the_joints_of_the_same_name():
    way = joint_map("lsp", "mpii")
    assert set(way.shared) == {
        (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 10), (7, 11), (8, 12), (9, 13), (10, 14), (11, 15),
        (12, 8), (13, 9),
    }  # fmt: skip
    assert [t for t, _ in way.derived] == [6, 7]
    assert way.missing == ()


@pytest.mark.parametrize("skeleton", SKELETONS.values(), ids=SKELETONS)
def test_a_skeleton_maps_to_itself_unchanged(skeleton):
    way = joint_map(skeleton, skeleton)
    points = np.arange(2.0 * len(skeleton)).reshape(-1, 2)
    assert np.array_equal(way.points(points), points)
    assert np.array_equal(way.values(points[:, 0]), points[:, 0])


def test_missing_joints_are_nan_and_score_nothing():
    way = joint_map("mpii", "coco")
    points, scores = way.points(np.ones((3, 16, 2))), way.values(np.ones((3, 16)))
    assert np.isnan(points[:, :5]).all()
    assert (scores[:, :5] == 0).all()
    assert (points[:, 5:] == 1).all()


def test_a_derived_joint_has_its_lower_parents_score():
    scores = np.ones(17)
    scores[COCO.joints.index("l_hip")] = 0.25
    assert joint_map("coco", "mpii").values(scores)[[6, 7]].tolist() == [0.25, 1.0]


def test_a_predicted_head_lies_along_the_line_of_the_ears():
    names = BLAZEPOSE.joints
    points = np.zeros((33, 2))
    for name, place in (("l_shoulder", (10, 0)), ("r_shoulder", (-10, 0)), ("l_ear", (3, -20)), ("r_ear", (1, -20))):
        points[names.index(name)] = place
    way = joint_map(BLAZEPOSE, LSP, predicted=True)
    assert way.missing == ()
    result = way.points(points)
    assert result[LSP.joints.index("neck")].tolist() == pytest.approx([0.5, -5])
    assert result[LSP.joints.index("head_top")].tolist() == pytest.approx([3.8, -38])
    # labels are not guessed at
    assert joint_map(BLAZEPOSE, LSP).missing == (12, 13)
    assert joint_map(COCO, MPII).missing == (8, 9)


def test_palms_and_footing_start_at_the_nearest_joints_and_are_no_labels():
    points = np.arange(66.0).reshape(33, 2)
    way = joint_map(BLAZEPOSE, "ward", predicted=True)
    found = dict(zip(SKELETONS["ward"].joints, way.points(points), strict=True))
    assert not way.missing
    assert np.array_equal(found["r_palm"], points[BLAZEPOSE.joints.index("r_wrist")])
    ankles = [BLAZEPOSE.joints.index(f"{side}_ankle") for side in "rl"]
    assert np.array_equal(found["footing"], points[ankles].mean(0))
    assert {16, 17, 18} <= set(joint_map(MPII, "ward").missing)


def test_lsp_to_mpii_moves_joints_and_derives_two():
    joints = np.arange(28, dtype=float).reshape(14, 2)
    keypoints, visible = lsp_to_mpii(joints, np.ones(14))
    assert keypoints.dtype == np.float32
    assert visible.all()
    assert keypoints[0].tolist() == [0, 1]
    assert keypoints[9].tolist() == [26, 27]
    assert keypoints[10].tolist() == joints[6].tolist()
    assert keypoints[6].tolist() == ((joints[2] + joints[3]) / 2).tolist()
    assert keypoints[7].tolist() == ((joints[8] + joints[9]) / 2).tolist()


def test_derived_joints_need_both_parents():
    visible = np.ones((2, 14), bool)
    visible[0, 2] = visible[1, 9] = False
    joints = np.full((2, 14, 2), 5.0)
    joints[0, 2] = -4000
    keypoints, seen = lsp_to_mpii(joints, visible)
    assert seen[:, 6].tolist() == [False, True]
    assert seen[:, 7].tolist() == [True, False]
    assert (keypoints[0, [2, 6]] == 0).all()
    assert (keypoints[1, 6] == 5).all()


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="14"):
        lsp_to_mpii(np.zeros((16, 2)), np.zeros(16))


class TestOfADataset:
    def test_names_sides_and_edges_are_read(self):
        result = skeleton_of(["LeftPaw", "right-paw", "tail", "ear_l", "ear_r"], [(0, 1)])
        assert result.joints == ("l_paw", "r_paw", "tail", "l_ear", "r_ear")
        assert result.flip_order == (1, 0, 2, 4, 3)
        assert result.sigmas == (0.2,) * 5
        assert SKELETONS[result.name] is result
        assert skeleton_of(["l_paw", "r_paw", "tail", "l_ear", "r_ear"], [(0, 1)]) is result
        assert skeleton_of(["l_paw", "r_paw", "tail", "l_ear", "r_ear"]).name != result.name

    def test_a_known_one_is_known_by_its_joints(self):
        spelt = [name.replace("l_", "left_").replace("r_", "right_") for name in COCO.joints]
        assert skeleton_of(spelt) is COCO
        assert skeleton_of(spelt, flip_order=range(17)) is not COCO

    @pytest.mark.parametrize(
        ("joints", "edges", "order"),
        [([], [], None), (["a", "a"], [], None), (["a"], [(0, 1)], None), (["a", "b", "c"], [], [1, 2, 0])],
    )
    def test_what_makes_none_is_refused(self, joints, edges, order):
        with refused(("edges-invalid", "flip-order-invalid", "joints-invalid"), where="here"):
            skeleton_of(joints, edges, order, where="here")

    def test_a_model_of_it_carries_it(self, monkeypatch):
        result = skeleton_of(["left_wing", "right_wing", "beak"], [(0, 2)])
        values = json.loads(json.dumps(PoseConfig("nano", (64, 64), skeleton=result.name).to_dict()))
        monkeypatch.delitem(SKELETONS, result.name)  # as in a process that never met the data
        config = PoseConfig.from_dict(values)
        assert (config.skeleton, config.joints, SKELETONS[config.skeleton]) == (result.name, 3, result)
        assert PoseConfig("nano").to_dict()["skeleton"] == "mpii"
        with refused("skeleton-malformed", where="flip_order"):
            PoseConfig.from_dict({"skeleton": {"joints": ["a"]}})


def test_what_is_declared_is_a_known_skeleton_a_number_or_names():
    assert all(declared_skeleton(name) is SKELETONS[name] for name in ("coco", "mpii", "lsp", "blazepose", "ward"))
    assert declared_skeleton(", ".join(reversed(COCO.joints)), by_name=True) is COCO
    assert declared_skeleton(", ".join(COCO.joints)) is COCO
    assert declared_skeleton("3").joints == ("joint_0", "joint_1", "joint_2")
    assert declared_skeleton("Left Hand,nose,right-hand").flip_pairs == ((0, 2),)
    for known in SKELETONS.values():  # labels find their joints by plain names
        assert all(plain_joint(joint) == joint for joint in known.joints)


def test_the_joint_at_each_place_is_the_one_that_is_declared_there():
    """Joints that are read by their place: those of a known skeleton in another order are not that skeleton."""
    turned = tuple(reversed(COCO.joints))
    declared = declared_skeleton(",".join(turned))
    assert declared.joints == turned
    assert [turned[j] for j in declared.flip_order] == [COCO.joints[j] for j in reversed(COCO.flip_order)]


@pytest.mark.parametrize(
    ("joints", "order"),
    [
        (["LShoulder", "RShoulder", "Neck"], (1, 0, 2)),
        (["RBigToe", "LBigToe"], (1, 0)),
        (["lwrist", "rwrist", "nose"], (1, 0, 2)),
        (["Rhip", "Lhip"], (1, 0)),
        (["LHIP", "RHIP", "HEAD"], (1, 0, 2)),
        (["leg", "rib", "lip"], (0, 1, 2)),  # no sides of anything
        (["LEFT_EYE", "RIGHT_EYE", "LEG"], (1, 0, 2)),
    ],
)
def test_sides_are_seen_as_people_write_them(joints, order):
    assert skeleton_of(joints).flip_order == order
    assert skeleton_of(skeleton_of(joints).joints).flip_order == order


def test_a_capital_in_front_of_a_name_is_its_side():
    names = ("LShoulder", "RHip", "LEye", "LeftEye", "Rib", "LEG", "LEFT_EYE", "REye2")
    known = ["l_shoulder", "r_hip", "l_eye", "l_eye", "rib", "leg", "l_eye", "r_eye2"]
    assert list(map(plain_joint, names)) == known


@pytest.mark.parametrize("wrong", ["0", "1001", "999999999", "nose,nose", "nose,", ",", "left_eye,eye_l", " "])
def test_what_declares_no_joints_is_refused(wrong):
    with refused("joints-invalid"):
        declared_skeleton(wrong)
