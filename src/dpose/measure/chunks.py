"""Chunks by the clock: a source's frames are given to each chunk that sees them, and every chunk works by itself.

    for chunk, rows in chunk_rows(frames, config, finder):
        windows.add(0, chunk, rows)

A chunk of number i begins i chunk lengths after midnight, and sees a lead-in before that, but nothing of the day
before. It has a finder and a tracker of its own, and keeps what was found in its frames, never a frame. An error in it,
a frame that is too large, or more processing than its deadline allows make it a chunk that counts as empty; no message
says so, since that would tell of what its frames show.

**Guarantee.** A chunk's rows are a function of the frames that it sees and of public settings: no state of one chunk
reaches another (tests/measure/test_chunks.py). Of a finder or posture that is the caller's own (`is_own`) that holds as
far as deep copies of it share nothing, which the statement takes as given. How many frames a chunk looks at follows
from frame times alone.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.measure.config import CountConfig
from dpose.measure.queries import QUERIES
from dpose.media.areas import lies_inside, masked
from dpose.media.timed import TimedFrame, sampled
from dpose.media.video import MAX_FRAME_PIXELS
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.happenings import Seen, SeenFrame
from dpose.pose.people import FoundPerson, PeopleFinder
from dpose.pose.postures import LYING, Posture, SeenPerson, body_height, joint_middle, posture_of
from dpose.pose.tracks import Tracker

Rows = Mapping[str, Sequence[int]]


def is_own(finder: PeopleFinder, posture: Posture) -> bool:
    """Whether finder or posture are the caller's own, so that what they keep is not known here.

    Raises:
        DposeError: they cannot be copied.
    """
    try:
        copy.deepcopy((finder, posture))
    except Exception as error:
        raise DposeError(
            "finder-not-copied",
            f"finder or posture cannot be copied ({error}), and each chunk of footage has its own",
            fix="give its class a __deepcopy__ that shares what never changes, such as a network, and nothing else",
        ) from error
    return type(finder) is not BlazePeople or posture is not posture_of


class ChunkWork:
    """One chunk, by its number from midnight: what is found in the frames that it sees.

    Finder and posture are never called themselves; deep copies are, so that nothing is left of one chunk for another.
    """

    def __init__(self, finder: PeopleFinder, config: CountConfig, number: int, posture: Posture) -> None:
        self._finder, self._tracker = copy.deepcopy(finder), Tracker(finder.skeleton)
        self._config, self._posture = config, copy.deepcopy(posture)
        self.start = number * config.chunk
        self._frames: list[SeenFrame] = []
        self._failed, self._spent = False, 0.0

    def add(self, frame: TimedFrame) -> None:
        """Look at a frame, unless the chunk has failed."""
        if self._failed:
            return
        begun = clock.perf_counter()
        try:
            if frame.pixels is not None:
                self._frames.append(self._seen(frame.time, frame.pixels))
        except Exception:  # whatever the frame has broken: it must not show
            self._failed = True
        self._spent += clock.perf_counter() - begun
        if self._config.deadline is not None and self._spent > self._config.deadline:
            self._failed = True

    def rows(self) -> Rows | None:
        """The chunk's numbers by query; None if it has failed."""
        if self._failed:
            return None
        with contextlib.suppress(Exception):  # as for a frame
            seen = Seen(self.start, self._frames)
            rules, names = self._config.rules, self._config.queries
            return {name: [int(value) for value in QUERIES[name].row(seen, rules)] for name in names}
        return None

    def _seen(self, time: Fraction, pixels: NDArray[np.uint8]) -> SeenFrame:
        height, width = pixels.shape[:2]
        if height * width > MAX_FRAME_PIXELS:
            raise ValueError("a frame is too large")
        shown = masked(pixels, self._config.masks)
        people = self._finder(shown, before=self._tracker.followed or [])
        numbers = self._tracker(people)
        found = (self._person(one, n, (width, height)) for one, n in zip(people, numbers, strict=True))
        return SeenFrame(time, [one for one in found if one is not None], (width, height))

    def _person(self, found: FoundPerson, number: int, size: tuple[int, int]) -> SeenPerson | None:
        skeleton = self._finder.skeleton
        places = {name: joint_middle(found.pose, skeleton, name) for name in ("shoulder", "hip", "ankle")}
        seen = [place for place in places.values() if place is not None]
        if not seen:
            return None
        hips = seen[0] if places["hip"] is None else places["hip"]
        posture = self._posture(found.pose, skeleton)
        on_floor = posture == LYING and lies_inside(hips, self._config.floor, size)
        return SeenPerson(number, posture, on_floor, hips, seen[-1], body_height(found.pose, skeleton))


def chunk_rows(
    frames: Iterable[TimedFrame], config: CountConfig, finder: PeopleFinder, posture: Posture = posture_of
) -> Iterator[tuple[int, Rows | None]]:
    """Number and rows of each chunk that has a frame of its own, in order of time.

    The frames are those of one source and one day, in order; they are sampled here. `posture` says what a pose is: the
    rules on angles, or a model of one's own.
    """
    open_chunks: dict[int, ChunkWork] = {}
    for frame in sampled(frames, config.rate):
        own = math.floor(frame.time / config.chunk)
        for number in sorted(number for number in open_chunks if number < own):
            yield number, open_chunks.pop(number).rows()
        # the chunk itself, and those whose lead-in this is
        for number in range(own, math.floor((frame.time + config.lead) / config.chunk) + 1):
            if number not in open_chunks:
                open_chunks[number] = ChunkWork(finder, config, number, posture)
            open_chunks[number].add(frame)
    for number in sorted(open_chunks)[:1]:  # the others have seen nothing but their lead-in
        yield number, open_chunks.pop(number).rows()
