import copy
import json
import os

import cv2
import numpy as np
import pytest

from dpose.media.images import encode_image, write_image
from dpose.pose.ap import KeypointAP
from dpose.pose.crops import transform_points
from dpose.pose.data import DataSpec
from dpose.pose.data.coco import read_coco, read_humanart
from dpose.pose.data.labels import clipped, units_of
from dpose.pose.evaluate import keypoint_ap, label_boxes
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import COCO
from refusals import refused

SIZE = (256, 192)
ANNOTATION = {
    "id": 7, "image_id": 1, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "area": 900.0,
    "bbox": [20.0, 10.0, 40.0, 60.0], "keypoints": [v for j in range(17) for v in (22 + 2 * j, 12 + 3 * j, 1 + j % 2)],
}  # fmt: skip


def picture(seed, shape=(90, 120)):
    noise = np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 5)


def write(root, change=lambda content: None, name="annotations/person_keypoints_train2017.json", **json_options):
    """A small dataset: pictures 1 and 2, the person 7 in the first, changed by `change`."""
    content = {
        "images": [{"id": i, "file_name": f"{i:012d}.png", "width": 120, "height": 90} for i in (1, 2)],
        "annotations": [copy.deepcopy(ANNOTATION)],
        "categories": [{"id": 1, "name": "person"}],
    }
    change(content)
    for i in (1, 2):
        write_image(root / "train2017" / f"{i:012d}.png", picture(i))
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(content, **json_options), encoding="utf-8")
    return root


def opened(root, split="train", annotations="", **options):
    return units_of(read_coco(root, split, annotations), input_size=SIZE, **options)


def load(units, index=0):
    return units.load(index, np.random.default_rng(0))


class TestWhole:
    def test_labels_land_on_their_picture(self, tmp_path):
        units = opened(write(tmp_path))
        assert (len(units), units.skeleton, units.problems) == (1, COCO, ())
        (view,) = load(units)
        back = transform_points(view.target["inverse"], view.target["keypoints"])
        expected = np.array(ANNOTATION["keypoints"]).reshape(17, 3)[:, :2]
        assert np.abs(back - expected).max() < 1e-4
        assert (view.target["labelled"] == 1).all()  # hidden joints, v = 1, count like seen ones

    def test_the_crop_is_the_box_in_the_inputs_aspect_and_a_quarter_larger(self, tmp_path):
        (view,) = load(opened(write(tmp_path)))
        inverse = view.target["inverse"].astype(float)
        # the box 40 x 60 has its centre at (40, 40); 3:4 makes it 45 x 60, the quarter 56.25 x 75
        assert np.allclose(transform_points(inverse, [(192 - 1) / 2, (256 - 1) / 2]), (40, 40), atol=1e-4)
        assert np.allclose(np.abs(np.linalg.det(inverse[:, :2])), (56.25 / 192) ** 2, rtol=1e-5)
        assert view.target["area"] == pytest.approx(900 * (192 / 56.25) ** 2, rel=1e-5)

    def test_all_people_of_a_picture_are_one_unit(self, tmp_path):
        def add(content):
            content["annotations"] += [{**ANNOTATION, "id": 8}, {**ANNOTATION, "id": 9, "image_id": 2}]

        root = write(tmp_path, add)
        assert [len(load(opened(root), i)) for i in range(2)] == [2, 1]
        assert len(opened(root, unit="crop")) == 3

    def test_clipping_by_hand(self):
        assert clipped(np.array([-10.0, 5, 30, 200]), (90, 120)).tolist() == [0, 5, 20, 89]
        assert clipped(np.array([100.0, 5, 30, 20]), (90, 120)).tolist() == [100, 5, 119, 25]
        for empty in ([5.0, 5, 0, 9], [5.0, 5, -3, 9], [130.0, 5, 9, 9], [5.0, -20, 9, 10]):
            assert clipped(np.array(empty), (90, 120)) is None

    def test_the_dataset_need_not_use_its_own_names(self, tmp_path):
        write(tmp_path, name="mine.json")
        assert any("mine.json, the only label file" in line for line in opened(tmp_path).report)
        assert len(opened(tmp_path, annotations="mine.json")) == 1
        write(tmp_path, name="other.json")
        with refused("labels-ambiguous", where=",annotations=FILE"):
            opened(tmp_path)
        with refused("file-missing", where="gone.json"):
            opened(tmp_path, annotations="gone.json")


