"""Live counts: by the public schedule, each window once, whatever dies."""

import json
import multiprocessing
import os
import queue
import random
import signal
import time
from collections import deque
from datetime import date
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import dpose.report.plots  # noqa: F401  (what a fork draws with)
from counted import Reader, camera
from dpose.account import charges, last_window
from dpose.errors import DposeError
from dpose.measure import NUMBERS, count_folders
from dpose.measure.config import CountConfig
from dpose.measure.counter import COUNT, CountRequest, charge_count
from dpose.measure.folder import read_folder, verify_folder
from dpose.measure.live import _Work, count_live, live_config
from dpose.media.live import Clock, Live
from dpose.media.timed import TimedFrame
from dpose.privacy.stays import touched_chunks
from refusals import refused
from tiers import rest_slow


def config_of(width="1/10", queries="occupancy", **given):
    rate = str(1 / Fraction(width))
    return CountConfig.of(
        queries=queries,
        **{"window": width, "chunk": width, "epsilon": "1", "visible": "1s", "times": 1, "rate": rate, **given},
    )


def run(out, windows=3, frames=None, finder=None, **given):
    """Count until so many windows were written, however long a busy machine takes for them; return the day's folder."""
    config, clock = given.pop("config", config_of()), given.pop("clock", None)
    source = Live(given.pop("name", "ward-3"), frames or camera())
    lines = given.pop("lines", [])

    def tell(line):
        lines.append(line)
        if len(lines) >= windows:
            raise KeyboardInterrupt

    count_live(source, CountRequest(config, **given), out, finder or Reader(), clock=clock, tell=tell)
    (day,) = out.iterdir()
    return day


def test_windows_come_by_the_schedule(tmp_path):
    lines = []
    day = run(tmp_path / "counts", 6, config=config_of("1/5", epsilon="1000"), lines=lines)
    count = read_folder(day)
    numbers = [one.number for one in count.shown]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(lines) == len(numbers) == 6
    assert "1,000 is claimed" in "\n".join(verify_folder(*count_folders(day.parent)))
    values = [w["values"][0]["value"] for w in json.loads((day / NUMBERS).read_text())["windows"]]
    assert pytest.approx(1, abs=0.3) in values  # somebody is there in every frame
    (entry,) = charges()
    assert (entry.what, entry.state, entry.events) == (COUNT, "committed", count.plan.events)
    assert last_window(entry.id) == numbers[-1]


def test_the_day_is_charged_whole_and_first(tmp_path):
    """A count of three windows costs what the day costs, and no frame is asked for before."""
    seen = []

    def frames(stopped, now):
        seen.extend(charges())
        return camera()(stopped, now)

    day = run(tmp_path / "counts", frames=frames)
    plan = read_folder(day).plan
    assert len(plan.windows) == 864_000
    assert [entry.events for entry in seen] == [plan.events]
    assert plan.touched == touched_chunks(1, Fraction(1), Fraction(0), Fraction(1, 10))


def test_a_day_without_a_whole_window_left_is_not_charged(tmp_path):
    class Ten(Clock):
        def __init__(self):
            self.today = date(2026, 11, 27)

        def now(self):
            return Fraction(36_000)

    lines = []
    config = config_of(chunk="1s", window="1day", rate="1")
    given = {"until": Fraction(86_400), "clock": Ten(), "tell": lines.append}
    count_live(Live("ward-3", camera()), CountRequest(config), tmp_path / "counts", Reader(), **given)
    assert lines == ["2026-11-27: no whole window is left, and nothing is counted"]
    assert not charges()


def test_a_source_that_dies_leaves_windows_and_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr("dpose.media.live.GAP", Fraction(1, 2))
    count = read_folder(run(tmp_path / "counts", 8, frames=camera(until=0.4), config=config_of("1/5")))
    assert count.gaps[-1][1] - count.gaps[-1][0] > 0.5


def test_a_slow_detector_makes_no_gap_and_no_late_window(tmp_path, monkeypatch):
    """Its chunks count as empty; the windows come as always."""
    monkeypatch.setattr("dpose.media.live.GAP", 60)  # a busy machine may keep the camera waiting

    class Slow(Reader):
        def __call__(self, image, boxes=None, before=None):
            time.sleep(0.4)
            return super().__call__(image, boxes, before)

    count = read_folder(run(tmp_path / "counts", 5, config=config_of("1/5", epsilon="1000"), finder=Slow()))
    assert count.gaps == ()
    assert all(values == [[pytest.approx(0, abs=1)]] for one in count.shown for values in one.raw.values())


