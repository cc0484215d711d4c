"""The one-euro filter against the paper's own steps, and what it is for: quiet at rest, close in movement."""

import math

import numpy as np

from dpose.pose.predict import Pose
from dpose.pose.tracks import BETA, LEAST_CUTOFF, SPEED_CUTOFF, OneEuro, Smoother


def by_the_paper(values, times, size):
    """Algorithm 1 of Casiez et al., one coordinate, in plain numbers."""

    def alpha(cutoff, passed):
        tau = 1 / (2 * math.pi * cutoff)
        return 1 / (1 + tau / passed)

    out, speed = [values[0]], 0.0
    for k in range(1, len(values)):
        passed = times[k] - times[k - 1]
        share = alpha(SPEED_CUTOFF, passed)
        speed = share * (values[k] - out[-1]) / passed + (1 - share) * speed
        share = alpha(LEAST_CUTOFF + BETA * abs(speed) / size, passed)
        out.append(share * values[k] + (1 - share) * out[-1])
    return out


def test_it_is_the_papers_with_times_that_are_not_even():
    rng = np.random.default_rng(0)
    values, times = rng.normal(50, 9, (40, 3, 2)), np.cumsum(rng.uniform(0.01, 0.1, 40))
    smooth = OneEuro()
    result = np.array([smooth(v, t, 80.0) for v, t in zip(values, times, strict=True)])
    for joint in range(3):
        for axis in range(2):
            expected = by_the_paper(values[:, joint, axis].tolist(), times.tolist(), 80.0)
            np.testing.assert_allclose(result[:, joint, axis], expected, rtol=1e-12)


def test_at_rest_the_noise_is_about_half_and_a_movement_is_followed():
    rng = np.random.default_rng(1)
    times = np.arange(200) / 25
    rest, swing = np.zeros(200), 15 * np.sin(2 * np.pi * times)  # of a person of 100 pixels
    true = np.stack([rest, swing], axis=1)[:, None]
    noisy = true + rng.normal(0, 1, true.shape)
    smooth = OneEuro()
    result = np.array([smooth(v, t, 100.0) for v, t in zip(noisy, times, strict=True)])
    away = np.sqrt(np.square(result - true)[20:].mean(axis=(0, 1)))
    assert away[0] < 0.6
    assert away[1] < 2


def test_the_size_of_the_person_is_the_unit():
    values = np.random.default_rng(2).normal(0, 3, (10, 1, 2))
    near, far = OneEuro(), OneEuro()
    for k, value in enumerate(values):
        np.testing.assert_allclose(near(10 * value, k / 25, 500.0), 10 * far(value, k / 25, 50.0))


def test_a_joint_that_comes_and_goes_begins_anew():
    smooth = OneEuro()
    smooth([[10.0, 10], [1, 1]], 0.0, 100.0)
    assert np.isnan(smooth([[np.nan, np.nan], [1, 1]], 0.04, 100.0)[0]).all()
    assert smooth([[90.0, 90], [1, 1]], 0.08, 100.0)[0].tolist() == [90, 90]


def test_a_time_that_does_not_rise_is_no_movement():
    smooth = OneEuro()
    smooth([[10.0, 10]], 1.0, 100.0)
    assert smooth([[20.0, 20]], 1.0, 100.0).tolist() == [[20, 20]]


def test_people_are_smoothed_apart_and_scores_stay():
    smooth = Smoother()
    pose = Pose(np.array([[0.0, 0], [30, 40]]), np.array([0.3, 0.9]))
    other = Pose(pose.keypoints + 500, pose.scores)
    smooth(1, pose, 0.0)
    assert smooth(2, other, 0.0).keypoints.tolist() == other.keypoints.tolist()
    moved = smooth(1, Pose(pose.keypoints + 1, pose.scores), 0.04)
    assert moved.scores.tolist() == [0.3, 0.9]
    assert ((moved.keypoints[0] > 0) & (moved.keypoints[0] < 0.5)).all()
