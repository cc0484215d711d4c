"""Ranks, CMC and mean average precision against brute force, and what guessing finds."""

from math import exp, log

import numpy as np
import pytest
from scipy.stats import binom

from dpose_lab.attacks.ranking import chance_precision, chance_within, epsilon_named, search
from dpose_lab.stats import mean_over_people, over_people


def brute_force(similarity, gallery, query):
    """Rank and average precision of one query, by the definitions."""
    order = sorted(range(len(gallery)), key=lambda k: -similarity[k])
    right = [k + 1 for k, place in enumerate(order) if gallery[place] == query]
    return right[0], sum((n + 1) / place for n, place in enumerate(right)) / len(right)


def test_ranks_and_precision_are_those_of_the_definitions():
    rng = np.random.default_rng(0)
    gallery, queries = np.repeat(np.arange(5), 3), np.tile(np.arange(5), 4)
    similarity = rng.normal(size=(20, 15))
    found = search(similarity, gallery, queries)
    wanted = [brute_force(row, gallery, who) for row, who in zip(similarity, queries, strict=True)]
    assert found.rank.tolist() == [rank for rank, _ in wanted]
    np.testing.assert_allclose(found.precision, [precision for _, precision in wanted])
    np.testing.assert_allclose(found.cmc(15), [np.mean([r <= k for r, _ in wanted]) for k in range(1, 16)])


def test_an_embedding_that_is_the_same_for_all_finds_what_guessing_finds():
    people = np.arange(50)
    ranks = np.concatenate([search(np.zeros((50, 50)), people, people, seed).rank for seed in range(40)])
    assert ranks.mean() == pytest.approx(25.5, abs=1.5)
    assert (ranks == 1).mean() == pytest.approx(1 / 50, abs=0.01)


def test_somebody_who_is_not_in_the_gallery_cannot_be_looked_for():
    with pytest.raises(ValueError, match="not in the gallery"):
        search(np.zeros((1, 2)), np.array([1, 2]), np.array([3]))


@pytest.mark.parametrize(("size", "right"), [(10, 1), (12, 3), (3, 3)])
def test_guessing(size, right):
    rng = np.random.default_rng(1)
    gallery = np.array([0] * right + [1] * (size - right))
    found = search(rng.normal(size=(20_000, size)), gallery, np.zeros(20_000, int))
    assert chance_precision(size, right) == pytest.approx(found.precision.mean(), abs=0.01)
    for k in (1, 2, 5, 50):
        assert chance_within(k, size, right) == pytest.approx((found.rank <= k).mean(), abs=0.015)


def test_pictures_of_one_person_stand_or_fall_together():
    people = np.repeat(np.arange(20), 50)
    alike = mean_over_people(np.repeat(np.arange(20) % 2, 50).astype(float), people)
    apart = mean_over_people(np.tile([0.0, 1.0], 500), people)
    assert alike.value == apart.value == 0.5
    assert alike.high - alike.low > 0.3
    assert apart.high - apart.low == 0


def test_a_statistic_that_repeated_people_raise_does_not_move_its_interval():
    found = over_people(lambda weights: 0.3 + 0.02 * float(np.var(weights)), 40)
    assert found.value == 0.3
    assert found.low < 0.3 < found.high


def test_draws_without_a_value_are_left_out():
    found = over_people(lambda weights: np.nan if weights[0] == 0 else 0.5, 5)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_naming_one_of_many_bounds_epsilon_from_below():
    # of 20 people the right one with e^2 times the odds of each other: no rule does better at epsilon 2
    people, queries, epsilon = 20, 400, 2.0
    share = exp(epsilon) / (exp(epsilon) + people - 1)
    shown = np.array([epsilon_named(right, queries, people, 0.05) for right in range(queries + 1)])
    chance = binom.pmf(np.arange(queries + 1), queries, share)
    assert 0.01 < chance[shown > epsilon].sum() <= 0.05
    assert shown[round(share * queries)] > 1.6
    assert shown[0] == shown[queries // people] == 0
    assert shown[queries] == pytest.approx(log(0.05 ** (1 / queries) * 19 / (1 - 0.05 ** (1 / queries))))
