"""Films: reproducible, balanced, with no person in two splits."""

import numpy as np
import pytest

from dpose_scene.films import FILM_ACTIONS, FILM_SPLITS, film, film_labels
from dpose_scene.splits import scene_seed
from refusals import refused


def test_a_film_is_the_same_every_time_and_moves():
    first = film("ward", "train", 3)
    assert first.shape == (24, 64, 64, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, film("ward", "train", 3))
    still = np.abs(first[0].astype(int) - first[12]).mean()
    assert still > 1
    assert not np.array_equal(first, film("studio", "train", 3))


def test_no_person_is_in_two_splits():
    people = {
        split: {film_labels("studio", split, i).identity for i in range(count)} for split, count in FILM_SPLITS.items()
    }
    assert not people["train"] & people["test"]
    assert not people["train"] & people["val"]
    assert not people["val"] & people["test"]
    assert len(people["test"]) > 60


def test_actions_are_balanced_and_films_are_no_pictures_of_the_other_splits():
    actions = [film_labels("ward", "test", i).action for i in range(FILM_SPLITS["test"])]
    assert {actions.count(name) for name in FILM_ACTIONS} == {20}
    pictures = {scene_seed("ward", "larger", i) for i in (0, 23_999)}
    assert not pictures & {film_labels("ward", "train", i).seed for i in range(480)}


def test_labels_say_what_the_film_shows():
    labels = film_labels("studio", "val", 5)
    assert labels.name == "studio-val-0005"
    assert labels.action == "kick"
    assert labels.attributes["glasses"] in ("yes", "no")


@pytest.mark.parametrize(("split", "index"), [("public", 0), ("train", 480), ("train", -1)])
def test_films_that_do_not_exist_are_refused(split, index):
    with refused(("index-out-of-range", "split-unknown")):
        film_labels("studio", split, index)
