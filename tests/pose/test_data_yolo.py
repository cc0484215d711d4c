"""YOLO-pose, as Ultralytics and Roboflow write it: read, written, and the same people as in COCO's format."""

import json

import cv2
import numpy as np
import pytest

from dpose.cli import main
from dpose.media.images import encode_image, read_image, shown_size, write_image
from dpose.pose.data import open_data, open_labels
from dpose.pose.data.yolo import convert_data, write_yolo
from dpose.pose.skeletons import COCO, skeleton_of
from refusals import refused

LINE = "0 0.5 0.5 0.4 0.6 0.4 0.3 2 0.6 0.3 1 0 0 0\n"


def write(root, yaml="", labels=LINE, train="../train/images"):
    """A folder as Roboflow exports it: pictures of 100 x 50, three joints."""
    for name in ("a", "b"):
        write_image(root / "train" / "images" / f"{name}.png", np.full((50, 100, 3), 90, np.uint8))
    (root / "train" / "labels").mkdir(parents=True)
    (root / "train" / "labels" / "a.txt").write_text(labels)
    settings = f"train: {train}\nval: ../valid/images\nnames: ['person']\nkpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\n"
    (root / "data.yaml").write_text(settings + yaml)
    return f"yolo:{root}:train"


class TestReading:
    def test_a_line_is_a_person_in_pixels(self, tmp_path):
        labels = open_labels(write(tmp_path))
        (person,) = labels.people
        assert person.keypoints.tolist() == [[40, 15], [60, 15], [0, 0]]
        assert (person.flags.tolist(), person.box.tolist()) == ([2, 1, 0], [30, 10, 40, 30])
        assert person.area == pytest.approx(0.53 * 40 * 30)
        assert (labels.skeleton.flip_order, labels.skeleton.joints[0]) == ((1, 0, 2), "joint_0")
        assert len(labels.pictures) == 2  # one of them without anybody
        assert len(open_data(write(tmp_path / "x"))) == 1

    def test_two_numbers_a_joint_and_names(self, tmp_path):
        spec = write(tmp_path, "", "0 0.5 0.5 0.4 0.6 0.4 0.3 0 0 0.6 0.3\n")
        text = (tmp_path / "data.yaml").read_text().replace("[3, 3]", "[3, 2]").replace("[1, 0, 2]", "[0, 2, 1]")
        (tmp_path / "data.yaml").write_text(text + "kpt_names: {0: [nose, left_ear, right-ear]}\n")
        labels = open_labels(spec)
        assert labels.people[0].flags.tolist() == [2, 0, 2]
        assert labels.skeleton.joints == ("nose", "l_ear", "r_ear")

    @pytest.mark.parametrize(
        ("order", "names", "mirrored"),
        [
            (None, COCO.joints, COCO.flip_order),
            (list(COCO.flip_order), COCO.joints, COCO.flip_order),
            ([*range(15), 16, 15], tuple(f"joint_{j}" for j in range(17)), (*range(15), 16, 15)),
        ],
    )
    def test_seventeen_joints_are_cocos_unless_flip_idx_says_otherwise(self, tmp_path, order, names, mirrored):
        spec = write(tmp_path, labels="")
        text = (tmp_path / "data.yaml").read_text().replace("[3, 3]", "[17, 3]")
        flip = "" if order is None else f"flip_idx: {order}\n"
        (tmp_path / "data.yaml").write_text(text.replace("flip_idx: [1, 0, 2]\n", flip))
        skeleton = open_labels(spec).skeleton
        assert (skeleton.joints, skeleton.flip_order) == (names, mirrored)

    def test_of_several_classes_people_are_read(self, tmp_path):
        spec = write(tmp_path, labels=LINE + "1" + LINE[1:] + LINE)
        text = (tmp_path / "data.yaml").read_text().replace("['person']", "[dog, person]")
        (tmp_path / "data.yaml").write_text(text)
        assert len(open_labels(spec).people) == 1

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("0 0.5 0.5 0.4 0.6 0.4 0.3 2\n", "not 14 numbers"),
            ("0 50 25 40 30 40 15 2 60 15 1 0 0 0\n", "shares of the picture"),
            ("zero\n", "numbers"),
            ("nan" + LINE[1:], "no class"),
        ],
    )
    def test_a_line_that_makes_no_sense_is_told(self, tmp_path, line, message):
        labels = open_labels(write(tmp_path, labels=LINE + line))
        (problem,) = labels.problems
        assert message in problem.kind
        assert problem.where == "a.txt line 2"
        assert len(labels.people) == 1

    def test_what_is_odd_is_told_and_kept(self, tmp_path):
        far, empty = LINE.replace("0.4 0.3 2", "9 0.3 2"), LINE.replace("0.4 0.6 ", "0 0.6 ", 1)
        assert LINE not in (far, empty)
        labels = open_labels(write(tmp_path, labels=far + empty))
        assert [(p.kind, p.action) for p in labels.problems] == [
            ("a labelled joint far outside the picture", "kept"),
            ("no box, or an empty one: the joints' is taken", "kept"),
        ]
        assert [person.corners is None for person in labels.people] == [False, False]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("names: [person]\ntrain: train/images\n", ("kpt-shape-missing", "kpt_shape")),
            ("kpt_shape: [3, 4]\ntrain: train/images\n", ("kpt-shape-invalid", "kpt_shape")),
            ("kpt_shape: [3, 3]\nflip_idx: [1, 2, 0]\ntrain: train/images\n", ("flip-order-invalid", "3 joints")),
            ("kpt_shape: [3, 3]\nval: train/images\n", ("split-without-pictures", "train")),
            ("kpt_shape: [3, 3]\ntrain: nowhere\n", ("file-missing",)),
            ("- 1\n", ("data-file-malformed",)),
            ("a: [\n", ("yaml-invalid",)),
        ],
    )
    def test_settings_that_make_no_sense_are_refused(self, tmp_path, text, message):
        spec = write(tmp_path)
        (tmp_path / "data.yaml").write_text(text)
        with refused(*message):
            open_labels(spec)

    def test_sizes_are_of_the_picture_as_it_is_shown(self, tmp_path):
        path = tmp_path / "a.jpg"
        plain = encode_image(np.zeros((40, 80, 3), np.uint8), ".jpg")
        turned = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
        path.write_bytes(plain[:2] + turned + plain[2:])
        assert read_image(path).shape[:2] == (80, 40)
        assert shown_size(path) == (80, 40)
        path.write_bytes(plain)
        assert shown_size(path) == (40, 80)


