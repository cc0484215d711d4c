"""Live counts: a day is charged when it begins, a window is claimed, noised and written at its end and a fixed lag.

    count_live(Live("ward-3", frames), CountRequest(config), Path("counts"), finder)

Each day has a folder of its own. One thread hears the transport, one works on chunks; this one waits for the public
schedule and for nothing else. A counter that is stopped goes on where the account says that it stopped: a window is
shown once, or not at all. Windows that had begun before the counter did are left out.

**Guarantee.** docs/proofs/counts.md, "When numbers are published": what is published when follows from the schedule,
the account and the times at which the counter was started and stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

from dpose.account import claim_window, last_window
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.measure import NUMBERS
from dpose.measure.chunks import Rows, chunk_rows
from dpose.measure.config import CountConfig
from dpose.measure.counter import RELEASED, CountRequest, charged, count_charge
from dpose.measure.folder import Count, read_folder, window_times, write_folder
from dpose.measure.plan import CountPlan, whole_day
from dpose.measure.statement import count_statement
from dpose.measure.windows import Windows
from dpose.media.live import Clock, Live, Transport
from dpose.media.timed import TimedFrame
from dpose.pose.people import PeopleFinder
from dpose.pose.postures import Posture
from dpose.privacy.marks import marks_of
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.sections import About
from dpose.privacy.stays import DAY

PLOT_EVERY = 60
"""Seconds of a window from which a plot is drawn with each; of shorter ones at the end."""
SHARE = Fraction(4, 5)
"""Share of the time that chunks may work; the rest is for the frame that a deadline finds them at."""


def live_config(config: CountConfig) -> CountConfig:
    """The configuration with a deadline for each chunk, so that chunks never wait for one another.

    A chunk's lead-in is worked on beside the chunks before it: each has its share of the time.
    """
    if config.deadline is not None:
        return config
    return replace(config, deadline=SHARE * config.chunk / (1 + math.ceil(config.lead / config.chunk)))


def count_live(
    source: Live,
    request: CountRequest,
    out: Path,
    finder: PeopleFinder,
    *,
    until: Fraction | None = None,
    clock: Clock | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Count a live source until it is stopped (Ctrl-C), day after day.

    The folder `out` gets one for each day. `until` is when to stop, seconds after the first midnight; `tell` receives a
    line for each window that was written.
    """
    if request.config.subject_chunks:
        raise DposeError(
            "subjects-not-live", "who will be seen is not known before", "--protect", "say --protect person"
        )
    config, clock = live_config(request.config), clock or Clock()
    work = _Work(source, config, (finder, request.posture), clock)
    try:
        for day in itertools.count():
            named = (clock.today + timedelta(days=day)).isoformat()
            plan = whole_day(config, named, (source.name,))
            if work.transport.stop.is_set() or (until is not None and day * DAY >= until):
                return
            _count_day(work, plan, out / named, day, until, request, tell)
    finally:
        work.transport.stop.set()


class _Work:
    """The thread that works on chunks, begun with the first day's charge.

    Attributes:
        transport: Where its frames come from.
        rows: Number of the day, of the chunk, and its rows.
    """

    def __init__(self, source: Live, config: CountConfig, looking: tuple[PeopleFinder, Posture], clock: Clock) -> None:
        self.source, self.clock = source, clock
        # stamps within half a chunk, since a tick is a chunk behind: none passes a frame that is still to come
        self.transport = Transport(source, clock, config.rate, 2 * config.chunk_frames + 2, config.chunk / 2)
        self.rows: queue.SimpleQueue[tuple[int, int, Rows | None]] = queue.SimpleQueue()
        self._config, self._looking = config, looking
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Start, unless it has begun."""
        if self._thread.ident is None:
            self.transport.begin()
            self._thread.start()

    def _run(self) -> None:
        for day, frames in itertools.groupby(self._in_order(), lambda frame: int(frame.time // DAY)):
            own = (replace(frame, time=frame.time - day * DAY) for frame in frames)
            for chunk, rows in chunk_rows(own, self._config, *self._looking):
                self.rows.put((day, chunk, rows))

    def _in_order(self) -> Iterator[TimedFrame]:
        """Frames in order of time; where none comes, the time of a chunk ago, which ends those before."""
        seen = Fraction(0)
        while not self.transport.stop.is_set():
            try:
                frame = self.transport.frames.get(timeout=float(min(Fraction(1, 5), self._config.chunk / 4)))
            except queue.Empty:
                frame = TimedFrame(max(seen, self.clock.now() - self._config.chunk), None)
            if frame.time >= seen:
                seen = frame.time
                yield frame


def _count_day(
    work: _Work,
    plan: CountPlan,
    folder: Path,
    day: int,
    until: Fraction | None,
    request: CountRequest,
    tell: Callable[[str], None],
) -> None:
    config, clock = plan.config, work.clock
    marks = marks_of([f"live {work.source.name} {plan.schedule.day}"])
    # the same whenever the same counter goes on with the day
    said = f"{plan.schedule.names} {plan.schedule.day} {config.to_dict()}"
    own_id = hashlib.sha256(said.encode()).hexdigest()[:32]
    entry = count_charge(plan, work.source.name, marks, folder, own_id=own_id)
    first = math.ceil(max(Fraction(0), clock.now() - day * DAY) / config.window)
    if first >= plan.windows.stop or (until is not None and day * DAY + (first + 1) * config.window > until):
        return tell(f"{plan.schedule.day}: no whole window is left, and nothing is counted")
    with charged(entry, again=request.again) as outputs:
        before = count = _begun(plan, folder, last_window(entry.id), request.about)
        if first <= last_window(entry.id):
            said = f"windows until {window_times(plan, last_window(entry.id))[1]} were shown: the clock is behind"
            raise DposeError("clock-behind-count", said, str(folder), "set the clock, or wait")
        work.begin()
        windows = Windows(plan, AesNoise(Key.fresh()))
        try:
            for number in range(first, plan.windows.stop):
                end = day * DAY + (number + 1) * config.window
                if until is not None and end > until:
                    break
                clock.wait_until(end + 2 * config.chunk)
                # chunks that are ready; of windows that were shown, and of other days, none
                while not work.rows.empty():
                    when, chunk, rows = work.rows.get()
                    if when == day and int(chunk * config.chunk / config.window) >= number:
                        windows.add(0, chunk, rows)
                if not claim_window(entry.id, number):
                    continue
                gaps = tuple(dict.fromkeys((*before.gaps, *work.transport.gaps(day * DAY, (day + 1) * DAY))))
                count = replace(count, shown=(*count.shown, windows.release(number)), gaps=gaps)
                write_folder(folder, count, plot=config.window >= PLOT_EVERY)
                tell(f"{window_times(plan, number)[0]}: written")
        except KeyboardInterrupt:
            work.transport.stop.set()
        if count.shown:
            write_folder(folder, count)
            outputs.append(file_digest(folder / NUMBERS))


def _begun(plan: CountPlan, folder: Path, claimed: int, about: About) -> Count:
    """What the folder of a day holds already; a new count where there is none."""
    if not (folder / NUMBERS).exists():
        return Count(plan, count_statement(plan).deployed(about, RELEASED), ())
    count = read_folder(folder)
    if count.plan != plan:
        raise DposeError("output-exists", "holds another count", str(folder), "choose another --out")
    if count.shown and count.shown[-1].number > claimed:
        said = "shows windows that the account has not claimed: the account was set back, or is another one"
        raise DposeError("count-not-in-account", said, str(folder), "bring the account back")
    return count
