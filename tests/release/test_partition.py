"""Operators count every pixel once, are linear, and know how much a neighbour can change: all by brute force."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose.privacy.neighbours import Neighbours
from dpose.release.partition import BlockSums, RegionSums


@st.composite
def operators(draw, most=9):
    height, width = draw(st.integers(1, most)), draw(st.integers(1, most))
    channels = draw(st.sampled_from([1, 2, 3]))
    peak = draw(st.sampled_from([255, 65535]))
    subdivide = draw(st.integers(1, 3))
    block = subdivide * draw(st.integers(1, 4))
    blocks = BlockSums(height, width, block, channels, peak)
    if draw(st.booleans()):
        return blocks
    cells = st.lists(st.booleans(), min_size=blocks.rows * blocks.columns, max_size=blocks.rows * blocks.columns)
    mask = np.array(draw(cells)).reshape(blocks.rows, blocks.columns)
    return RegionSums(height, width, block, subdivide, mask, channels, peak)


def picture_for(operator, seed):
    rng = np.random.default_rng(seed)
    kind = np.uint8 if operator.peak == 255 else np.uint16
    shape = (operator.height, operator.width, operator.channels)
    return rng.integers(0, operator.peak + 1, shape).astype(kind)


def cell_of_each_pixel(operator):
    """(H, W): painted by the adjoint, so that it holds only if the adjoint is right; `apply` is held against it."""
    names = np.arange(len(operator.areas))[:, None].repeat(operator.channels, 1)
    return operator.adjoint(names)[:, :, 0]


@settings(deadline=None, max_examples=80)
@given(operator=operators(), seed=st.integers(0, 9))
def test_sums_are_the_cells_own(operator, seed):
    picture = picture_for(operator, seed)
    where = cell_of_each_pixel(operator)
    wanted = np.zeros((len(operator.areas), operator.channels), np.int64)
    for y, x in itertools.product(range(operator.height), range(operator.width)):
        wanted[where[y, x]] += picture[y, x]
    assert np.array_equal(operator.apply(picture), wanted)
    assert np.array_equal(np.bincount(where.reshape(-1), minlength=len(operator.areas)), operator.areas)


@settings(deadline=None, max_examples=100)
@given(operator=operators(), seed=st.integers(0, 9))
def test_cells_are_squares_of_the_block_or_its_part(operator, seed):
    where = cell_of_each_pixel(operator)
    part = operator.block // getattr(operator, "subdivide", 1)
    for cell in range(len(operator.areas)):
        ys, xs = np.nonzero(where == cell)
        for side, length in ((ys, operator.height), (xs, operator.width)):
            span = side.max() - side.min() + 1
            assert span in (part, operator.block) or side.max() == length - 1
            assert side.min() % part == 0
        assert len(ys) == (ys.max() - ys.min() + 1) * (xs.max() - xs.min() + 1)


@settings(deadline=None, max_examples=100)
@given(operator=operators(), seed=st.integers(0, 9))
def test_the_adjoint_is_the_transpose(operator, seed):
    picture = picture_for(operator, seed)
    values = np.random.default_rng(seed).integers(-50, 50, (len(operator.areas), operator.channels))
    assert (operator.apply(picture) * values).sum() == (operator.adjoint(values) * picture.astype(np.int64)).sum()


@settings(deadline=None, max_examples=60)
@given(operator=operators(), seed=st.integers(0, 9))
def test_tensors_and_arrays_give_the_same(operator, seed):
    picture = picture_for(operator, seed)
    sums = operator.apply(torch.from_numpy(picture))
    assert sums.dtype == torch.int64
    assert np.array_equal(sums.numpy(), operator.apply(picture))
    assert np.array_equal(operator.adjoint(sums).numpy(), operator.adjoint(sums.numpy()))


@settings(deadline=None, max_examples=80)
@given(operator=operators(most=3), m=st.integers(1, 3), data=st.data())
def test_no_neighbour_changes_more_than_the_sensitivity(operator, m, data):
    """All sets of m pixels, black to white and back from any ground; and the bound is reached, so it wastes nothing."""
    bound = operator.sensitivity(Neighbours.of_pixels(m, "picture"))
    picture = picture_for(operator, data.draw(st.integers(0, 9)))
    black = np.zeros_like(picture)
    most = [0, 0]
    for ground in (picture, black):
        before = operator.apply(ground)
        for places in itertools.combinations(range(operator.height * operator.width), min(m, ground[:, :, 0].size)):
            for value in (0, operator.peak):
                other = ground.copy().reshape(-1, operator.channels)
                other[list(places)] = value
                change = operator.apply(other.reshape(ground.shape)) - before
                most = [max(most[0], abs(change).sum()), max(most[1], (change**2).sum())]
    assert most == [bound.l1, bound.l2_squared]


@settings(deadline=None, max_examples=40)
@given(operator=operators(most=2), m=st.integers(1, 3))
def test_no_neighbouring_clip_changes_more(operator, m):
    bound = operator.sensitivity(Neighbours.of_pixels(m, "clip"))
    frames, pixels = 3, operator.height * operator.width
    black = np.zeros((frames * pixels, operator.channels), np.uint8 if operator.peak == 255 else np.uint16)
    most = [0, 0]
    for places in itertools.combinations(range(frames * pixels), m):
        other = black.copy()
        other[list(places)] = operator.peak
        clip = other.reshape(frames, operator.height, operator.width, operator.channels)
        change = np.concatenate([operator.apply(frame) for frame in clip])
        most = [max(most[0], change.sum()), max(most[1], (change**2).sum())]
    assert most == [bound.l1, bound.l2_squared]


def test_a_picture_has_as_many_cells_of_each_size_as_it_has():
    """Of 3x3 pixels in blocks of 2x2 there are cells of 4, 2, 2 and 1: seven pixels fill the first two and one more."""
    bound = BlockSums(3, 3, 2).sensitivity(Neighbours.of_pixels(7, "picture"))
    assert (bound.l1, bound.l2_squared) == (255 * 7, 255**2 * (16 + 4 + 1))


def test_pixels_of_every_frame_are_counted_a_frame_at_a_time():
    operator = BlockSums(6, 6, 4)
    for scope in ("picture", "frame"):
        assert operator.sensitivity(Neighbours.of_pixels(20, scope)).l2_squared == 255**2 * (16**2 + 4**2)
    assert operator.sensitivity(Neighbours.of_pixels(20, "clip")).l2_squared == 255**2 * (16**2 + 4**2)
    many = Neighbours.of_pixels(32, "clip")
    assert operator.sensitivity(many).l2_squared == 255**2 * 2 * 16**2  # the large cell of two frames


@pytest.mark.parametrize("block", [300, 70_000])
def test_tall_white_blocks_do_not_overflow(block):
    for kind in (np.uint8, np.uint16):
        peak = np.iinfo(kind).max
        white = np.full((70_000, 2), peak, kind)
        sums = BlockSums(70_000, 2, block, 1, peak).apply(white)
        assert sums.sum() == 70_000 * 2 * peak
        assert sums[0, 0] == min(block, 70_000) * 2 * peak


def test_views_and_transposed_pictures_are_read_right():
    base = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    for view in (base[::2, ::-1], base.transpose(1, 0, 2), base[:, :, ::-1]):
        operator = BlockSums(*view.shape[:2], 4, 3)
        assert np.array_equal(operator.apply(view), operator.apply(view.copy()))


def test_wrong_pictures_and_partitions_are_refused():
    operator = BlockSums(4, 4, 2)
    for wrong in (np.zeros((4, 5), np.uint8), np.zeros((4, 4), np.uint16), np.zeros((4, 4, 3), np.uint8)):
        with pytest.raises(ValueError, match="expected"):
            operator.apply(wrong)
    with pytest.raises(ValueError, match="at least 1"):
        BlockSums(4, 4, 0)
    with pytest.raises(ValueError, match="divided"):
        RegionSums(4, 4, 4, 3, np.zeros((1, 1), bool))
    with pytest.raises(ValueError, match="mask"):
        RegionSums(4, 4, 2, 2, np.zeros((1, 2), bool))
