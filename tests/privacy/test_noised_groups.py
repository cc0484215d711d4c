"""Noised scores of groups: no unit moves the sums further than the noise was made for, whichever group it moves to."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.noised_query import NoisedQuery, noised_sums, ratio_of, shares_of
from refusals import refused

GROUPS = (("posture", ("upright", "not")), ("size", ("small", "large")))
# two attributes with the groups 0, 1 and 2, 3; -1 is in none
MEMBERS = [(a, b) for a in (-1, 0, 1) for b in (-1, 2, 3)]


def query_of(relation):
    return NoisedQuery(Fraction(1), None, relation, 2, GROUPS)


def everything(joints):
    """All that one unit can be: its groups, and its joints."""
    counts = [(f, m) for f in range(joints + 1) for m in range(joints + 1 - f)]
    return list(itertools.product(MEMBERS, counts))


def moved(query, before, after):
    rest = ([(0, 2), (1, -1)], [(1, 0), (0, 2)])

    def sums(units):
        members = [*rest[0], *(unit[0] for unit in units)]
        counts = [*rest[1], *(unit[1] for unit in units)]
        return np.array(query.sums((members, counts)))

    change = np.abs(sums(after) - sums(before))
    return int(change.sum()), int((change**2).sum())


@pytest.mark.parametrize("relation", list(Relation))
def test_no_unit_moves_the_sums_by_more_and_one_moves_them_by_as_much(relation):
    query = query_of(relation)
    one = everything(2)
    pairs = itertools.product(one, one) if relation is Relation.REPLACE else ((None, unit) for unit in one)
    found = [moved(query, [a] if a else [], [b]) for a, b in pairs]
    assert max(l1 for l1, _ in found) == query.l1
    assert max(l2 for _, l2 in found) == query.squared_l2


def test_somebody_who_moves_to_another_group_moves_both():
    query = query_of(Relation.REPLACE)
    assert moved(query, [((0, 2), (2, 0))], [((1, 3), (2, 0))])[0] == query.l1
    assert query.l1 == 2 * query_of(Relation.ZERO_OUT).l1


def test_the_price_is_that_of_the_sensitivity():
    query = NoisedQuery(Fraction(1, 2), joints=14, groups=GROUPS)
    event = query.event
    assert event.sensitivity / event.scale == Fraction(1, 2)
    assert event.sensitivity == 2 * 15
    assert query.dearer.pure() == 1  # of whoever is replaced
    assert replace(query, delta=1e-5).event.sensitivity_squared == 2 * (14**2 + 1)


def test_noise_goes_on_every_sum_and_sizes():
    query = NoisedQuery(Fraction(1), joints=14, groups=GROUPS)
    values = ([(0, 2)] * 50, [(10, 4)] * 50)
    exact = np.array(query.sums(values))
    drawn = [np.array(noised_sums(query, values, AesNoise(Key.from_seed(s)))) for s in range(60)]
    away = np.array(drawn) - exact
    assert away.shape == (60, 12)
    assert (np.abs(away).mean(axis=0) > 10).all(), "scale 30 on each of them"
    assert shares_of(query, tuple(exact))[0] == pytest.approx((10 / 14, 50))
    assert np.isnan(shares_of(query, tuple(exact))[1, 0])


def test_noise_for_one_attribute_is_not_noise_for_two():
    two = NoisedQuery(Fraction(1), joints=14, groups=GROUPS)
    for delta in (None, 1e-5):
        one = replace(two, groups=GROUPS[:1], delta=delta)
        assert one.is_noised_by(one.event)
        assert not replace(two, delta=delta).is_noised_by(one.event)


@pytest.mark.parametrize(
    "values",
    [
        ([(0, 2)], [(2, 1)]),
        ([(0, 4)], [(1, 1)]),
        ([(-2, 2)], [(1, 1)]),
        ([(0, 2, 1)], [(1, 1)]),
        ([(0,)], [(1, 1)]),
        # of one group twice: its sums would move by twice as much
        ([(0, 0)], [(1, 1)]),
        ([(2, 2)], [(1, 1)]),
    ],
)
def test_what_was_not_priced_is_refused(values):
    with pytest.raises(ValueError, match="a unit"):
        query_of(Relation.ZERO_OUT).sums(values)


def test_groups_that_are_none_and_groups_without_a_cap_are_refused():
    with refused("groups-incomplete", where="groups"):
        NoisedQuery(Fraction(1), joints=2, groups=(("posture", ()),))
    with refused("groups-without-cap", where="groups"):
        NoisedQuery(Fraction(1), groups=GROUPS)
    with pytest.raises(ValueError, match="a share each"):
        ratio_of(query_of(Relation.ZERO_OUT), (1, 1), 3)
