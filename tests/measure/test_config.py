"""What a count may be: mistakes are one line each."""

from fractions import Fraction

import pytest

from dpose.measure.config import CountConfig
from dpose.measure.plan import Schedule, bind_count, whole_day
from dpose.measure.statement import drowned, explained
from dpose.privacy.ranges import parse_duration
from refusals import refused


def config_of(**given):
    return CountConfig.of(**{"queries": "occupancy,falls", "epsilon": "1", "window": "1h", **given})


def test_what_is_read_and_written_is_the_same():
    config = config_of(masks="0,0 1,0 1,1; 0,0 0.5,0 1/3,1", totals=True, delta="1e-6", most={"falls": "2"})
    assert CountConfig.read(config.to_dict()) == config
    assert config.lead == 5
    assert config_of(queries="occupancy").lead == 0


@pytest.mark.parametrize(
    ("text", "value"), [("5s", 5), ("20min", 1200), ("1h", 3600), ("1day", 86400), ("1/2", Fraction(1, 2)), ("", 0)]
)
def test_durations(text, value):
    assert parse_duration(text, "window") == value


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"queries": ""}, "queries-missing"),
        ({"queries": "falls,falls"}, "queries-missing"),
        ({"queries": "fall"}, "query-unknown"),
        ({"most": {"speed": 3}}, "query-not-counted"),
        ({"most": {"falls": 0}}, "count-not-whole"),
        ({"epsilon": "0"}, "epsilon-out-of-range"),
        ({"epsilon": "x"}, "fraction-malformed"),
        ({"delta": "1.5"}, "delta-out-of-range"),
        ({"delta": "0.2"}, "delta-of-release-large"),
        ({"window": "7s"}, "window-not-of-day"),
        ({"window": "2s", "chunk": "5s"}, "chunk-not-of-window"),
        ({"chunk": "7s"}, "chunk-not-of-window"),
        ({"chunk": "0s"}, "duration-not-positive"),
        ({"rate": "1/3"}, "rate-not-of-chunk"),
        ({"visible": "0.1s"}, "visible-below-frame"),
        ({"visible": "soon"}, "duration-malformed"),
        ({"times": "0"}, "count-not-whole"),
        ({"times": 10**9}, "count-not-whole"),
        ({"line": "0,0"}, "line-malformed"),
        ({"line": "0,0 2,1"}, "point-out-of-range"),
        ({"masks": "0,0 1,1"}, "polygon-malformed"),
        ({"floor": "0,0 1,1"}, "polygon-malformed"),
        ({"dragon": 1}, "field-names-wrong"),
    ],
)
def test_mistakes(given, code):
    with refused(code):
        config_of(**given)


def test_a_schedule_stays_in_its_day():
    for begin, end in ((0, 86_401), (-1, 5), (5, 5)):
        with refused("schedule-leaves-day"):
            bind_count(config_of(), Schedule("day", 1, Fraction(begin), Fraction(end)))


def test_noise_beyond_all_numbers():
    with refused("noise-too-large"):
        bind_count(config_of(epsilon="1e-12"), Schedule("day", 1, Fraction(0), Fraction(3600)))


def test_numbers_that_noise_drowns_are_told_of_before_anything_is_read():
    day = "2026-01-05"
    short = CountConfig.of(queries="occupancy", epsilon="1", window="2s", visible="5s", times="1")
    (line,) = drowned(whole_day(short, day))
    assert line.startswith("occupancy: a window's noise is within")
    long = CountConfig.of(queries="occupancy", epsilon="1", window="1h", visible="30s", times="4")
    assert list(drowned(whole_day(long, day))) == []


def test_footage_shorter_than_its_window_is_warned_of():
    config = CountConfig.of(queries="occupancy", epsilon="1", window="1h", visible="30s", times="4")
    assert list(drowned(whole_day(config, "day"))) == []
    short = bind_count(config, Schedule("day", 1, Fraction(0), Fraction(51, 5)))
    (line,) = drowned(short)
    assert line.startswith("occupancy: 10.2 of 3600 s are filmed: a window's noise is within")
    # a film of an hour and some seconds: its second window alone
    begin = Fraction(8 * 3600)
    (line,) = drowned(bind_count(config, Schedule("day", 1, begin, begin + 3606)))
    assert line.startswith("occupancy: 6 of 3600 s are filmed: a window's noise")
    assert "of a window of 3600 s that is filmed throughout" in "".join(explained(short))
