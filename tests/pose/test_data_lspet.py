import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.io

from dpose.media.images import read_image, write_image
from dpose.pose.boxes import LabelledBoxes
from dpose.pose.data import lspet as module
from dpose.pose.data import open_data
from dpose.pose.data.augment import Augment
from dpose.pose.data.labels import units_of
from dpose.pose.data.lspet import SPLITS, read_lspet
from dpose.pose.skeletons import MPII
from refusals import refused

SMALL = {"public": (1, 4), "private": (5, 9), "validation": (10, 12)}
PARTS = {"choosing-train": (5, 7), "choosing-test": (8, 9)}
SIZE = (128, 96)


def scene(seed):
    noise = np.random.default_rng(seed).integers(0, 256, (120, 100, 3), np.uint8).astype(np.float32)
    return cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 9), None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def make_labels(count=12):
    rng = np.random.default_rng(0)
    labels = np.ones((14, 3, count))
    labels[:, 0] = rng.uniform(20, 80, (14, count))
    labels[:, 1] = rng.uniform(20, 100, (14, count))
    return labels


def save(root, labels, **others):
    scipy.io.savemat(root / "joints.mat", {"joints": labels, **others})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("lspet")
    for number in range(1, 13):
        write_image(root / "images" / f"im{number:05d}.jpg", scene(number))
    save(root, make_labels())
    return root


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / "lspet")


def opened(root, split="private", **options):
    labels = read_lspet(root, split, splits=SMALL, parts=PARTS)
    return units_of(labels, input_size=SIZE, **options)


def names(units):
    return [units.unit_id(i) for i in range(len(units))]


def load(units, index):
    return units.load(index, np.random.default_rng(0))


class TestWhole:
    def test_splits_are_disjoint_and_named_by_file(self, root):
        result = [names(opened(root, split)) for split in SMALL]
        assert [len(f) for f in result] == [4, 5, 3]
        assert sorted(name for names_of in result for name in names_of) == [f"im{n:05d}.jpg" for n in range(1, 13)]

    def test_labels_land_on_their_pictures(self, root):
        labels = make_labels()
        (view,) = load(opened(root), 2)  # image 7
        matrix = view.target["inverse"].astype(float)
        back = view.target["keypoints"] @ matrix[:, :2].T + matrix[:, 2]
        assert np.allclose(back[MPII.joints.index("head_top")], labels[13, :2, 6], atol=1e-3)
        assert np.allclose(back[0], labels[0, :2, 6], atol=1e-3)
        assert (view.target["visible"] == 1).all()
        neck, top = labels[12, :2, 6], labels[13, :2, 6]
        zoom = 1 / np.sqrt(abs(np.linalg.det(matrix[:, :2])))
        assert view.target["head_length"] == pytest.approx(np.linalg.norm(neck - top) * zoom, rel=1e-4)

    def test_every_visible_joint_is_inside_the_plain_crop(self, root):
        units = opened(root)
        for index in range(len(units)):
            (view,) = load(units, index)
            assert np.array_equal(view.target["visible"], view.target["labelled"])

    def test_labels_give_boxes_to_look_in(self, root):
        labels = read_lspet(root, "private", splits=SMALL, parts=PARTS)
        boxes = LabelledBoxes(labels)
        points = make_labels()[:, :2, 6]  # image 7
        (box,) = boxes(Path("im00007.jpg"), -1, scene(7))
        assert np.allclose(box.corners, [*points.min(axis=0), *points.max(axis=0)], atol=1e-4)

    def test_the_first_line_of_the_report_counts(self, root):
        assert opened(root).report == ("lspet:private: 5 pictures, 5 people",)


