"""Sums, noise, the tree and intervals of a day's windows."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpose.measure import plan as plans
from dpose.measure.config import CountConfig
from dpose.measure.plan import Schedule, bind_count
from dpose.measure.windows import ShownWindow, Windows, ended_nodes, readings
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.intervals import half_width, mean_error
from dpose.privacy.noise import AesNoise, Key


def plan_of(queries="entries", windows=6, sources=1, **given):
    config = CountConfig.of(queries=queries, **{"window": "4s", "epsilon": "1", "rate": "1", "chunk": "2s", **given})
    return bind_count(config, Schedule("day", sources, Fraction(0), Fraction(4 * windows)))


def windows_of(plan, seed=0):
    return Windows(plan, AesNoise(Key.from_seed(seed)))


@pytest.fixture
def noiseless(monkeypatch):
    monkeypatch.setattr(plans, "discrete_laplace", lambda scale, count, stream: np.zeros(count, np.int64))


@pytest.mark.usefixtures("noiseless")
class TestSums:
    def test_chunks_of_all_sources_lie_in_their_windows(self):
        plan = plan_of(sources=2, most={"entries": 9})
        windows = windows_of(plan)
        for source in range(2):
            for chunk in range(12):
                windows.add(source, chunk, {"entries": [chunk if source else 1]})
        found = [windows.release(window).raw["entries"] for window in plan.windows]
        # windows hold chunks 2 w and 2 w + 1; 10 and 11 are beyond the range
        assert found == [[[3]], [[7]], [[11]], [[15]], [[19]], [[20]]]

    def test_what_is_beyond_its_range_is_clamped(self):
        plan = plan_of("entries,occupancy,speed", most={"entries": 2, "occupancy": 3, "speed": 2})
        windows = windows_of(plan)
        windows.add(0, 0, {"entries": [10**9], "occupancy": [99, 1], "speed": [1, 1, 0, 0, 0, 0]})
        windows.add(0, 1, {"entries": [-5], "occupancy": [99] * 50, "speed": [3, 0, 0, 0, 0, 0]})
        windows.add(0, 2, None)
        windows.add(0, 3, {"entries": [1, 1], "occupancy": [], "speed": [1]})
        assert windows.release(0).raw == {"entries": [[2]], "occupancy": [[3 + 1 + 6]], "speed": [[1, 1, 0, 0, 0, 0]]}
        assert not any(v for nodes in windows.release(1).raw.values() for row in nodes for v in row)

    def test_totals_are_sums_of_few_nodes(self):
        plan = plan_of(windows=11, totals=True)
        assert plan.mechanisms["entries"].levels == 4
        windows, rows = windows_of(plan), [1, 0, 2, 4, 1, 1, 0, 3, 0, 0, 2]
        for window, row in enumerate(rows):
            windows.add(0, 2 * window, {"entries": [row]})
        shown = [windows.release(window) for window in plan.windows]
        totals = [r for r in readings(plan, shown) if r.name == "entries total"]
        assert [r.value for r in totals] == list(np.cumsum(rows))
        assert all(r.low <= r.value <= r.high for r in totals)
        # with a window missing, no total goes on
        after = [r for r in readings(plan, [*shown[:3], *shown[4:]]) if r.name == "entries total"]
        assert [r.window for r in after] == [0, 1, 2]


def test_every_complete_node_ends_once():
    found = Counter(node for place in range(11) for node in ended_nodes(place, 4))
    assert found == Counter((level, k) for level in range(4) for k in range(11 >> level))


class TestNoise:
    def test_a_chunk_is_counted_once(self):
        windows = windows_of(plan_of())
        windows.add(0, 3, {"entries": [1]})
        for chunk in (3, 2, 12):
            with pytest.raises(RuntimeError):
                windows.add(0, chunk, {"entries": [1]})
        with pytest.raises(RuntimeError):
            windows.add(1, 4, {"entries": [1]})

    def test_a_window_is_noised_once(self):
        windows = windows_of(plan_of())
        windows.release(0)
        with pytest.raises(RuntimeError, match="twice"):
            windows.release(0)

    def test_every_number_has_noise_of_its_own(self):
        """Windows, queries, bins and nodes of the tree: no two are alike, or any draw repeats."""
        plan = plan_of("entries,occupancy,falls,speed", windows=16, totals=True, times=400, epsilon="1/1000000")
        windows = windows_of(plan)
        drawn = [
            value
            for window in plan.windows
            for nodes in windows.release(window).raw.values()
            for row in nodes
            for value in row
        ]
        # 16 of occupancy, and 31 nodes of the others: 1, 1 and 6 numbers each
        assert len(drawn) == 16 + 31 * 8
        assert len(set(drawn)) == len(drawn)

    @pytest.mark.parametrize("delta", ["0", "1e-6"])
    def test_noise_has_the_scale_of_the_plan(self, delta):
        plan = plan_of("entries", windows=2000, times=3, delta=delta)
        windows, event = windows_of(plan), plan.mechanisms["entries"].event
        drawn = np.array([windows.release(window).raw["entries"][0][0] for window in plan.windows])
        wanted = 2 * float(event.scale) ** 2 if isinstance(event, Laplace) else float(event.variance)
        # four times the deviation of a variance's estimate from 2,000 draws
        assert abs(drawn.var() / wanted - 1) < 4 * math.sqrt(5 / 2000)
        assert event.scale == event.sensitivity if isinstance(event, Laplace) else event.rho() > 0


class TestIntervals:
    @pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(96), Fraction(9600)])
    @pytest.mark.parametrize("alpha", [0.05, 0.1, 0.01])
    def test_laplace(self, scale, alpha):
        half = half_width(Laplace(scale, Fraction(1)), alpha)
        xs = np.arange(-int(80 * scale) - 9, int(80 * scale) + 10)
        chances = np.exp(-np.abs(xs) / float(scale))
        chances /= chances.sum()
        assert chances[np.abs(xs) > half].sum() <= alpha * (1 + 1e-9)
        assert half == 0 or chances[np.abs(xs) > half - 1].sum() > alpha
        assert mean_error(Laplace(scale, Fraction(1))) == pytest.approx((np.abs(xs) * chances).sum())

    @pytest.mark.parametrize("variance", [1, 49, 10**6 - 1, 4 * 10**6])
    def test_gaussian(self, variance):
        event = Gaussian(Fraction(variance), Fraction(1))
        half, sigma = half_width(event, 0.05), math.sqrt(variance)
        xs = np.arange(-int(40 * sigma) - 9, int(40 * sigma) + 10)
        chances = np.exp(-(xs**2) / (2 * variance))
        chances /= chances.sum()
        assert chances[np.abs(xs) > half].sum() <= 0.05
        assert chances[np.abs(xs) > half - 3].sum() > 0.05
        assert mean_error(event) == pytest.approx((np.abs(xs) * chances).sum(), rel=0.1)

    def test_falls_by_arithmetic(self):
        """At most one a chunk, K 1, rho + h within c: within 2 with 90 % at epsilon 2, as at 0.88 m."""
        config = CountConfig.of(queries="falls", epsilon="2", window="1h", visible="5s", times=1, chunk="10s")
        plan = plans.whole_day(config, "day")
        assert plan.touched == 2
        assert half_width(plan.mechanisms["falls"].event, 0.1) == 2

    def test_occupancy_by_arithmetic(self):
        """m B c / 3600 / epsilon people, of a corridor."""
        config = CountConfig.of(queries="occupancy", epsilon="1", window="1h", visible="30s", times=4)
        plan = plans.whole_day(config, "day")
        mean = mean_error(plan.mechanisms["occupancy"].event) / plan.divisor(plan.mechanisms["occupancy"].query, 0)
        assert plan.touched == 28
        assert mean == pytest.approx(28 * 10 * 5 / 3600, rel=1e-3)

    def test_a_corridor_of_a_day(self):
        """Hourly occupancy of five people on average, K 4 stays of 30 s, epsilon 1: within a tenth of the count."""
        config = CountConfig.of(queries="occupancy", epsilon="1", window="1h", visible="30s", times=4)
        plan, draws = plans.whole_day(config, "day"), np.random.default_rng(3)
        windows, truth = windows_of(plan), np.zeros(24)
        for chunk, crowd in enumerate(draws.poisson(5, plan.chunks)):
            row = [min(int(crowd), 10)] * 10
            windows.add(0, chunk, {"occupancy": row})
            truth[chunk // 720] += sum(row) / 7200
        read = readings(plan, [windows.release(window) for window in plan.windows])
        errors = np.abs(np.array([r.value for r in read]) - truth)
        assert errors.mean() <= 0.1 * truth.mean()
        # each interval fails with 5 %: of 24 at most five, but for a chance of 1 in 1,000
        assert sum(r.low <= t <= r.high for r, t in zip(read, truth, strict=True)) >= 19

    def test_values_are_read_in_their_units(self):
        plan = plan_of("occupancy,standing,entries", windows=2, rate="2", most={"occupancy": 10})
        raw = {"occupancy": [[24]], "standing": [[-7]], "entries": [[3]]}
        read = {r.name: r for r in readings(plan, [ShownWindow(0, raw)])}
        assert read["occupancy"].value == 3  # of 8 frames
        assert read["standing"].value == read["standing"].low == 0  # half seconds, not negative
        assert read["entries"].value == 3
        assert read["occupancy"].high <= 10


def test_a_window_that_the_schedule_cuts_short_holds_no_more_than_it_has():
    config = CountConfig.of(queries="occupancy,entries", epsilon="1", window="60s", visible="2s", times=1)
    short = plans.bind_count(config, plans.Schedule("a clip", 1, Fraction(0), Fraction(10)))
    whole = plans.bind_count(config, plans.Schedule("a minute", 1, Fraction(0), Fraction(60)))
    for plan, entries in ((short, 2), (whole, 12)):  # chunks of five seconds
        assert plan.largest(plan.mechanisms["occupancy"], 0) == 10
        assert plan.largest(plan.mechanisms["entries"], 0) == entries * plan.mechanisms["entries"].most
    read = readings(short, [ShownWindow(0, {"occupancy": ((10**6,),), "entries": ((10**6,),)})])
    assert [one.high for one in read if one.name == "occupancy"] == [10]


@pytest.mark.parametrize("raw", [10**6, -(10**6)])
def test_noise_beyond_its_interval_leaves_the_whole_range(raw):
    """The interval misses what the number can be: nothing is known but its range, and no point is claimed."""
    (read,) = readings(plan_of(windows=1), [ShownWindow(0, {"entries": ((raw,),)})])
    assert (read.low, read.high) == (0, 4 * 2)
    assert read.value in (read.low, read.high)
