"""A score of somebody's predictions tells of the labels: it is charged as any score of them is."""

import json
import shutil

import numpy as np
import pytest
from rich.console import Console

from dpose.account import EVALUATION, Budget, State, charges, set_budget
from dpose.pose.data import open_data
from dpose.pose.folder import find_model
from dpose.pose.skeletons import COCO
from dpose.privacy.marks import marks_of
from dpose.runs.account import identity_of_data
from dpose.runs.evaluate import evaluate_run, score_file
from one_name import in_two_folders
from quick import quick  # noqa: F401
from refusals import refused


@pytest.fixture
def coco(pose_fixtures, tmp_path):
    """A copy of real data, and one prediction."""
    root = shutil.copytree(pose_fixtures / "coco", tmp_path / "coco")
    image = json.loads((root / "test_coco.json").read_text())["images"][0]["id"]
    found = [{"image_id": image, "category_id": 1, "keypoints": [10.0, 10.0, 1.0] * 17, "score": 0.5}]
    (tmp_path / "found.json").write_text(json.dumps(found))
    return root


def scored(root):
    data = f"coco:{root},annotations=test_coco.json"
    return score_file(root.parent / "found.json", data, Console(quiet=True))


def test_it_is_charged_to_its_pictures_and_a_budget_refuses_it(coco):
    scored(coco)
    (charge,) = charges()
    assert (charge.what, charge.state) == (EVALUATION, State.COMMITTED)
    assert charge.stored.marks >= 4
    marks = identity_of_data(f"coco:{coco}:val,annotations=test_coco.json", Console(quiet=True)).marks
    set_budget(Budget(1.0, 1e-5, "coco", marks[:1]))
    with refused("budget-charge-unbounded"):
        scored(coco)


def test_a_mistake_in_the_file_costs_no_score(coco):
    """Neither where it is missing, nor where none of it can be used; nor for boxes of a detector."""
    (coco.parent / "found.json").write_text("[3]")
    with refused("predictions-all-unusable"):
        scored(coco)
    (coco.parent / "found.json").unlink()
    with refused("file-unreadable"):
        scored(coco)
    data = f"coco:{coco},annotations=test_coco.json"
    with refused("file-missing", where="typo.json"):
        evaluate_run(find_model("blazepose:lite"), data, detections="typo.json", console=Console(quiet=True))
    assert charges() == []


def test_predictions_name_pictures_by_the_end_of_their_paths(coco):
    """As `dpose predict --json` of a folder writes them, with the folders below it."""
    truth = in_two_folders(coco)
    person = next(p for p in truth["annotations"] if p["image_id"] == truth["images"][1]["id"] and p["num_keypoints"])
    found = {
        "categories": [{"keypoints": list(COCO.joints)}],
        "images": [{"id": 1, "file_name": "b/1.jpg"}],
        "annotations": [{"image_id": 1, "category_id": 1, "keypoints": person["keypoints"], "score": 0.5}],
    }
    (coco.parent / "found.json").write_text(json.dumps(found))
    assert scored(coco).scores["AP"] > 0


@pytest.mark.parametrize("absent", [False, True])
def test_a_picture_that_is_not_there_is_named_as_one_that_is(coco, absent):
    truth = json.loads((coco / "test_coco.json").read_text())
    (coco / "val").mkdir()
    for image in truth["images"]:
        shutil.move(coco / image["file_name"], coco / "val")
        image["file_name"] = f"val/{image['file_name']}"
    (coco / "test_coco.json").write_text(json.dumps(truth))
    image = next(i for i in truth["images"] if any(p["image_id"] == i["id"] for p in truth["annotations"]))
    person = next(p for p in truth["annotations"] if p["image_id"] == image["id"] and p["num_keypoints"])
    found = {
        "categories": [{"keypoints": list(COCO.joints)}],
        "images": [{"id": 1, "file_name": image["file_name"].removeprefix("val/")}],
        "annotations": [{"image_id": 1, "category_id": 1, "keypoints": person["keypoints"], "score": 0.5}],
    }
    (coco.parent / "found.json").write_text(json.dumps(found))
    if absent:
        (coco / image["file_name"]).unlink()
    assert scored(coco).scores["AP"] > 0


def without_people(coco):
    """Take everybody out of the labels of the first picture that has somebody; what the account knows of it before."""
    truth = json.loads((coco / "test_coco.json").read_text())
    number = next(p["image_id"] for p in truth["annotations"] if p["num_keypoints"])
    those = [p for p in truth["annotations"] if p["image_id"] == number]
    alone = truth | {"images": [i for i in truth["images"] if i["id"] == number], "annotations": those}
    (coco / "alone.json").write_text(json.dumps(alone))
    truth["annotations"] = [p for p in truth["annotations"] if p["image_id"] != number]
    (coco / "test_coco.json").write_text(json.dumps(truth))
    marks = identity_of_data(f"coco:{coco}:val,annotations=alone.json", Console(quiet=True)).marks
    return coco / alone["images"][0]["file_name"], marks


def test_a_picture_without_people_is_charged_since_whoever_is_found_there_lowers_ap(coco):
    set_budget(Budget(1.0, 1e-5, "empty", without_people(coco)[1]))
    with refused("budget-charge-unbounded"):
        scored(coco)


def test_an_absent_picture_without_people_is_charged_by_its_name(coco):
    picture, _ = without_people(coco)
    scored(coco)
    picture.unlink()
    scored(coco)
    there, absent = charges()
    assert there.stored.marks == 2 * 4
    assert absent.stored.marks == 1 + 2 * 3


def test_labels_suffice_where_pictures_are_missing(coco):
    with_pictures = scored(coco)
    assert not np.isnan(with_pictures.scores["AP"])
    for picture in coco.glob("*.jpg"):
        picture.unlink()
    assert scored(coco) == with_pictures
    # both are on the account; the second as its labels, which are other marks than the pictures
    first, second = charges()
    assert (second.what, second.state, second.stored.marks) == (EVALUATION, State.COMMITTED, 4)
    assert first.id != second.id
    data = f"coco:{coco},annotations=test_coco.json"
    with refused("labels-all-unusable"):  # a model still needs them
        open_data(data, purpose="evaluate")


def test_some_missing_are_charged_beside_those_that_are_there(coco):
    next(iter(sorted(coco.glob("*.jpg")))).unlink()
    scored(coco)
    (charge,) = charges()
    assert charge.stored.marks == 1 + 2 * 3  # a picture has marks of its file and of its pixels


def test_while_a_budget_stands_absent_pictures_are_refused(coco):
    set_budget(Budget(1.0, 1e-5, "something else", marks_of(["f" * 64])))
    scored(coco)  # whose pictures are not those of the budget
    for picture in coco.glob("*.jpg"):
        picture.unlink()
    with refused("budget-match-unknown"):
        scored(coco)


def test_mpii_too(pose_fixtures, tmp_path):
    root = tmp_path / "mpii"
    root.mkdir()
    shutil.copy(pose_fixtures / "mpii" / "test_mpii.json", root)
    points = [entry["joints"] for entry in json.loads((root / "test_mpii.json").read_text())]
    (tmp_path / "found.json").write_text(json.dumps(points))
    result = score_file(tmp_path / "found.json", f"mpii:{root}:val,annotations=test_mpii.json", Console(quiet=True))
    assert result.columns()["Mean"] == 100
    assert charges()[0].stored.marks == 5


def test_data_without_a_measure_of_their_own_are_refused_before_they_are_read(tmp_path):
    with refused("labels-format-unsupported"):
        score_file(tmp_path / "found.json", f"lspet:{tmp_path}", Console(quiet=True))
    assert charges() == []
