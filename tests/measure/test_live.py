"""Live counts: by the public schedule, each window once, whatever dies."""

import json
import multiprocessing
import os
import random
import signal
import time
from fractions import Fraction

import pytest

import dpose.report.plots  # noqa: F401  (what a fork draws with)
from counted import Reader, camera
from dpose.account import charges, last_window
from dpose.measure.config import CountConfig
from dpose.measure.counter import COUNT, CountRequest
from dpose.measure.folder import NUMBERS, read_folder, verify_folder
from dpose.measure.live import Live, count_live, live_config
from dpose.media.live import Clock
from dpose.privacy.stays import touched_chunks
from refusals import refused
from tiers import rest_slow


def config_of(width="1/10", queries="occupancy", **given):
    rate = str(1 / Fraction(width))
    return CountConfig.of(
        queries=queries,
        **{"window": width, "chunk": width, "epsilon": "1", "visible": "1s", "times": 1, "rate": rate, **given},
    )


def run(out, seconds, clock=None, frames=None, **given):
    config = given.pop("config", config_of())
    clock = clock or Clock()
    source = Live(given.pop("name", "ward-3"), frames or camera())
    tell = given.pop("tell", lambda line: None)
    request = CountRequest(config, **given)
    count_live(source, request, out, Reader(), until=clock.now() + Fraction(seconds), clock=clock, tell=tell)
    (day,) = out.iterdir()
    return day


def test_windows_come_by_the_schedule(tmp_path):
    lines = []
    day = run(tmp_path / "counts", 2, config=config_of("1/5", epsilon="1000"), tell=lines.append)
    count = read_folder(day)
    numbers = [one.number for one in count.shown]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) >= 3
    assert len(lines) == len(numbers)
    assert "1,000 is claimed" in "\n".join(verify_folder(day.parent))
    values = [w["values"][0]["value"] for w in json.loads((day / NUMBERS).read_text())["windows"]]
    assert pytest.approx(1, abs=0.3) in values  # somebody is there in every frame
    (entry,) = charges()
    assert (entry.what, entry.state, entry.events) == (COUNT, "committed", count.plan.events)
    assert last_window(entry.id) == numbers[-1]


def test_the_day_is_charged_whole_and_first(tmp_path):
    """A count of a second costs what the day costs, and no frame is asked for before."""
    seen = []

    def frames(stopped, now):
        seen.extend(charges())
        return camera()(stopped, now)

    day = run(tmp_path / "counts", 1, frames=frames)
    plan = read_folder(day).plan
    assert len(plan.windows) == 864_000
    assert [entry.events for entry in seen] == [plan.events]
    assert plan.touched == touched_chunks(1, Fraction(1), Fraction(0), Fraction(1, 10))


def test_a_source_that_dies_leaves_windows_and_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr("dpose.measure.live.GAP", Fraction(1, 2))
    day = run(tmp_path / "counts", 2, frames=camera(until=0.4), config=config_of("1/5"))
    count = read_folder(day)
    assert len(count.shown) >= 3
    assert count.gaps[-1][1] - count.gaps[-1][0] > 0.5


def test_a_slow_detector_makes_no_gap_and_no_late_window(tmp_path):
    """Its chunks count as empty; the windows come as always."""

    class Slow(Reader):
        def __call__(self, image, boxes=None, before=None):
            time.sleep(0.4)
            return super().__call__(image, boxes, before)

    clock = Clock()
    source = Live("ward-3", camera())
    config, out = config_of("1/5"), tmp_path / "counts"
    times = []
    count_live(
        source,
        CountRequest(config),
        out,
        Slow(),
        until=clock.now() + 2,
        clock=clock,
        tell=lambda _: times.append(clock.now()),
    )
    (day,) = out.iterdir()
    count = read_folder(day)
    assert len(count.shown) >= 3
    assert count.gaps == ()


def test_chunks_never_wait_for_each_other():
    """Of every chunk that works at one time, the deadlines together are a chunk."""
    for lead, share in ((("1", "1"), 2), (("2", "5"), 3)):
        config = config_of("5", queries="falls", visible="30s", fall_within=lead[0], fall_stays=lead[1])
        assert live_config(config).deadline == Fraction(4, share)
    assert live_config(config_of("5", visible="30s")).deadline == 4


def test_other_settings_are_another_count_of_the_day(tmp_path):
    run(tmp_path / "a", 1)
    with refused("counted-before"):
        run(tmp_path / "b", 1, config=config_of(epsilon="2"))
    run(tmp_path / "b", 1, name="ward-4", config=config_of(epsilon="2"))
    run(tmp_path / "c", 1, config=config_of(epsilon="2"), again=True)


def test_subjects_of_a_day_to_come_are_not_known(tmp_path):
    with refused("subjects-not-live"):
        run(tmp_path / "a", 1, config=config_of(subject_chunks=2))


def test_a_clock_that_was_set_back_is_refused(tmp_path):
    run(tmp_path / "counts", 1)
    clock = Clock()
    clock._offset -= 60
    with refused("clock-behind-count"):
        run(tmp_path / "counts", 1, clock=clock)


def test_a_folder_of_an_account_that_knows_less_is_refused(tmp_path, monkeypatch):
    run(tmp_path / "counts", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    with refused("count-not-in-account"):
        run(tmp_path / "counts", 1)


@pytest.mark.parametrize("kills", rest_slow([20, 200], 0))
def test_no_kill_shows_a_window_twice(tmp_path, kills):
    """A running counter is killed again and again: what was shown once stays as it was, and all of it was claimed."""
    out, shown, draws = tmp_path / "counts", {}, random.Random(7)
    processes = multiprocessing.get_context("fork")
    config = config_of("1/20")
    for kill in range(kills):
        process = processes.Process(target=run, args=(out, 60), kwargs={"config": config}, daemon=True)
        process.start()
        if kill % 3:  # else it may die before it has shown anything
            until = time.monotonic() + 30
            while windows_in(out).keys() <= shown.keys() and time.monotonic() < until:
                time.sleep(0.01)
        time.sleep(draws.uniform(0.0, 0.2))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        entries = [entry for entry in charges() if entry.what == COUNT]
        assert len(entries) <= 2  # of a day, or of two about midnight
        windows = windows_in(out)
        assert all(shown.get(place, noised) == noised for place, noised in windows.items())
        assert shown.keys() <= windows.keys()
        shown = windows
        newest = max((last_window(entry.id) for entry in entries), default=-1)
        assert max((number for _, number in shown), default=-1) <= newest
    assert len(shown) >= kills // 2
    run(out, 1, config=config)
    assert shown.items() <= windows_in(out).items()
    for file in out.glob(f"*/{NUMBERS}"):
        assert verify_folder(file.parent)
    epsilons = [sum(event.pure() for event in entry.events) for entry in charges() if entry.what == COUNT]
    assert set(epsilons) == {1}


def windows_in(out):
    """Noised numbers by day and window."""
    return {
        (file.parent.name, one["window"]): one["noised"]
        for file in out.glob(f"*/{NUMBERS}")
        for one in json.loads(file.read_text())["windows"]
    }
