import contextlib
import io
import json

import numpy as np
import pytest
from pycocotools import coco
from pycocotools.cocoeval import COCOeval
from rich.console import Console

from dpose.pose.ap import COLUMNS, KeypointAP, coco_results
from dpose.pose.skeletons import COCO


def truth_of(rng, pictures=12, first=1):
    """Random labels: several people a picture, some crowds, some without joints."""
    annotations = []
    for image in range(pictures):
        for _ in range(rng.integers(0, 5)):
            size = rng.uniform(30, 200)
            points = rng.uniform(0, 300, 2) + rng.uniform(0, size, (17, 2))
            flags = rng.integers(0, 3, 17) * (rng.random() < 0.9)
            annotations.append({
                "id": first + len(annotations), "image_id": image + 100, "category_id": 1,
                "iscrowd": int(rng.random() < 0.1), "area": float(size**2 * 0.6),
                "bbox": [*points.min(axis=0), size, size], "num_keypoints": int((flags > 0).sum()),
                "keypoints": np.column_stack([points * (flags > 0)[:, None], flags]).ravel().tolist(),
            })  # fmt: skip
    return {
        "images": [{"id": i + 100, "width": 640, "height": 480} for i in range(pictures)],
        "categories": [{"id": 1, "name": "person"}],
        "annotations": annotations,
    }


def guesses(rng, truth, noise=6.0):
    """Predictions near the labels, some missed, some invented, some double."""
    result = []
    for a in truth["annotations"]:
        for _ in range(rng.choice([0, 1, 2], p=[0.15, 0.7, 0.15])):
            points = np.array(a["keypoints"]).reshape(17, 3)[:, :2] + rng.normal(0, noise, (17, 2))
            result.append((a["image_id"], points, rng.random(17), rng.random()))
    for _ in range(6):
        result.append((int(rng.integers(100, 112)), rng.uniform(0, 400, (17, 2)), rng.random(17), rng.random()))
    return result


def theirs(truth, results, folder):
    """pycocotools as its documentation has it: files in, ten numbers out."""
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "results.json").write_text(json.dumps(results))
    with contextlib.redirect_stdout(io.StringIO()):
        labels = coco.COCO(str(folder / "truth.json"))
        evaluation = COCOeval(labels, labels.loadRes(str(folder / "results.json")), "keypoints")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


@pytest.mark.parametrize("seed", range(5))
def test_the_numbers_are_pycocotools_own(seed, tmp_path):
    rng = np.random.default_rng(seed)
    truth = truth_of(rng)
    metric, results = KeypointAP(truth), []
    for image, points, joints, score in guesses(rng, truth):
        metric.update(image, points[None], joints[None], [score])
        results.append({
            "image_id": image, "category_id": 1, "score": score,
            "keypoints": np.column_stack([points, joints]).ravel().tolist(),
        })  # fmt: skip
    expected = theirs(truth, results, tmp_path)
    result = list(metric.compute().scores.values())
    assert 0 < expected[0] < 1
    assert np.abs(np.array(result) - np.where(expected == -1, np.nan, expected)).max() < 1e-12


def test_perfect_predictions_score_one(pose_fixtures):
    from dpose.pose.data import open_labels

    labels = open_labels(f"coco:{pose_fixtures}/coco")
    metric = KeypointAP(labels.truth())
    for image, person in [(picture.id, person) for picture in labels.pictures for person in picture.people]:
        if person.labelled:
            metric.update(image, person.keypoints[None], (person.flags > 0)[None], [1.0])
    result = metric.compute()
    assert all(value == pytest.approx(1.0, abs=1e-12) for value in result.scores.values())
    assert all(value == pytest.approx(1.0, abs=1e-12) for value in result.joints.values())
    assert (result.people, result.pictures) == (12, 4)


def test_our_own_labels_score_as_the_datasets_file(pose_fixtures, tmp_path):
    """`Labels.truth` loses nothing that counts."""
    from dpose.pose.data import open_labels

    rng = np.random.default_rng(0)
    labels = open_labels(f"coco:{pose_fixtures}/coco")
    results = []
    everybody = [(picture.id, person) for picture in labels.pictures for person in picture.people]
    for image, person in everybody:
        points = person.keypoints + rng.normal(0, 5, (17, 2))
        results += coco_results(image, points[None], rng.random((1, 17)), rng.random(1))
    metric = KeypointAP(labels.truth())
    metric.add_results(results)
    own = json.loads((pose_fixtures / "coco" / "test_coco.json").read_text())
    expected = theirs(own, results, tmp_path)
    assert np.abs(np.array(list(metric.compute().scores.values())) - expected).max() < 1e-12


