"""Noised scores: the sums move no more than is said, the noise has its law, and the interval holds the truth."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpose.privacy import noised_query
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.events import ROUNDED, Gaussian, Laplace, SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.noised_query import GRID, NoisedQuery, noised_mean, noised_sums, ratio_of, tail
from refusals import refused
from tiers import rest_slow

ONE = Fraction(1)
QUERIES = [NoisedQuery(ONE, None, relation, joints) for relation in Relation for joints in (None, 1, 3)]
BLANK = {True: math.nan, False: (0, 0)}  # what a unit that was left blank scores: for the mean, and pooled


def possible(query):
    """Every kind of unit there is."""
    if query.joints is None:
        return [math.nan, 0.0, 1 / 3, 0.5, 1.0, 7.0, -2.0]
    most = query.joints
    return [(found, missed) for found in range(most + 1) for missed in range(most + 1 - found)]


def neighbours(units, query):
    """Every dataset that differs from `units` in one, as the relation has it."""
    for i in range(len(units)):
        rest = (units[:i], units[i + 1 :])
        if query.relation is Relation.ADD_REMOVE:
            yield rest[0] + rest[1]
        elif query.relation is Relation.ZERO_OUT:
            yield (*rest[0], BLANK[query.joints is None], *rest[1])
        else:
            yield from ((*rest[0], other, *rest[1]) for other in possible(query))


def pairs(query, sizes=(1, 2)):
    for size in sizes:
        for units in itertools.product(possible(query), repeat=size):
            for other in neighbours(units, query):
                yield units, other


def exact(query, units):
    return query.sums(np.array(units).reshape(len(units), *(() if query.joints is None else (2,))))


def moved(query, units, other):
    return [a - b for a, b in zip(exact(query, units), exact(query, other), strict=True)]


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_by_brute_force_the_sensitivity_is_what_is_said_and_no_less(query):
    changes = [moved(query, *pair) for pair in pairs(query)]
    assert max(sum(map(abs, change)) for change in changes) == query.l1
    assert max(sum(x * x for x in change) for change in changes) == query.squared_l2


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_the_account_is_told_the_dearer_of_the_relation_and_replacement(query):
    replaced = replace(query, relation=Relation.REPLACE)
    changes = [moved(query, *pair) for pair in pairs(query)]
    # the sums are those of the query; the neighbours those of replacement
    changes += [moved(query, *pair) for pair in pairs(replaced)]
    laplace, gaussian = replace(query, epsilon=Fraction(1, 3)), replace(query, delta=1e-5)
    worst = max(sum(map(abs, change)) for change in changes) / laplace.event.scale
    assert laplace.dearer.pure() == worst
    worst = max(sum(x * x for x in change) for change in changes) / (2 * gaussian.event.variance)
    assert gaussian.dearer.rho() == worst


def test_the_number_of_units_is_a_sum_where_it_is_private_and_only_there():
    for query in QUERIES:
        sizes = {len(units) - len(other) for units, other in pairs(query)}
        assert (sizes != {0}) == (query.relation is Relation.ADD_REMOVE)
        assert query.counts_units == (query.joints is None and sizes != {0})
    counted = NoisedQuery(ONE, relation=Relation.ADD_REMOVE)
    assert counted.sums([0.5, math.nan, 1.0]) == (3 * noised_query.GRID // 2, 3 * noised_query.GRID)
    with pytest.raises(ValueError, match="public"):
        ratio_of(counted, (1, 2), units=3)
    with pytest.raises(ValueError, match="public"):
        ratio_of(NoisedQuery(ONE), (1,))


def test_a_unit_with_nothing_to_score_counts_as_zero_and_is_not_left_out():
    query = NoisedQuery(ONE)
    sums = query.sums([1.0, math.nan])
    assert ratio_of(query, sums, units=2).value == 0.5


def test_more_joints_than_the_cap_are_never_summed():
    query = NoisedQuery(ONE, joints=3)
    for counts in ([(3, 1)], [(-1, 2)]):
        with pytest.raises(ValueError, match="0 to 3 joints"):
            query.sums(counts)
    with refused("joints-per-unit-too-few"):
        NoisedQuery(ONE, joints=0)


@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(7, 3)])
def test_laplace_noise_costs_exactly_epsilon(query, epsilon, monkeypatch):
    """For all neighbours and all outputs near them, by the law's own exponents and without rounding."""
    query = replace(query, epsilon=epsilon)
    event = query.event
    assert cost([event], 0.0, accountant=Accountant.PURE) == epsilon
    used = []
    monkeypatch.setattr(
        noised_query, "discrete_laplace", lambda scale, count, _: used.append(scale) or np.zeros(count, int)
    )
    worst = Fraction(0)
    for units, other in pairs(query, sizes=(1,)):
        first, second = exact(query, units), exact(query, other)
        for output in itertools.product(*({a, b, a + 1, b - 1} for a, b in zip(first, second, strict=True))):
            exponents = [sum(abs(y - s) for y, s in zip(output, sums, strict=True)) for sums in (first, second)]
            worst = max(worst, Fraction(exponents[1] - exponents[0]) / event.scale)
    assert worst == epsilon
    units = possible(query)
    values = np.array(units).reshape(len(units), *(() if query.joints is None else (2,)))
    # the noise is drawn for all sums, from the event's own scale, and nothing else is done to them
    assert noised_sums(query, values, AesNoise(Key.from_seed(1))) == query.sums(values)
    assert used == [event.scale]


