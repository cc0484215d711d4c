"""Paired differences: the published number exactly, and an interval that covers what it says, no more and no less."""

import numpy as np
import pytest

from dpose.pose.metrics import SCORED, PCKh
from dpose_lab.stats import Counts, differences

RNG = np.random.default_rng(5)


def counts(found, scored=None, names=None):
    found = np.asarray(found, np.int64)
    scored = np.full(len(found), 14) if scored is None else np.asarray(scored, np.int64)
    return Counts(tuple(names or (f"im{i}" for i in range(len(found)))), found, scored)


def one(first, second, **options):
    runs = {("a", i): run for i, run in enumerate(first)} | {("b", i): run for i, run in enumerate(second)}
    groups = tuple([key for key in runs if key[0] == side] for side in "ab")
    (found,) = differences(runs, [groups], **{"resamples": 2000} | options)
    return found


def guesses(people, share):
    """Joints found by someone who finds each of 14 with a probability that depends on the person."""
    return RNG.binomial(14, np.clip(share, 0, 1), people)


def test_the_value_is_the_difference_of_the_published_means():
    true = RNG.uniform(0, 100, (30, 16, 2))
    labelled, heads = RNG.random((30, 16)) < 0.7, RNG.uniform(5, 20, 30)
    runs, published = [], []
    for spread in (6.0, 9.0):
        guess = true + RNG.normal(0, spread, true.shape)
        metric = PCKh()
        metric.update(guess, true, labelled, heads)
        near = np.linalg.norm(guess - true, axis=-1) <= 0.5 * heads[:, None]
        seen = labelled[:, list(SCORED)]
        runs.append(counts((near[:, list(SCORED)] & seen).sum(1), seen.sum(1)))
        published.append(metric.compute().columns()["Mean"])
    assert [run.mean for run in runs] == published
    assert one(runs[:1], runs[1:]).points.value == published[0] - published[1]


def test_the_interval_is_that_of_a_plain_bootstrap():
    people = 60
    scored = RNG.integers(5, 15, people)
    first, second = (RNG.binomial(scored, share) for share in (0.6, 0.5))
    found = one([counts(first, scored)], [counts(second, scored)], resamples=10_000)
    rng, drawn = np.random.default_rng(99), []
    for _ in range(10_000):
        who = rng.integers(0, people, people)
        drawn.append(100 * (first[who].sum() - second[who].sum()) / scored[who].sum())
    assert (found.points.low, found.points.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.4)
    assert found.not_above == pytest.approx(np.mean(np.array(drawn) <= 0), abs=0.01)
    assert (found.runs, found.images) == ((1, 1), people)


def test_all_runs_see_the_same_images():
    # hard and easy images, and one run that finds one joint more of every one: nothing is left to chance
    base = RNG.integers(0, 13, 50)
    found = one([counts(base + 1)], [counts(base)])
    assert found.points.low == pytest.approx(found.points.high)
    assert found.points.value == pytest.approx(100 / 14)
    assert found.not_above == 0


def test_people_of_one_image_are_drawn_together():
    base, better = np.repeat(guesses(20, 0.5), 25), np.repeat(guesses(20, 0.6), 25)
    shared = [f"im{i}" for i in range(20) for _ in range(25)]

    def width(names):
        points = one([counts(better, names=names)], [counts(base, names=names)]).points
        return points.high - points.low

    alone = width([f"im{i}" for i in range(500)])
    assert 4 < width(shared) / alone < 6  # the root of 25
    assert one([counts(better, names=shared)], [counts(base, names=shared)]).images == 20


def test_runs_are_resampled_where_there_are_several():
    base = np.full(40, 7)
    apart = [counts(base + 3), counts(base + 1)]
    found = one(apart, [counts(base)])
    assert found.points.value == pytest.approx(200 / 14)
    # both runs, or one of them twice; images are all alike
    assert (found.points.low, found.points.high) == pytest.approx((100 / 14, 300 / 14))
    assert found.runs == (2, 1)
    assert one(apart[:1], [counts(base)]).points.low == pytest.approx(300 / 14)
    # and those of the second group
    other = one([counts(base)], apart)
    assert (other.points.low, other.points.high) == pytest.approx((-300 / 14, -100 / 14))
    assert other.not_above == 1


def test_a_pair_depends_on_no_other_pair():
    runs = {name: counts(guesses(40, 0.5)) for name in "abcd"}
    pairs = [(["a", "b"], ["c", "d"]), (["a"], ["c"])]
    both = differences(runs, pairs, resamples=500)
    assert differences(runs, pairs[1:], resamples=500) == both[1:]
    assert differences(runs, pairs[:1], resamples=500) == both[:1]
    assert differences(runs, pairs[:1], resamples=500, seed=1) != both[:1]


def test_the_interval_covers_the_truth_as_often_as_it_says():
    covered = 0
    for _ in range(200):
        ease = RNG.uniform(0.2, 0.8, 80)
        found = one([counts(guesses(80, ease + 0.05))], [counts(guesses(80, ease))], resamples=400)
        covered += found.points.low <= 5 <= found.points.high
    assert 0.88 <= covered / 200 <= 0.99


def test_what_cannot_be_compared():
    nobody = counts([0, 0], [0, 0])
    assert np.isnan(one([nobody], [nobody]).points.low)
    # an image without a joint to score is drawn like any other, and a draw of it alone has no number
    half = counts([0, 7], [0, 14])
    assert one([half], [half]).points.high == 0
    with pytest.raises(ValueError, match="different people"):
        one([counts([1, 2])], [counts([1, 2], names=["x", "y"])])
    assert differences({}, []) == []
