import json
import shutil

import numpy as np
import pytest
import scipy.io
import torch

from dpose.pose import evaluate as module
from dpose.pose.boxes import read_detections
from dpose.pose.data import open_labels
from dpose.pose.data.mpii import read_mpii
from dpose.pose.evaluate import keypoint_ap, label_boxes, read_results, score_mpii_predictions, score_results
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO, MPII, joint_map
from one_name import in_two_folders
from refusals import refused


@pytest.fixture
def labels(pose_fixtures):
    return open_labels(f"coco:{pose_fixtures}/coco")


def oracle(monkeypatch, labels, skeleton, score=0.9):
    """Predictions that are the labels of the person whose box is nearest, in the model's skeleton."""
    known = {picture.id: picture.learnt for picture in labels.pictures}
    way = joint_map(COCO, skeleton)
    by_picture = {labels.read(i).tobytes(): i.id for i in labels.pictures}

    def predict(model, image, boxes, flip_test):
        result = []
        for box in boxes:
            people = known[by_picture[image.tobytes()]]
            person = min(people, key=lambda p: np.abs(p.box - box).sum())
            result.append(Pose(np.nan_to_num(way.points(person.keypoints)), np.full(len(way.target), score)))
        return result

    monkeypatch.setattr(module, "predict_people", predict)


def model_of(skeleton):
    return PoseModel(PoseConfig("nano", (64, 64), skeleton=skeleton)).eval()


class TestModels:
    def test_a_model_that_finds_the_labels_scores_one(self, monkeypatch, labels):
        oracle(monkeypatch, labels, COCO)
        result = keypoint_ap(model_of("coco"), labels, label_boxes(labels))
        assert result.scores["AP"] == pytest.approx(1.0)
        assert result.left_out == ()

    def test_a_model_of_other_joints_is_scored_on_those_they_share(self, monkeypatch, labels):
        oracle(monkeypatch, labels, MPII)
        result = keypoint_ap(model_of("mpii"), labels, label_boxes(labels))
        assert result.scores["AP"] == pytest.approx(1.0)
        assert result.left_out == COCO.joints[:5]

    def test_detected_boxes_and_doubles(self, monkeypatch, labels, pose_fixtures):
        oracle(monkeypatch, labels, COCO)
        path = pose_fixtures / "coco" / "test_coco_det_AP_H_56.json"
        boxes, problems = read_detections(path)
        assert (sum(map(len, boxes.values())), len(problems)) == (118, 0)
        result = keypoint_ap(model_of("coco"), labels, boxes)
        # every box of a person gives that person's labels: all but one of them are suppressed
        assert result.predictions <= 12
        assert result.scores["AR"] == pytest.approx(1.0)

    def test_an_untrained_model_runs_through(self, labels):
        torch.manual_seed(0)
        seen = []
        boxes = label_boxes(labels.limit(2))
        result = keypoint_ap(model_of("coco"), labels.limit(2), boxes, advance=lambda: seen.append(1))
        assert len(seen) == result.pictures == 2
        assert 0 <= result.scores["AP"] < 0.5


class TestDetections:
    @pytest.mark.parametrize(
        ("entry", "kind"),
        [
            ({"image_id": "x785", "bbox": [0, 0, 1, 1], "score": 1}, "a box without the number"),
            ({"image_id": 785, "bbox": [0, 0, 1], "score": 1}, "not a bbox"),
            ({"image_id": 785, "bbox": [0, 0, 1, float("nan")], "score": 1}, "not a bbox"),
            ({"image_id": 785, "bbox": [0, 0, 1, 1], "score": 1.5}, "not a bbox"),
            ({"image_id": 785, "bbox": [0, 0, 0, 1], "score": 1}, "an empty box"),
            ({"image_id": 785, "bbox": [0, 0, 1e300, 1e300], "score": 1}, "a box beyond"),
        ],
    )
    def test_a_broken_box_is_skipped_and_told_by_its_place(self, tmp_path, entry, kind):
        good = {"image_id": 785, "bbox": [1, 2, 3, 4], "score": 0.5}
        path = tmp_path / "det.json"
        path.write_text(json.dumps([good, entry, {**good, "category_id": 3}]))
        boxes, problems = read_detections(path)
        assert boxes[785][0].corners.tolist() == [1, 2, 4, 6]
        assert len(boxes[785]) == 1
        (problem,) = problems
        assert problem.kind.startswith(kind)
        assert problem.where == "det.json entry 2"

    def test_no_usable_box_is_refused(self, tmp_path):
        path = tmp_path / "det.json"
        path.write_text(json.dumps([{"image_id": 1, "bbox": [0, 0, 1, 1], "score": 0.1}]))
        with refused("detections-all-unusable", where="0.5"):
            read_detections(path, least=0.5)
        path.write_text("{}")
        with refused("detections-malformed"):
            read_detections(path)


