import json

import numpy as np
import pytest
import scipy.io

from dpose.media.images import write_image
from dpose.pose.crops import transform_points
from dpose.pose.data.labels import units_of
from dpose.pose.data.mpii import read_mpii, square
from dpose.pose.skeletons import MPII
from refusals import refused

SIZE = (256, 192)
JOINTS = [[100.0 + 3 * j, 50.0 + 5 * j] for j in range(16)]
ENTRY = {"image": "a.png", "center": [101.0, 81.0], "scale": 0.4, "joints": JOINTS, "joints_vis": [1] * 16}
HEAD = np.array([[[10.0], [10.0]], [[40.0], [50.0]]])  # a box of 30 x 40: diagonal 50


def write(root, entries=(ENTRY,), name="annot/train.json"):
    write_image(root / "images/a.png", np.full((200, 240, 3), 90, np.uint8))
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(list(entries)))
    return root


def opened(root, split="train", annotations="", **options):
    return units_of(read_mpii(root, split, annotations), input_size=SIZE, **options)


def load(units, index=0):
    return units.load(index, np.random.default_rng(0))


class TestGeometry:
    """Numbers computed by hand from the dataset's rules, never by the code they test."""

    def test_the_square(self):
        # centre (101, 81), scale 0.4: y moves by 15 * 0.4 = 6, the side is 200 * 0.4 * 1.25 = 100; less one each
        assert square((101, 81), 0.4).tolist() == [50, 36, 150, 136]

    def test_without_a_centre_nothing_moves_or_grows(self):
        assert square((-1, 81), 0.4).tolist() == [-42, 40, 38, 120]

    def test_the_crop(self, tmp_path):
        (view,) = load(opened(write(tmp_path)))
        inverse = view.target["inverse"].astype(float)
        # the square's side is the crop's width: 100 pixels on 192, and its centre the crop's
        assert np.allclose(inverse[:, :2], np.eye(2) * 100 / 192, atol=1e-6)
        assert np.allclose(transform_points(inverse, [95.5, 127.5]), (100, 86), atol=1e-4)

    def test_joints_count_from_one(self, tmp_path):
        (view,) = load(opened(write(tmp_path)))
        back = transform_points(view.target["inverse"], view.target["keypoints"])
        assert np.abs(back - (np.array(JOINTS) - 1)).max() < 1e-4

    def test_a_real_person_by_hand(self, pose_fixtures):
        (first, *_rest) = read_mpii(pose_fixtures / "mpii", "val").people
        # scale 4.718488, centre (966, 340): y + 70.77732 = 410.77732, half the side 589.811
        expected = np.array([965 - 589.811, 409.77732 - 589.811, 965 + 589.811, 409.77732 + 589.811])
        assert np.allclose(first.person.box, expected, atol=1e-3)
        assert first.person.keypoints[9].tolist() == pytest.approx([961.2409, 79.0306], abs=1e-4)


class TestHeads:
    def mat(self, root, boxes=HEAD, joints=(JOINTS,), name="annot/gt_valid.mat"):
        positions = np.array(joints).transpose(1, 2, 0)
        scipy.io.savemat(root / name, {"headboxes_src": boxes, "pos_gt_src": positions})

    def test_six_tenths_of_the_head_boxs_diagonal(self, tmp_path):
        self.mat(write(tmp_path, name="annot/valid.json"))
        (labelled,) = read_mpii(tmp_path, "val").people
        assert labelled.person.head_length == pytest.approx(0.6 * 50)
        (view,) = load(opened(tmp_path, "val"))
        assert view.target["head_length"] == pytest.approx(30 * 192 / 100, rel=1e-5)

    def test_without_boxes_the_segment_stands_in_and_is_named(self, tmp_path):
        units = opened(write(tmp_path))
        assert any("not comparable" in line for line in units.report)
        # upper neck and head top are one row apart: (3, 5)
        assert units.pictures[0].read()[1][0].head_length == pytest.approx(34**0.5)

    def test_boxes_of_other_people_are_refused(self, tmp_path):
        write(tmp_path, name="annot/valid.json")
        self.mat(tmp_path, joints=(np.array(JOINTS)[::-1] + 40,))
        with refused("headboxes-of-other-labels"):
            opened(tmp_path, "val")
        self.mat(tmp_path, boxes=np.zeros((2, 2, 3)))
        with refused("headboxes-of-wrong-shape", where="1"):
            opened(tmp_path, "val")
        (tmp_path / "annot/gt_valid.mat").write_bytes(b"nothing")
        with refused("matlab-unreadable"):
            opened(tmp_path, "val")

    def test_an_empty_box_is_no_length(self, tmp_path):
        self.mat(write(tmp_path, name="annot/valid.json"), boxes=np.zeros((2, 2, 1)))
        assert np.isnan(read_mpii(tmp_path, "val").people[0].person.head_length)


