"""One odd field costs that field, never a person or the whole set."""

import math

import numpy as np
import pytest

from dpose.pose.data.label_files import as_number, edges_between, id_of, joint_rows, numbers, whole
from dpose.pose.data.spec import open_data, open_labels
from labelled import BOX, HEIGHT, JOINTS, WIDTH, coco, line, person, yolo


def each(field, value):
    """Every annotation's field has this value."""

    def change(content):
        for entry in content["annotations"]:
            entry[field] = value

    return change


def without(part, *fields):
    def change(content):
        for entry in content[part]:
            for field in fields:
                entry.pop(field, None)

    return change


def converted(kind):
    def change(content):
        for entry in content["images"]:
            entry.update(id=kind(entry["id"]), width=kind(entry["width"]), height=kind(entry["height"]))
        for entry in content["annotations"]:
            entry.update(id=kind(entry["id"]), image_id=kind(entry["image_id"]), category_id=kind(1))

    return change


def named(content):
    for entry in content["images"]:
        entry["id"] = f"picture-{entry['id']}"
    for entry in content["annotations"]:
        entry["image_id"] = f"picture-{entry['image_id']}"


def joints(*rows):
    """The first joints are these."""
    return each("keypoints", [v for row in [*rows, *JOINTS[len(rows) :]] for v in row])


def one_id(content):
    for k, entry in enumerate(content["annotations"]):
        entry.update(id=5, bbox=[BOX[0] + k, *BOX[1:]])


WHOLE = {
    "numbers as 1.0": converted(float),
    "numbers as text": converted(str),
    "ids of pictures that are text": named,
    "no ids of people": without("annotations", "id"),
    "ids of people as null": each("id", None),
    "one id for all people": one_id,
    "no area": without("annotations", "area"),
    "area as null": each("area", None),
    "area as text": each("area", "3000"),
    "negative area": each("area", -1),
    "no sizes of pictures": without("images", "width", "height"),
    "sizes of pictures as null": lambda c: [i.update(width=None, height=None) for i in c["images"]],
    "sizes of pictures of 0": lambda c: [i.update(width=0, height=0) for i in c["images"]],
    "boxes of 0 x 0": each("bbox", [50.0, 40.0, 0.0, 0.0]),
    "negative boxes": each("bbox", [80.0, 40.0, -20.0, -30.0]),
    "boxes of three": each("bbox", [1, 2, 3]),
    "boxes of nan": each("bbox", [math.nan] * 4),
    "boxes as null": each("bbox", None),
    "boxes as []": each("bbox", []),
    "no boxes": without("annotations", "bbox"),
    "joints as null": joints([None, None, 0]),
    "joints as nan": joints([math.nan, math.nan, 0]),
    "joints of -1": joints([-1, -1, -1]),
    "visibility as a score": each("keypoints", [v for x, y, _ in JOINTS for v in (x, y, 0.71)]),
    "visibility of 3": joints([*JOINTS[0][:2], 3]),
    "joints in rows": each("keypoints", JOINTS),
    "joints without visibility": each("keypoints", [v for x, y, _ in JOINTS for v in (x, y)]),
    "crowds as false": each("iscrowd", False),
    "crowds as null": each("iscrowd", None),
    "no crowds": without("annotations", "iscrowd"),
    "num_keypoints of 0": each("num_keypoints", 0),
    "num_keypoints as null": each("num_keypoints", None),
}


@pytest.mark.parametrize("change", WHOLE.values(), ids=WHOLE)
def test_nobody_is_lost(tmp_path, change):
    spec = coco(tmp_path, change)
    labels = open_labels(spec, purpose="train")
    assert [len(picture.learnt) for picture in labels.pictures] == [2, 1]
    assert len({person.id for person in labels.people}) == 3
    assert all(picture.size == (HEIGHT, WIDTH) for picture in labels.pictures)
    for someone in labels.people:
        assert someone.area > 0
        assert np.isfinite(someone.keypoints).all()
        assert someone.labelled >= 16  # at most the one joint without a place is gone
        x0, y0, x1, y1 = someone.corners
        seen = someone.keypoints[someone.flags > 0]
        assert ((seen >= [x0 - 1, y0 - 1]) & (seen <= [x1 + 1, y1 + 1])).all()
    assert all(problem.action == "kept" for problem in labels.problems)
    assert len(open_data(spec)) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("annotations", "id"), "no id of its own: numbered anew"),
        (named, "ids that are no numbers: pictures are numbered anew"),
        (without("images", "width"), "no width and height: the picture's are taken"),
        (each("bbox", None), "no box, or an empty one: the joints' is taken"),
        (joints([*JOINTS[0][:2], 0.7]), "a visibility that is neither 0, 1 nor 2: joints above 0 are labelled"),
        (each("area", -1), "area is no positive number: the box's is taken"),
    ],
)
def test_what_was_made_of_it_is_said_once(tmp_path, change, said):
    report = open_data(coco(tmp_path, change)).report
    assert sum(said in text for text in report) == 1


@pytest.mark.parametrize("row", [[None, 12.0, 2], [math.inf, 12.0, 2], [12.0, 12.0, None]])
def test_a_labelled_joint_without_a_place_is_left_out_and_said(tmp_path, row):
    labels = open_labels(coco(tmp_path, joints(row)), purpose="train")
    assert [someone.labelled for someone in labels.people] == [16] * 3
    assert {(problem.kind, problem.action) for problem in labels.problems} >= {("a joint without a place", "not used")}


