"""Views augmented after the crop: labels follow, and pictures of one crop move alike."""

from dataclasses import replace

import numpy as np
import pytest

from dpose.pose.data import Augment, SubjectUnits, open_data
from dpose.pose.data.augment import vary_view
from dpose.pose.skeletons import MPII
from dpose.privacy.selection import Selection
from dpose.units import CanonicalUnits, KnownPictures, View
from refusals import refused

SIZE = (128, 96)


@pytest.fixture(scope="module")
def units():
    return open_data("synthetic:studio:val", purpose="evaluate", input_size=SIZE, augment=Augment.private())


def rng(seed=0):
    return np.random.default_rng(seed)


def test_canonical_views_draw_nothing_and_are_the_pictures(units):
    (view,) = units.canonical(3)
    (plain,) = units.with_augment(Augment.none()).load(3, rng())
    assert np.array_equal(view.image, plain.image)
    assert all(np.array_equal(view.target[k], plain.target[k], equal_nan=True) for k in plain.target)


def test_no_augmentation_changes_nothing(units):
    (view,) = units.canonical(5)
    same = vary_view(view, Augment.none(), MPII.flip_order, rng())
    assert np.array_equal(same.image, view.image)
    for name, value in view.target.items():
        assert np.allclose(same.target[name], value, atol=1e-4, equal_nan=True), name


@pytest.mark.parametrize("seed", range(6))
def test_a_varied_view_is_what_loading_with_the_same_draw_gives_inside(units, seed):
    """The crop is the whole picture here, so both ways are the same up to a second rounding."""
    (loaded,) = units.load(seed, rng(seed))
    (canonical,) = units.canonical(seed)
    varied = units.augmented(canonical, rng(seed))
    assert np.abs(loaded.image.astype(int) - varied.image.astype(int)).mean() < 0.6
    for name in ("keypoints", "visible", "labelled", "head_length", "inverse"):
        assert np.allclose(loaded.target[name], varied.target[name], atol=0.02), name


def test_another_picture_of_the_crop_moves_alike(units):
    (view,) = units.canonical(1)
    other = View(255 - view.image, view.target)
    first, second = units.augmented(view, rng(4)), units.augmented(other, rng(4))
    assert not np.array_equal(first.image, second.image)
    assert all(np.array_equal(first.target[k], second.target[k], equal_nan=True) for k in first.target)


def test_pose_units_offer_both_protocols(units):
    assert isinstance(units, CanonicalUnits)
    assert isinstance(units, KnownPictures)
    assert units.fingerprints(0).shape == (1, 16)


class TestSubjects:
    def test_a_unit_is_a_person_with_all_their_pictures(self, units):
        people = SubjectUnits(units)
        assert sum(len(people.content_hashes(i)) for i in range(len(people))) == len(units)
        names = [people.unit_id(i) for i in range(len(people))]
        assert len(set(names)) == len(names) < len(units)
        for i in (0, 5):
            owned = [k for k in range(len(units)) if units.subjects(k) == (names[i],)]
            assert people.content_hashes(i) == tuple(units.content_hashes(k)[0] for k in owned)
            assert len(people.load(i, rng())) == min(8, len(owned))
            assert len(people.canonical(i)) == len(owned) == len(people.fingerprints(i))

    def test_a_limit_is_one_of_people(self, units):
        people = SubjectUnits(units)
        few = people.limit(Selection(10))
        assert len(few) == 10
        assert {few.unit_id(i) for i in range(10)} <= {people.unit_id(i) for i in range(len(people))}
        assert len(people.limit(Selection(10_000))) == len(people)

    def test_unknown_people_are_refused(self, units):
        nameless = units.subset(range(3))
        (source,) = nameless._sources
        pictures = tuple(type(p)(p.name, p.count, p.read) for p in source.pictures)
        nameless._sources = (replace(source, pictures=pictures),)
        with refused("subjects-unknown"):
            SubjectUnits(nameless)
