import numpy as np
import pytest

from dpose_scene.body import HAIRS, SKINS, body_of
from dpose_scene.materials import FIRST_OBJECT, SKIN, TOP
from dpose_scene.render import render_person
from dpose_scene.skeleton import BONE


def test_an_identity_is_the_same_person_every_time():
    again = body_of.__wrapped__(12, False)
    first = body_of(12, False)
    assert np.array_equal(first.tubes.rings, again.tubes.rings)
    assert np.array_equal(first.palette, again.palette)
    assert first.attributes == again.attributes


def test_attributes_are_stable_over_pictures_of_a_look():
    for look in ("studio", "ward"):
        scenes = [render_person(look, seed, (24, 18), identity=77) for seed in range(6)]
        assert all(s.attributes == scenes[0].attributes for s in scenes)
        assert {s.identity for s in scenes} == {77}


def test_a_gown_changes_clothes_and_not_the_person():
    own, gown = body_of(31, False), body_of(31, True)
    assert np.array_equal(own.bones, gown.bones)
    assert np.array_equal(own.palette[SKIN], gown.palette[SKIN])
    for key in ("build", "age", "skin", "hair", "glasses", "beard"):
        assert own.attributes[key] == gown.attributes[key]
    assert "gown" in gown.attributes["top"]
    assert "gown" not in own.attributes["top"]


def test_people_differ():
    bodies = [body_of(i, False) for i in range(150)]
    assert {b.attributes["skin"] for b in bodies} == set(SKINS)
    assert len({b.attributes["hair"].split(",")[0] for b in bodies}) >= len(HAIRS) - 1
    assert len({b.attributes["top"] for b in bodies}) > 60
    assert {b.attributes["build"] for b in bodies} == {"slim", "average", "stout"}
    assert {b.attributes["glasses"] for b in bodies} == {"yes", "no"}
    shanks = [b.bones[BONE["shank"]] for b in bodies]
    assert 0.25 < min(shanks) < 0.36
    assert 0.44 < max(shanks) < 0.55
    assert len({b.palette[TOP].tobytes() for b in bodies}) > 100


@pytest.mark.parametrize("identity", [0, 7, 1999])
def test_a_body_is_well_formed(identity):
    body = body_of(identity, False)
    tubes, rings = body.tubes.tubes, body.tubes.rings
    assert (tubes[:, 0] == np.concatenate([[0], np.cumsum(tubes[:, 1])[:-1]])).all()
    assert tubes[:, 1].sum() == len(rings)
    assert len(set(tubes[:, 3])) == len(tubes)  # every tube is a part of its own
    assert (rings[:, 7] < FIRST_OBJECT).all()
    assert np.isfinite(rings).all()
    assert (rings[:, 5:7] >= 0).all()
    assert ((body.palette[:FIRST_OBJECT, :6] >= 0) & (body.palette[:FIRST_OBJECT, :6] <= 1)).all()
