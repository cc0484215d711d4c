"""Live counts: a day is charged before it begins, a window is claimed, noised and written at its end and a fixed lag.

    count_live(Live("ward-3", frames), CountRequest(config), Path("counts"), finder)

Each day has a folder of its own. One thread hears the transport, one works on chunks; this one waits for the public
schedule and for nothing else. A counter that is stopped goes on where the account says that it stopped: a window is
shown once, or not at all. Windows that had begun before the counter did are left out.

**Guarantee.** docs/proofs/counts.md, "When numbers are published": what is published when follows from the schedule,
the account and the times at which the counter was started and stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

from dpose.account import Charge, claim_window, last_window
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.measure import NUMBERS
from dpose.measure.chunks import Rows, chunk_rows, is_own
from dpose.measure.config import CountConfig
from dpose.measure.counter import RELEASED, CountRequest, charge_count, charged, count_charge
from dpose.measure.folder import Count, read_folder, window_times, write_folder
from dpose.measure.plan import CountPlan, whole_day
from dpose.measure.statement import OWN, count_statement
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


def live_config(config: CountConfig) -> CountConfig:
    """The configuration with a deadline for each chunk, so that chunks never wait for one another."""
    return config if config.deadline is not None else replace(config, deadline=config.live_deadline)


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
            if work.transport.stop.is_set() or (until is not None and day * DAY >= until):
                return
            _count_day(work, work.day(day, out), work.day(day + 1, out), until, request, tell)
    finally:
        work.transport.stop.set()


@dataclass(frozen=True)
class _Day:
    """A calendar day of a live source.

    Attributes:
        number: From the counter's first day.
        begin: Its midnight, by the counter's clock.
        plan: What is counted.
        folder: Its own.
        entry: Its charge; the same whenever the same counter goes on with the day.
    """

    number: int
    begin: Fraction
    plan: CountPlan
    folder: Path
    entry: Charge


class _Work:
    """The thread that works on chunks, begun with the first day's charge.

    Attributes:
        transport: Where its frames come from.
        charged: Numbers of the days whose frames may be looked at; of others only the times are.
        own: Whether finder or posture are the caller's own.
    """

    def __init__(self, source: Live, config: CountConfig, looking: tuple[PeopleFinder, Posture], clock: Clock) -> None:
        self.source, self.clock = source, clock
        # stamps within half a chunk, since a tick is a chunk behind: none passes a frame that is still to come
        self.transport = Transport(source, clock, config.rate, 2 * config.chunk_frames + 2, config.chunk / 2)
        self.charged: set[int] = set()
        self._rows: queue.SimpleQueue[tuple[int, int, Rows | None]] = queue.SimpleQueue()
        self._ready: list[tuple[int, int, Rows | None]] = []
        self._config, self._looking, self.own = config, looking, is_own(*looking)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Start, unless it has begun."""
        if self._thread.ident is None:
            self.transport.begin()
            self._thread.start()

    def day(self, number: int, out: Path) -> _Day:
        """The day of this number, whose folder lies in `out`."""
        named, source = (self.clock.today + timedelta(days=number)).isoformat(), self.source.name
        plan = whole_day(self._config, named, (source,))
        said = f"{plan.schedule.names} {named} {self._config.to_dict()}"
        own_id = hashlib.sha256(said.encode()).hexdigest()[:32]
        entry = count_charge(plan, source, marks_of([f"live {source} {named}"]), out / named, own_id=own_id)
        return _Day(number, number * DAY, plan, out / named, entry)

    def ready(self, day: int) -> list[tuple[int, Rows | None]]:
        """Chunks of a day that are ready, and their rows, each once; later days' are kept, earlier ones' are not."""
        while not self._rows.empty():
            self._ready.append(self._rows.get())
        found = [(chunk, rows) for when, chunk, rows in self._ready if when == day]
        self._ready = [one for one in self._ready if one[0] > day]
        return found

    def _run(self) -> None:
        for day, frames in itertools.groupby(self._in_order(), lambda frame: int(frame.time // DAY)):
            own = (replace(frame, time=frame.time - day * DAY) for frame in frames)
            for chunk, rows in chunk_rows(own, self._config, *self._looking):
                self._rows.put((day, chunk, rows))

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
                yield frame if int(seen // DAY) in self.charged else replace(frame, pixels=None)


def _count_day(
    work: _Work, day: _Day, following: _Day, until: Fraction | None, request: CountRequest, tell: Callable[[str], None]
) -> None:
    plan, config, clock, entry, folder = day.plan, day.plan.config, work.clock, day.entry, day.folder
    late = Fraction(0) if day.number in work.charged else max(Fraction(0), clock.now() - day.begin)
    first = math.ceil(late / config.window)
    if first >= plan.windows.stop or (until is not None and day.begin + (first + 1) * config.window > until):
        return tell(f"{plan.schedule.day}: no whole window is left, and nothing is counted")
    goes_on = until is None or following.begin + config.window <= until
    with charged(entry, again=request.again) as outputs:
        before = count = _begun(plan, folder, last_window(entry.id), request.about, own=work.own)
        if first <= last_window(entry.id):
            said = f"windows until {window_times(plan, last_window(entry.id))[1]} were shown: the clock is behind"
            raise DposeError("clock-behind-count", said, str(folder), "set the clock, or wait")
        work.charged.add(day.number)
        work.begin()
        windows = Windows(plan, AesNoise(Key.fresh()))
        try:
            for number in range(first, plan.windows.stop):
                end = day.begin + (number + 1) * config.window
                if until is not None and end > until:
                    break
                if goes_on and end + 2 * config.chunk >= following.begin - config.chunk:
                    goes_on = False
                    _charge_ahead(work, following, again=request.again)
                clock.wait_until(end + 2 * config.chunk)
                for chunk, rows in work.ready(day.number):
                    if int(chunk * config.chunk / config.window) >= number:  # of windows that were shown, none
                        windows.add(0, chunk, rows)
                if not claim_window(entry.id, number):
                    continue
                gaps = tuple(dict.fromkeys((*before.gaps, *work.transport.gaps(day.begin, following.begin))))
                count = replace(count, shown=(*count.shown, windows.release(number)), gaps=gaps)
                write_folder(folder, count, plot=config.window >= PLOT_EVERY)
                tell(f"{window_times(plan, number)[0]}: written")
        except KeyboardInterrupt:
            work.transport.stop.set()
        if count.shown:
            write_folder(folder, count)
            outputs.append(file_digest(folder / NUMBERS))


def _charge_ahead(work: _Work, day: _Day, *, again: bool) -> None:
    """Charge a day a chunk before it begins, so that its first frames may be looked at.

    Where that is refused, or takes until the day has begun, nothing of it is looked at before `_count_day` charges it,
    or says why not.
    """
    work.clock.wait_until(day.begin - day.plan.config.chunk)
    with contextlib.suppress(DposeError):
        charge_count(day.entry, again=again)
        if work.clock.now() < day.begin:
            work.charged.add(day.number)


def _begun(plan: CountPlan, folder: Path, claimed: int, about: About, *, own: bool) -> Count:
    """What the folder of a day holds already; a new count where there is none."""
    new = Count(plan, count_statement(plan, own=own).deployed(about, RELEASED), ())
    if not (folder / NUMBERS).exists():
        return new
    count = read_folder(folder)
    if count.plan != plan:
        raise DposeError("output-exists", "holds another count", str(folder), "choose another --out")
    if count.shown and count.shown[-1].number > claimed:
        said = "shows windows that the account has not claimed: the account was set back, or is another one"
        raise DposeError("count-not-in-account", said, str(folder), "bring the account back")
    # a condition of windows to come is the day's
    return replace(count, statement=new.statement) if own and OWN not in count.statement.conditional_on else count
