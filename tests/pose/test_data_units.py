import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest

from dpose.files import file_digest
from dpose.media.identity import pixel_hash
from dpose.pose.crops import transform_points, whole_frame
from dpose.pose.data import units as units_module
from dpose.pose.data.augment import Augment, _colour_matrices, recolour
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import PoseUnits
from dpose.pose.skeletons import MPII
from dpose.privacy.marks import marks_of
from dpose.privacy.merged import merge_units
from dpose.privacy.protected import protect
from dpose.privacy.selection import Selection
from dpose.units import MAX_VIEWS, UnitDataset, pad_views
from refusals import refused

SIZE = (128, 96)
ORDER = list(MPII.flip_order)


def image_of(seed, shape=(150, 200)):
    noise = np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 5)


def person_of(seed):
    rng = np.random.default_rng(1000 + seed)
    keypoints = rng.uniform((60, 40), (140, 110), (16, 2)).astype(np.float32)
    return Person(keypoints, rng.random(16) < 0.8, np.array([60, 40, 140, 110], np.float32), 20.0)


class Reader:
    """Counts how often a picture is decoded."""

    def __init__(self, seed, count):
        self.seed, self.count, self.calls = seed, count, 0

    def __call__(self):
        self.calls += 1
        return image_of(self.seed), tuple(person_of(10 * self.seed + k) for k in range(self.count))


def units_of(counts=(1, 2, 3), **options):
    readers = [Reader(seed, count) for seed, count in enumerate(counts)]
    pictures = [Picture(f"im{r.seed}", r.count, r) for r in readers]
    options = {"input_size": SIZE} | options
    return PoseUnits(pictures, **options), readers


def rng(seed=0):
    return np.random.default_rng(seed)


def joints_of(view):
    return view.target["keypoints"].tolist()


def same(a, b):
    return all(
        np.array_equal(x.image, y.image)
        and all(np.array_equal(x.target[k], y.target[k], equal_nan=True) for k in x.target)
        for x, y in zip(a, b, strict=True)
    )


class TestUnits:
    def test_it_is_a_unit_dataset_whose_views_batch(self):
        units, _ = units_of()
        assert isinstance(units, UnitDataset)
        batch = pad_views([units.load(i, rng()) for i in range(len(units))])
        assert batch.inputs.shape == (3, 4, 3, *SIZE)
        assert batch.targets["inverse"].shape == (3, 4, 2, 3)
        assert batch.targets["head_length"].shape == (3, 4)

    def test_an_image_groups_its_people(self):
        units, _ = units_of()
        assert [len(units.load(i, rng())) for i in range(3)] == [1, 2, 3]
        assert [units.unit_id(i) for i in range(3)] == ["im0", "im1", "im2"]

    def test_a_crop_is_one_person(self):
        crops, _ = units_of(unit="crop")
        images, _ = units_of()
        assert [crops.unit_id(i) for i in range(len(crops))] == ["im0#0", "im1#0", "im1#1", "im2#0", "im2#1", "im2#2"]
        assert all(len(crops.load(i, rng())) == 1 for i in range(len(crops)))
        assert same([crops.load(4, rng())[0]], [images.load(2, rng())[1]])

    def test_crops_of_one_picture_share_its_hash(self):
        crops, _ = units_of(unit="crop")
        assert crops.content_hashes(3) == crops.content_hashes(5) != crops.content_hashes(0)

    def test_a_picture_without_people_is_an_image_without_views_and_no_crop(self):
        images, _ = units_of((1, 0, 2))
        assert [len(images.load(i, rng())) for i in range(3)] == [1, 0, 2]
        crops, _ = units_of((1, 0, 2), unit="crop")
        assert [crops.unit_id(i).partition("/")[0][:3] for i in range(len(crops))] == ["im0", "im2", "im2"]

    def test_more_people_than_max_views_give_a_random_choice(self):
        units, _ = units_of((MAX_VIEWS + 4,))
        everyone, _ = units_of((MAX_VIEWS + 4,), unit="crop")
        known = [joints_of(everyone.load(i, rng())[0]) for i in range(len(everyone))]
        chosen = [[known.index(joints_of(v)) for v in units.load(0, rng(s))] for s in range(40)]
        assert all(len(set(c)) == MAX_VIEWS for c in chosen)
        assert {k for c in chosen for k in c} == set(range(MAX_VIEWS + 4))
        assert len({tuple(c) for c in chosen}) > 20

    def test_names_must_differ_and_kinds_be_known(self):
        picture = Picture("a", 1, Reader(0, 1))
        with pytest.raises(ValueError, match="same name"):
            PoseUnits([picture, picture], input_size=SIZE)
        with pytest.raises(ValueError, match="unit must be"):
            PoseUnits([picture], input_size=SIZE, unit="subject")

    def test_a_person_has_fixed_shapes(self):
        with pytest.raises(ValueError, match="a person needs"):
            replace(person_of(0), visible=np.ones(14, bool))


