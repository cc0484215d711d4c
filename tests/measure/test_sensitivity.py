"""How far counts move between neighbours, by brute force over all neighbours of small films."""

import itertools
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from counted import Reader, film
from dpose.measure import plan as plans
from dpose.measure.chunks import chunk_rows
from dpose.measure.config import CountConfig
from dpose.measure.plan import Schedule, bind_count
from dpose.measure.queries import QUERIES, CountQuery
from dpose.measure.subjects import Sighting, dropped_chunks
from dpose.measure.windows import Windows
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.stays import Moved, fullest, touched_chunks

LENGTH = 8  # frames, one a second


def anything(seen, rules):
    """A detector of which nothing is assumed: any frame that a chunk sees turns its number from least to most."""
    return [10**9 if any(frame.people for frame in seen.frames) else -5]


def bins(seen, rules):
    """Two people in the bin that the chunk's frames add up to."""
    row = [0, 0, 0]
    row[sum(len(frame.people) for frame in seen.frames) % 3] = 2
    return row


@pytest.fixture(autouse=True)
def queries(monkeypatch):
    monkeypatch.setitem(QUERIES, "any", CountQuery("", anything, 3, ""))
    monkeypatch.setitem(QUERIES, "any-lead", CountQuery("", anything, 3, "", lead=True))
    monkeypatch.setitem(QUERIES, "bins", CountQuery("", bins, 2, "", bins=("a", "b", "c")))


def config_of(query, times=1, visible=1, chunk=2, lead=(1, 1), most=None, **more):
    given = {"queries": query, "window": "4", "epsilon": "1", "rate": "1", "chunk": str(chunk), **more}
    given |= {"visible": str(visible), "times": times, "fall_within": str(lead[0]), "fall_stays": str(lead[1])}
    return CountConfig.of(**given, most={query: most} if most else {})


