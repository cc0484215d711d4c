"""LDP-Slicing: the published budgets, and the ratio of probabilities by brute force, with and without pruning."""

import itertools
import math

import numpy as np
import pytest

from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose_lab.baselines.slicing import SETTINGS, WORDS, LdpSlicing
from refusals import refused

GREY = np.full((2, 2, 3), 128, np.uint8)


def with_first(colour, picture=GREY):
    other = picture.copy()
    other[0, 0] = colour
    return other


def loss(slicing, one, other):
    """The largest log ratio of any output's probabilities: every bit that differs, come out as it was."""
    turned = np.unpackbits((slicing.values(one) ^ slicing.values(other))[..., None], axis=-1, bitorder="little")
    return float((turned * slicing.spent).sum())


def test_budgets_are_those_that_the_authors_tabulate():
    luma = [0.276, 0.391, 0.552, 0.781, 1.105, 1.562, 2.209, 3.124]
    chroma = [0.138, 0.195, 0.276, 0.391, 0.552, 0.781, 1.105, 1.562]
    np.testing.assert_allclose(LdpSlicing(20.0).budgets, [luma, chroma, chroma], atol=6e-4)
    for epsilon in SETTINGS:
        slicing = LdpSlicing(epsilon, pruned=False)
        assert (slicing.spent <= slicing.budgets).all()
        assert epsilon * (1 - 1e-6) < slicing.true_epsilon() <= epsilon


@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_no_output_of_a_channel_is_likelier_than_its_bits_allow(epsilon):
    """All 256 outputs of all pairs of 256 values, from the chances that are drawn."""
    slicing = LdpSlicing(epsilon, pruned=False)
    turned = slicing.flips / WORDS
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(bool)
    differ = bits[:, None] ^ bits[None]
    for flip, spent in zip(turned, slicing.spent, strict=True):
        chance = np.where(differ, flip, 1 - flip).prod(-1)
        np.testing.assert_allclose(chance.sum(1), 1)
        most = max(np.log(row / chance).max() for row in chance)
        assert most == pytest.approx(spent.sum())


def test_without_pruning_a_pixel_costs_what_the_paper_counts():
    slicing = LdpSlicing(20.0, pruned=False)
    colours = np.array(list(itertools.product(range(120, 136, 3), repeat=3)), np.uint8)
    found = [
        loss(slicing, with_first(one), with_first(other)) for one, other in itertools.combinations(colours[::3], 2)
    ]
    assert max(found) <= slicing.true_epsilon() + 1e-9
    assert loss(slicing, with_first((122, 122, 123)), with_first((134, 133, 133))) == slicing.true_epsilon()


def test_with_pruning_a_pixel_costs_four_times_that():
    slicing = LdpSlicing(20.0)
    steps = np.array(list(itertools.product((-1, 0, 1), repeat=3)))
    found = [
        loss(slicing, with_first(128 + one), with_first(128 + other)) for one, other in itertools.combinations(steps, 2)
    ]
    assert max(found) == pytest.approx(slicing.true_epsilon())
    assert slicing.true_epsilon() == pytest.approx(4 * 20, rel=1e-6)
    assert loss(slicing, with_first((127, 128, 127)), with_first((129, 128, 129))) == pytest.approx(max(found))


@pytest.mark.parametrize("size", [(6, 8), (5, 7), (1, 1)])
def test_what_differs_stays_in_its_blocks(size):
    rng = np.random.default_rng(0)
    for pruned in (True, False):
        slicing = LdpSlicing(5.2, pruned)
        for _ in range(20):
            one = rng.integers(0, 256, (*size, 3)).astype(np.uint8)
            changed = rng.random(size) < 0.2
            other = np.where(changed[:, :, None], rng.integers(0, 256, one.shape), one).astype(np.uint8)
            assert loss(slicing, one, other) <= slicing.true_epsilon(changed) + 1e-9
        everybody = np.ones(size, bool)
        assert slicing.true_epsilon(everybody) == pytest.approx(5.2 * everybody.size)
    corner = np.zeros((6, 8), bool)
    corner[3, 3] = True
    assert LdpSlicing(5.2).true_epsilon(corner) == LdpSlicing(5.2).true_epsilon()


def test_values_are_the_authors_but_for_float32():
    """YCbCr, a block's mean taken off around 128, whole numbers: in floating point, within one where it rounds."""
    picture = np.random.default_rng(1).integers(0, 256, (8, 6, 3)).astype(np.uint8)
    red, green, blue = picture.astype(float).transpose(2, 0, 1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    planes = np.stack([luma, (blue - luma) / 1.772 + 127.5, (red - luma) / 1.402 + 127.5], -1)
    for pruned in (False, True):
        if pruned:
            means = planes.reshape(4, 2, 3, 2, 3).mean((1, 3)).repeat(2, 0).repeat(2, 1)
            planes = np.clip(planes - means + 128, 0, 255)
        own = LdpSlicing(20.0, pruned).values(picture).astype(float)
        assert ((planes - own > -1e-3) & (planes - own < 1 + 1e-3)).all()


def test_bits_turn_as_often_as_they_should():
    slicing, count = LdpSlicing(20.0), 100_000
    stream = AesNoise(Key.from_seed(3)).stream(Purpose.RELEASE, 0, b"test")
    values = np.random.default_rng(2).integers(0, 256, (count, 3)).astype(np.uint8)
    turned = np.unpackbits((slicing.noised(values, stream) ^ values)[..., None], axis=-1, bitorder="little")
    expected = slicing.flips / WORDS
    assert (np.abs(turned.mean(0) - expected) < 5 * np.sqrt(expected / count)).all()


def test_much_epsilon_leaves_the_picture_and_little_leaves_nothing():
    picture = np.random.default_rng(4).integers(40, 216, (32, 32, 3)).astype(np.uint8)
    kept = LdpSlicing(1e4, pruned=False).release(picture, AesNoise(Key.from_seed(0)))
    assert np.abs(kept.astype(int) - picture).max() <= 4
    lost = LdpSlicing(1e-9, pruned=False).release(picture, AesNoise(Key.from_seed(0)))
    assert abs(np.corrcoef(lost.ravel(), picture.ravel())[0, 1]) < 0.1
    assert not np.array_equal(lost, LdpSlicing(1e-9, pruned=False).release(picture, AesNoise(Key.from_seed(1))))


def test_evidence_is_the_log_odds_of_the_bits():
    one, other = np.random.default_rng(5).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)
    for slicing in (LdpSlicing(5.2), LdpSlicing(20.0, pruned=False)):
        first, second = (slicing.evidence(slicing.values(picture)) for picture in (one, other))
        assert first @ first == pytest.approx(1, rel=1e-5)
        most = slicing.true_epsilon(np.ones((4, 6), bool))
        assert most * (1 - first @ second) / 2 == pytest.approx(loss(slicing, one, other), rel=1e-4)
    grey = np.full((4, 4, 3), 90, np.uint8)
    whole = LdpSlicing(1e4, pruned=False)
    shown = whole.release(grey, AesNoise(Key.from_seed(0)))
    assert np.abs(whole.read(shown).astype(int) - whole.values(grey)).max() <= 1


def test_what_cannot_be_sliced_is_refused():
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with refused("slicing-epsilon-invalid"):
            LdpSlicing(epsilon)
    for picture in (GREY[:, :, 0], GREY.astype(np.uint16)):
        with refused("slicing-without-colour"):
            LdpSlicing(20.0).values(picture)
