"""Which class is meant, where a file has several; and what is said where it is not the one that is read."""

import json

import pytest

from dpose.pose.boxes import read_detections
from dpose.pose.data.spec import DataSpec, open_data, open_labels, open_several
from dpose.pose.skeletons import COCO, MPII
from labelled import JOINTS, coco, person, yolo
from refusals import command_refused, refused

ARM = [v for joint in JOINTS[:3] for v in joint]
HAND = [v for joint in JOINTS[:2] for v in joint]


def kinds(*categories, people=(ARM,), ids=(1,)):
    """These categories, and one annotation for each of `people`."""

    def change(content):
        content["categories"] = [dict(zip(("id", "name", "keypoints"), c, strict=False)) for c in categories]
        content["annotations"] = [
            person(k, 1, keypoints=p, category_id=c, num_keypoints=len(p) // 3)
            for k, (p, c) in enumerate(zip(people, ids, strict=True), 1)
        ]

    return change


def test_of_two_with_joints_of_their_own_none_is_guessed(tmp_path):
    change = kinds((1, "arm", ["a", "b", "c"]), (2, "hand", ["d", "e"]), people=(ARM, HAND), ids=(1, 2))
    spec = coco(tmp_path, change)
    with refused("categories-ambiguous", where=("category=arm", "arm (3 joints), hand (2 joints)")):
        open_data(spec)
    for name, joints in (("arm", ("a", "b", "c")), ("hand", ("d", "e"))):
        labels = open_labels(f"{spec},category={name}", purpose="train")
        assert (
            labels.skeleton.joints
            == joints
            == DataSpec.parse(f"{spec},category={name}").for_purpose("train").skeleton.joints
        )
        assert [someone.labelled for someone in labels.people] == [len(joints)]
        other = {"arm": "hand", "hand": "arm"}[name]
        assert [(p.kind, p.action, p.detail) for p in labels.problems] == [("another category", "not used", other)]
    with refused("category-unknown", where=("foot", "arm (3 joints)")):
        open_data(f"{spec},category=foot")


def test_two_with_the_same_joints_are_both_read(tmp_path):
    names = ["a", "b", "c"]
    labels = open_labels(
        coco(tmp_path, kinds((1, "man", names), (2, "woman", names), people=(ARM, ARM), ids=(1, 2))), purpose="train"
    )
    assert len(labels.people) == 2
    assert labels.skeleton.joints == tuple(names)


def test_a_person_without_joints_beside_a_category_with_them(tmp_path):
    """As Label Studio exports boxes and key points."""
    change = kinds(
        (8, "person"), (9, "default", list(MPII.joints)), people=([v for j in JOINTS[:16] for v in j],), ids=(9,)
    )

    def and_a_box(content):
        change(content)
        box = person(7, 1, category_id=8)
        del box["keypoints"], box["num_keypoints"]
        content["annotations"].append(box)

    labels = open_labels(coco(tmp_path, and_a_box), purpose="train")
    assert (labels.skeleton, len(labels.people), labels.problems) == (MPII, 1, ())


def test_joints_without_names_are_numbered_and_coco_s_17_its_own(tmp_path):
    spec = coco(tmp_path / "a", kinds((1, "arm")))
    with refused("joints-not-declared", where="joints=3"):
        open_labels(spec, purpose="train")
    named = open_labels(f"{spec},joints=3", purpose="train")
    assert named.skeleton.joints == ("joint_0", "joint_1", "joint_2")
    other = open_labels(f"{coco(tmp_path / 'c', kinds((1, 'arm', ['a', 'b', 'c'])))},joints=d,e,f", purpose="train")
    assert other.skeleton.joints == ("d", "e", "f")
    assert open_labels(coco(tmp_path / "b"), purpose="train").skeleton == COCO


def test_a_category_that_is_not_listed_is_named(tmp_path):
    def change(content):
        for entry in content["annotations"]:
            entry["category_id"] = 7

    with refused("people-missing", where=("a category that the file does not list", "7; it lists 1 person")):
        open_data(coco(tmp_path, change))


@pytest.mark.parametrize("name", ["person", "arm"])
def test_both_categories_of_a_picture_are_the_same_units(tmp_path, name):
    """One picture is one unit, whatever is read of it."""
    spec = DataSpec.parse(coco(tmp_path, kinds((1, "person", ["a", "b", "c"]), (2, "arm", ["d", "e"]))))
    assert spec.for_purpose("train").same_units(DataSpec.parse(f"coco:{tmp_path},category={name}").for_purpose("train"))


def test_boxes_of_another_category_alone_name_it(tmp_path):
    file = tmp_path / "detections.json"
    boxes = [{"image_id": 1.0, "category_id": kind, "bbox": [1, 2, 3, 4], "score": 0.9} for kind in (0, "1", 3)]
    file.write_text(json.dumps(boxes))
    assert {number: len(found) for number, found in read_detections(file)[0].items()} == {1: 1}
    file.write_text(json.dumps(boxes[::2]))
    with refused("detections-all-unusable", where=("its categories: 0, 3; people are 1",)):
        read_detections(file)


def test_two_data_sets_without_a_joint_in_common_are_refused(tmp_path):
    hands = coco(tmp_path / "h", kinds((1, "hand", ["thumb", "index"]), people=(HAND,)))
    people = coco(tmp_path / "p")
    for specs in ([people, hands], [hands, people]):
        with refused("joints-none-in-common", where=("thumb", "nose")):
            open_several(specs, purpose="train", input_size=(64, 48))


def test_data_whose_pictures_are_all_unreadable_are_refused(tmp_path):
    spec = coco(tmp_path / "c", lambda content: [image.pop("width") for image in content["images"]])
    for picture in (tmp_path / "c" / "images").iterdir():
        picture.write_bytes(b"no picture")
    with refused("labels-all-unusable"):
        open_data(spec)
    spec = yolo(tmp_path / "y")
    for picture in (tmp_path / "y" / "images").rglob("*.png"):
        picture.write_bytes(b"no picture")
    with refused("pictures-all-unreadable"):
        open_data(spec)


@pytest.mark.parametrize("other", [["--public"], ["--set", "data.validation_data="]])
def test_public_and_held_out_data_without_a_joint_in_common_are_refused(tmp_path, capsys, other):
    hands = coco(tmp_path / "h", kinds((1, "hand", ["thumb", "index"]), people=(HAND,)))
    people = coco(tmp_path / "p")
    *first, last = other
    given = [*first, f"{last}{hands}"] if "=" in last else [*other, str(hands)]
    words = ["train", "--data", str(people), *given, "--epsilon", "8", "--delta", "1e-3", "--out", str(tmp_path / "r")]
    command_refused(capsys, words, "joints-none-in-common", "thumb", "nose", "--public" if "=" not in last else last)