class TestWriting:
    def test_real_people_come_back(self, pose_fixtures, tmp_path):
        spec = f"coco:{pose_fixtures}/coco,annotations=test_coco.json"
        assert main(["data", "convert", spec, "--out", str(tmp_path / "y"), "--to", "val"]) == 0
        before, after = open_data(spec), open_data(f"yolo:{tmp_path}/y", purpose="evaluate")
        assert len(after) == len(before) == 4
        assert after.skeleton == COCO
        for one, other in zip(before.pictures, after.pictures, strict=True):
            (image, people), (same, result) = one.read(), other.read()
            assert np.array_equal(image, same)
            for a, b in zip(people, result, strict=True):
                assert a.visible.tolist() == b.visible.tolist()
                assert np.abs(a.box - b.box).max() < 0.01
                assert np.abs(a.keypoints - b.keypoints)[a.visible].max() < 0.01
        labels = next((tmp_path / "y" / "labels" / "val").iterdir())
        assert labels.stat().st_mode & 0o77 == 0
        assert (tmp_path / "y" / "images" / "val" / labels.with_suffix(".jpg").name).is_symlink()
        with refused("output-exists"):
            convert_data(before, tmp_path / "y", "val")

    def test_predictions_can_be_read_as_labels(self, tmp_path):
        document = {
            "images": [{"id": 3, "file_name": "v.mp4", "frame": 0, "width": 10, "height": 20}],
            "annotations": [
                {"image_id": 3, "score": 0.5, "bbox": [-2, 5, 7, 10], "keypoints": [5, 5, 0.1, 11, 5, 0.9]}
            ],
        }
        two = skeleton_of(["left_hand", "right_hand"])
        assert write_yolo(tmp_path, document, two, "train") == 1
        line = (tmp_path / "labels" / "train" / "v_1.txt").read_text()
        assert line == "0 0.250000 0.500000 0.500000 0.500000 0.500000 0.250000 2 0 0 0\n"
        with refused("joints-differ"):
            write_yolo(tmp_path, document, COCO, "val")


def test_predict_writes_labels_and_pre_annotations(tmp_path, monkeypatch, pose_fixtures):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        noise = np.random.default_rng(0).integers(0, 256, (96, 80, 3), np.uint8)
        write_image(tmp_path / "y" / "images" / "train" / f"{name}.png", cv2.GaussianBlur(noise, (0, 0), 3))
    out = ["--out", "drawn", "--yolo", "y", "--label-studio", "tasks.json", "--json", "found.json"]
    assert main(["predict", "src/nano", "y/images/train", *out, "--no-flip"]) == 2  # no such model
    from dpose import files

    assert main(["predict", str(files.SHIPPED / "nano"), "y/images/train", *out, "--no-flip"]) == 0
    result = json.loads((tmp_path / "found.json").read_text())
    labels = open_labels("yolo:y:train")
    assert len(labels.people) == len(result["annotations"]) == 2
    flat = np.array(result["annotations"][0]["keypoints"]).reshape(-1, 3)
    seen = labels.people[0].flags > 0
    assert seen.any()
    assert np.abs(labels.people[0].keypoints - flat[:, :2])[seen].max() < 1e-3
    (task, _) = json.loads((tmp_path / "tasks.json").read_text())
    assert task["data"]["image"].endswith("?d=a.png")
    (prediction,) = task["predictions"]
    box, *joints = prediction["result"]
    assert box["type"] == "rectanglelabels"
    assert len(joints) == seen.sum()
    for shape in joints:
        place = result["categories"][0]["keypoints"].index(shape["value"]["keypointlabels"][0])
        assert shape["parentID"] == box["id"]
        assert shape["value"]["x"] * 80 / 100 == pytest.approx(flat[place, 0])
        assert shape["value"]["y"] * 96 / 100 == pytest.approx(flat[place, 1])