class TestHashes:
    def test_pixels_decide_and_nothing_else(self, tmp_path):
        image = image_of(0)
        assert pixel_hash(image) == pixel_hash(image.copy())
        other = image.copy()
        other[3, 4, 1] ^= 1
        assert pixel_hash(image) != pixel_hash(other)

    def test_shape_counts(self):
        image = image_of(0)
        assert pixel_hash(image) != pixel_hash(image.reshape(image.shape[1], image.shape[0], 3))

    def test_equal_pictures_under_two_names_are_equal(self):
        units = PoseUnits([Picture(n, 1, Reader(5, 1)) for n in "ab"], input_size=SIZE)
        assert units.content_hashes(0) == units.content_hashes(1) == (pixel_hash(image_of(5)),)


class TestFiles:
    """Decoders differ in last bits: the account knows a picture by its file too."""

    @pytest.mark.parametrize("unit", ["image", "crop"])
    def test_the_account_gets_file_and_pixels(self, tmp_path, unit):
        paths = [tmp_path / name for name in "ab"]
        for k, path in enumerate(paths):
            path.write_bytes(b"file %d" % k)
        pictures = [Picture(path.name, 2, Reader(k, 2), path=path) for k, path in enumerate(paths)]
        units = PoseUnits([*pictures, Picture("rendered", 1, Reader(9, 1))], input_size=SIZE, unit=unit)
        marks = protect(units).identity.marks
        pixels = {h for i in range(len(units)) for h in units.content_hashes(i)}
        assert (marks == marks_of(pixels | {file_digest(path) for path in paths})).all()
        assert len(marks) == 5
        assert protect(merge_units(units, [[i] for i in range(len(units))])).identity.marks.tolist() == marks.tolist()

    def test_files_are_no_part_of_what_units_are(self, tmp_path):
        """The same pixels in another file are a copy."""
        paths = [tmp_path / name for name in "ab"]
        for k, path in enumerate(paths):
            path.write_bytes(b"file %d" % k)
        units = PoseUnits([Picture(p.name, 1, Reader(0, 1), path=p) for p in paths], input_size=SIZE)
        identity = protect(units).identity
        assert (identity.units, identity.merged) == (1, 1)
        assert len(identity.marks) == 3

    def test_a_file_is_digested_once_however_often_it_is_asked_for(self, tmp_path, monkeypatch):
        paths = [tmp_path / f"{k}.png" for k in range(2)]
        for k, path in enumerate(paths):
            path.write_bytes(b"file %d" % k)
        requests = []
        monkeypatch.setattr(units_module, "file_digest", lambda path: requests.append(path) or file_digest(path))
        units = PoseUnits([Picture(p.name, 2, Reader(k, 2), path=p) for k, p in enumerate(paths)], input_size=SIZE)
        first = [protect(one).identity.marks for one in (units, units.subset([0, 1]), units.with_skeleton(MPII))]
        assert sorted(requests) == paths
        assert all(np.array_equal(first[0], other) for other in first)


class TestTargets:
    def test_the_inverse_leads_back_to_the_picture(self):
        units, _ = units_of(augment=Augment.public())
        for seed in range(20):
            (view,) = units.load(0, rng(seed))
            person = person_of(0)
            back = transform_points(view.target["inverse"], view.target["keypoints"])
            expected, seen = person.keypoints, person.visible
            turned = np.linalg.det(view.target["inverse"][:, :2]) < 0
            if turned:
                expected, seen = expected[ORDER], seen[ORDER]
            assert np.array_equal(view.target["labelled"] > 0, seen)
            assert np.allclose(back[seen], expected[seen], atol=1e-3)

    def test_head_length_is_in_crop_pixels(self):
        units, _ = units_of(augment=Augment.public())
        (view,) = units.load(0, rng(3))
        zoom = 1 / np.sqrt(abs(np.linalg.det(view.target["inverse"][:, :2].astype(float))))
        assert view.target["head_length"] == pytest.approx(20 * zoom, rel=1e-5)
        assert view.target["head_length"].shape == ()

    def test_joints_outside_the_crop_are_labelled_but_not_visible(self):
        box = np.array([60, 40, 140, 110], np.float32)
        keypoints = np.full((16, 2), (100, 75), np.float32)
        keypoints[3] = (-400, 75)
        visible = np.ones(16, bool)
        visible[5] = False
        person = Person(keypoints, visible, box)
        units = PoseUnits([Picture("a", 1, lambda: (image_of(0), (person,)))], input_size=SIZE)
        (view,) = units.load(0, rng())
        assert np.flatnonzero(view.target["labelled"] == 0).tolist() == [5]
        assert np.flatnonzero(view.target["visible"] == 0).tolist() == [3, 5]
        assert view.target["keypoints"][3, 0] < 0
        assert view.target["keypoints"][5].tolist() == [0, 0]
        assert np.isnan(view.target["head_length"])

    def test_types(self):
        units, _ = units_of()
        (view,) = units.load(0, rng())
        assert {k: (v.dtype.name, v.shape) for k, v in view.target.items()} == {
            "keypoints": ("float32", (16, 2)),
            "visible": ("float32", (16,)),
            "labelled": ("float32", (16,)),
            "head_length": ("float32", ()),
            "area": ("float32", ()),
            "inverse": ("float32", (2, 3)),
        }
        assert view.image.dtype == np.uint8
        assert view.image.shape == (*SIZE, 3)