class TestPlaces:
    def test_pictures_may_lie_beside_the_label_file(self, tmp_path):
        """As Roboflow writes them: a folder a split, labels and pictures in it."""
        root = write(tmp_path, name="train/_annotations.coco.json")
        for file in (root / "train2017").iterdir():
            file.rename(root / "train" / file.name)
        assert len(opened(root, annotations="train/_annotations.coco.json")) == 1
        assert len(opened(root, annotations=str(root / "train" / "_annotations.coco.json"))) == 1

    @pytest.mark.parametrize("climbing", [False, True])
    def test_no_picture_outside_the_folder_is_read_beside_its_label_file(self, tmp_path, climbing):
        root = write(tmp_path / "set", name="../elsewhere/labels.json")
        for file in (root / "train2017").iterdir():
            file.rename(tmp_path / "elsewhere" / file.name)
        beside = tmp_path / "elsewhere" / "labels.json"
        with refused("labels-all-unusable", where="the picture is missing"):
            opened(root, annotations="train2017/../../elsewhere/labels.json" if climbing else str(beside))


class TestDeclaredJoints:
    def test_joints_are_read_in_the_order_in_which_they_are_declared(self, tmp_path):
        """Without names in the file the k-th joint is the k-th that is declared, left and right too."""
        turned = list(COCO.joints)
        turned[1], turned[2] = turned[2], turned[1]
        labels = read_coco(write(tmp_path), "train", joints=",".join(turned))
        places = np.array(ANNOTATION["keypoints"]).reshape(17, 3)[:, :2]
        found = dict(zip(labels.skeleton.joints, labels.people[0].keypoints.tolist(), strict=True))
        assert found["r_eye"] == places[1].tolist()
        assert found["l_eye"] == places[2].tolist()

    def test_another_order_than_the_files_own_is_refused(self, tmp_path):
        def name(content):
            content["categories"][0]["keypoints"] = list(COCO.joints)

        root = write(tmp_path, name)
        assert read_coco(root, "train", joints=",".join(COCO.joints)).skeleton == COCO
        assert read_coco(root, "train", joints="17").skeleton.joints[0] == "joint_0"
        with refused("joints-order-differs", where=("person_keypoints_train2017.json", "joints=")):
            read_coco(root, "train", joints=",".join(reversed(COCO.joints)))

    def test_joints_without_a_left_and_a_right_are_told(self, tmp_path):
        """What is mirrored then keeps every joint: nothing else says that sides are mixed."""
        root = write(tmp_path, lambda content: content["categories"][0].update(keypoints=[f"k{j}" for j in range(17)]))
        (line,) = [line for line in opened(root).report if "mirrored" in line]
        assert "17 joints" in line
        assert not [line for line in opened(write(tmp_path / "named")).report if "mirrored" in line]


