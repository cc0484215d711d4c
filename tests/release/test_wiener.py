"""Parts of complex blocks are shown as well as their noise allows, from released sums alone."""

import numpy as np
import pytest

from dpose.release.partition import RegionSums
from dpose.release.regions import PublicRegions
from dpose.release.released import Noisy, shrunk
from public_doors import pixelize

RNG = np.random.default_rng(0)
PICTURE = np.add.outer(np.arange(96), 2 * np.arange(64)).astype(np.uint8)
MASK = np.zeros((3, 2), np.bool_)
MASK[0, 0] = MASK[1] = True


def cells(mask=MASK, height=90, width=60, channels=1):
    return RegionSums(height, width, 32, 4, mask, channels)


def parts_of(partition, picture):
    return partition.apply(picture)[partition.simple :]


def test_without_noise_to_speak_of_parts_are_their_own_averages():
    partition = cells()
    sums = parts_of(partition, PICTURE[:90, :60])
    for blocks in (None, Noisy(partition.coarse.apply(PICTURE[:90, :60])[MASK.reshape(-1)], 1e-9)):
        levels = shrunk(partition, Noisy(sums, 1e-9), blocks)
        assert np.allclose(levels, sums / partition.areas[partition.simple :, None], atol=1e-6)


def test_parts_that_are_noise_alone_take_their_blocks_level():
    partition = cells()
    truth = partition.coarse.apply(PICTURE[:90, :60])[MASK.reshape(-1)]
    noise = RNG.normal(0, 1e7, (partition.areas.size - partition.simple, 1)).astype(np.int64)
    sums = parts_of(partition, PICTURE[:90, :60]) + noise
    levels = shrunk(partition, Noisy(sums, 1e14), Noisy(truth, 1.0))
    owner = np.flatnonzero(MASK.reshape(-1)).searchsorted(owners(partition))
    exact = (truth / partition.coarse.areas[MASK.reshape(-1), None])[owner]
    assert np.abs(levels - exact).max() < 5  # the noise alone was some 150,000 levels


def owners(partition):
    """The block that each part lies in, by where its corner is."""
    found = []
    for y in range(partition.fine.rows):
        for x in range(partition.fine.columns):
            block = (y // 4) * partition.mask.shape[1] + x // 4
            if partition.mask.reshape(-1)[block]:
                found.append(block)
    return np.array(found)


@pytest.mark.parametrize("channels", [1, 3])
def test_detail_that_stands_out_of_the_noise_stays_and_the_rest_is_damped(channels):
    partition = cells(np.ones((3, 2), np.bool_), 96, 64, channels)
    detail = RNG.normal(0, 30, (partition.areas.size, channels))
    for spread in (3.0, 30.0, 200.0):
        noise = RNG.normal(0, spread, detail.shape)
        sums = ((128 + detail + noise) * 64).astype(np.int64)
        levels = shrunk(partition, Noisy(sums, (64 * spread) ** 2))
        raw = ((sums / 64 - 128 - detail) ** 2).mean()
        best = 1 / (1 / 30**2 + 1 / spread**2)
        mine = ((levels - 128 - detail) ** 2).mean()
        assert mine < 1.06 * raw
        assert mine < 1.5 * (best + spread**2 / 16)  # a block's own level is as noisy as 16 parts together


def test_no_complex_block_and_no_simple_one():
    empty = shrunk(cells(np.zeros((3, 2), np.bool_)), Noisy(np.empty((0, 1), np.int64), 1.0))
    assert empty.shape == (0, 1)
    everything = pixelize(PICTURE, 2, 1, 32, subdivide=4, regions=np.ones((96, 64), np.bool_))
    assert everything.picture.shape == (96, 64)


def test_a_private_mask_never_costs_much_more_than_its_half_of_the_budget():
    errors = []
    for regions, n, epsilon in ((None, 1, 1), ("private", 8, 2)):
        made = [
            pixelize(PICTURE, epsilon, 256, 32, subdivide=n, regions=regions, restore="none", seed=k).picture
            for k in range(20)
        ]
        errors.append(np.mean([(one.astype(float) - PICTURE) ** 2 for one in made]))
    whole, divided = errors
    assert divided < 1.15 * whole


def test_a_ragged_block_of_a_single_part():
    mask = np.zeros((1, 2), np.bool_)
    mask[0, 1] = True
    made = pixelize(
        PICTURE[:32, :35], 5, 1, 32, subdivide=4, regions=PublicRegions(mask.repeat(32, 0).repeat(32, 1)[:, :35])
    )
    assert np.array_equal(made.frames[0].cells.mask, mask)
