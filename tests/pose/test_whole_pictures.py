"""People found without boxes: who is scored with whom, and that whoever is missed costs what is missed."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from dpose.media.images import read_image, write_image
from dpose.pose.data import open_labels
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.evaluate import finder_of, keypoint_ap, label_boxes, nearest, whole_picture_ap, whole_picture_pckh
from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.predict import Pose, predict_image
from dpose.pose.skeletons import BLAZEPOSE, COCO, MPII, joint_map
from refusals import refused
from walkers import FIGURE, Walkers

TRUE = joint_map(BLAZEPOSE, MPII, predicted=True).points(FIGURE)
GREY = np.full((100, 200, 3), 90, np.uint8)


class Finder(Walkers):
    """As `Walkers`, and the first of them where a picture is of one person."""

    def one(self, image):
        return self(image)[0]


def labelled(*places, head=10.0, hidden=()):
    """A picture of figures at some places."""
    visible = np.array([joint not in hidden for joint in range(len(MPII))])
    people = tuple(
        Person((TRUE + place).astype(np.float32), visible, np.array([0, 0, 1, 1], np.float32), head) for place in places
    )
    return Picture("a", len(people), lambda: (GREY, people))


def scored(finder, *pictures):
    return whole_picture_pckh(finder, pictures, MPII)


class TestPCKh:
    def test_all_fourteen_joints_are_scored_head_and_neck_by_formula(self):
        result = scored(Finder([(50, 50)]), labelled((50, 50)))
        assert result.columns() == dict.fromkeys(result.columns(), 100.0)
        assert result.visible.tolist() == [1] * 16
        assert (result.whole_pictures, result.not_found) == (True, 0)
        # the head is where the formula has it: moved by more than half a head's length it is missed, and it alone
        true = labelled((50, 50))
        image, (person,) = true.read()
        moved = person.keypoints.copy()
        moved[MPII.joints.index("head_top"), 1] -= 6
        there = replace(true, read=lambda: (image, (replace(person, keypoints=moved),)))
        assert scored(Finder([(50, 50)]), there).columns()["Head"] == 0
        assert scored(Finder([(50, 50)]), there).columns()["Mean"] == pytest.approx(100 * 13 / 14)

    def test_in_a_picture_of_several_each_is_scored_with_whoever_is_nearest(self):
        result = scored(Finder([(120, 50), (52, 50), (160, 50)]), labelled((50, 50), (120, 50)))
        assert result.columns()["Mean"] == 100
        assert result.not_found == 0  # and whoever else is there costs nothing
        assert result.mean(0.1) == 50  # one of the two is two pixels off

    def test_whoever_is_not_found_is_missed_in_every_joint(self):
        for actual, missed in (([(50, 50)], 1), ([], 2)):
            result = scored(Finder(actual), labelled((50, 50), (120, 50)))
            assert (result.not_found, result.people) == (missed, 2)
            assert result.columns()["Mean"] == 100 - 50 * missed
            assert f"{missed} people not found" in str(result)
            assert result.to_dict()["not_found"] == missed

    def test_nobody_stands_for_two(self):
        # both labelled people are right where one was found
        result = scored(Finder([(50, 50)]), labelled((50, 50), (50, 50)))
        assert (result.columns()["Mean"], result.not_found) == (50, 1)

    def test_a_picture_of_one_is_not_searched_for_others(self):
        finder = Finder([(90, 50), (50, 50)])
        assert scored(finder, labelled((50, 50))).columns()["Mean"] == 0  # the surest, and not the nearest
        assert scored(finder, labelled((90, 50))).columns()["Mean"] == 100

    def test_people_without_head_length_are_left_out_and_nobody_is_looked_for(self):
        finder = Finder([(50, 50)])
        result = scored(finder, labelled((50, 50), head=float("nan")))
        assert (result.left_out, result.people, result.not_found, finder.calls) == (1, 0, 0, [])

    def test_joints_that_the_model_lacks_are_not_scored(self):
        class Headless(Finder):
            skeleton = COCO

            def _person(self, middle):
                person = super()._person(middle)
                way = joint_map(BLAZEPOSE, COCO)
                return replace(person, pose=Pose(way.points(person.pose.keypoints), np.ones(17)))

        # COCO's have neck and head top by formula, and pelvis and thorax as middles: nothing is missing
        assert scored(Headless([(50, 50)]), labelled((50, 50))).columns()["Mean"] == 100

    def test_labels_of_other_joints_are_refused(self):
        with refused("skeleton-unsupported", where="coco"):
            whole_picture_pckh(Finder([(0, 0)]), [labelled((50, 50))], COCO)

    def test_a_model_that_finds_nobody_takes_the_picture_for_a_crop(self):
        torch.manual_seed(0)
        model = PoseModel(PoseConfig("nano", (64, 64))).eval()
        image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
        finder = finder_of(model)
        (same,) = finder(image)
        result = predict_image(model, image)
        for person in (finder.one(image), same):
            np.testing.assert_array_equal(person.pose.keypoints, result.keypoints)


class TestNearest:
    def test_the_nearest_pairs_first(self):
        numbers = np.random.default_rng(0)
        for _ in range(50):
            people, result = numbers.integers(1, 5, 2)
            true, guess = (numbers.random((n, 3, 2)) * 100 for n in (people, result))
            seen = numbers.random((people, 3)) < 0.7
            means = {
                (p, f): np.mean([np.hypot(*(true[p, j] - guess[f, j])) for j in range(3) if seen[p, j]])
                for p, f in itertools.product(range(people), range(result))
                if seen[p].any()
            }
            wanted = [None] * people
            while means:
                person, number = min(means, key=means.get)
                wanted[person] = number
                means = {pair: m for pair, m in means.items() if pair[0] != person and pair[1] != number}
            assert nearest(guess, true, seen) == wanted

    def test_what_is_no_number_is_far(self):
        true, seen = np.zeros((1, 2, 2)), np.ones((1, 2), bool)
        assert nearest(np.full((1, 2, 2), np.nan), true, seen) == [None]
        assert nearest(np.zeros((0, 2, 2)), true, seen) == [None]


class Oracle:
    """Finds the labels' people, all but some, and somebody who is none."""

    skeleton = COCO

    def __init__(self, labels, missed=0, false=0):
        self._labels, self._missed, self._false = labels, missed, false

    def __call__(self, image, boxes=None, before=None):
        (shown,) = (p for p in self._labels.pictures if np.array_equal(self._labels.read(p), image))
        people = shown.learnt[self._missed :]
        spread = np.linspace(0, 5, 34).reshape(17, 2)
        made = [Pose(p.keypoints, np.ones(17)) for p in people]
        made += [Pose(spread, np.ones(17))] * self._false
        person = Walkers([])._person(np.zeros(2))
        return [replace(person, pose=pose, score=0.9 - 0.1 * n) for n, pose in enumerate(made)]


