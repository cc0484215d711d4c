"""The settings of a count, checked: all public, fixed before any footage is seen, and recorded in the statement.

    config = CountConfig.of(queries="occupancy,falls", window="1h", epsilon="1", visible="20min", times="6")

The line of a field under "Attributes:" reads as a line of `--help`. `of` takes each field as an option gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, ValidationInfo

from dpose.errors import DposeError, did_you_mean
from dpose.measure.queries import QUERIES
from dpose.media.areas import Point
from dpose.pose.happenings import Rules
from dpose.privacy.fields import Decimal, Exact, StatementPart, Text, statement_part
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.ranges import check_released_delta, exact_text, parse_duration, parse_exact, parse_whole
from dpose.privacy.stays import DAY
from dpose.units import Unit

MOST_EPSILON = 1000
"""A larger epsilon would protect no one."""
SHARE = Fraction(4, 5)
"""Share of the time that chunks of a live source may work; the rest is for the frame that a deadline finds them at."""
CHUNK = Fraction(5)
"""Seconds of a chunk, unless it is given or the window is shorter."""


def _given(parse: Callable[[str, str], Any]) -> Callable[[Any, ValidationInfo], Any]:
    """What an option or JSON gives, parsed; an error names the field."""
    return lambda value, info: parse(value, info.field_name or "") if isinstance(value, str) else value


def _duration(value: Any, info: ValidationInfo) -> Fraction:
    if value is None:
        raise ValueError("must be a duration")
    return value if isinstance(value, Fraction) else parse_duration(str(value), info.field_name or "")


def _area(text: str, where: str) -> tuple[Point, ...]:
    """The corners that "x,y x,y x,y" names; none for ""."""
    points = []
    for word in text.split():
        x, comma, y = word.partition(",")
        point = (parse_exact(x, where), parse_exact(y if comma else "", where))
        if not all(0 <= value <= 1 for value in point):
            raise DposeError("point-out-of-range", f"{word}: shares of the frame lie between 0 and 1", where)
        points.append(point)
    return tuple(points)


def _areas(text: str, where: str) -> list[tuple[Point, ...]]:
    return [_area(area, where) for area in text.split(";") if area.strip()]


def _words(text: str, where: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


Duration = Annotated[Fraction, PlainValidator(_duration), PlainSerializer(exact_text, return_type=str)]
"""Seconds; as an option 30s, 20min, 1h or 1day."""
Whole = Annotated[int, PlainValidator(lambda value, info: parse_whole(value, info.field_name or ""))]
Area = Annotated[tuple[tuple[Exact, Exact], ...], BeforeValidator(_given(_area))]
"""Corners, as shares of the frame's width and height; as an option x,y x,y x,y."""