class TestNearCopies:
    def copy(self, root, source, target):
        image = cv2.resize(read_image(root / "images" / f"im{source:05d}.jpg"), (75, 90))
        write_image(root / "images" / f"im{target:05d}.jpg", image, quality=80)

    def test_a_private_copy_in_the_public_split_goes(self, root):
        self.copy(root, 6, 2)
        public = opened(root, "public")
        assert "im00002.jpg" not in names(public)
        assert len(public) == 3
        assert any(line.startswith("1 left out: pictures that are near copies") for line in public.report)

    def test_the_private_split_never_shrinks(self, root):
        self.copy(root, 2, 6)
        self.copy(root, 8, 7)
        self.copy(root, 11, 9)
        assert len(opened(root, "private")) == 5

    def test_validation_loses_copies_of_private_and_of_public_pictures(self, root):
        self.copy(root, 5, 10)
        self.copy(root, 3, 12)
        assert names(opened(root, "validation")) == ["im00011.jpg"]
        assert len(opened(root, "public")) == 4

    def test_copies_within_a_split_stay(self, root):
        self.copy(root, 10, 11)
        assert len(opened(root, "validation")) == 3

    def test_no_hash_is_shared_between_public_and_private(self, root):
        shutil.copyfile(root / "images" / "im00005.jpg", root / "images" / "im00001.jpg")
        public, private = opened(root, "public"), opened(root, "private")
        of = lambda units: {h for i in range(len(units)) for h in units.content_hashes(i)}  # noqa: E731
        assert len(of(public)) == 3
        assert not of(public) & of(private)


class TestChoosing:
    def test_the_two_parts_are_the_private_split(self, root):
        train, test = (names(opened(root, f"choosing-{part}")) for part in ("train", "test"))
        assert train + test == names(opened(root, "private"))

    def test_pictures_to_choose_on_lose_copies_of_those_trained_on_and_no_others(self, root):
        copy = TestNearCopies().copy
        copy(root, 6, 8)
        copy(root, 1, 9)
        assert names(opened(root, "choosing-test")) == ["im00009.jpg"]
        # how many are trained on must not depend on what they show
        assert len(opened(root, "choosing-train")) == 3
        assert len(opened(root, "private")) == 5

    def test_the_real_parts_are_within_the_private_split_and_apart(self):
        (first, middle), (after, last) = module.PARTS["choosing-train"], module.PARTS["choosing-test"]
        assert (first, last) == SPLITS["private"]
        assert middle + 1 == after


class TestLabels:
    def test_someone_without_a_visible_joint_is_left_out_and_counted(self, root):
        labels = make_labels()
        labels[:, 2, 5] = 0
        save(root, labels)
        units = opened(root)
        assert "im00006.jpg" not in names(units)
        assert "1 left out: people without a visible joint" in units.report

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_visible_joint_that_is_not_a_number_is_refused(self, root, value):
        labels = make_labels()
        labels[4, 0, 4] = value
        save(root, labels)
        with refused("joint-not-number", where=("joints.mat", "im00005.jpg")):
            opened(root)

    def test_a_flag_that_is_not_a_number_is_refused(self, root):
        labels = make_labels()
        labels[4, 2, 4] = np.nan
        save(root, labels)
        with refused("visibility-invalid", where="joints.mat"):
            opened(root)

    @pytest.mark.parametrize(("x", "remaining"), [(-10.0, True), (-10.1, False), (109.0, True), (109.1, False)])
    def test_labels_far_outside_the_picture_are_not_used(self, root, x, remaining):
        labels = make_labels()
        labels[0, 0, 4] = x  # the pictures are 100 pixels wide
        save(root, labels)
        (view,) = load(opened(root), 0)
        assert view.target["labelled"][0] == remaining

    def test_a_wild_hidden_joint_changes_nothing(self, root):
        labels = make_labels()
        labels[2, 2, 4] = 0
        save(root, labels)
        (before,) = load(opened(root), 0)
        labels[2, :2, 4] = np.nan, -7e8
        save(root, labels)
        (after,) = load(opened(root), 0)
        assert np.array_equal(before.image, after.image)
        assert all(np.array_equal(before.target[k], after.target[k], equal_nan=True) for k in before.target)
        assert before.target["labelled"][6] == 0  # nor is the pelvis derived from it

    def test_no_head_length_without_neck_and_head_top(self, root):
        labels = make_labels()
        labels[12, 2, 4] = 0
        labels[13, 2, 5] = 0
        labels[13, :2, 6] = labels[12, :2, 6]
        save(root, labels)
        units = opened(root)
        lengths = [load(units, i)[0].target["head_length"] for i in range(5)]
        assert np.isnan(lengths).tolist() == [True, True, True, False, False]
        assert any(line.startswith("3 not in PCKh") for line in units.report)

    def test_one_visible_joint_still_gives_a_crop(self, root):
        labels = make_labels()
        labels[1:, 2, 4] = 0
        save(root, labels)
        (view,) = load(opened(root), 0)
        assert view.target["visible"].sum() == 1
        assert view.target["keypoints"][0].tolist() == pytest.approx([47.5, 63.5])