class TestFlip:
    def flipped(self, flip):
        person = replace(person_of(0), box=whole_frame(SIZE))
        return PoseUnits(
            [Picture("a", 1, lambda: (image_of(0, SIZE), (person,)))],
            input_size=SIZE,
            padding=1.0,
            augment=Augment(flip=flip),
        ).load(0, rng())[0]

    def test_pixels_are_mirrored_and_joints_swap_sides(self):
        plain, mirrored = self.flipped(0), self.flipped(1)
        assert np.array_equal(mirrored.image, plain.image[:, ::-1])
        assert np.array_equal(mirrored.target["labelled"], plain.target["labelled"][ORDER])
        seen = mirrored.target["labelled"] > 0
        expected = plain.target["keypoints"][ORDER]
        expected[:, 0] = SIZE[1] - 1 - expected[:, 0]
        assert np.allclose(mirrored.target["keypoints"][seen], expected[seen], atol=1e-4)
        right, left = MPII.joints.index("r_wrist"), MPII.joints.index("l_wrist")
        assert mirrored.target["labelled"][right] == plain.target["labelled"][left]


class TestRandomness:
    def test_everything_comes_from_the_generator(self):
        units, _ = units_of(augment=Augment.public())
        again, _ = units_of(augment=Augment.public())
        assert same(units.load(2, rng(1)), again.load(2, rng(1)))
        assert not same(units.load(2, rng(1)), units.load(2, rng(2)))

    def test_no_augmentation_draws_nothing(self):
        units, _ = units_of()
        generator = rng()
        before = generator.bit_generator.state
        units.load(2, generator)
        assert generator.bit_generator.state == before

    def test_order_of_loading_does_not_matter(self):
        first, _ = units_of(augment=Augment.private())
        second, _ = units_of(augment=Augment.private())
        forward = [first.load(i, rng(i)) for i in (0, 1, 2)]
        backward = [second.load(i, rng(i)) for i in (2, 1, 0)][::-1]
        assert all(same(a, b) for a, b in zip(forward, backward, strict=True))

    def test_canonical_crops_leave_the_original_alone(self):
        units, _ = units_of(augment=Augment.public())
        plain, _ = units_of()
        assert same(units.with_augment(Augment.none()).load(1, rng(7)), plain.load(1, rng(8)))
        assert units.augment == Augment.public()


class TestAugment:
    def test_draws_stay_in_their_ranges_and_fill_them(self):
        draws = [Augment.public().draw(generator) for generator in [rng()] for _ in range(3000)]
        turned = np.array([d.rotation for d in draws if d.rotation])
        scales = np.array([d.scale for d in draws])
        assert abs(len(turned) / 3000 - 0.6) < 0.04
        assert 78 < turned.max() <= 80
        assert -80 <= turned.min() < -78
        assert 0.5 <= scales.min() < 0.51
        assert 1.49 < scales.max() <= 1.5
        assert abs(np.mean([d.flip for d in draws]) - 0.5) < 0.04

    def test_private_is_milder_than_public(self):
        public, private = Augment.public(), Augment.private()
        assert private.rotation < public.rotation
        assert private.scale[0] > public.scale[0]
        assert private.scale[1] < public.scale[1]
        assert private.colour < public.colour

    def test_colours_change_without_drift(self):
        gray = np.full((4, 4, 3), 128, np.uint8)
        generator = rng()
        shown = [recolour(gray, Augment(colour=0.3).draw(generator).colour).mean() for _ in range(2000)]
        assert abs(np.mean(shown) - 128) < 3
        assert np.std(shown) > 10

    def test_contrast_alone_turns_about_mid_gray(self):
        for contrast in (-0.5, 0.5):
            matrix = _colour_matrices(np.array([[contrast, 0, 0, 0, 0, 0]], np.float32))[0]
            tones = np.array([[[60] * 3, [127] * 3, [128] * 3, [195] * 3]], np.uint8)
            shown = recolour(tones, matrix)[0, :, 0].astype(float)
            assert shown[1:3] == pytest.approx([127, 128], abs=1)
            assert shown[3] - shown[0] == pytest.approx(135 * (1 + contrast), abs=1)

    def test_no_colour_change_is_exact(self):
        image = image_of(1)
        assert recolour(image, Augment(flip=0.5).draw(rng()).colour) is image

    @pytest.mark.parametrize(
        "bad", [{"flip": 1.5}, {"scale": (1.5, 0.5)}, {"scale": (0, 1)}, {"colour": -1}, {"rotation": -3}]
    )
    def test_impossible_ranges_are_refused(self, bad):
        with pytest.raises(ValueError, match=r"scale|between"):
            Augment(**bad)