class TestLabels:
    @pytest.mark.parametrize(
        ("change", "kind"),
        [
            ({"joints": JOINTS[:15]}, "joints are not 16 pairs"),
            ({"joints": [[float("nan"), 1]] * 16}, "joints are not 16 pairs"),
            ({"joints": 5}, "joints are not 16 pairs"),
            ({"joints_vis": [1] * 15}, "joints are not 16 pairs"),
            ({"joints_vis": [2] * 16}, "a visibility other"),
            ({"joints_vis": [0] * 16}, "not one visible joint"),
            ({"center": [1.0]}, "no usable centre and scale"),
            ({"scale": 0}, "no usable centre and scale"),
            ({"scale": [1]}, "no usable centre and scale"),
            ({"image": "../c.png"}, "the picture is missing"),
            ({"image": 3}, "no usable file name"),
            ({"image": "b.png"}, "the picture is missing"),
        ],
    )
    def test_a_broken_entry_is_skipped_and_told_by_its_place(self, tmp_path, change, kind):
        units = opened(write(tmp_path, [ENTRY, {**ENTRY, **change}]))
        assert len(load(units)) == 1
        (problem,) = units.problems
        assert problem.kind.startswith(kind)
        assert problem.where == "entry 2"

    def test_missing_and_unknown_keys(self, tmp_path):
        other = {k: v for k, v in ENTRY.items() if k != "center"} | {"centre": [1, 1]}
        units = opened(write(tmp_path, [ENTRY, other]))
        assert [(p.kind, p.detail) for p in units.problems] == [("an unknown key", "'centre'"), ("has no center", "")]

    def test_people_of_one_picture_are_one_unit(self, tmp_path):
        root = write(tmp_path, [ENTRY, ENTRY, ENTRY])
        assert [len(opened(root)), len(load(opened(root))), len(opened(root, unit="crop"))] == [1, 3, 3]

    def test_hidden_joints_are_not_labelled(self, tmp_path):
        flags = [0, *[1] * 15]
        (view,) = load(opened(write(tmp_path, [{**ENTRY, "joints": [[-1, -1], *JOINTS[1:]], "joints_vis": flags}])))
        assert view.target["labelled"].tolist() == flags

    def test_all_broken_is_refused_with_the_first_reason(self, tmp_path):
        with refused("labels-all-unusable", where="1 people"):
            opened(write(tmp_path, [{k: v for k, v in ENTRY.items() if k != "center"}]))

    def test_another_format_is_refused(self, tmp_path):
        write(tmp_path)
        (tmp_path / "annot/train.json").write_text("{}")
        with refused("labels-malformed"):
            opened(tmp_path)
        with refused("folder-missing"):
            opened(tmp_path / "no")


def test_real_pictures(pose_fixtures):
    units = opened(pose_fixtures / "mpii", "val")
    assert (len(units), units.skeleton, units.problems) == (5, MPII, ())
    for index in range(5):
        (view,) = load(units, index)
        assert np.array_equal(view.target["visible"], view.target["labelled"])
