import numpy as np
import pytest

from dpose.pose.data import open_data
from dpose.runs.group_scores import attributes_of
from dpose_scene.aids import AIDS, choose_scene
from dpose_scene.render import render_person
from dpose_scene.splits import SPLITS
from dpose_scene.stage import build_stage
from refusals import refused


def shown(index, look="ward", size=(64, 48)):
    chosen = choose_scene(look, "aids", index)
    return render_person(look, chosen.seed, size, action=chosen.action, aid=chosen.aid)


def test_one_scene_is_shown_with_every_aid_and_without():
    chosen = [choose_scene("ward", "aids", index) for index in range(10)]
    words = ["none, standing", "crutches", "walking frame", "none, seated", "wheelchair"]
    assert [one.words for one in chosen] == 2 * words
    assert {one.aid for one in chosen} == {None, *AIDS}
    assert [one.seed for one in chosen] == 5 * [chosen[0].seed] + 5 * [chosen[5].seed]
    others = {choose_scene("ward", "public", index).seed for index in range(SPLITS["public"])}
    assert not others & {choose_scene("ward", "aids", index).seed for index in range(SPLITS["aids"])}


@pytest.mark.parametrize("scene", range(6))
@pytest.mark.parametrize(("without", "aided"), [(0, (1, 2)), (3, (4,))])
def test_an_aid_changes_nothing_but_what_it_hides(scene, without, aided):
    """Person, pose, room, camera, light and grain: the difference is the aid's alone."""
    plain = shown(5 * scene + without)
    for index in aided:
        with_aid = shown(5 * scene + index)
        assert with_aid.aid == choose_scene("ward", "aids", index).aid
        assert with_aid.identity == plain.identity
        np.testing.assert_array_equal(with_aid.keypoints, plain.keypoints)
        changed = np.abs(with_aid.image.astype(int) - plain.image).max(axis=2) > 40
        assert 0 < changed.mean() < 0.3


@pytest.mark.parametrize("aid", AIDS)
def test_aids_stand_on_the_floor_about_the_person(aid):
    action = "sit" if AIDS[aid] == "seat" else "lean"
    bare = build_stage("ward", 7, (64, 48), None, action)
    stage = build_stage("ward", 7, (64, 48), None, action, aid)
    kept = {tuple(row) for row in bare.boxes.tolist()}
    boxes = np.array([row for row in stage.boxes.tolist() if tuple(row) not in kept])
    assert len(boxes) >= 8
    corners = np.abs(boxes[:, 4] * np.cos(boxes[:, 7])) + np.abs(boxes[:, 5] * np.sin(boxes[:, 7]))
    lowest = (boxes[:, 1] - corners).min()
    assert abs(lowest) < 0.05
    assert np.abs(boxes[:, [0, 2]]).max() < 1.2
    assert 0.5 < boxes[:, 1].max() < 1.5


def test_groups_tell_aids_apart(tmp_path):
    units = open_data("synthetic:ward:aids", purpose="test", input_size=(32, 24), limit=None)
    found = [attributes_of(units, index) for index in range(5)]
    assert [one["aid"] for one in found] == [choose_scene("ward", "aids", index).words for index in range(5)]
    assert len({one["skin"] for one in found}) == 1
    others = open_data("synthetic:ward:public", purpose="test", input_size=(32, 24), limit=None)
    assert "aid" not in attributes_of(others, 0)


@pytest.mark.parametrize(
    ("action", "aid", "named"),
    [
        ("lean", "rollator", "unknown aid 'rollator'"),
        ("lean", "wheelchair", "sit"),
        ("sit", "crutches", "lean"),
        (None, "crutches", "lean"),
    ],
)
def test_mistakes_are_told(action, aid, named):
    with refused(("aid-unknown", "aid-unsupported")) as told:
        render_person("ward", 0, action=action, aid=aid)
    assert named in told.value.line()