def plan_of(config, windows=LENGTH // 4):
    return bind_count(config, Schedule("day", 1, Fraction(0), Fraction(4 * windows)))


def stays_between(one, other, visible):
    """How many stays of at most so many seconds cover all frames in which two films differ."""
    count, until = 0, -1.0
    for time, (a, b) in enumerate(zip(one, other, strict=True)):
        if a != b and time > until:
            count, until = count + 1, time + visible
    return count


def all_windows(plan, monkeypatch):
    """By film, all numbers of the day without noise, (numbers,); each film alone is counted once."""
    monkeypatch.setattr(plans, "discrete_laplace", lambda scale, count, stream: np.zeros(count, np.int64))
    found = {}
    for counts in itertools.product((0, 1), repeat=LENGTH):
        windows = Windows(plan, AesNoise(Key.fresh()))
        for chunk, rows in chunk_rows(film(counts), plan.config, Reader()):
            windows.add(0, chunk, rows)
        shown = [windows.release(window) for window in plan.windows]
        found[counts] = np.array(
            [v for one in shown for nodes in one.raw.values() for row in nodes for v in row], np.int64
        )
    return found


def largest_moves(plan, monkeypatch):
    """The largest moves between any two neighbours, in L1 and squared L2 norm."""
    found, most, squared = all_windows(plan, monkeypatch), 0, 0
    matrix, films = np.array(list(found.values())), list(found)
    for k, one in enumerate(films):
        near = [j for j in range(k) if stays_between(one, films[j], plan.config.visible) <= plan.config.times]
        apart = np.abs(matrix[near] - matrix[k])
        most = max(most, int(apart.sum(1).max(initial=0)))
        squared = max(squared, int((apart**2).sum(1).max(initial=0)))
    return most, squared


SETTINGS = [
    ("any", {"visible": 1, "chunk": 2}),
    ("any", {"visible": 1, "chunk": 1}),
    ("any", {"visible": 2, "chunk": 2, "times": 2}),
    ("any-lead", {"visible": 1, "chunk": 2}),
    ("any-lead", {"visible": 1, "chunk": 4, "lead": ("2", "1")}),
    ("any", {"visible": 3, "chunk": 2, "totals": True}),
    ("bins", {"visible": 1, "chunk": 2}),
    ("occupancy", {"visible": 1, "chunk": 2, "most": 1}),
]
TIGHT = {0, 1, 3, 5}


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_no_neighbours_move_further_and_some_as_far(number, monkeypatch):
    query, given = SETTINGS[number]
    plan = plan_of(config_of(query, **given))
    (mechanism,) = plan.mechanisms.values()
    most, squared = largest_moves(plan, monkeypatch)
    assert most <= mechanism.event.sensitivity
    gauss = plan_of(config_of(query, **given, delta="1e-6")).mechanisms[query].event
    assert squared <= gauss.sensitivity_squared
    if number in TIGHT:
        assert most == mechanism.event.sensitivity


KNOWN = [
    ("any", {"chunk": 1, "subject_chunks": 2}),
    ("any", {"chunk": 2, "subject_chunks": 1}),
    ("any-lead", {"chunk": 2, "subject_chunks": 2}),
    ("any-lead", {"chunk": 1, "subject_chunks": 3, "lead": ("2", "1")}),
    ("any", {"chunk": 1, "subject_chunks": 2, "totals": True}),
    ("bins", {"chunk": 2, "subject_chunks": 2}),
]


def some_labels(draws):
    """One to three sightings of each of three subjects, at any times."""
    found = []
    for subject in "abc":
        for _ in range(draws.integers(1, 4)):
            begin, end = sorted(draws.integers(0, 4 * LENGTH, 2))
            found.append(Sighting(subject, 0, Fraction(int(begin), 4), Fraction(int(end), 4)))
    return found


def numbers_of(plan, rows, dropped):
    """All numbers of a day without noise, with some chunks dropped."""
    windows = Windows(plan, AesNoise(Key.fresh()))
    for chunk, row in rows:
        windows.add(0, chunk, None if (0, chunk) in dropped else row)
    shown = [windows.release(window) for window in plan.windows]
    return [v for one in shown for nodes in one.raw.values() for row in nodes for v in row]


@pytest.mark.parametrize("number", range(len(KNOWN)))
def test_no_known_subject_moves_further_than_k_chunks(number, monkeypatch):
    """Over all films and many labels: films that differ where one subject is said to be seen."""
    query, given = KNOWN[number]
    plan = plan_of(config_of(query, **given))
    gauss = plan_of(config_of(query, **given, delta="1e-6")).mechanisms[query].event
    monkeypatch.setattr(plans, "discrete_laplace", lambda scale, count, stream: np.zeros(count, np.int64))
    films = list(itertools.product((0, 1), repeat=LENGTH))
    rows = [list(chunk_rows(film(counts), plan.config, Reader())) for counts in films]
    draws, most = np.random.default_rng(number), 0
    for _ in range(25):
        labels = some_labels(draws)
        dropped = dropped_chunks(labels, plan.config)
        matrix = np.array([numbers_of(plan, row, dropped) for row in rows])
        for subject in "abc":
            seen = {t for one in labels for t in range(LENGTH) if one.subject == subject if one.begin <= t <= one.end}
            groups = defaultdict(list)
            for k, counts in enumerate(films):
                groups[tuple(c for t, c in enumerate(counts) if t not in seen)].append(k)
            for near in groups.values():
                apart = np.abs(matrix[near][:, None] - matrix[near][None])
                most = max(most, int(apart.sum(2).max()))
                assert (apart**2).sum(2).max() <= gauss.sensitivity_squared
    assert plan.touched == given["subject_chunks"]
    assert most <= plan.mechanisms[query].event.sensitivity
    assert most == plan.mechanisms[query].event.sensitivity or given.get("totals") or query == "bins"


def test_labels_of_a_subject_who_is_seen_little_drop_nothing():
    """So they may be there or not: who has at most k chunks decides about none."""
    draws, config = np.random.default_rng(1), config_of("any-lead", chunk=1, subject_chunks=4)
    rare = 0
    for _ in range(200):
        labels = some_labels(draws)
        for subject in "abc":
            others = [one for one in labels if one.subject != subject]
            own = [replace(one, subject="a") for one in labels if one.subject == subject]
            if not dropped_chunks(own, config):
                rare += 1
                assert dropped_chunks(labels, config) == dropped_chunks(others, config)
    assert rare > 20


def test_what_is_left_of_a_subject_lies_all_over_the_day():
    config = CountConfig.of(queries="occupancy", epsilon="1", chunk="60s", subject_chunks=24)
    dropped = dropped_chunks([Sighting("a", 0, Fraction(0), Fraction(86_399))], config)
    kept = sorted(set(range(1440)) - {chunk for _, chunk in dropped})
    assert len(kept) == 24
    assert max(np.diff(kept)) < 120


@pytest.mark.parametrize("chunk", [1, 2, 3, Fraction(5, 2)])
@pytest.mark.parametrize("seen", [Fraction(1, 2), 1, 2, Fraction(7, 2), 5])
def test_chunks_that_one_stay_touches(chunk, seen):
    """Chunk i sees [i c - h, (i + 1) c); a stay may begin at any moment, also just before a quarter of a second."""
    visible, lead = seen / Fraction(2), seen / Fraction(2)
    touched = 0
    for quarter in range(160):
        for begin in (Fraction(quarter, 4), Fraction(quarter, 4) - Fraction(1, 1000)):
            end = begin + visible
            touched = max(touched, sum(n * chunk - lead <= end and begin < (n + 1) * chunk for n in range(-5, 60)))
    assert touched <= touched_chunks(1, visible, lead, Fraction(chunk))
    if (Fraction(seen) / chunk).denominator == 1:
        assert touched == touched_chunks(1, visible, lead, Fraction(chunk))


@pytest.mark.parametrize(("size", "count"), [(1, 3), (2, 5), (3, 3), (4, 9), (6, 1)])
def test_fullest_windows(size, count):
    """Over all ways to lay chunks into windows."""
    ways = itertools.product(range(size + 1), repeat=count)
    assert fullest(size, count) == max(sum(n * n for n in way) for way in ways if sum(way) == count)


def test_a_histogram_loses_and_gains():
    """Two bins, any rows of at most three people before and after."""
    rows = [np.array(row) for row in itertools.product(range(4), repeat=3) if sum(row) <= 3]
    moves = [np.abs(a - b) for a in rows for b in rows]
    moved = Moved.of_histogram(3)
    assert moved.l1 == max(int(m.sum()) for m in moves)
    assert moved.l2_squared == max(int((m**2).sum()) for m in moves)


def test_the_day_costs_its_epsilon_once():
    """Whatever its windows: their noise is for all touched chunks of the day, and queries share."""
    config = config_of("occupancy,falls,speed", visible=30, times=4, chunk=1)
    for count in (1, 7, 20_000):
        plan = plan_of(config, count)
        assert sum(event.pure() for event in plan.events) == config.epsilon
    scales = [plan.mechanisms["falls"].event.scale for plan in (plan_of(config, 40), plan_of(config, 20_000))]
    assert scales[0] == scales[1] == 3 * plan.touched


def test_longer_stays_cost_by_the_chunks_that_they_touch():
    plan = plan_of(config_of("any", visible=30, times=4, chunk=2), 20_000)
    assert plan.touched == 64
    assert plan.cost_at(plan.touched_by(4, Fraction(30))) == 1
    assert plan.cost_at(plan.touched_by(1, Fraction(60))) == Fraction(31, 64)
    assert plan.cost_at(plan.chunks) == Fraction(plan.chunks, 64)
    assert plan.cost_at(plan.touched, days=7) == 7
    gauss = plan_of(config_of("any", visible=30, times=4, chunk=4, delta="1e-6"), 20_000)
    assert gauss.cost_at(gauss.touched) <= 1
    assert gauss.cost_at(gauss.touched_by(4, Fraction(300))) > 1