class TestChoosing:
    def test_a_subset_keeps_the_order_given(self):
        units, _ = units_of((1,) * 6)
        chosen = units.subset([4, 0])
        assert [chosen.unit_id(i) for i in range(2)] == ["im4", "im0"]
        assert len(units) == 6

    def test_limits_are_nested_fixed_and_in_order(self):
        units, _ = units_of((1,) * 30)
        names = {n: [units.limit(Selection(n)).unit_id(i) for i in range(n)] for n in (5, 12)}
        assert set(names[5]) < set(names[12])
        assert names[12] == sorted(names[12], key=lambda name: int(name[2:]))
        assert names[12] == [units.limit(Selection(12)).unit_id(i) for i in range(12)]
        other = units.limit(Selection(12, seed=1))
        assert [other.unit_id(i) for i in range(12)] != names[12]
        assert "12 of 30" in units.limit(Selection(12)).report[-1]

    def test_a_limit_looks_at_names_only(self):
        _, readers = built = units_of((1,) * 10)
        built[0].limit(Selection(4))
        assert sum(r.calls for r in readers) == 0

    def test_a_limit_above_the_size_is_no_limit(self):
        units, _ = units_of()
        assert units.limit(Selection(3)) is units
        with refused("limit-not-positive"):
            units.limit(Selection(0))


class TestMemory:
    def test_a_picture_is_decoded_once_even_by_a_subset(self):
        units, readers = units_of()
        for _ in range(3):
            units.load(1, rng())
            units.subset([1]).load(0, rng())
            units.content_hashes(1)
        assert [r.calls for r in readers] == [0, 1, 0]

    def test_the_bound_holds_and_the_oldest_goes_first(self):
        one = image_of(0).nbytes
        units, readers = units_of((1, 1, 1), cache_bytes=2 * one)
        for index in (0, 1, 0, 2, 0, 1):  # 1 is the least recently used when 2 comes
            units.load(index, rng())
            assert units._sources[0].cache.size <= 2 * one
        assert [r.calls for r in readers] == [1, 2, 1]

    def test_no_memory_at_all_still_works(self):
        units, readers = units_of((1,), cache_bytes=0)
        assert same(units.load(0, rng()), units.load(0, rng()))
        assert readers[0].calls == 2

    def test_views_may_be_written_to_without_harm(self):
        person = replace(person_of(0), box=whole_frame(SIZE))
        picture = Picture("a", 1, partial(lambda i: (i, (person,)), image_of(0, SIZE)))
        units = PoseUnits([picture], input_size=SIZE, padding=1.0)
        before = units.load(0, rng())[0].image.copy()
        units.load(0, rng())[0].image[:] = 0
        assert np.array_equal(units.load(0, rng())[0].image, before)

    def test_threads_see_what_one_thread_sees(self):
        units, _ = units_of((2, 3, 1, 1), augment=Augment.public(), cache_bytes=2 * image_of(0).nbytes)
        alone, _ = units_of((2, 3, 1, 1), augment=Augment.public())
        jobs = [(i % 4, i) for i in range(120)]
        start = threading.Barrier(8)

        def work(part):
            start.wait()
            return [units.load(unit, rng(seed)) for unit, seed in jobs[part::8]]

        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(work, range(8)))
        for part in range(8):
            for (unit, seed), views in zip(jobs[part::8], parts[part], strict=True):
                assert same(views, alone.load(unit, rng(seed)))
        held = sum(image.nbytes for image, _ in units._sources[0].cache.held.values())
        assert held == units._sources[0].cache.size <= units._sources[0].cache.limit
