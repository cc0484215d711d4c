import math

import numpy as np
import pytest

from dpose_scene.draws import Draws
from dpose_scene.motion import ACTIONS, draw_motion
from dpose_scene.poses import STAND, pose
from dpose_scene.skeleton import (
    BONE,
    BONES,
    CONTACT_RADII,
    DOF,
    DOFS,
    FRAME,
    JOINT,
    JOINTS,
    KEYPOINT_ROWS,
    KEYPOINTS,
    LIMITS,
    clamp,
    mirror,
    place,
)

ADULT = np.array(list(BONES.values()))


@pytest.fixture(scope="module")
def many():
    """600 poses of all actions, at random moments."""
    draws = Draws(5, 5)
    poses = []
    for k in range(600):
        motion = draw_motion(draws, ACTIONS[k % len(ACTIONS)], draws.uniform(-3, 3), True)
        poses.append(motion.at(draws.uniform(0, 30)))
    return np.array(poses)


def angle(a, b):
    return np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


def test_poses_stay_within_the_limits(many):
    assert (many >= LIMITS[:, 0] - 1e-9).all()
    assert (many <= LIMITS[:, 1] + 1e-9).all()


def test_knees_and_elbows_never_bend_backwards(many):
    for p in many:
        joints, frames = place(p, ADULT)
        for side in "rl":
            shank = joints[JOINT[f"{side}_ankle"]] - joints[JOINT[f"{side}_knee"]]
            thigh_forward = frames[FRAME[f"{side}_thigh"]][:, 2]
            assert shank @ thigh_forward <= 1e-9  # the foot goes back, never forward of the thigh's line
            forearm = joints[JOINT[f"{side}_wrist"]] - joints[JOINT[f"{side}_elbow"]]
            arm_forward = frames[FRAME[f"{side}_upper_arm"]][:, 2]
            assert forearm @ arm_forward >= -1e-9


def test_clamp_brings_a_broken_knee_back():
    broken = pose(STAND, knee=-40, elbow=-30)
    mended = clamp(broken)
    assert mended[DOF["r_knee"]] == pytest.approx(math.radians(1))
    assert mended[DOF["l_elbow"]] == pytest.approx(math.radians(2))


def test_bones_keep_their_lengths(many):
    ends = {
        "upper_arm": ("shoulder", "elbow"),
        "forearm": ("elbow", "wrist"),
        "thigh": ("hip", "knee"),
        "shank": ("knee", "ankle"),
    }
    for p in many[:100]:
        joints, frames = place(p, ADULT)
        for bone, (a, b) in ends.items():
            for side in "rl":
                length = np.linalg.norm(joints[JOINT[f"{side}_{a}"]] - joints[JOINT[f"{side}_{b}"]])
                assert length == pytest.approx(ADULT[BONE[bone]], rel=1e-9)
        assert np.allclose(frames @ frames.transpose(0, 2, 1), np.eye(3), atol=1e-9)
        assert np.allclose(np.linalg.det(frames), 1.0)


def test_the_rest_pose_stands_upright_and_faces_forward():
    joints, _ = place(pose(STAND, knee=0, elbow=0), ADULT)
    assert joints[JOINT["head_top"], 1] == pytest.approx(1.76, abs=0.06)
    assert joints[JOINT["r_shoulder"], 0] < joints[JOINT["l_shoulder"], 0]  # x is the person's left
    assert joints[JOINT["r_toe"], 2] > joints[JOINT["r_heel"], 2]  # z is forward


@pytest.mark.parametrize(
    ("angles", "joint", "axis", "sign"),
    [
        ({"r_shoulder_flex": 90}, "r_wrist", 2, 1),
        ({"l_shoulder_abd": 90}, "l_wrist", 0, 1),
        ({"r_shoulder_abd": 90}, "r_wrist", 0, -1),
        ({"r_hip_flex": 90}, "r_knee", 2, 1),
        ({"l_hip_abd": 40}, "l_knee", 0, 1),
        ({"spine_flex": 40}, "thorax", 2, 1),
        ({"neck_flex": 40}, "head_top", 2, 1),
    ],
)
def test_angles_move_joints_the_way_anatomy_names_them(angles, joint, axis, sign):
    before, after = (place(pose(None, **a), ADULT)[0] for a in ({}, angles))
    # relative to the pelvis, which the ground contact may lift
    moved = (after[JOINT[joint]] - after[0]) - (before[JOINT[joint]] - before[0])
    assert sign * moved[axis] > 0.03


def test_rotations_turn_inwards_on_both_sides():
    joints, _ = place(pose(None, elbow=90, shoulder_rot=60), ADULT)
    assert joints[JOINT["r_wrist"], 0] > joints[JOINT["r_elbow"], 0]
    assert joints[JOINT["l_wrist"], 0] < joints[JOINT["l_elbow"], 0]


def test_a_mirrored_pose_is_the_mirror_image(many):
    swap = {n: n for n in JOINTS}
    swap |= {n: ("l" if n[0] == "r" else "r") + n[1:] for n in JOINTS if n[:2] in ("r_", "l_")}
    order = [JOINT[swap[n]] for n in JOINTS]
    for p in many[:60]:
        joints, mirrored = place(p, ADULT)[0], place(mirror(p), ADULT)[0]
        assert np.allclose(mirrored, joints[order] * (-1, 1, 1), atol=1e-9)
        assert np.array_equal(mirror(mirror(p)), p)


def test_the_lowest_point_rests_on_the_support(many):
    for p in many[:60]:
        joints, _ = place(p, ADULT, 0.6)
        assert (joints[:, 1] - CONTACT_RADII).min() == pytest.approx(0.6 + p[DOF["lift"]])


def test_keypoints_are_mpii_in_order():
    assert len(KEYPOINTS) == len(KEYPOINT_ROWS) == 16
    assert KEYPOINTS[0] == "r_ankle"
    assert KEYPOINTS[6:10] == ("pelvis", "thorax", "upper_neck", "head_top")
    assert [JOINTS[r] for r in KEYPOINT_ROWS] == list(KEYPOINTS)
    assert len(DOFS) == len(set(DOFS)) == 36


def test_angles_are_the_angles_named():
    joints, _ = place(pose(None, knee=70), ADULT)
    hip, knee, ankle = (joints[JOINT[f"r_{n}"]] for n in ("hip", "knee", "ankle"))
    assert angle(ankle - knee, knee - hip) == pytest.approx(70, abs=1e-6)