def law(event, reach):
    """P(noise = x) for |x| <= reach."""
    x = np.arange(-reach, reach + 1, dtype=float)
    if isinstance(event, Laplace):
        weights = np.exp(-np.abs(x) / float(event.scale))
    else:
        weights = np.exp(-x * x / (2 * float(event.variance)))
    return weights / weights.sum()


@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (2.0, 1e-5)])
def test_gaussian_noise_keeps_epsilon_and_delta_by_summing_its_law(query, epsilon, delta, monkeypatch):
    monkeypatch.setattr(noised_query, "GRID", 2)
    event = replace(query, epsilon=Fraction(epsilon), delta=delta).event
    assert cost([event], delta, accountant=Accountant.GAUSSIAN) <= epsilon
    reach = 7 * math.isqrt(int(event.variance)) + query.l1
    size = len(exact(query, possible(query)[:1]))
    one = law(event, reach)
    joint = np.multiply.outer(one, one) if size == 2 else one
    # noise is the same in every direction and sign, so it is the way that sums move that matters
    for change in {tuple(sorted(map(abs, moved(query, *pair)))) for pair in pairs(query, sizes=(1,))}:
        shifted = joint
        for axis, by in enumerate(change):
            shifted = np.roll(shifted, by, axis=axis)
        assert np.maximum(joint - np.exp(epsilon) * shifted, 0).sum() <= delta + 1e-9


@pytest.mark.parametrize("query", QUERIES[:2], ids=str)
def test_what_is_published_keeps_epsilon_by_counting_every_noise(query, monkeypatch):
    """The value and its interval, as a function of the noise drawn, over all the noise that matters."""
    monkeypatch.setattr(noised_query, "GRID", 1)
    monkeypatch.setattr(noised_query, "POINTS", 16)
    epsilon, reach = Fraction(2), 20 * query.l1
    query = replace(query, epsilon=epsilon)
    chances = law(query.event, reach)
    units = 2 if query.joints is None else None

    def published(data):
        out = {}
        sums = exact(query, data)
        for noise in itertools.product(range(-6 * query.l1, 6 * query.l1 + 1), repeat=len(sums)):
            result = ratio_of(query, tuple(map(sum, zip(sums, noise, strict=True))), units)
            out[result] = out.get(result, 0.0) + math.prod(chances[reach + x] for x in noise)
        return out

    ends = (possible(query)[-1], possible(query)[1])
    tails = 4 * math.exp(-6 * float(epsilon))
    for data, other in itertools.permutations([(ends[0],) * 2, (ends[0], BLANK[query.joints is None])]):
        mine, theirs = published(data), published(other)
        for result, chance in mine.items():
            assert chance <= math.exp(epsilon) * theirs.get(result, 0.0) + tails


@pytest.mark.parametrize("delta", [None, 1e-3])
def test_the_noise_that_is_added_has_the_events_law(delta, monkeypatch):
    monkeypatch.setattr(noised_query, "GRID", 4)
    query = NoisedQuery(Fraction(2), delta, Relation.REPLACE, joints=2)
    source, counts = AesNoise(Key.from_seed(5)), [(1, 1), (2, 0)]
    drawn = np.array([noised_sums(query, counts, source, step) for step in range(4000)]) - [12, 4]
    chances, reach = law(query.event, 400), 400
    for column in drawn.T:
        edges = np.unique(np.quantile(column, np.linspace(0.05, 0.95, 10)).astype(int))
        # a cell for what lies up to and with each edge, and one for the rest
        expected = np.add.reduceat(chances, [0, *(reach + edge + 1 for edge in edges)])
        counted = np.bincount(np.searchsorted(edges, column), minlength=len(expected))
        assert stats.chisquare(counted, expected * len(column)).pvalue > 1e-4
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.08


def test_noise_is_given_once():
    query, source = NoisedQuery(ONE), AesNoise(Key.from_seed(5))
    first = noised_sums(query, [0.5], source)
    with pytest.raises(RuntimeError, match="asked for twice"):
        noised_sums(query, [0.5], source)
    assert noised_sums(query, [0.5], source, step=1) != first
    assert noised_sums(query, [0.5], AesNoise(Key.fresh())) != first