def test_a_label_numbered_zero_can_be_found():
    truth = truth_of(np.random.default_rng(3), first=0)
    metric = KeypointAP(truth)
    for a in truth["annotations"]:
        rows = np.array(a["keypoints"]).reshape(17, 3)
        metric.update(a["image_id"], rows[None, :, :2], rows[None, :, 2] > 0, [1.0])
    assert metric.compute().scores["AR"] == pytest.approx(1.0)


def test_nothing_predicted_scores_zero_and_nobody_there_scores_nothing():
    truth = truth_of(np.random.default_rng(0))
    assert KeypointAP(truth).compute().scores == dict.fromkeys(COLUMNS, 0.0)
    empty = KeypointAP({**truth, "annotations": []})
    empty.update(100, np.zeros((1, 17, 2)), np.zeros((1, 17)), [0.5])
    assert all(np.isnan(v) for v in empty.compute().scores.values())
    assert empty.compute().to_dict()["columns"]["AP"] is None


def test_groups_are_scored_alone(tmp_path):
    rng = np.random.default_rng(1)
    truth = truth_of(rng)
    groups = {"even": [100, 102, 104], "odd": [101, 103]}
    metric, results = KeypointAP(truth, groups), []
    for image, points, joints, score in guesses(rng, truth):
        results += coco_results(image, points[None], joints[None], [score])
    metric.add_results(results)
    result = metric.compute()
    for group, ids in groups.items():
        part = {
            **truth,
            "images": [i for i in truth["images"] if i["id"] in ids],
            "annotations": [a for a in truth["annotations"] if a["image_id"] in ids],
        }
        expected = theirs(part, [r for r in results if r["image_id"] in ids], tmp_path)
        scores = np.array(list(result.groups[group][0].values()))
        assert np.nanmax(np.abs(scores - np.where(expected == -1, np.nan, expected))) < 1e-12


def test_joints_that_are_not_predicted_are_not_scored_and_named():
    truth = truth_of(np.random.default_rng(2))
    there = [j >= 5 for j in range(17)]
    metric = KeypointAP(truth, predicted=there)
    for a in truth["annotations"]:
        rows = np.array(a["keypoints"]).reshape(17, 3)
        rows[:5] = np.nan  # a model without a face
        metric.update(a["image_id"], rows[None, :, :2], np.ones((1, 17)), [1.0])
    result = metric.compute()
    assert result.scores["AR"] == pytest.approx(1.0)
    assert result.left_out == COCO.joints[:5]
    assert np.isnan(result.joints["nose"])
    assert "Not comparable" in str(result)


def test_a_joint_counts_zero_where_its_person_is_missed():
    truth = truth_of(np.random.default_rng(4), pictures=3)
    wanted = [a for a in truth["annotations"] if a["num_keypoints"] and not a["iscrowd"]]
    metric = KeypointAP(truth)
    rows = np.array(wanted[0]["keypoints"]).reshape(17, 3)
    metric.update(wanted[0]["image_id"], rows[None, :, :2], np.ones((1, 17)), [1.0])
    nose = COCO.joints.index("nose")
    flags = [np.array(a["keypoints"]).reshape(17, 3)[nose, 2] > 0 for a in wanted]
    assert metric.compute().joints["nose"] == pytest.approx(flags[0] / sum(flags))


def test_it_prints_becomes_a_table_and_plots(tmp_path):
    rng = np.random.default_rng(1)
    truth = truth_of(rng)
    metric = KeypointAP(truth, {"a long scenario": [100, 101, 102]})
    for image, points, joints, score in guesses(rng, truth):
        metric.update(image, points[None], joints[None], [score])
    result = metric.compute()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(result)
    table = console.export_text()
    for word in (*COLUMNS, "a long scenario", "shoulder", f"{result.scores['AR(L)']:.3f}"):
        assert word in table
    assert str(result).splitlines()[0].split() == list(COLUMNS)
    result.plot().savefig(tmp_path / "ap.png")
    assert (tmp_path / "ap.png").stat().st_size > 10_000
    json.dumps(result.to_dict(), allow_nan=False)