@statement_part
class CountConfig(StatementPart):
    """What is counted, how often, for which budget, and what is hidden.

    Attributes:
        queries: What to count, with commas between: occupancy, entries, standing, sitting, lying, floor, falls, speed.
        window: How long a number is about: 1min, 1h, 1day.
        epsilon: The budget of a calendar day, for all queries and windows together.
        visible: The longest stay in view that is hidden, such as 30s or 20min. Default: 30s.
        times: How many such stays of one person on one day are hidden. Default: 4.
        delta: 0: Laplace noise and pure differential privacy. Above 0: Gaussian noise. Default: 0.
        chunk: How long footage is processed as one, each chunk by itself. Default: 5s, or the window.
        rate: How many frames a second are looked at. Default: 2.
        most: The largest count of a query, as most.occupancy=10: in a frame, of entries, falls and speed in a chunk.
        totals: Release running totals of entries, falls and speed too, by a binary tree.
        line: Two points that entries cross from left to right: x,y x,y, shares of width and height.
        masks: Areas never looked at: corners x,y x,y x,y; several with semicolons between.
        floor: The area whose lying people are on the floor. Default: all of the picture.
        fall_within: From upright to the floor at most so long. Default: 2s.
        fall_stays: On the floor for at least so long. Default: 3s.
        deadline: Processing one chunk may take so long, else it counts as empty. Default: never, of files; the most
            that it may be (`live_deadline`), of a live source.
        subject_chunks: Where subjects are known: at most so many chunks of each a day; --protect subject:K sets it.
    """

    queries: Annotated[tuple[Text, ...], BeforeValidator(_given(_words))]
    epsilon: Exact
    window: Duration = Fraction(3600)
    visible: Duration = Fraction(30)
    times: Whole = 4
    delta: Decimal = 0.0
    chunk: Duration = CHUNK
    rate: Duration = Fraction(2)
    most: dict[Text, Whole] = field(default_factory=dict)
    totals: bool = False
    line: Area = _area("0.5,0 0.5,1", "line")
    masks: Annotated[tuple[Area, ...], BeforeValidator(_given(_areas))] = ()
    floor: Area = ()
    fall_within: Duration = Fraction(2)
    fall_stays: Duration = Fraction(3)
    deadline: Duration | None = None
    subject_chunks: Whole | None = None

    def __post_init__(self) -> None:
        known = ", ".join(QUERIES)
        if not self.queries or len(set(self.queries)) < len(self.queries):
            raise DposeError("queries-missing", "name each query once", "query", f"known are {known}")
        for name in (*self.queries, *self.most):
            if name not in QUERIES:
                near = did_you_mean(name, QUERIES) or f"known are {known}"
                raise DposeError("query-unknown", f"no query is called {name[:40]!r}", "query", near)
        if extra := set(self.most) - set(self.queries):
            raise DposeError("query-not-counted", "has a range and is not counted", f"most.{min(extra)}")
        if not 0 < self.epsilon <= MOST_EPSILON:
            raise DposeError("epsilon-out-of-range", f"must lie in (0, {MOST_EPSILON:,}]", "epsilon")
        if self.delta:
            check_released_delta(self.delta, "person")
        for name in ("window", "chunk", "rate", "visible", "fall_within", "fall_stays", "deadline"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise DposeError("duration-not-positive", "must be above 0", name)
        if DAY % self.window:
            said = f"a day is no whole number of windows of {exact_text(self.window)} s"
            raise DposeError("window-not-of-day", said, "window", "say 1min, 1h or 1day")
        if self.window % self.chunk:
            longer = "is longer than the window" if self.chunk > self.window else "does not divide the window"
            said = f"{exact_text(self.chunk)} s {longer} of {exact_text(self.window)} s"
            raise DposeError("chunk-not-of-window", said, "chunk", "choose one of which a window is a whole number")
        if (self.rate * self.chunk).denominator != 1:
            raise DposeError(
                "rate-not-of-chunk",
                f"{exact_text(self.rate)} frames a second are no whole number in a chunk of {exact_text(self.chunk)} s",
                "rate",
                "choose another rate or chunk",
            )
        if self.visible < 1 / self.rate:
            raise DposeError(
                "visible-below-frame",
                f"{exact_text(self.visible)} s is shorter than the time between two frames, "
                f"{exact_text(1 / self.rate)} s",
                "visible",
                "hide longer stays, or look at more frames a second",
            )
        if len(self.line) != 2:
            raise DposeError("line-malformed", "a line has two points, such as 0.5,0 0.5,1", "line")
        if any(len(mask) < 3 for mask in self.masks) or len(self.floor) in (1, 2):
            raise DposeError("polygon-malformed", "an area has at least three corners", "masks or floor")

    @classmethod
    def of(cls, **given: Any) -> CountConfig:
        """The configuration that options give; what is left out or None is the default."""
        values = {name: value for name, value in given.items() if value is not None}
        values.setdefault("queries", "")
        if "chunk" not in values:
            values["chunk"] = min(CHUNK, parse_duration(str(values.get("window", "1h")), "window") or CHUNK)
        counted = [name for name in _words(values["queries"], "query") if name in QUERIES]
        values["most"] = {name: QUERIES[name].most for name in counted} | dict(values.get("most", {}))
        return cls(**values)

    @property
    def lead(self) -> Fraction:
        """Seconds that a chunk sees before it begins: as long as a fall takes to be confirmed, if falls are counted."""
        leads = any(QUERIES[name].lead for name in self.queries)
        return self.fall_within + self.fall_stays if leads else Fraction(0)

    @property
    def live_deadline(self) -> Fraction:
        """The longest deadline of a chunk with which chunks of a live source never wait for one another, seconds.

        A chunk's lead-in is worked on beside the chunks before it: each has its share of the time.
        """
        return SHARE * self.chunk / (1 + math.ceil(self.lead / self.chunk))

    @property
    def neighbours(self) -> Neighbours:
        """Whom the day's numbers hide."""
        if self.subject_chunks is not None:
            return Neighbours(Unit.SUBJECT, Relation.REPLACE)
        return Neighbours.of_stays(self.times, self.visible)

    @property
    def rules(self) -> Rules:
        """The settings of the queries themselves."""
        return Rules(self.line, self.fall_within, self.fall_stays)

    @property
    def chunk_frames(self) -> int:
        """How many frames of a chunk are looked at, at most."""
        return int(self.rate * self.chunk)
