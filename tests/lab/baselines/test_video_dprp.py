"""Seed 004's algorithm as printed: its formulas, its line 10, and what its statement owns up to."""

import math

import numpy as np
import pytest

from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import Kind
from dpose.release.config import PAPER_K
from dpose.release.grid import Shape
from dpose_lab.baselines.video_dprp import FRAMES_AT_ONCE, DensePlan, GaussianProjection, sigma_1, sigma_2
from plain_configs import plain_projection
from refusals import refused

SHAPE = Shape(6, 12, 16, 3)
SETTING = plain_projection(8, "1e-4", paper=True, k=64)
CLIP = np.random.default_rng(0).integers(0, 256, (6, 12, 16, 3)).astype(np.uint8)


def source(seed=0):
    return AesNoise(Key.from_seed(seed))


def test_the_noise_is_theorem_3s_and_theorem_4s():
    # worked out by hand from the printed formulas, k = 4, epsilon = 2, delta = 0.02
    theta, tail = 127.5, math.log(100)
    assert sigma_1(4, 2, 0.02) == pytest.approx(
        theta * 0.5 * math.sqrt(4 + 2 * math.sqrt(4 * tail) + 2 * tail) * math.sqrt(2 * (math.log(25) + 2)) / 2
    )
    assert sigma_2(4, 2, 0.02) == pytest.approx(theta * math.sqrt(math.sqrt(2 * math.log(1.25) / 0.02) / 2))
    first, second = DensePlan.of(plain_projection(8, "1e-4", paper=True), Shape(64, 240, 320, 3)).sigmas
    assert first == sigma_1(3072, 6.4, 0.8e-4)
    assert second == sigma_2(3072, 8 * (1 - 0.8), 1e-4 * (1 - 0.8))


def test_the_budget_may_be_split_otherwise_in_the_papers_mode_alone():
    plan = DensePlan.of(plain_projection(8, "1e-4", paper=True, split=0.25), Shape(64, 240, 320, 3))
    assert plan.sigmas == (sigma_1(3072, 2, 0.25e-4), sigma_2(3072, 6, 0.75e-4))
    with refused("split-without-paper"):
        plain_projection(8, "1e-4", split=0.25)
    for wrong in (0.0, 1.0, float("nan")):
        with refused("split-out-of-range"):
            plain_projection(8, "1e-4", paper=True, split=wrong)


def test_the_reconstruction_is_the_papers_line_by_line():
    """Against the printed algorithm in plain NumPy with the same R and the same noise."""
    plan = DensePlan.of(SETTING, SHAPE)
    shown = np.stack(list(plan.run(iter(CLIP), source())))
    same = source()
    rng = same.stream("release", 0, b"paper noise").generator()
    words = same.stream("release", 0, b"paper projection").uint64(2)
    matrix = np.concatenate(
        [p for _, p in GaussianProjection(SHAPE, 64, (int(words[0]), int(words[1]))).rows()]
    ).astype(np.float64)
    first, second = plan.sigmas
    flat = CLIP.reshape(6, -1).astype(np.float64)
    projected = flat @ matrix
    noisy = projected + first * rng.standard_normal((6, 64), dtype=np.float32)
    covariance = projected.T @ projected + second * rng.standard_normal((64, 64), dtype=np.float32)
    basis = np.linalg.svd(covariance)[2].T
    wanted = noisy @ basis @ np.linalg.pinv(matrix @ basis)
    off = np.abs(shown.reshape(6, -1).astype(float) - np.clip(np.rint(wanted), 0, 255))
    assert off.max() <= 1
    assert off.mean() < 0.02


def test_frames_go_through_in_parts():
    shape = Shape(FRAMES_AT_ONCE + 3, 4, 4, 1)
    clip = np.random.default_rng(1).integers(0, 256, (shape.frames, 4, 4, 1)).astype(np.uint8)
    plan = DensePlan.of(plain_projection(10**6, "1e-4", paper=True, k=16), shape)  # k = d and hardly any noise
    shown = list(plan.run(iter(clip), source()))
    assert len(shown) == shape.frames
    assert np.corrcoef(np.stack(shown).reshape(-1), clip.reshape(-1))[0, 1] > 0.95


def test_a_projection_keeps_a_random_part_of_the_picture():
    """X R R^+ without noise: relative error sqrt(1 - k/d)."""
    shape = Shape(1, 24, 24, 3)
    matrix = np.concatenate([p for _, p in GaussianProjection(shape, 120, (5, 6)).rows()]).astype(float)
    picture = np.random.default_rng(2).integers(0, 256, (20, shape.values)) - 127.5
    kept = picture @ matrix @ np.linalg.pinv(matrix)
    error = np.linalg.norm(kept - picture) / np.linalg.norm(picture)
    assert error == pytest.approx(math.sqrt(1 - 120 / shape.values), abs=0.003)


def test_the_statement_claims_nothing_and_says_why():
    statement = DensePlan.of(plain_projection(8, "1e-4", paper=True), Shape(64, 240, 320, 3)).statement()
    assert statement.kind is Kind.PAPER
    assert statement.epsilon is None
    assert statement.verify() is None
    text = statement.paragraph()
    for words in (
        "NOTHING IS GUARANTEED",
        "122,400",  # 255 sqrt(d)
        "255 / sqrt(k) = 4.6",
        "quadratic in the pixels",
        "20% of the budget do nothing",
        "0.993",
        "9.66 times as long",
        "not cryptographic",
    ):
        assert words in text


def test_k_is_checked():
    assert DensePlan.of(plain_projection(8, "1e-4", paper=True), Shape(1, 240, 320, 3)).k == PAPER_K
    with refused("k-above-values", where="3,072"):
        DensePlan.of(plain_projection(8, "1e-4", paper=True), SHAPE)
