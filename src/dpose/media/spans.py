"""Time spans of a film: read from text, and cut out of the film, so that the rest is not released.

    info = cut(probe("ward.mp4"), spans_of([("0:10", "0:20"), ("1:02", None)]))
    for frame in read_frames(info): ...          # of these spans alone, one after the other, from 0 on

Which frames are in a span follows from the container's time stamps alone, never from what the frames show.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpose.errors import DposeError
from dpose.media.video import Part, VideoInfo, frame_ticks

_TIME = re.compile(r"(?:(?:(\d{1,6}):)?(\d{1,6}):)?(\d{1,9}(?:[.,]\d{0,9})?)")
Time = str | int | float | Fraction
"""A time as it is given: seconds, or text."""
END = "end"
"""The word for the end of a film."""


@dataclass(frozen=True, order=True)
class Span:
    """A time span of a film: the frames whose time stamps are in it.

    Attributes:
        start: Seconds from the film's beginning. A frame at this time is in the span.
        end: Seconds. A frame at this time is not in the span; None for the film's end.
    """

    start: Fraction
    end: Fraction | None

    def words(self) -> str:
        """The span for a reader: "10 s to 72.5 s"."""
        return f"{_words(self.start)} to {'the end' if self.end is None else _words(self.end)}"

    def stated(self) -> tuple[str, str]:
        """The span as `spans_of` reads it."""
        return _plain(self.start), END if self.end is None else _plain(self.end)


def spans_of(pairs: Iterable[tuple[Time, Time | None]]) -> tuple[Span, ...]:
    """The spans from pairs of times, in order. Spans that overlap or touch become one.

    Args:
        pairs: Beginning and end of each: seconds ("12.5", 12.5), "M:SS" or "H:MM:SS.S"; an end of None or "end" is the
            film's.
    """
    found: list[Span] = []
    for first, last in pairs:
        span = Span(_seconds(first), None if last is None or last == END else _seconds(last))
        if span.end is not None and span.end <= span.start:
            raise DposeError("span-reversed", "the end of a span must be later than its beginning", span.words())
        found.append(span)
    merged: list[Span] = []
    for span in sorted(found, key=lambda one: one.start):
        before = merged[-1] if merged else None
        if before is None or (before.end is not None and span.start > before.end):
            merged.append(span)
        elif before.end is not None:
            merged[-1] = Span(before.start, None if span.end is None else max(before.end, span.end))
    return tuple(merged)


def paired(starts: Sequence[str], ends: Sequence[str]) -> tuple[Span, ...]:
    """The spans from as many beginnings as ends, in order; one beginning or one end may stand alone."""
    if len(starts) + len(ends) == 1:
        starts, ends = starts or ["0"], ends or [END]
    if len(starts) != len(ends):
        raise DposeError(
            "span-unpaired",
            f"{len(starts)} spans begin and {len(ends)} end",
            "from, to",
            f"give --from and --to for each of them; --from 0 is the beginning, --to {END} the end",
        )
    return spans_of(zip(starts, ends, strict=True))


def cut(info: VideoInfo, spans: Sequence[Span]) -> VideoInfo:
    """The film as its spans alone, one after the other; the film itself if there are no spans.

    Args:
        info: The whole film.
        spans: As `spans_of` gives them.
    """
    if not spans:
        return info
    ticks, base = frame_ticks(info), info.time_base
    end = ticks[-1] + max(1, round(1 / (info.rate * base)))
    parts: list[Part] = []
    at = kept = 0
    beyond = False
    for span in spans:
        first = bisect_left(ticks, span.start / base)
        last = len(ticks) if span.end is None else bisect_left(ticks, span.end / base)
        if first == last:
            raise DposeError(
                "span-without-frames",
                f"no frame begins from {span.words()}; the film ends at {_words(end * base)}",
                str(info.path),
            )
        beyond |= span.end is not None and span.end > end * base
        start, stop = ticks[first], ticks[last] if last < len(ticks) else end
        parts.append(Part(start, stop, at))
        at, kept = at + stop - start, kept + last - first
    note = f"{kept:,} of {info.frames:,} frames, from {and_words(spans)}; the rest is left out"
    late = (f"the film ends at {_words(end * base)}, before the last span does",) if beyond else ()
    return replace(info, frames=kept, parts=tuple(parts), film=info, length=at * base, notes=(*info.notes, note, *late))


def and_words(spans: Sequence[Span]) -> str:
    """All spans for a reader."""
    return ", ".join(span.words() for span in spans)


def _seconds(time: Time) -> Fraction:
    if isinstance(time, Fraction) and time >= 0:
        return time
    match = _TIME.fullmatch(str(time).strip())
    if match is None or (match[2] and float(match[3].replace(",", ".")) >= 60) or (match[1] and int(match[2]) >= 60):
        raise DposeError(
            "span-malformed", f"a time must be seconds, M:SS or H:MM:SS, not {str(time)!r}", fix="such as 1:02.5"
        )
    hours, minutes, seconds = match.groups()
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + Fraction(seconds.replace(",", "."))


def _plain(seconds: Fraction) -> str:
    text = f"{seconds.numerator * 10**9 // seconds.denominator:010d}"
    return f"{text[:-9]}.{text[-9:]}".rstrip("0").rstrip(".")


def _words(seconds: Fraction) -> str:
    return f"{float(round(seconds, 3)):.15g} s"
