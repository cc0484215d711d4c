"""Scores without boxes, from a model folder to a file, and what the account has of them."""

import json
import shutil

import numpy as np
import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose import files
from dpose.account import EVALUATION, Budget, State, charges, set_budget
from dpose.pose.folder import find_model
from dpose.runs import evaluate, pose
from dpose.runs.account import identity_of_data
from dpose.runs.evaluate import evaluate_run
from dpose.runs.reading import score_of
from dpose_scene.splits import SPLITS
from quick import quick  # noqa: F401
from refusals import refused

QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 10, "val": 6, "test": 6, "public": 4})


@pytest.fixture
def nano(tmp_path):
    return shutil.copytree(find_model("nano"), tmp_path / "nano")


def whole(folder, data, **more):
    (result,) = evaluate_run(folder, data, whole_pictures=True, console=QUIET, **more)
    return result


def test_a_rendered_picture_is_its_own_crop(nano):
    """So a model that does not say where people are has one score, with boxes and without; each has a file."""
    (boxes,) = evaluate_run(nano, "synthetic:studio:val", console=QUIET)
    result = whole(nano, "synthetic:studio:val")
    np.testing.assert_array_equal(result.correct, boxes.correct)
    assert (boxes.whole_pictures, result.whole_pictures) == (False, True)
    written = {p.name: json.loads(p.read_text()) for p in (nano / "evaluations").iterdir()}
    assert sorted(written) == ["synthetic_studio_val-6.json", "synthetic_studio_val-whole-pictures-6.json"]
    said = [score_of(content["result"]) for _, content in sorted(written.items())]
    assert [score.main_name for score in said] == ["mean PCKh@0.5", "mean PCKh@0.5 without boxes"]


def test_blazepose_finds_rendered_people_from_head_to_foot(monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", SPLITS)  # of whom the first are easy to see
    folder = find_model("blazepose:lite")
    results = [whole(folder, "synthetic:studio:val", limit=3)]
    results += evaluate_run(folder, "synthetic:studio:val", limit=3, console=QUIET)
    for result in results:
        assert result.columns()["Mean"] > 90
        joints = result.to_dict()["joints"]["0.5"]
        assert joints["head_top"] > 60
        assert joints["upper_neck"] > 60
        assert result.visible.min() > 0


def test_nothing_is_written_beside_weights_that_come_with_dpose(tmp_path, monkeypatch):
    shipped = shutil.copytree(files.SHIPPED / "nano", tmp_path / "shipped" / "nano")
    monkeypatch.setattr(files, "SHIPPED", tmp_path / "shipped")
    before = sorted(shipped.rglob("*"))
    result = whole(shipped, "synthetic:ward:val", out=tmp_path / "score.json")
    evaluate_run(shipped, "synthetic:studio:val", console=QUIET)
    assert sorted(shipped.rglob("*")) == before
    content = json.loads((tmp_path / "score.json").read_text())
    assert content["result"] == json.loads(json.dumps(result.to_dict()))
    assert content["result"]["whole_pictures"]


def test_private_people_are_charged_first_and_a_budget_refuses(nano, monkeypatch):
    whole(nano, "synthetic:ward:val")
    (charge,) = charges()
    assert (charge.what, charge.state) == (EVALUATION, State.COMMITTED)
    marks = identity_of_data("synthetic:ward:val", QUIET).marks
    set_budget(Budget(1.0, 1e-5, "ward", marks))

    def looked(*given, **named):
        raise AssertionError("too late")

    monkeypatch.setattr(evaluate, "score_whole_pictures", looked)
    with refused("budget-charge-unbounded"):
        whole(nano, "synthetic:ward:val")


@pytest.mark.parametrize("how", ["whole", "detections"])
def test_pictures_in_which_nobody_is_labelled_are_looked_at_and_charged(how, pose_fixtures, nano, tmp_path):
    root = shutil.copytree(pose_fixtures / "coco", tmp_path / "coco")
    labels = json.loads((root / "test_coco.json").read_text())
    empty = labels["images"][0]["id"]
    labels["annotations"] = [a for a in labels["annotations"] if a["image_id"] != empty]
    (root / "test_coco.json").write_text(json.dumps(labels))
    data = f"coco:{root}:val,annotations=test_coco.json"
    boxes = {"detections": "test_coco_det_AP_H_56.json"} if how == "detections" else {"whole_pictures": True}
    (result,) = evaluate_run(nano, data, console=QUIET, **boxes)
    assert result.pictures == 4
    (charge,) = charges()
    assert charge.stored.marks == 2 * 4  # a picture has marks of its file and of its pixels


def test_a_task_without_boxes_says_so(monkeypatch, nano):
    from dataclasses import replace

    from dpose.runs import evaluate

    monkeypatch.setattr(evaluate, "task_entry", lambda name: replace(pose.ENTRY, name="shade", whole_pictures=None))
    with refused("whole-pictures-unsupported", where="shade"):
        whole(nano, "synthetic:studio:val")