@pytest.mark.parametrize("lag", [4, 6, 600, -600])
def test_one_stay_does_not_decide_which_other_frames_are_looked_at(lag):
    """Whatever the camera's clock says: an idle worker ends chunks, and no frame that comes afterwards is too late."""
    config = config_of("5", rate="2", chunk="5s", visible="5s")

    def looked_at(quick):
        now = [Fraction(100)]

        def frames(stopped, time_of):
            for number in range(400):
                now[0] = 100 + Fraction(number, 2)
                yield TimedFrame(time_of() - lag, np.array(number))

        work = _Work(Live("ward", frames), config, (None, None), SimpleNamespace(now=lambda: now[0]))
        work.charged.add(0)
        coming = deque((100 + Fraction(number, 2), f) for number, f in enumerate(work.transport._noted()))
        now[0] = Fraction(100)

        def get(timeout):
            if not coming:
                work.transport.stop.set()
                raise queue.Empty
            if coming[0][0] > now[0] + Fraction(timeout):
                now[0] += Fraction(timeout)
                raise queue.Empty
            now[0] = max(now[0], coming[0][0])
            return coming.popleft()[1]

        work.transport.frames = SimpleNamespace(get=get)
        seen = []
        for frame in work._in_order():
            if frame.pixels is not None:
                seen.append(int(frame.pixels))
                now[0] += Fraction(1, 10) if quick and 100 <= seen[-1] < 104 else Fraction(35, 100)
        return seen

    assert looked_at(False) == looked_at(True) == list(range(400))


def test_chunks_never_wait_for_each_other():
    """Of every chunk that works at one time, the deadlines together are a chunk."""
    for lead, share in ((("1", "1"), 2), (("2", "5"), 3)):
        config = config_of("5", queries="falls", visible="30s", fall_within=lead[0], fall_stays=lead[1])
        assert live_config(config).deadline == Fraction(4, share)
    assert live_config(config_of("5", visible="30s")).deadline == 4


@pytest.mark.parametrize("deadline", ["41/10", "1h"])
def test_no_setting_lets_chunks_wait_for_each_other(tmp_path, deadline):
    """With a longer deadline a stay delays chunks that do not see it, and moves more rows than noise is for."""
    with refused("deadline-too-long", where="deadline"):
        run(tmp_path / "counts", config=config_of("5", visible="30s", deadline=deadline))
    assert not charges()
    with refused("duration-not-positive"):
        config_of("5", visible="30s", deadline="0s")


class Midnight(Clock):
    """Three chunks before midnight, which does not come before `awaited` is true."""

    def __init__(self, awaited):
        super().__init__()
        self.awaited = awaited
        self._offset += 86_400 - 3 / 5 - float(super().now())

    def now(self):
        now = super().now()
        if now > 86_399.99 and not self.awaited():
            self._offset -= float(now) - 86_399.99
            return super().now()
        return now


@pytest.mark.parametrize("at_once", [True, False])
def test_no_frame_of_a_day_is_looked_at_before_the_day_is_charged(tmp_path, monkeypatch, at_once):
    looked, tried = [], []

    class Watched(Reader):
        def __call__(self, image, boxes=None, before=None):
            looked.append((clock.now() > 86_400.15, len(charges())))  # a frame's time is a tenth of a second off
            return super().__call__(image, boxes, before)

    def charge(entry, *, again=False):
        tried.append(entry)
        if not at_once and len(tried) == 2:
            raise DposeError("account-locked", "cannot be read")
        charge_count(entry, again=again)

    for place in ("dpose.measure.live.charge_count", "dpose.measure.counter.charge_count"):
        monkeypatch.setattr(place, charge)
    clock, out, lines = Midnight(lambda: len(tried) > 1), tmp_path / "counts", []

    def tell(line):
        lines.append(line)
        second = sorted(out.iterdir())[1:]
        if second and len(read_folder(second[0]).shown) == 8:
            raise KeyboardInterrupt

    count_live(Live("ward-3", camera()), CountRequest(config_of("1/5")), out, Watched(), clock=clock, tell=tell)
    days = [read_folder(day) for day in sorted(out.iterdir())]
    assert len(days) == 2
    assert days[0].shown[-1].number == days[0].plan.windows[-1]
    assert not at_once or days[1].shown[0].number == 0
    assert all(made == 2 for second, made in looked if second)
    assert any(second for second, _ in looked)


def test_other_settings_are_another_count_of_the_day(tmp_path):
    run(tmp_path / "a")
    with refused("counted-before"):
        run(tmp_path / "b", config=config_of(epsilon="2"))
    run(tmp_path / "b", name="ward-4", config=config_of(epsilon="2"))
    run(tmp_path / "c", config=config_of(epsilon="2"), again=True)


def test_subjects_of_a_day_to_come_are_not_known(tmp_path):
    with refused("subjects-not-live"):
        run(tmp_path / "a", config=config_of(subject_chunks=2))


def test_a_clock_that_was_set_back_is_refused(tmp_path):
    run(tmp_path / "counts")
    clock = Clock()
    clock._offset -= 60
    with refused("clock-behind-count"):
        run(tmp_path / "counts", clock=clock)


def test_a_folder_of_an_account_that_knows_less_is_refused(tmp_path, monkeypatch):
    run(tmp_path / "counts")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    with refused("count-not-in-account"):
        run(tmp_path / "counts")


@pytest.mark.parametrize("kills", rest_slow([20, 200], 0))
def test_no_kill_shows_a_window_twice(tmp_path, kills):
    """A running counter is killed again and again: what was shown once stays as it was, and all of it was claimed."""
    out, shown, draws = tmp_path / "counts", {}, random.Random(7)
    processes = multiprocessing.get_context("fork")
    config = config_of("1/20")
    for kill in range(kills):
        process = processes.Process(target=run, args=(out, 10**6), kwargs={"config": config}, daemon=True)
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
    run(out, config=config)
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