class TestLeftOut:
    def report(self, root):
        return "\n".join(opened(root).report)

    def test_crowds_people_without_joints_and_boxes_elsewhere_are_not_learnt_from(self, tmp_path):
        def add(content):
            content["annotations"] += [
                {**ANNOTATION, "id": 8, "iscrowd": 1},
                {**ANNOTATION, "id": 9, "keypoints": [0] * 51, "num_keypoints": 0},
                {**ANNOTATION, "id": 10, "bbox": [120.0, 10.0, 9.0, 60.0]},
            ]

        root = write(tmp_path, add)
        message = self.report(root)
        assert len(load(opened(root))) == 1
        for line in (
            "1 not learnt from: crowds",
            "1 not learnt from: people without",
            "1 not learnt from: people whose",
        ):
            assert line in message
        assert "annotation 10 ([120.0, 10.0, 9.0, 60.0] in 120 x 90)" in message
        assert len(read_coco(root, "train").truth()["annotations"]) == 4  # the score knows them all

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"keypoints": [1.0] * 50}, "keypoints are not 17 joints of 3 numbers"),
            ({"keypoints": "none"}, "keypoints are not 17 joints of 3 numbers"),
            ({"keypoints": ["x"] * 51}, "keypoints are not 17 joints of 3 numbers"),
            ({"id": 7}, "the same annotation twice"),
            ({"image_id": 99}, "its picture is not in the file"),
            ({"image_id": None}, "its picture has no number"),
        ],
    )
    def test_a_broken_annotation_is_skipped_and_told_by_its_id(self, tmp_path, change, message):
        root = write(tmp_path, lambda c: c["annotations"].append({**ANNOTATION, "id": 8, **change}))
        units = opened(root)
        assert len(load(units)) == 1
        (problem,) = units.problems
        assert (problem.kind, problem.action) == (message, "skipped")
        assert problem.where == f"annotation {change.get('id', 8)}"

    def test_an_unknown_key_and_a_missing_one_are_told(self, tmp_path):
        broken = {k: v for k, v in ANNOTATION.items() if k != "keypoints"} | {"id": 8, "kepoints": []}
        units = opened(write(tmp_path, lambda c: c["annotations"].append(broken)))
        assert [(p.kind, p.detail) for p in units.problems] == [
            ("an unknown key", "'kepoints'"),
            ("has no keypoints", ""),
        ]

    def test_doubts_are_told_and_the_annotation_kept(self, tmp_path):
        def change(content):
            content["annotations"][0]["num_keypoints"] = 3
            content["annotations"][0]["keypoints"][0] = 4000

        units = opened(write(tmp_path, change))
        assert [p.action for p in units.problems] == ["kept", "kept"]
        assert load(units)[0].target["visible"][0] == 0

    def test_a_missing_picture_takes_its_people_along(self, tmp_path):
        def add(content):
            content["images"].append({"id": 3, "file_name": "gone.jpg", "width": 9, "height": 9})
            content["annotations"].append({**ANNOTATION, "id": 8, "image_id": 3})

        units = opened(write(tmp_path, add))
        assert len(units) == 1
        assert [str(p) for p in units.problems] == [
            "image 3: the picture is missing (gone.jpg); skipped",
            "annotation 8: its picture cannot be used (image 3); skipped",
        ]

    def test_no_picture_at_all_is_refused(self, tmp_path):
        root = write(tmp_path)
        for path in (root / "train2017").iterdir():
            path.unlink()
        with refused("labels-all-unusable", where=("2 pictures", "image 1")):
            opened(root)

    @pytest.mark.parametrize(
        "name",
        [
            *["../secret.png", "/etc/hostname", "a\\..\\..\\secret.png", "", "c:x.png", "\ud800.png", "..", "a/.."],
            *["file:///etc/hostname", "/data/local-files/?d=../secret.png", "http://x/%2e%2e/secret.png", "\0.png", 3],
        ],
    )
    def test_no_file_name_leads_out(self, tmp_path, name):
        (tmp_path / "secret.png").write_bytes(encode_image(picture(1), ".png"))

        def add(content):
            content["images"].append({"id": 3, "file_name": name, "width": 120, "height": 90})

        (problem,) = opened(write(tmp_path / "root", add)).problems
        assert problem.kind in ("no usable file name", "the picture is missing")

    def test_json_is_told_by_line(self, tmp_path):
        root = write(tmp_path, indent=1)
        path = root / "annotations/person_keypoints_train2017.json"
        lines = path.read_text().splitlines()
        lines[4] = lines[4].replace(":", "")
        path.write_text("\n".join(lines))
        with refused("json-invalid", where=("train2017.json", "5")):
            opened(root)

    @pytest.mark.parametrize("content", ["[]", "{}", '{"images": 3, "annotations": []}'])
    def test_another_format_is_refused(self, tmp_path, content):
        path = write(tmp_path) / "annotations/person_keypoints_train2017.json"
        path.write_text(content)
        with refused("labels-malformed"):
            opened(tmp_path)