def test_a_box_around_joints_holds_them_with_a_margin(tmp_path):
    someone = open_labels(coco(tmp_path, without("annotations", "bbox", "area")), purpose="train").people[0]
    low, high = np.array(JOINTS)[:, :2].min(0), np.array(JOINTS)[:, :2].max(0)
    margin = 0.1 * (high - low).max()
    assert someone.box == pytest.approx([*(low - margin), *(high - low + 2 * margin)])
    assert someone.area == pytest.approx((high - low + 2 * margin).prod())


def test_the_same_annotation_twice_is_one_person(tmp_path):
    labels = open_labels(coco(tmp_path, lambda c: c["annotations"].append(person(3, 2))), purpose="train")
    assert [len(picture.people) for picture in labels.pictures] == [2, 1]
    assert [problem.kind for problem in labels.problems] == ["the same annotation twice"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark(tmp_path, encoding):
    assert len(open_data(coco(tmp_path / "c", raw=lambda text: text.encode(encoding)))) == 2
    assert len(open_data(yolo(tmp_path / "y", encoding=encoding))) == 2


LINES = {
    "scores": line([[x, y, 0.91] for x, y, _ in JOINTS]),
    "a box with its centre a hair outside": line(box=(-0.001, 0.5, 0.8, 0.8)),
    "a box larger than the picture": line(box=(0.5, 0.5, 1.02, 1.0)),
    "a box of 0 x 0": line(box=(0.3, 0.5, 0, 0)),
    "a box of nan": line(box=(math.nan,) * 4),
    "joints of -1": line([[-WIDTH, -HEIGHT, -1], *JOINTS[1:]]),
    "a joint of nan": line([[math.nan, math.nan, 0], *JOINTS[1:]]),
    "a class as 0.0": line().replace("0 ", "0.0 ", 1),
    "a tab and two spaces": line().replace(" ", "\t", 1).replace(" ", "  ", 1),
}


@pytest.mark.parametrize("labels", LINES.values(), ids=LINES)
def test_nobody_in_a_text_file_is_lost(tmp_path, labels):
    spec = yolo(tmp_path, labels)
    found = open_labels(spec, purpose="train")
    assert [len(picture.learnt) for picture in found.pictures] == [1, 1]
    assert all(someone.labelled >= 16 and np.isfinite(someone.corners).all() for someone in found.people)
    assert len(open_data(spec)) == 2


def test_the_kpt_shape_that_fits_is_named(tmp_path):
    (problem, _) = open_labels(yolo(tmp_path, kpt_shape=[17, 2]), purpose="train").problems
    assert (problem.kind, problem.detail) == ("not 39 numbers", "56; kpt_shape: [17, 3] would fit")


@pytest.mark.parametrize(
    ("pairs", "first", "found"),
    [
        ([[0, 1], [1, 2]], 1, [(0, 1), (1, 2)]),
        ([[1, 2], [2, 3]], 0, [(0, 1), (1, 2)]),
        ([[1, 2]], 1, [(0, 1)]),
        ([[1, 2]], 0, [(1, 2)]),
        ([[1.0, "2"]], 1, [(0, 1)]),
        ([[0, 1], [1, 9]], 1, [(0, 1)]),
        ([[-1, 0], [0, 1]], 1, [(0, 1)]),
        ([], 1, []),
        ([[1]], 1, None),
        ("ab", 1, None),
        ([[1, 1.5]], 1, None),
    ],
)
def test_a_skeleton_counts_from_0_or_from_1(pairs, first, found):
    assert edges_between(pairs, 3, first) == found


def test_a_skeleton_that_counts_from_0_is_read(tmp_path):
    names = [f"j{k}" for k in range(17)]
    chain = [[k, k + 1] for k in range(16)]
    expected = tuple(map(tuple, chain))

    def change(content):
        content["categories"][0].update(keypoints=names, skeleton=chain)

    assert open_labels(coco(tmp_path / "c", change), purpose="train").skeleton.edges == expected
    spec = yolo(tmp_path / "y", skeleton=chain, kpt_names={0: names}, flip_idx=list(range(17)))
    assert open_labels(spec, purpose="train").skeleton.edges == expected


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), (3.0, 3), ("3", 3), (" 3 ", 3), ("-3", -3), (2.5, None), (True, None), (None, None), ("x", None)],
)
def test_whole_numbers(value, number):
    assert whole(value) == number
    assert id_of(value) == (number if number is not None else value if value == "x" else None)


@pytest.mark.parametrize("value", [None, 3, "abc", [1, 2], [[1, 2, "x"]] * 2, [[True, 1, 2]] * 2, [10**400] * 6])
def test_what_is_no_joints(value):
    assert joint_rows(value, 2) is None


def test_numbers_written_as_text_are_numbers(tmp_path):
    def change(content):
        for entry in content["annotations"]:
            entry["keypoints"] = [str(value) for value in entry["keypoints"]]
            entry["bbox"] = [f" {value} " for value in entry["bbox"]]

    labels, plain = (
        open_labels(coco(tmp_path / "a", change), purpose="train"),
        open_labels(coco(tmp_path / "b"), purpose="train"),
    )
    for one, other in zip(labels.people, plain.people, strict=True):
        assert np.array_equal(one.keypoints, other.keypoints)
        assert np.array_equal(one.box, other.box)
    assert not labels.problems


@pytest.mark.parametrize("text", ["", "x", "1,5", "nan", "inf", "0x10", "1_0", "True", "١"])
def test_text_that_is_no_number_stays_text(text):
    assert as_number(text) == text
    assert numbers([text, 1.0]) is None