@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_the_event_is_one_release_for_the_querys_own_sensitivity(query, delta):
    """And no other is taken for it: noise for less, or noise that is counted for several releases."""
    query = replace(query, delta=delta)
    event = query.event
    assert event.steps == 1
    assert (event.sensitivity if delta is None else event.sensitivity_squared) == (
        query.l1 if delta is None else query.squared_l2
    )
    assert query.is_noised_by(event)
    name = "sensitivity" if delta is None else "sensitivity_squared"
    for other in (
        replace(event, **{name: getattr(event, name) - 1}),
        replace(event, **{name: getattr(event, name) + 1}),
        replace(event, steps=2),
        SampledGaussian(1.0, 1.0, 1, 1.0),
    ):
        assert not query.is_noised_by(other)
    assert not query.is_noised_by(event, event)
    assert not query.is_noised_by()


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(Fraction(0), None), (Fraction(-1), None), (Fraction(1, 10**15), None), (Fraction(1), 2.0)]
)
def test_a_price_that_cannot_be_is_refused(epsilon, delta):
    with refused(("delta-out-of-range", "epsilon-not-positive", "epsilon-too-small")):
        NoisedQuery(epsilon, delta)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, 0.3), (0.5, 0.5), (0.2, 0.8), (1.0, 1.0 - 1e-7)])
@pytest.mark.parametrize("event", [Laplace(Fraction(30), Fraction(1)), Gaussian(Fraction(900), Fraction(1))])
def test_tails_are_those_of_the_law(event, weights):
    """Against a sum over the discrete law, which lies within a step of the grid."""
    reach = 600
    x = np.arange(-reach, reach + 1)
    one = law(event, reach)
    size = np.abs(weights[0] * x[:, None] - weights[1] * x[None, :])
    joint = one[:, None] * one[None, :]
    for beyond in (5.0, 40.0, 120.0):
        low, high = (float(tail(event, max(beyond + s, 0.0), *weights)) for s in (2.0, -2.0))
        assert low <= joint[size >= beyond].sum() <= high


CASES = [
    NoisedQuery(Fraction(1, 2), delta, relation, joints)
    for relation in Relation
    for joints in (None, 6)
    for delta in (None, 1e-4)
]


@pytest.mark.parametrize("query", rest_slow(CASES, 0, 3, 5, 6), ids=str)
def test_the_interval_holds_the_score_without_noise(query):
    rng, count, times = np.random.default_rng(2), 120, 250
    found = rng.integers(0, 5, count)
    values = rng.random(count) if query.joints is None else np.stack([found, rng.integers(0, 2, count)], axis=1)
    truth = values.mean() if query.joints is None else values[:, 0].sum() / values.sum()
    units = count if query.joints is None and not query.counts_units else None
    inside, widths = 0, []
    for seed in range(times):
        sums = noised_sums(query, values, AesNoise(Key.from_seed(1000 + seed)))
        result = ratio_of(query, sums, units)
        assert 0 <= result.low <= result.high <= 1
        inside += result.low <= truth <= result.high
        widths.append(result.high - result.low)
    # four standard errors on either side of 95 %: an interval that is far too wide says nothing either
    assert 0.895 <= inside / times <= 1.0
    assert 0 < np.median(widths) < 0.9


def test_with_little_noise_the_ratio_is_the_score():
    for query, values in (
        (NoisedQuery(Fraction(10_000), relation=Relation.ADD_REMOVE), [0.25, 0.75, 0.5]),
        (NoisedQuery(Fraction(10_000), joints=4), [(3, 1), (1, 3)]),
    ):
        result = ratio_of(query, noised_sums(query, values, AesNoise(Key.from_seed(3))))
        assert result.value == pytest.approx(0.5, abs=0.01)
        assert result.low <= 0.5 <= result.high


def test_noise_that_leaves_nothing_says_nothing():
    result = ratio_of(NoisedQuery(ONE, joints=4), (-5, -5))
    assert (result.value, result.low, result.high) == (0.5, 0.0, 1.0)


def test_the_mean_of_a_trial_is_a_whole_number_of_the_grid_and_a_unit_moves_it_by_one_nth():
    scores = np.array([0.0, 1 / 3, 0.5, 1.0, 0.7])
    event = SampledGaussian(1.0, 3.0, 1, 1 / 5, type=ROUNDED)

    def at(values):
        return noised_mean(values, event, AesNoise(Key.from_seed(1)).stream(Purpose.SCORE, 0)) * GRID * 5

    drawn = at(scores) - np.rint(scores * GRID).sum()
    assert drawn == round(drawn) != 0
    for place in range(5):
        blank = np.where(np.arange(5) == place, 0, scores)
        assert at(scores) - at(blank) == np.rint(scores[place] * GRID) <= GRID, "the same noise, one unit less"
    for wrong in (np.array([0.5, 1.5]), np.array([-0.1]), np.array([math.nan])):
        with pytest.raises(ValueError, match="moves by more"):
            noised_mean(wrong, event, AesNoise(Key.from_seed(1)).stream(Purpose.SCORE, 0))
