import pytest

from dpose_scene.looks import LOOKS
from dpose_scene.render import render_person
from dpose_scene.splits import IDENTITIES, SPLITS, people_of, scene_seed
from refusals import refused


def test_sizes():
    own = {"train": 8000, "val": 1000, "test": 1000, "public": 200}
    assert {**own, "large": 32000, "larger": 24000, "aids": 1000} == SPLITS


def test_no_seed_is_in_two_splits_or_looks():
    seeds = [scene_seed(look, split, i) for look in LOOKS for split, n in SPLITS.items() for i in range(n)]
    assert len(set(seeds)) == len(seeds) == 2 * sum(SPLITS.values())
    assert min(seeds) >= 0


def test_no_person_is_in_two_splits():
    people = [set(r) for r in IDENTITIES.values()]
    assert sum(len(p) for p in people) == len(set().union(*people)) == 2000


@pytest.mark.parametrize("split", SPLITS)
def test_pictures_show_their_splits_people(split):
    for look in LOOKS:
        for i in (0, 1, SPLITS[split] - 1):
            seed = scene_seed(look, split, i)
            people = IDENTITIES[{"large": "train", "larger": "train", "aids": "public"}.get(split, split)]
            assert people_of(seed) == people
            assert render_person(look, seed, (32, 24)).identity in people


def test_a_split_shows_many_people():
    shown = {render_person("studio", scene_seed("studio", "public", i), (16, 16)).identity for i in range(60)}
    assert len(shown) > 35


@pytest.mark.parametrize(
    ("look", "split", "index", "named"),
    [
        ("studio", "dev", 0, ("split-unknown",)),
        ("hall", "val", 0, ("look-unknown", "hall")),
        ("ward", "public", 200, ("index-out-of-range", "200")),
        ("ward", "val", -1, ("index-out-of-range", "-1")),
    ],
)
def test_mistakes_are_told(look, split, index, named):
    with refused(*named):
        scene_seed(look, split, index)