class TestPictures:
    def named(self, tmp_path, name):
        root = write(tmp_path, lambda c: c["images"][0].update(file_name=name), ensure_ascii=False)
        (root / "train2017/000000000001.png").unlink()
        return root / "train2017"

    def test_unicode_names_in_any_normal_form(self, tmp_path):
        folder = self.named(tmp_path, "Zoë 人.png")  # composed in the labels, decomposed on the disk
        write_image(folder / "Zoë 人.png", picture(1))
        assert len(opened(tmp_path)) == 1

    def test_latin_1_names_on_the_disk(self, tmp_path):
        folder = self.named(tmp_path, "Zoë.png")
        with open(os.fsencode(folder) + b"/Zo\xeb.png", "wb") as file:
            file.write(encode_image(picture(1), ".png"))
        units = opened(tmp_path)
        assert np.array_equal(units.pictures[0].read()[0], picture(1))

    def test_latin_1_label_files(self, tmp_path):
        self.named(tmp_path, "Zoë.png")
        write_image(tmp_path / "train2017" / "Zoë.png", picture(1))
        path = tmp_path / "annotations/person_keypoints_train2017.json"
        path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
        units = opened(tmp_path)
        assert len(units) == 1
        assert units.problems[0].where == "person_keypoints_train2017.json line 1"

    def test_a_picture_of_another_size_is_refused_when_read(self, tmp_path):
        root = write(tmp_path)
        write_image(root / "train2017/000000000001.png", picture(1, (50, 60)))
        with refused("picture-size-differs", where=("000000000001.png", "60 x", "50 pixels", "120", "x 90")):
            load(opened(root))

    @pytest.mark.parametrize("labelled", ["stored", "turned"])
    def test_exif_rotation_follows_the_labels(self, tmp_path, labelled):
        image = picture(1)
        path = tmp_path / "train2017/000000000001.jpg"
        plain = encode_image(image, ".jpg")
        # an APP1 segment that says "turn by 90 degrees": orientation 6
        exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        size = (120, 90) if labelled == "stored" else (90, 120)
        write(tmp_path, lambda c: c["images"][0].update(file_name=path.name, width=size[0], height=size[1]))
        path.write_bytes(plain[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + plain[2:])
        result = opened(tmp_path).pictures[0].read()[0]
        expected = image if labelled == "stored" else np.rot90(image, -1)
        assert result.shape == expected.shape
        assert np.abs(result.astype(int) - expected).mean() < 4


class TestHumanArt:
    def test_names_are_found_from_the_folder_above_and_without_it(self, tmp_path):
        def change(content):
            content["images"][0].update(file_name="HumanArt/images/2D/a.png", category="sculpture")
            content["images"][1].update(file_name="coco/train2017/b.png", category=None)

        root = write(tmp_path / "HumanArt", change, name="annotations/training_humanart_coco.json")
        write_image(root / "images/2D/a.png", picture(1))
        write_image(tmp_path / "coco/train2017/b.png", picture(2))
        labels = read_humanart(root, "train")
        assert [i.group for i in labels.pictures] == ["sculpture", ""]
        assert len(units_of(labels, input_size=SIZE)) == 1
        moved = root.rename(tmp_path / "elsewhere")
        assert [i.name for i in read_humanart(moved, "train").pictures] == [i.name for i in labels.pictures]

    def test_real_pictures(self, pose_fixtures):
        labels = read_humanart(pose_fixtures / "humanart", "val")
        assert [i.group for i in labels.pictures] == ["digital art", "garage kits", "acrobatics"]
        assert (len(labels.people), labels.problems) == (4, ())


def test_real_pictures(pose_fixtures):
    units = opened(pose_fixtures / "coco", "val")
    assert [units.unit_id(i) for i in range(len(units))] == [
        "000000000785.jpg", "000000040083.jpg", "000000196141.jpg", "000000197388.jpg",
    ]  # fmt: skip
    assert [len(load(units, i)) for i in range(4)] == [1, 2, 4, 5]
    for index in range(4):
        for view in load(units, index):
            assert np.array_equal(view.target["visible"], view.target["labelled"])


class TestJointsOfItsOwn:
    def own(self, content):
        content["categories"] = [
            {"id": 2, "name": "bird"},
            {"id": 5, "name": "owl", "keypoints": ["beak", "left wing", "right wing"], "skeleton": [[1, 2], [1, 3]]},
        ]
        content["annotations"] = [
            {**ANNOTATION, "category_id": 5, "num_keypoints": 2, "keypoints": [30, 20, 2, 40, 30, 2, 0, 0, 0]}
        ]

    def test_they_are_read_from_the_categories(self, tmp_path):
        root = write(tmp_path, self.own)
        units = opened(root)
        assert units.skeleton.joints == ("beak", "l_wing", "r_wing")
        assert (units.skeleton.edges, units.skeleton.flip_pairs) == (((0, 1), (0, 2)), ((1, 2),))
        (view,) = load(units)
        assert view.target["labelled"].tolist() == [1, 1, 0]
        # the spec knows them without reading the labels
        assert DataSpec.parse(f"coco:{root}").for_purpose("train").skeleton == units.skeleton

    def test_a_model_of_them_is_scored_by_oks(self, tmp_path):
        labels = read_coco(write(tmp_path, self.own), "train")
        (person,) = labels.people
        metric = KeypointAP(labels.truth(), skeleton=labels.skeleton)
        metric.update(1, person.keypoints[None], np.ones((1, 3)), [1.0])
        assert metric.compute().scores["AP"] == pytest.approx(1)
        assert metric.compute().joints["beak"] == 1
        # 1/J, not COCO's: a beak eight pixels off in an area of 900
        metric.results.clear()
        metric.update(1, person.keypoints[None] + [[[8, 0], [0, 0], [0, 0]]], np.ones((1, 3)), [1.0])
        similarity = np.exp(-(8**2) / (2 * 900 * (2 / 3) ** 2))
        assert metric.compute().joints["beak"] == pytest.approx(similarity)
        assert "Falloffs are 1/3, guessed: comparable with nothing else" in str(metric.compute())
        assert metric.compute().to_dict()["falloffs"] == "1/J"
        model = PoseModel(PoseConfig("nano", (64, 64), skeleton=labels.skeleton.name)).eval()
        assert keypoint_ap(model, labels, label_boxes(labels)).people == 1

    @pytest.mark.parametrize("skeleton", [[[1]], "ab", [[1, 2.5]], [["beak", "left wing"]]])
    def test_a_skeleton_of_no_pairs_is_refused(self, tmp_path, skeleton):
        def change(content):
            self.own(content)
            content["categories"][1]["skeleton"] = skeleton

        with refused("skeleton-edges-invalid"):
            opened(write(tmp_path, change))
