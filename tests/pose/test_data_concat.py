from dataclasses import replace

import numpy as np
import pytest

from dpose.pose.data import Augment, Person, Picture, PoseUnits, open_data, open_several
from dpose.pose.skeletons import COCO, MPII
from dpose.privacy.selection import Selection
from dpose.units import CanonicalUnits, KnownPictures, UnitDataset, pad_views
from refusals import refused

SIZE = (128, 96)


def part(skeleton, count=2, start=0, **options):
    def read(seed):
        def of():
            rng = np.random.default_rng(seed)
            keypoints = rng.uniform(20, 90, (len(skeleton), 2)).astype(np.float32)
            image = rng.integers(0, 256, (110, 110, 3), np.uint8)
            return image, (Person(keypoints, np.ones(len(skeleton), bool), np.array([5, 5, 100, 100], np.float32)),)

        return of

    pictures = [Picture(f"p{i}", 1, read(start + i)) for i in range(count)]
    return PoseUnits(pictures, **({"input_size": SIZE, "skeleton": skeleton} | options))


def rng():
    return np.random.default_rng(0)


def test_units_of_different_skeletons_make_one_batch():
    both = PoseUnits.joined([part(COCO), part(MPII, 3, start=9)], ["c", "m"], MPII)
    assert isinstance(both, UnitDataset)
    assert [both.unit_id(i) for i in range(len(both))] == ["c/p0", "c/p1", "m/p0", "m/p1", "m/p2"]
    batch = pad_views([both.load(i, rng()) for i in range(len(both))])
    assert batch.targets["keypoints"].shape == (5, 1, 16, 2)
    seen = batch.targets["visible"][:, 0].numpy()
    assert (seen[2:] == 1).all()
    assert seen[0].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1]  # COCO has no neck and no head top
    assert "c has no labels for upper_neck, head_top" in both.report


def test_joints_keep_their_names():
    alone, both = part(COCO), PoseUnits.joined([part(COCO)], ["c"], MPII)
    before, after = alone.load(0, rng())[0].target["keypoints"], both.load(0, rng())[0].target["keypoints"]
    for name in ("r_wrist", "l_knee", "r_shoulder"):
        assert np.array_equal(after[MPII.joints.index(name)], before[COCO.joints.index(name)])
    hips = [before[COCO.joints.index(f"{side}_hip")] for side in "rl"]
    assert np.allclose(after[MPII.joints.index("pelvis")], np.mean(hips, axis=0), atol=1e-4)


def test_a_mirrored_view_is_mapped_after_it_is_mirrored():
    both = PoseUnits.joined([part(COCO)], ["c"], MPII)
    plain = both.load(0, rng())[0].target["keypoints"]
    mirrored = both.with_augment(Augment(flip=1.0)).load(0, rng())[0].target["keypoints"]
    r, left = MPII.joints.index("r_wrist"), MPII.joints.index("l_wrist")
    assert mirrored[r].tolist() == pytest.approx([SIZE[1] - 1 - plain[left][0], plain[left][1]], abs=1e-3)


def test_content_hashes_limits_and_subsets_are_the_parts_own():
    parts = [part(COCO), part(MPII, 3, start=9)]
    both = PoseUnits.joined(parts, ["c", "m"])
    assert both.skeleton == COCO
    assert both.content_hashes(3) == parts[1].content_hashes(1)
    small = both.limit(Selection(3))
    assert len(small) == 3
    assert set(map(small.unit_id, range(3))) < set(map(both.unit_id, range(5)))
    assert both.subset([4, 0]).unit_id(0) == "m/p2"
    assert both.limit(Selection(99)) is both
    assert both.with_skeleton(MPII).load(0, rng())[0].target["keypoints"].shape == (16, 2)


def test_parts_that_do_not_go_together_are_refused():
    for parts, names in (
        ([], []),
        ([part(COCO)], ["a", "b"]),
        ([part(COCO), part(COCO)], ["a", "a"]),
        ([part(COCO), part(COCO, input_size=(64, 48))], ["a", "b"]),
        ([part(COCO), part(COCO, unit="crop")], ["a", "b"]),
        ([part(COCO), part(COCO, augment=Augment.private())], ["a", "b"]),
    ):
        with pytest.raises(ValueError, match="parts"):
            PoseUnits.joined(parts, names)


def test_ids_that_only_together_are_equal_are_refused():
    def named(name):
        picture = part(COCO, 1).pictures[0]
        return PoseUnits([replace(picture, name=name)], input_size=SIZE, skeleton=COCO)

    assert len(PoseUnits.joined([named("c"), named("c")], ["a", "b"])) == 2
    with pytest.raises(ValueError, match="one id"):
        PoseUnits.joined([named("b/c"), named("c")], ["a", "a/b"])


def test_content_and_augmentation_are_told_apart_in_every_part():
    both = PoseUnits.joined(
        [part(COCO, augment=Augment(flip=1.0)), part(MPII, start=9, augment=Augment(flip=1.0))], ["c", "m"], MPII
    )
    assert isinstance(both, CanonicalUnits)
    assert isinstance(both, KnownPictures)
    for index in range(len(both)):
        (plain,) = both.canonical(index)
        (varied,) = [both.augmented(view, rng()) for view in both.canonical(index)]
        (loaded,) = both.load(index, rng())
        assert np.array_equal(varied.image, plain.image[:, ::-1])
        assert np.allclose(varied.target["keypoints"], loaded.target["keypoints"], atol=1e-3)
        assert not np.allclose(varied.target["keypoints"], plain.target["keypoints"], atol=1)


def test_a_picture_in_two_parts_is_found_and_one_twice_in_a_part_is_not():
    apart = PoseUnits.joined([part(COCO), part(MPII, start=9)], ["c", "m"])
    assert apart.shared_picture() is None
    again = PoseUnits.joined([part(COCO, 3), part(COCO, start=2)], ["c", "d"])
    assert again.shared_picture() == ("c/p2", "d/p0")
    assert again.subset([0, 1, 3, 4]).shared_picture() is None  # a limit may have left the other out
    crops = PoseUnits.joined([two_people(), part(COCO, start=50, unit="crop")], ["c", "d"])
    assert crops.content_hashes(0) == crops.content_hashes(1)
    assert crops.shared_picture() is None


def two_people():
    (picture, _) = part(COCO).pictures

    def read():
        image, people = picture.read()
        return image, people * 2

    return PoseUnits([Picture("two", 2, read)], input_size=SIZE, skeleton=COCO, unit="crop")


class TestSpecs:
    def open(self, *specs, **options):
        return open_several(specs, purpose="train", input_size=SIZE, **options)

    def test_real_and_rendered_data_together(self, pose_fixtures):
        coco = f"coco:{pose_fixtures}/coco"
        both = self.open("synthetic:studio", coco)
        assert len(both) == 8000 + 4
        assert both.unit_id(8000) == "coco:coco:train/000000000785.jpg"
        assert both.load(8000, rng())[0].target["keypoints"].shape == (16, 2)

    def test_one_alone_is_itself_in_the_wanted_skeleton(self, pose_fixtures):
        alone = open_data(f"mpii:{pose_fixtures}/mpii", input_size=SIZE, skeleton="coco", limit=2)
        assert isinstance(alone, PoseUnits)
        assert (len(alone), alone.skeleton) == (2, COCO)

    def test_the_same_data_twice_are_refused(self, pose_fixtures):
        root = pose_fixtures / "coco"
        for again in (f"coco:{root}", f"coco:{root}:val", f"coco:{root}/../coco,annotations=test_coco.json"):
            with refused("data-given-twice"):
                self.open(f"coco:{root}:train", again)
