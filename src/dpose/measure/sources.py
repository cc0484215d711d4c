"""What is counted: files, folders of them, a rendered day, or a live source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from dpose.errors import DposeError
from dpose.extensions import rendered_people
from dpose.measure.counter import Footage, file_footage
from dpose.media.kinds import kind_of
from dpose.media.live import Live, check_live, live_frames
from dpose.media.timed import TimedFrame
from dpose.privacy.marks import marks_of
from dpose.privacy.ranges import parse_duration
from dpose.privacy.stays import DAY

FILMS = "synthetic:films"
AN_HOUR = 2
"""Scenes an hour of a rendered day, unless a number is given: synthetic:films:6."""


def open_footage(sources: Sequence[str], start: str) -> list[Footage]:
    """The recorded footage of one day: files that begin at `start` after midnight, folders of them, or `FILMS`.

    Raises:
        DposeError: a source names no video, or cannot be read.
    """
    if any(source.startswith("synthetic:") for source in sources):
        return [_rendered(source) for source in sources]
    begin, found = parse_duration(start, "--start"), []
    for source in sources:
        path = Path(source).expanduser()
        inside = sorted(p for p in path.rglob("*") if kind_of(p) == "video") if path.is_dir() else [path]
        if not inside:
            raise DposeError("inputs-missing", "holds no video", source)
        found += [file_footage(file, begin) for file in inside]
    return found


def _rendered(source: str) -> Footage:
    number = source.removeprefix(FILMS).removeprefix(":")
    if not source.startswith(FILMS) or not (number.isdecimal() or not number):
        raise DposeError("data-unknown", "no rendered day is called so", source, f"say {FILMS}")
    people = rendered_people()
    scenes = people.day_scenes(int(number or AN_HOUR))

    def frames() -> Iterator[TimedFrame]:
        return (TimedFrame(*taken) for scene in scenes for taken in people.day_frames(scene))

    return Footage(source, source, marks_of([source]), Fraction(0), DAY, frames)


def open_live(sources: Sequence[str], name: str | None) -> Live:
    """The live source that a command names.

    Raises:
        DposeError: there are several, it may not be read, or it has no declared name.
    """
    if len(sources) > 1:
        raise DposeError("sources-several", "one live source is counted at a time", fix="start a counter for each")
    if not name or len(name) > 100:
        raise DposeError("name-missing", "a live source is counted under a declared name", "--name", "say ward-3")
    (place,) = sources
    check_live(place)
    return Live(name, partial(live_frames, place))
