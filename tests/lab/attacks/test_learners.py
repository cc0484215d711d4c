"""Reconstruction: a change that can be undone is undone, and quality is measured as defined."""

import numpy as np
import pytest
import torch

from dpose_lab.attacks.learners import Restorer, each, learn_restoring, psnr, resized, restored, ssim, steps_of


def darker(count, seed):
    rng = np.random.default_rng(seed)
    raw = [np.kron(rng.integers(80, 250, (4, 4, 3)), np.ones((4, 4, 1))).astype(np.uint8) for _ in range(count)]
    return [picture // 2 for picture in raw], raw


def test_what_can_be_undone_is_undone_for_pictures_not_learnt_from():
    calls = []
    net = learn_restoring(*darker(128, 0), epochs=12, seed=0, progress=lambda: calls.append(0))
    assert len(calls) == steps_of(128, 12)
    shown, raw = darker(16, 1)
    made = restored(net, shown)
    assert each(psnr, made, raw).mean() > each(psnr, shown, raw).mean() + 6


def test_an_untaught_network_shows_what_it_is_given_and_seeds_repeat():
    shown, raw = darker(32, 2)
    torch.manual_seed(5)
    before = torch.rand(1)
    one, other = (learn_restoring(shown, raw, 1, 7, lambda: None) for _ in range(2))
    torch.manual_seed(5)
    assert torch.rand(1) == before
    for a, b in zip(restored(one, shown), restored(other, shown), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(restored(Restorer().eval(), shown), shown, strict=True):
        np.testing.assert_array_equal(a, b)


def test_quality():
    one = np.full((8, 8, 3), 100, np.uint8)
    assert psnr(one, one) == 99.0
    assert psnr(one, one + 10) == pytest.approx(20 * np.log10(25.5))
    assert ssim(one, one) == 1.0


def test_pictures_of_any_kind_come_to_one_size_in_colour():
    grey, colour = np.full((40, 30), 9, np.uint8), np.full((8, 8, 3), 9, np.uint8)
    for picture in resized([grey, colour], (16, 24)):
        assert picture.shape == (16, 24, 3)
        assert (picture == 9).all()
