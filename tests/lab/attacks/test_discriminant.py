"""What is learnt in closed form: people apart, attributes, thresholds."""

import numpy as np
import pytest

from dpose_lab.attacks.appearance import SIZE, describe_appearance
from dpose_lab.attacks.discriminant import DescriptorProjection, Scorer, best_threshold, learn_attributes, learn_people
from dpose_lab.attribute_task import f1_score


def crowd(people, first=0, pictures=4):
    """People who differ in three numbers of twenty; the others change from picture to picture."""
    rng = np.random.default_rng(first)
    own = np.repeat(rng.normal(size=(people, 3)), pictures, axis=0)
    found = rng.normal(size=(people * pictures, 20)) * 1.5
    found[:, :3] = own + 0.2 * rng.normal(size=own.shape)
    return found, np.repeat(np.arange(first, first + people), pictures)


def test_people_not_learnt_from_come_to_lie_together():
    project = learn_people(*crowd(60))
    descriptors, who = crowd(30, first=100, pictures=2)

    def hits(vectors):
        likeness = vectors[::2] @ vectors[1::2].T
        return (who[1::2][likeness.argmax(1)] == who[::2]).sum()

    assert hits(project(descriptors)) > 12
    assert hits(descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True)) < 6
    again = DescriptorProjection.of(project.arrays())
    np.testing.assert_array_equal(project(descriptors), again(descriptors))


def test_attributes_are_inferred_of_people_not_learnt_from():
    descriptors, who = crowd(80)
    labels = np.stack([descriptors[:, 0] > 0.3, descriptors[:, 1] < -0.5], axis=1)
    scorer = Scorer.of(learn_attributes(descriptors, labels, who).arrays())
    others, _ = crowd(80, first=200)
    truth = np.stack([others[:, 0] > 0.3, others[:, 1] < -0.5], axis=1)
    told = scorer(others) > 0
    for k in range(2):
        share = truth[:, k].mean()
        assert f1_score(told[:, k], truth[:, k]) > 2 * share / (1 + share) + 0.1


def test_the_best_threshold_is_the_best_of_all():
    rng = np.random.default_rng(2)
    for _ in range(20):
        scores, truth = rng.normal(size=12), rng.random(12) < 0.4
        if truth.any():
            found = f1_score(scores > best_threshold(scores, truth), truth)
            assert found == pytest.approx(max(f1_score(scores >= t, truth) for t in scores))


def test_descriptors_do_not_mind_the_lamp_nor_the_direction():
    rng = np.random.default_rng(0)
    picture = np.kron(rng.integers(40, 120, (16, 12, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    box = np.array([[16, 8, 80, 120]])
    mirrored = np.array([[96 - 80, 8, 96 - 16, 120]])
    plain = describe_appearance([picture], box)
    lamp = np.round(picture * np.array([1.5, 1.1, 0.8])).astype(np.uint8)
    assert plain.shape == (1, SIZE)
    grid = slice(0, 432)
    other = describe_appearance([np.roll(picture, 24, axis=0)], box)[:, grid]
    assert np.abs(describe_appearance([lamp], box) - plain)[:, grid].max() < 0.3 * np.abs(other - plain[:, grid]).max()
    np.testing.assert_allclose(describe_appearance([picture[:, ::-1]], mirrored)[:, grid], plain[:, grid], atol=1e-4)
    assert np.isfinite(describe_appearance([np.zeros((16, 16), np.uint8)], np.array([[0, 0, 16, 16]]))).all()
