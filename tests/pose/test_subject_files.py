"""Who is on which picture, from a table beside the labels: units that are people with all their pictures."""

import json

import numpy as np
import pytest
from rich.console import Console

from dpose.media.images import write_image
from dpose.pose.data import DataSpec, SubjectUnits, open_data, open_labels
from dpose.runs.config import RunConfig
from dpose.runs.data import ONE_NAME, conditions
from dpose.training.guards import overlap
from refusals import refused

SIZE = (64, 48)
OWNERS = {"a/1.png": "Ada", "a/2.png": "Ada", "b/1.png": "Bo", "3.png": "Cy"}


def ward(root, names=tuple(OWNERS), seed=0):
    """A folder in COCO's layout, one person a picture."""
    rng = np.random.default_rng(seed)
    images, people = [], []
    for number, name in enumerate(names):
        write_image(root / "train2017" / name, rng.integers(0, 256, (96, 72, 3), np.uint8))
        images.append({"id": number, "file_name": name, "width": 72, "height": 96})
        joints = [v for _ in range(17) for v in (*rng.uniform(10, 60, 2), 2)]
        person = {"id": number, "image_id": number, "category_id": 1, "bbox": [5, 5, 60, 85], "keypoints": joints}
        people.append(person)
    (root / "annotations").mkdir()
    content = {"images": images, "annotations": people, "categories": [{"id": 1, "name": "person"}]}
    (root / "annotations" / "person_keypoints_train2017.json").write_text(json.dumps(content))
    return root


def table(rows, comma=",", columns=("picture", "subject")):
    return "\r\n".join(comma.join(row) for row in (columns, *rows)) + "\r\n"


def opened(root):
    return open_data(f"coco:{root}:train,subjects=who.csv", input_size=SIZE)


@pytest.mark.parametrize(("comma", "encoding"), [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-16")])
def test_units_are_the_people_of_the_table(comma, encoding, tmp_path):
    rows = [*OWNERS.items(), ("elsewhere/9.png", "Di"), ("", "")]
    ward(tmp_path)
    (tmp_path / "who.csv").write_text(table(rows, comma), encoding=encoding)
    units = opened(tmp_path)
    assert "3 subjects on 4 of 4 pictures, by who.csv" in units.report
    people = SubjectUnits(units)
    shown = {people.unit_id(i): [units.unit_id(k) for k in people.entries(i)] for i in range(len(people))}
    assert shown == {"Ada": ["a/1.png", "a/2.png"], "Bo": ["b/1.png"], "Cy": ["3.png"]}
    labels = open_labels(f"coco:{tmp_path}:train,subjects={tmp_path}/who.csv", pictures=False)
    assert [picture.subject for picture in labels.pictures] == list(OWNERS.values())


def test_pictures_are_named_as_paths_of_other_machines_too(tmp_path):
    ward(tmp_path)
    rows = [(rf"C:\ward\{name}".replace("/", "\\"), who) for name, who in OWNERS.items()]
    (tmp_path / "who.csv").write_text(table(rows))
    assert [opened(tmp_path).subjects(k) for k in range(4)] == [(who,) for who in OWNERS.values()]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "file-missing"),
        ("", "subjects-columns-differ"),
        (table(OWNERS.items(), columns=("file", "subject")), "subjects-columns-differ"),
        (table([("9.png", "Ada")]), "subjects-of-no-picture"),
        (table([("3.png", "")]), "subjects-of-no-picture"),
        (table([("3.png", "Cy"), ("3.png", "Bo")]), "subjects-differ"),
        (table([("1.png", "Ada")]), "picture-name-ambiguous"),
        ('picture,subject\n3.png,"Cy" and\n', "subjects-unreadable"),
        ("picture,subject\n\0\xff", "subjects-unreadable"),
    ],
)
def test_a_table_that_does_not_say_who_is_where_is_refused(text, code, tmp_path):
    ward(tmp_path)
    if text is not None:
        (tmp_path / "who.csv").write_bytes(text.encode("latin-1"))
    with refused(code):
        opened(tmp_path)


def test_whom_the_table_leaves_out_is_in_no_unit_of_a_person(tmp_path):
    ward(tmp_path)
    (tmp_path / "who.csv").write_text(table([("3.png", "Cy")]))
    units = opened(tmp_path)
    assert [units.subjects(k) for k in range(4)] == [(), (), (), ("Cy",)]
    with refused("subjects-unknown", where="a/1.png"):
        SubjectUnits(units)


def test_a_public_picture_of_a_protected_subject_is_found(tmp_path):
    private, public = ward(tmp_path / "private"), ward(tmp_path / "public", ("7.png",), seed=1)
    (private / "who.csv").write_text(table(OWNERS.items()))
    (public / "who.csv").write_text(table([("7.png", "Bo")]))
    found = overlap(opened(public), SubjectUnits(opened(private)), 1, Console(quiet=True))
    assert (found.unit, found.how, found.private) == ("7.png", "shows the person of", "Bo")


def test_what_is_taken_as_given_is_said_of_real_people_alone():
    def given(data, unit):
        plan = {"unit": unit, "epsilon": 1, "delta": 1e-5}
        return conditions(RunConfig.from_dict({"data": {"private": data}, "plan": plan}, "test"))

    assert given("coco:/ward,subjects=who.csv", "subject") == [ONE_NAME]
    assert given("coco:/ward,subjects=who.csv", "image") == []
    assert given("synthetic:ward", "subject") == []


def test_a_table_of_people_changes_neither_which_data_these_are_nor_what_they_are_called():
    plain, named = DataSpec.parse("coco:/ward:train"), DataSpec.parse("coco:/ward:train,subjects=/home/x/who.csv")
    assert plain.same_units(named)
    assert named.set_names == plain.set_names
    assert named.shown == "coco:ward:train,subjects=who.csv"
    with refused("data-option-unknown"):  # rendered people are known by themselves
        DataSpec.parse("synthetic:ward,subjects=who.csv")
