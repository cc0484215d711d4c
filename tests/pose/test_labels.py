"""Labels from a reader of one's own: what would train on nothing is refused where they are made, and named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, clipped
from dpose.pose.skeletons import COCO
from refusals import refused

J = len(COCO)
PERSON = LabelledPerson(7, np.ones((J, 2)), np.full(J, 2.0), np.array([10, 20, 60, 90], np.float32))
LOST = np.where(np.arange(J)[:, None] == 3, np.nan, 1.0) * np.ones((J, 2))


def labels(*people: LabelledPerson) -> Labels:
    return Labels("mine:train", Path("mine"), COCO, (LabelledPicture("a.png", None, people),))


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"keypoints": [[0.0, 0.0]] * J}, "label-of-wrong-shape", "keypoints must be an array of numbers"),
        ({"keypoints": np.ones((J, 3))}, "label-of-wrong-shape", f"({J}, 3)"),
        ({"keypoints": np.full((J, 2), "1")}, "label-of-wrong-shape", "keypoints"),
        ({"flags": [2] * J}, "label-of-wrong-shape", "flags must be an array of numbers"),
        ({"flags": np.ones(J - 1)}, "label-of-wrong-shape", "flags"),
        ({"corners": [10, 20, 60, 90]}, "label-of-wrong-shape", "corners must be an array of numbers"),
        ({"box": np.ones(5)}, "label-of-wrong-shape", "box"),
        ({"keypoints": LOST}, "joint-not-finite", "keypoints"),
        ({"flags": np.full(J, np.nan)}, "joint-not-finite", "flags"),
        ({"corners": np.array([60, 20, 10, 90.0])}, "corners-hold-nothing", "[60.0, 20.0, 10.0, 90.0]"),
        ({"corners": np.array([10, 20, 60, np.nan])}, "corners-hold-nothing", "nan"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(changes, code, named):
    with refused(code, where=("a.png, person 8", named)):
        labels(PERSON, replace(PERSON, id=8, **changes))


def test_joints_that_are_not_labelled_and_people_not_learnt_from_may_be_anything():
    unlabelled = replace(PERSON, keypoints=LOST, flags=np.where(np.arange(J) == 3, 0.0, 2.0))
    crowd = replace(PERSON, keypoints=LOST, corners=None, crowd=True)
    assert len(labels(PERSON, unlabelled, crowd).people) == 3
    assert labels().people == ()


def test_a_box_that_is_empty_in_single_precision_is_none():
    assert clipped(np.array([1000.0, 20.0, 1e-6, 70.0]), (2000, 2000)) is None
