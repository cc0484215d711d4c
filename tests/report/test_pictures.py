"""Pictures: the right joints on the right picture, small enough, and only where they were given."""

import numpy as np
import pytest
import torch

from dpose.media.images import decode_image
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import PoseUnits
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import MPII
from dpose.privacy.selection import Selection
from dpose.report.page import BUDGET, LARGEST, PosePair, tiles_of
from dpose.runs.reporting import pose_tiles
from refusals import refused

SIZE = (64, 48)


class Corner(PoseModel):
    """Finds every joint at x = 40, y = 56."""

    def forward(self, images):
        x_logits = torch.zeros(len(images), 16, 2 * SIZE[1])
        y_logits = torch.zeros(len(images), 16, 2 * SIZE[0])
        x_logits[..., 80] = y_logits[..., 112] = 100.0
        return x_logits, y_logits


@pytest.fixture
def corner():
    torch.manual_seed(0)
    return Corner(PoseConfig(preset="nano", input_size=SIZE, norm="group"))


@pytest.fixture
def units():
    """Grey pictures; every labelled joint at x = 8, y = 8, the right ankle not labelled."""

    def picture(name, people):
        visible = np.arange(16) != 0
        person = Person(np.full((16, 2), 8, np.float32), visible, np.array([-0.5, -0.5, 47.5, 63.5], np.float32), 10.0)
        return Picture(name, people, lambda: (np.full((*SIZE, 3), 128, np.uint8), (person,) * people))

    return PoseUnits([picture(f"p{k:02}", 1 + k % 2) for k in range(30)], input_size=SIZE, padding=1.0)


def coloured(image):
    """Where something was drawn: rows, columns."""
    return np.argwhere(np.ptp(image.astype(int), axis=2) > 40)


def test_the_truth_is_drawn_on_one_picture_and_the_prediction_on_the_other(corner, units):
    corner.train()
    tiles = pose_tiles(corner, units)
    assert corner.training
    assert len(tiles) == 12
    assert [t.title for t in tiles] == [units.limit(Selection(12)).unit_id(k) for k in range(12)]
    for tile in tiles:
        assert tile.true.shape == tile.predicted.shape == (128, 96, 3)
        assert np.abs(coloured(tile.true) - (16.5, 16.5)).max() < 8
        assert np.abs(coloured(tile.predicted) - (112.5, 80.5)).max() < 8


def test_a_joint_without_a_label_is_not_drawn(corner, units):
    tile = pose_tiles(corner, units, 1)[0]
    assert MPII.joints[0] == "r_ankle"
    unlabelled = units.limit(Selection(1)).load(0, np.random.default_rng(0))[0].target["keypoints"][0]
    assert tuple(unlabelled) == (0, 0)
    assert (tile.true[:6, :6] == 128).all()


def test_no_more_tiles_than_units(corner, units):
    assert len(pose_tiles(corner, units.subset(range(3)))) == 3
    with refused("limit-not-positive"):
        pose_tiles(corner, units, 0)


def decoded(tile):
    return [decode_image(picture.content, "embedded") for picture in tile.pictures]


def test_a_tile_holds_both_pictures_as_they_are():
    left, right = (np.full((200, 150, 3), value, np.uint8) for value in (40, 200))
    (tile,) = tiles_of([PosePair("a <unit>", left, right)])
    one, other = decoded(tile)
    assert np.abs(one.astype(int) - left).max() < 4
    assert np.abs(other.astype(int) - right).max() < 4
    assert [picture.size for picture in tile.pictures] == [(150, 200)] * 2
    assert all(picture.alt.startswith("a <unit>: the ") for picture in tile.pictures)


def test_large_pictures_are_made_smaller():
    (tile,) = tiles_of([PosePair("x", *(np.zeros((2000, 1000, 3), np.uint8),) * 2)])
    assert [d.shape for d in decoded(tile)] == [(LARGEST, LARGEST // 2, 3)] * 2


def size(tiles):
    return sum(len(picture.uri) for tile in tiles for picture in tile.pictures)


def test_pictures_stay_within_their_budget(monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), np.uint8)
    pairs = [PosePair(str(k), noise, noise) for k in range(12)]
    budget = size(tiles_of(pairs)) // 2
    monkeypatch.setattr("dpose.report.page.BUDGET", budget)
    tiles = tiles_of(pairs)
    assert len(tiles) == 12
    assert size(tiles) <= budget
    monkeypatch.setattr("dpose.report.page.BUDGET", 1000)
    with pytest.raises(ValueError, match="do not fit"):
        tiles_of(pairs)


def test_two_dozen_of_the_largest_fit():
    assert BUDGET + 1_000_000 <= 3_000_000
    noise = np.random.default_rng(0).integers(0, 256, (LARGEST, LARGEST * 3 // 4, 3), np.uint8)
    assert size(tiles_of([PosePair(str(k), noise, noise) for k in range(12)])) <= BUDGET
