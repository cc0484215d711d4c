"""Live video: a network camera (RTSP), a device of this machine, or a file that grows, frame by frame until stopped.

    source = Live("ward-3", partial(live_frames, "rtsp://camera/1"))
    transport = Transport(source, Clock(), rate=Fraction(2), room=20, apart=Fraction(1))    # a thread of its own
    transport.begin()
    frame = transport.frames.get()

Frames have the source's own time stamps, from when its first frame came. A source that ends or fails is opened again;
in between there are ticks without a frame, which tell the time. Nothing is kept.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import lazy_loader

from dpose.errors import DposeError
from dpose.files import open_regular
from dpose.media.container import SELF_CONTAINED
from dpose.media.timed import TimedFrame, sampled

av = lazy_loader.load("av")

RTSP = ("rtsp://", "rtsps://")
DEVICE, GROWING = "/dev/video", "live:"
WAIT = 1.0
"""Seconds between two tries to open a source, and between ticks without a frame."""
PATIENCE = 10.0
"""Seconds without a packet after which a network camera is opened again."""
GAP = 2
"""Seconds without a frame that are told as a gap of the transport."""
CAMERA = {"rtsp_transport": "tcp", "protocol_whitelist": "rtsp,rtp,tcp,tls,crypto"}
"""FFmpeg's options for a network camera: it may name no other host, and no file."""


class Clock:
    """Seconds since the midnight that began the day of its making; the machine's clock may jump meanwhile."""

    def __init__(self) -> None:
        begun = datetime.now()
        self.today = begun.date()
        seconds = (begun - datetime.combine(self.today, datetime.min.time())).total_seconds()
        self._offset = seconds - clock.monotonic()

    def now(self) -> Fraction:
        """The time."""
        return Fraction(clock.monotonic() + self._offset).limit_denominator(10**6)

    def wait_until(self, moment: Fraction) -> None:
        """Sleep until then."""
        while (left := float(moment - self.now())) > 0:
            clock.sleep(min(left, 1.0))


@dataclass(frozen=True)
class Live:
    """A live source.

    Attributes:
        name: As it is declared.
        frames: From "stopped" and the time to frames, on the clock's time; a frame without pixels is a tick.
    """

    name: str
    frames: Callable[[Callable[[], bool], Callable[[], Fraction]], Iterator[TimedFrame]]


class Transport:
    """The thread that hears a live source: a choice of frames by the clock, and when nothing came.

    Frames that find no room are dropped without a word, and gaps are of the transport alone: how long somebody works on
    frames must not show. No frame has a time further from its arrival than `apart` seconds, whatever its stamp.

    Attributes:
        frames: What was heard.
        stop: Ends the thread.
    """

    def __init__(self, source: Live, clock: Clock, rate: Fraction, room: int, apart: Fraction) -> None:
        self.frames: queue.Queue[TimedFrame] = queue.Queue(room)
        self.stop = threading.Event()
        self._source, self._clock, self._rate, self._apart = source, clock, rate, apart
        self._gaps: list[tuple[Fraction, Fraction]] = []
        self._heard = clock.now()

    def begin(self) -> None:
        """Start to hear."""
        self._heard = self._clock.now()
        threading.Thread(target=self._hear, daemon=True).start()

    def gaps(self, begin: Fraction, end: Fraction) -> tuple[tuple[float, float], ...]:
        """When the transport gave nothing between two times, in whole seconds after the first."""
        heard = (*self._gaps, (self._heard, self._clock.now()))
        found = [(Fraction(math.floor(a)), Fraction(math.ceil(b))) for a, b in heard if b - a > GAP]
        inside = [(max(a, begin) - begin, min(b, end) - begin) for a, b in found]
        return tuple((float(a), float(b)) for a, b in inside if a < b)

    def _hear(self) -> None:
        with contextlib.suppress(Exception):  # a transport that is broken for good is a gap without end
            for frame in sampled(self._noted(), self._rate):
                with contextlib.suppress(queue.Full):
                    self.frames.put_nowait(frame)

    def _noted(self) -> Iterator[TimedFrame]:
        for frame in self._source.frames(self.stop.is_set, self._clock.now):
            if frame.pixels is not None:
                now = self._clock.now()
                if now - self._heard > GAP:
                    self._gaps.append((self._heard, now))
                self._heard = now
                yield replace(frame, time=min(max(frame.time, now - self._apart), now + self._apart))


def is_live(source: str) -> bool:
    """True for what names a live source."""
    return source.startswith((*RTSP, DEVICE, GROWING))


def check_live(source: str) -> None:
    """Refuse a device or growing file that is missing or may not be read; what it shows is not looked at.

    Raises:
        DposeError: it is.
    """
    if source.startswith(RTSP):
        return
    place = source.removeprefix(GROWING)
    if not Path(place).exists():
        raise DposeError("file-missing", "there is no such file or device", place)
    if not os.access(place, os.R_OK):
        raise DposeError("file-unreadable", "may not be read", place, "ask for the right to read it")


def live_frames(source: str, stopped: Callable[[], bool], now: Callable[[], Fraction]) -> Iterator[TimedFrame]:
    """Times and frames of a live source, uint8 (H, W, 3) RGB; None where nothing came.

    Args:
        source: An address, a device, or "live:FILE".
        stopped: Called before each frame; True ends it.
        now: The time, seconds.
    """
    while not stopped():
        with contextlib.suppress(av.error.FFmpegError, OSError), _opened(source, stopped) as container:
            begin: Fraction | None = None
            for frame in container.decode(container.streams.video[0]):
                if stopped():
                    return
                stamp = Fraction(0) if frame.pts is None else frame.pts * Fraction(frame.time_base)
                arrived = now()
                begin = arrived - stamp if begin is None else begin
                when = begin + stamp if frame.pts is not None else arrived
                yield TimedFrame(when, frame.to_ndarray(format="rgb24"))
        if not stopped():
            yield TimedFrame(now(), None)
            clock.sleep(WAIT)


def _opened(source: str, stopped: Callable[[], bool]) -> Any:
    if source.startswith(RTSP):
        return av.open(source, options=CAMERA, timeout=(PATIENCE, PATIENCE))
    if source.startswith(DEVICE):
        return av.open(source, format="v4l2", timeout=(PATIENCE, PATIENCE))
    file: Any = GrowingFile(Path(source.removeprefix(GROWING)), stopped)
    return av.open(file, options={**SELF_CONTAINED, "protocol_whitelist": ""})


class GrowingFile:
    """A file that is still written, from its present end on: what follows is waited for, and cannot be sought.

    What is there already was filmed before: a counter that starts again must not count it again. So the file has to be
    of a kind that can be joined in the middle, an MPEG transport stream.

    Args:
        path: The file.
        stopped: Ends the waiting.
    """

    def __init__(self, path: Path, stopped: Callable[[], bool]) -> None:
        self._file, self._stopped = open_regular(path), stopped
        self._file.seek(0, os.SEEK_END)

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as soon as there are any; none once it is stopped."""
        while not (data := self._file.read(size)) and not self._stopped():
            clock.sleep(WAIT / 20)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
