"""The settings of a count, checked: all public, fixed before any footage is seen, and recorded in the statement.

    config = CountConfig.of(queries="occupancy,falls", window="1h", epsilon="1", visible="20min", times="6")

The line of a field under "Attributes:" reads as a line of `--help`. `of` takes each field as an option gives it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, StrictInt

from dpose.errors import DposeError, did_you_mean
from dpose.measure.queries import QUERIES
from dpose.media.areas import Point
from dpose.pose.happenings import Rules
from dpose.privacy.fields import Decimal, Exact, Positive, StatementPart, Text, statement_part
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.ranges import check_delta, exact_text, parse_exact
from dpose.privacy.stays import DAY
from dpose.units import Unit

UNITS = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
MOST_EPSILON = 1000
"""A larger epsilon would protect no one."""
MOST_TIMES = 10_000
"""More stays on one day than a person has."""
CHUNK = Fraction(5)
"""Seconds of a chunk, unless it is given or the window is shorter."""
Share = Annotated[tuple[Exact, Exact], Field()]
Polygon = tuple[Share, ...]
"""Corners, as shares of the frame's width and height."""


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
        deadline: Processing one chunk may take so long, else it counts as empty. Default: never, of files.
        subject_chunks: Where subjects are known: at most so many chunks of each a day; --protect subject:K sets it.

    Raises:
        DposeError: a value is out of range, or two contradict each other.
    """

    queries: tuple[Text, ...]
    window: Exact
    epsilon: Exact
    visible: Exact
    times: Positive
    delta: Decimal
    chunk: Exact
    rate: Exact
    most: dict[Text, Annotated[StrictInt, Field(ge=1, le=10**6)]]
    totals: bool
    line: tuple[Share, Share]
    masks: tuple[Polygon, ...]
    floor: Polygon
    fall_within: Exact
    fall_stays: Exact
    deadline: Exact | None
    subject_chunks: Positive | None

    def __post_init__(self) -> None:
        known = ", ".join(QUERIES)
        if not self.queries or len(set(self.queries)) < len(self.queries):
            raise DposeError("queries-missing", "name each query once", "query", f"known are {known}")
        for name in (*self.queries, *self.most):
            if name not in QUERIES:
                near = did_you_mean(name, QUERIES)
                raise DposeError(
                    "query-unknown", f"no query is called {name[:40]!r}", "query", near or f"known are {known}"
                )
        if extra := set(self.most) - set(self.queries):
            raise DposeError("query-not-counted", "has a range and is not counted", f"most.{min(extra)}")
        if not 0 < self.epsilon <= MOST_EPSILON:
            raise DposeError("epsilon-out-of-range", f"must lie in (0, {MOST_EPSILON:,}]", "epsilon")
        if self.delta:
            check_delta(self.delta)
        if self.times > MOST_TIMES:
            raise DposeError("times-out-of-range", f"must be at most {MOST_TIMES:,}", "times")
        for name in ("window", "chunk", "rate", "visible", "fall_within", "fall_stays"):
            if getattr(self, name) <= 0:
                raise DposeError("duration-not-positive", "must be above 0", name)
        if DAY % self.window:
            raise DposeError(
                "window-not-of-day",
                f"a day is no whole number of windows of {exact_text(self.window)} s",
                "window",
                "say 1min, 1h or 1day",
            )
        if self.window % self.chunk:
            longer = "is longer than the window" if self.chunk > self.window else "does not divide the window"
            raise DposeError(
                "chunk-not-of-window",
                f"{exact_text(self.chunk)} s {longer} of {exact_text(self.window)} s",
                "chunk",
                "choose one of which a window is a whole number",
            )
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
        if any(len(mask) < 3 for mask in self.masks) or len(self.floor) in (1, 2):
            raise DposeError("polygon-malformed", "an area has at least three corners", "masks or floor")

    @classmethod
    def of(cls, **given: Any) -> CountConfig:
        """The configuration that options give; what is left out or None is the default."""
        values = {name: value for name, value in given.items() if value is not None}
        queries = tuple(word.strip() for word in str(values.pop("queries", "")).split(",") if word.strip())
        most = {name: QUERIES[name].most for name in queries if name in QUERIES}
        most |= values.pop("most", {})
        window = seconds(values.pop("window", "1h"), "window")
        chunk = values.pop("chunk", "")
        points = {name: _polygon(values.pop(name, ""), name) for name in ("line", "floor")}
        if points["line"] and len(points["line"]) != 2:
            raise DposeError("line-malformed", "a line has two points, such as 0.5,0 0.5,1", "line")
        masks = str(values.pop("masks", "")).split(";")
        deadline, known_chunks = values.pop("deadline", None), values.pop("subject_chunks", None)
        known: dict[str, Any] = {
            "queries": queries,
            "window": window,
            "epsilon": parse_exact(str(values.pop("epsilon", "")), "epsilon"),
            "visible": seconds(values.pop("visible", "30s"), "visible"),
            "times": _whole(values.pop("times", 4), "times"),
            "delta": float(parse_exact(str(values.pop("delta", 0)), "delta")),
            "chunk": seconds(chunk, "chunk") if chunk != "" else min(CHUNK, window),
            "rate": parse_exact(str(values.pop("rate", 2)), "rate"),
            "most": {name: _whole(value, f"most.{name}") for name, value in most.items()},
            "totals": bool(values.pop("totals", False)),
            "line": points["line"] or _polygon("0.5,0 0.5,1", "line"),
            "masks": tuple(_polygon(mask, "masks") for mask in masks if mask.strip()),
            "floor": points["floor"],
            "fall_within": seconds(values.pop("fall_within", "2s"), "fall_within"),
            "fall_stays": seconds(values.pop("fall_stays", "3s"), "fall_stays"),
            "deadline": None if deadline is None else seconds(deadline, "deadline"),
            "subject_chunks": None if known_chunks is None else _whole(known_chunks, "subject_chunks"),
        }
        if values:
            raise DposeError("setting-unknown", "is no setting of a count", next(iter(values)))
        return cls(**known)

    @property
    def lead(self) -> Fraction:
        """Seconds that a chunk sees before it begins: as long as a fall takes to be confirmed, if falls are counted."""
        leads = any(QUERIES[name].lead for name in self.queries)
        return self.fall_within + self.fall_stays if leads else Fraction(0)

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


def seconds(text: Any, where: str) -> Fraction:
    """The duration that "30s", "20min", "1h", "1day" or a number of seconds names; 0 for "".

    Raises:
        DposeError: it names none.
    """
    found = re.fullmatch(r"([0-9./]+) ?(s|min|h|day)?", str(text).strip())
    if not str(text).strip():
        return Fraction(0)
    if found is None:
        raise DposeError("duration-malformed", f"{str(text)[:40]!r} is no duration", where, "say 30s or 20min")
    return parse_exact(found[1], where) * UNITS[found[2] or "s"]


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,7}", str(value)) or int(value) < 1:
        raise DposeError("count-not-whole", f"must be a whole number of at least 1, not {str(value)[:40]!r}", where)
    return int(value)


def _polygon(text: str, where: str) -> tuple[Point, ...]:
    points = []
    for word in str(text).split():
        x, comma, y = word.partition(",")
        point = (parse_exact(x, where), parse_exact(y if comma else "", where))
        if not all(0 <= value <= 1 for value in point):
            raise DposeError("point-out-of-range", f"{word}: shares of the frame lie between 0 and 1", where)
        points.append(point)
    return tuple(points)
