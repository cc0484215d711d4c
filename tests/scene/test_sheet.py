import numpy as np
import pytest

from dpose_scene.render import render_person
from dpose_scene.sheet import contact_sheet
from refusals import refused


@pytest.fixture(scope="module")
def scenes():
    return [render_person("studio", seed, (40, 30)) for seed in range(5)]


def test_shape_and_order(scenes):
    sheet = contact_sheet(scenes, columns=3, scale=2, skeleton=False)
    assert sheet.shape == (2 * 80, 3 * 60, 3)
    assert sheet.dtype == np.uint8
    plain = contact_sheet(scenes, columns=3, scale=1, skeleton=False)
    assert np.array_equal(plain[40:80, :30], scenes[3].image)
    assert (plain[40:80, 60:] == 24).all()


def test_the_skeleton_is_drawn_at_the_joints(scenes):
    plain, drawn = (contact_sheet(scenes[:1], 1, 4, skeleton) for skeleton in (False, True))
    changed = (plain != drawn).any(axis=2)
    assert 0.005 < changed.mean() < 0.3
    for x, y in scenes[0].keypoints:
        i, j = round((y + 0.5) * 4 - 0.5), round((x + 0.5) * 4 - 0.5)
        if 0 <= i < changed.shape[0] and 0 <= j < changed.shape[1]:
            assert changed[max(i - 2, 0) : i + 3, max(j - 2, 0) : j + 3].any()


def test_the_scenes_are_not_drawn_upon(scenes):
    before = scenes[0].image.copy()
    contact_sheet(scenes, 2, 1)
    assert np.array_equal(scenes[0].image, before)


def test_mistakes_are_told(scenes):
    with refused("scenes-missing"):
        contact_sheet([])
    with refused("scene-sizes-differ"):
        contact_sheet([scenes[0], render_person("studio", 1, (32, 24))])
    with refused("columns-not-positive"):
        contact_sheet(scenes, columns=0)