class TestMistakes:
    def test_no_folder(self, tmp_path):
        with refused("folder-missing", where="nowhere"):
            opened(tmp_path / "nowhere")

    def test_an_empty_folder(self, tmp_path):
        with refused("file-missing", where="joints.mat"):
            opened(tmp_path)

    def test_no_images(self, root):
        shutil.rmtree(root / "images")
        with refused("pictures-missing", where=("12 of", "im00001.jpg")):
            opened(root)

    def test_a_missing_image_of_another_split_counts_too(self, root):
        (root / "images" / "im00011.jpg").unlink()
        with refused("pictures-missing", where=("1 of", "12 pictures", "im00011.jpg")):
            opened(root)

    @pytest.mark.parametrize("split", SMALL)
    def test_a_truncated_image_is_named(self, root, split):
        path = root / "images" / f"im{SMALL[split][0]:05d}.jpg"
        path.write_bytes(path.read_bytes()[:-500])
        with refused("picture-cut-short", where=path.name):
            opened(root, split)

    @pytest.mark.parametrize("content", [b"", b"not a mat file", b"MATLAB 5.0 MAT-file" + bytes(200)])
    def test_joints_mat_is_something_else(self, root, content):
        (root / "joints.mat").write_bytes(content)
        with refused(("matlab-unreadable", "joints-missing"), where="joints.mat"):
            opened(root)

    def test_a_truncated_joints_mat(self, root):
        data = (root / "joints.mat").read_bytes()
        (root / "joints.mat").write_bytes(data[: len(data) // 2])
        with refused("matlab-unreadable", where="joints.mat"):
            opened(root)

    def test_another_variable(self, root):
        scipy.io.savemat(root / "joints.mat", {"points": make_labels()})
        with refused("joints-missing"):
            opened(root)

    @pytest.mark.parametrize(
        "labels", [make_labels()[:13], make_labels().transpose(2, 1, 0), make_labels()[..., 0], np.array(["text"])]
    )
    def test_another_shape_or_kind(self, root, labels):
        save(root, labels)
        with refused(("joints-missing", "joints-of-wrong-shape")):
            opened(root)

    def test_too_few_labels(self, root):
        save(root, make_labels(11))
        with refused("labels-too-few", where=("11 pictures", "where 12")):
            opened(root)

    def test_flags_that_are_not_flags(self, root):
        labels = make_labels()
        labels[3, 2, 3] = 2
        save(root, labels)
        with refused("visibility-invalid"):
            opened(root)


class TestRealData:
    """Counts here are facts of the published dataset."""

    @pytest.mark.slow
    def test_the_private_split_is_whole(self, lspet):
        units = open_data(f"lspet:{lspet}:private", augment=Augment.private())
        assert len(units) == 7000
        assert units.unit_id(0) == "im01001.jpg"
        assert units.unit_id(6999) == "im08000.jpg"
        (view,) = load(units, 17)
        assert view.image.shape == (256, 192, 3)
        assert view.target["labelled"].sum() >= 4

    def test_known_copies_across_splits_are_found_and_others_are_not(self, lspet, monkeypatch):
        """A small world of real pictures: 639 = 6054, 545 = 4217 and 5545 = 8796 are the same photographs."""
        public, private, validation = (639, 545, 10, 11), (6054, 4217, 5545, 3000), (8796, 8900, 8901, 8902)
        chosen = dict(enumerate((*public, *private, *validation), start=1))
        splits = {"public": (1, 4), "private": (5, 8), "validation": (9, 12)}
        paths = {n: lspet / "images" / f"im{image:05d}.jpg" for n, image in chosen.items()}
        near = module._near_copies(paths, splits)
        assert near["public"].tolist() == [True, True, False, False]
        assert near["validation"].tolist() == [True, False, False, False]

    def test_the_splits_cover_the_pictures_at_hand(self, lspet):
        assert sorted(SPLITS.values()) == [(1, 1000), (1001, 8000), (8001, 9000)]
        labels = module._read_labels(lspet / "joints.mat", SPLITS)
        assert labels.joints.shape[0] >= 9000
        assert labels.visible[:9000].mean() == pytest.approx(0.88, abs=0.01)