class TestFiles:
    def results(self, labels):
        return [
            {
                "image_id": picture.id, "category_id": 1, "score": 0.9,
                "keypoints": np.column_stack([p.keypoints, p.flags]).ravel().tolist(),
            }
            for picture in labels.pictures for p in picture.people if p.labelled
        ]  # fmt: skip

    def test_perfect_coco_results_score_one(self, labels, tmp_path):
        path = tmp_path / "results.json"
        path.write_text(json.dumps(self.results(labels)))
        result, problems = score_results(path, labels)
        assert result.scores["AP"] == pytest.approx(1.0)
        assert len(problems) == 0

    def test_broken_entries_are_counted(self, labels, tmp_path):
        good = self.results(labels)
        broken = [3, {**good[0], "image_id": 5}, {**good[0], "keypoints": [1]}, {**good[0], "score": None}]
        path = tmp_path / "results.json"
        path.write_text(json.dumps(good + broken))
        result, problems = score_results(path, labels)
        assert (result.predictions, len(problems)) == (12, 4)
        assert problems.entries[0].where == "results.json entry 13"
        path.write_text(json.dumps(broken))
        with refused("predictions-all-unusable", where="4 people"):
            score_results(path, labels)

    def own_results(self, labels, names, path):
        """What `dpose predict --json` writes, with labelled people in pictures of these names."""
        people = {p.name: p.people for p in labels.pictures}
        images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
        annotations = [
            {"image_id": number, "category_id": 1, "score": 0.9,
             "keypoints": np.column_stack([p.keypoints, p.flags]).ravel().tolist()}
            for number, labelled in enumerate(names.values()) for p in people[labelled] if p.labelled
        ]  # fmt: skip
        categories = [{"id": 1, "keypoints": list(labels.skeleton.joints)}]
        path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
        return path

    def test_predictions_of_another_folder_are_of_no_labelled_picture(self, pose_fixtures, tmp_path):
        root = shutil.copytree(pose_fixtures / "coco", tmp_path / "coco")
        in_two_folders(root)
        labels = open_labels(f"coco:{root},annotations=test_coco.json")
        path = tmp_path / "own.json"
        result, problems = score_results(self.own_results(labels, {"a/1.jpg": "a/1.jpg"}, path), labels)
        people = sum(p.labelled > 0 for p in labels.pictures[0].people)
        assert (result.predictions, len(problems)) == (people, 0)
        both = {"a/1.jpg": "a/1.jpg", "c/1.jpg": "a/1.jpg"}
        result, problems = score_results(self.own_results(labels, both, path), labels)
        assert (result.predictions, len(problems)) == (people, people)
        with refused("picture-name-ambiguous", where=str(path)):
            read_results(self.own_results(labels, both | {"copied/a/1.jpg": "a/1.jpg"}, path), labels)

    def test_a_number_of_a_picture_that_is_none_is_told(self, labels, tmp_path):
        path = self.own_results(labels, {p.name: p.name for p in labels.pictures}, tmp_path / "own.json")
        content = json.loads(path.read_text())
        content["annotations"][0]["image_id"] = [1]
        path.write_text(json.dumps(content))
        assert len(score_results(path, labels)[1]) == 1

    @pytest.fixture
    def mpii(self, pose_fixtures):
        return read_mpii(pose_fixtures / "mpii", "val")

    @pytest.fixture
    def joints(self, pose_fixtures):
        return np.array([e["joints"] for e in json.loads((pose_fixtures / "mpii/test_mpii.json").read_text())])

    def write(self, folder, joints, kind):
        if kind == "mat":
            scipy.io.savemat(folder / "pred.mat", {"preds": joints})
            return folder / "pred.mat"
        people = joints.tolist() if kind == "lists" else [{"keypoints": [[*p, 0.5] for p in j]} for j in joints]
        (folder / "pred.json").write_text(json.dumps(people))
        return folder / "pred.json"

    @pytest.mark.parametrize("kind", ["mat", "lists", "objects"])
    def test_perfect_mpii_predictions_score_a_hundred(self, mpii, joints, tmp_path, kind):
        result = score_mpii_predictions(self.write(tmp_path, joints, kind), mpii)
        assert (result.mean(0.5), result.mean(0.1)) == (100.0, 100.0)
        assert result.people == 5

    def test_predictions_that_count_from_zero_lose_nothing_but_a_pixel(self, mpii, joints, tmp_path):
        """The offset is taken off both sides once: labels and predictions one apart would show at small thresholds."""
        lengths = [p.person.head_length for p in mpii.people]
        shifted = joints + np.array(lengths)[:, None, None] * [0.0999, 0]
        assert score_mpii_predictions(self.write(tmp_path, shifted, "mat"), mpii).mean(0.1) == 100.0
        shifted = joints + np.array(lengths)[:, None, None] * [0.1001, 0]
        assert score_mpii_predictions(self.write(tmp_path, shifted, "mat"), mpii).mean(0.1) == 0.0

    def test_another_number_of_people_or_joints_is_refused(self, mpii, joints, tmp_path):
        for wrong in (joints[:4], joints[:, :15]):
            with refused("predictions-of-wrong-shape", where="5 people"):
                score_mpii_predictions(self.write(tmp_path, wrong, "mat"), mpii)
        (tmp_path / "pred.json").write_text(json.dumps([[[1, 2]] * 15] * 5))
        with refused("prediction-entry-invalid", where="1 is"):
            score_mpii_predictions(tmp_path / "pred.json", mpii)
        scipy.io.savemat(tmp_path / "other.mat", {"x": joints})
        with refused("predictions-missing"):
            score_mpii_predictions(tmp_path / "other.mat", mpii)