class TestAP:
    @pytest.fixture
    def labels(self, pose_fixtures):
        return open_labels(f"coco:{pose_fixtures}/coco")

    def test_everybody_counts(self, labels):
        all_found = whole_picture_ap(Oracle(labels), labels)
        assert (all_found.scores["AP"], all_found.scores["AR"]) == pytest.approx((1, 1))
        assert all_found.whole_pictures
        assert all_found.to_dict()["whole_pictures"]
        assert "no boxes used" in str(all_found)
        missed = whole_picture_ap(Oracle(labels, missed=1), labels)
        assert missed.scores["AR"] < 0.8
        false = whole_picture_ap(Oracle(labels, false=2), labels)
        assert false.scores["AR"] == pytest.approx(1)
        assert false.predictions == 12 + 8

    def test_in_boxes_blazepose_is_turned_as_its_detector_says(self, labels, tmp_path):
        """A picture upside down is read as well as the picture; an upright crop of it is not."""
        model = load_model(find_model("blazepose:lite"))
        image = next(i for i in labels.pictures if i.id == 785)
        (person,) = (p for p in image.people if p.person)
        height, width = image.size
        (tmp_path / "val2017").mkdir()
        (tmp_path / "annotations").mkdir()
        write_image(tmp_path / "val2017" / "785.png", read_image(image.path)[::-1, ::-1])
        edge = np.array([width - 1, height - 1])
        x, y, w, h = person.box
        points = np.column_stack([edge - person.keypoints, person.flags])
        annotation = {
            "id": 1,
            "image_id": 785,
            "category_id": 1,
            "iscrowd": 0,
            "area": person.area,
            "bbox": [width - x - w, height - y - h, w, h],
            "num_keypoints": person.labelled,
            "keypoints": points.ravel().tolist(),
        }
        content = {
            "images": [{"id": 785, "file_name": "785.png", "width": width, "height": height}],
            "annotations": [annotation],
            "categories": [{"id": 1, "name": "person", "keypoints": list(COCO.joints)}],
        }
        (tmp_path / "annotations" / "person_keypoints_val2017.json").write_text(json.dumps(content))
        turned = open_labels(f"coco:{tmp_path}")
        assert keypoint_ap(model, turned, label_boxes(turned)).scores["AP"] >= 0.5
