import json
import shutil
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from rich.console import Console

from dpose.cli.predict import People
from dpose.pose.boxes import DetectedBoxes, FixedBox, LabelledBoxes, PersonDetector, whole_picture
from dpose.pose.crops import crop_transform
from dpose.pose.data import open_labels
from dpose.pose.data.labels import LabelledPicture, Labels
from dpose.pose.data.mpii import read_mpii
from dpose.pose.skeletons import COCO
from one_name import in_two_folders
from refusals import refused

IMAGE = np.zeros((40, 50, 3), np.uint8)


def test_the_whole_picture_and_a_fixed_box():
    assert whole_picture(Path("a.png"), -1, IMAGE) is None
    (box,) = FixedBox((1, 2, 3, 4))(Path("a.png"), -1, IMAGE)
    assert (box.corners.tolist(), box.score) == ([1, 2, 3, 4], 1.0)


class TestDetected:
    @pytest.fixture
    def boxes(self, tmp_path):
        entries = [
            {"image_id": 7, "bbox": [1, 2, 3, 4], "score": 0.6},
            {"image_id": 7, "bbox": [5, 5, 9, 9], "score": 0.9},
            {"image_id": 7, "bbox": [5, 5, 9, 9], "score": 0.2},
        ]
        (tmp_path / "det.json").write_text(json.dumps(entries))
        return DetectedBoxes(tmp_path / "det.json")

    def test_by_the_pictures_number_or_the_frames(self, boxes):
        assert [b.score for b in boxes(Path("0007.jpg"), -1, IMAGE)] == [0.9, 0.6]
        assert [b.score for b in boxes(Path("clip.mp4"), 7, IMAGE)] == [0.9, 0.6]
        assert list(boxes(Path("0008.jpg"), -1, IMAGE)) == []

    def test_a_picture_that_is_no_number_is_told(self, boxes):
        with refused("picture-name-not-number"):
            boxes(Path("holiday.jpg"), -1, IMAGE)


class TestLabelled:
    def test_data_without_labels_have_no_boxes_to_give(self):
        assert open_labels("synthetic:ward") is None
        with refused("boxes-missing"):
            People(labels="synthetic:ward").boxes(Console(quiet=True))

    def test_pictures_of_one_name_in_two_folders_are_two(self, pose_fixtures, tmp_path, monkeypatch):
        root = shutil.copytree(pose_fixtures / "coco", tmp_path / "coco")
        in_two_folders(root)
        labels = open_labels(f"coco:{root},annotations=test_coco.json")
        boxes, (a, b) = LabelledBoxes(labels), labels.pictures[:2]
        for picture in (a, b):
            found = boxes(picture.path, -1, IMAGE)
            assert [tuple(box.corners) for box in found] == [tuple(p.box) for p in picture.learnt]
        assert labels.picture_of(Path("elsewhere/b/1.jpg")) is b
        assert labels.picture_of(Path("c/2.jpg")) is labels.picture_of(Path("c/1.jpg")) is None
        with refused("picture-name-ambiguous"):
            labels.picture_of(Path("1.jpg"))
        monkeypatch.chdir(b.path.parent)
        assert len(boxes(Path("1.jpg"), -1, IMAGE)) == len(b.learnt)

    def test_a_name_that_is_the_labels_own_is_that_picture(self):
        names = ("1.jpg", "sub/1.jpg", "x/sub/1.jpg", "2.jpg")
        pictures = tuple(LabelledPicture(name, Path("/data", name), ()) for name in names)
        labels = Labels("a", Path("a.json"), COCO, pictures)
        for path in (*names, *(f"/data/{name}" for name in names), *(f"copied/{name}" for name in names)):
            assert labels.picture_of(Path(path)).name == path.removeprefix("/data/").removeprefix("copied/")
        assert labels.picture_of(Path("y/sub/1.jpg")).name == "sub/1.jpg"
        assert labels.picture_of(Path("data/2.jpg")).name == "2.jpg"

    def test_cocos_boxes_by_file_name(self, pose_fixtures):
        boxes = LabelledBoxes(open_labels(f"coco:{pose_fixtures}/coco"))
        assert len(boxes(Path("000000197388.jpg"), -1, IMAGE)) == 5
        with refused("picture-not-labelled"):
            boxes(Path("other.jpg"), -1, IMAGE)

    def test_mpiis_square_is_the_crop_that_training_sees(self, pose_fixtures):
        labels = read_mpii(pose_fixtures / "mpii", "val")
        boxes = LabelledBoxes(labels)
        for picture in labels.pictures:
            (labelled,) = picture.people
            (box,) = boxes(Path(picture.name), -1, IMAGE)
            predicted = crop_transform(box.corners, (256, 192))  # with a quarter around it
            learnt = crop_transform(labelled.person.box, (256, 192), 1.0)
            assert np.allclose(predicted, learnt, atol=1e-3)


class TestDetector:
    def test_weights_that_cannot_be_had_are_told_in_one_line(self, monkeypatch):
        from torchvision.models import detection

        def no_network(**options):
            raise URLError("Name or service not known")

        monkeypatch.setattr(detection, "fasterrcnn_mobilenet_v3_large_320_fpn", no_network)
        with refused("detector-weights-unavailable", where=("Name", "service not known")):
            PersonDetector()

    def test_people_of_enough_score_are_boxes(self, monkeypatch):
        from torchvision.models import detection

        class Found(torch.nn.Module):
            def forward(self, pictures):
                assert pictures[0].shape == (3, 40, 50)
                assert pictures[0].max() <= 1
                return [{
                    "boxes": torch.tensor([[0.0, 0, 9, 9], [1, 1, 5, 5], [2, 2, 6, 6], [3, 3, 3, 8]]),
                    "labels": torch.tensor([1, 3, 1, 1]),
                    "scores": torch.tensor([0.9, 0.9, 0.3, 0.8]),
                }]  # fmt: skip

        monkeypatch.setattr(detection, "fasterrcnn_mobilenet_v3_large_320_fpn", lambda **options: Found())
        (box,) = PersonDetector()("a.png", -1, IMAGE + 255)
        assert box.corners.tolist() == [0, 0, 9, 9]
        assert box.score == pytest.approx(0.9)
