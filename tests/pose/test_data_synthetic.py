import numpy as np
import pytest

from dpose.pose.data import DataSpec, open_data
from dpose.pose.data.augment import Augment
from dpose.pose.data.synthetic import open_synthetic
from dpose_scene.looks import LOOKS
from dpose_scene.render import render_person
from dpose_scene.splits import SPLITS, scene_seed
from refusals import refused

SIZE = (64, 48)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("look", LOOKS)
def test_the_plain_view_is_the_rendered_picture_exactly(look):
    units = open_synthetic(look, "val", input_size=SIZE)
    for index in (0, 7):
        (view,) = units.load(index, rng())
        scene = render_person(look, scene_seed(look, "val", index), size=SIZE)
        assert np.array_equal(view.image, scene.image)
        seen = np.asarray(scene.visible, bool)
        assert np.array_equal(view.target["labelled"] > 0, seen)
        assert np.array_equal(view.target["keypoints"][seen], scene.keypoints[seen])
        assert np.array_equal(view.target["inverse"], [[1, 0, 0], [0, 1, 0]])


def test_labels_of_a_ward_are_those_of_mpii_and_three_more():
    """The same units: what is shown is the same, and so what the account knows."""
    plain, ward = (open_data(f"synthetic:ward:val{more}", input_size=SIZE) for more in ("", ",joints=ward"))
    assert plain.content_hashes(7) == ward.content_hashes(7)
    assert ward.skeleton.joints[16:] == ("r_palm", "l_palm", "footing")
    for index in range(8):
        (view,), (other,) = ward.load(index, rng()), plain.load(index, rng())
        points, seen = render_person("ward", scene_seed("ward", "val", index), size=SIZE).of_ward
        assert np.array_equal(view.target["keypoints"][:16], other.target["keypoints"])
        assert np.array_equal(view.target["labelled"][16:] > 0, seen)
        assert np.array_equal(view.target["keypoints"][16:][seen], points[seen])
        assert view.target["area"] > 0
    assert DataSpec.parse("synthetic:ward,joints=ward").for_purpose("train").skeleton.name == "ward"
    with refused("skeleton-unknown", where="joints=coco"):
        open_data("synthetic:ward:val,joints=coco")


def test_the_head_length_is_mpiis():
    units = open_synthetic("studio", "val", input_size=SIZE)
    x0, y0, x1, y1 = (float(v) for v in render_person("studio", scene_seed("studio", "val", 3), size=SIZE).head_box)
    assert units.load(3, rng())[0].target["head_length"] == pytest.approx(0.6 * np.hypot(x1 - x0, y1 - y0))


@pytest.mark.parametrize("split", SPLITS)
def test_splits_have_their_sizes_and_own_names(split):
    units = open_synthetic("ward", split, input_size=SIZE)
    assert len(units) == SPLITS[split]
    assert units.unit_id(0) == f"ward-{split}-00000"


@pytest.mark.slow
def test_splits_share_no_picture():
    hashes = [open_synthetic("ward", split, input_size=SIZE).content_hashes(i) for split in SPLITS for i in range(4)]
    assert len(set(hashes)) == 4 * len(SPLITS)


def test_augmentation_changes_views_but_not_content():
    plain = open_synthetic("ward", "train", input_size=SIZE)
    changed = open_synthetic("ward", "train", input_size=SIZE, augment=Augment.public())
    assert not np.array_equal(plain.load(0, rng())[0].image, changed.load(0, rng())[0].image)
    assert plain.content_hashes(0) == changed.content_hashes(0)
