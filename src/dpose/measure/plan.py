"""A count bound to its public schedule: what is released, with which noise, at which cost, before a frame is read.

    plan = bind_count(config, Schedule("2026-11-27", sources=2, begin=Fraction(0), end=DAY))
    plan.mechanisms["falls"].event         # exact discrete noise for all windows of the day

All windows and queries of a day are one vector. Each chunk lies in one window, but the stays of one person lie in any
windows: parallel composition never applies within a day. So every window gets noise for the norm of all chunks that the
stays touch, and the day costs epsilon once, shared by its queries.

**Guarantee.** docs/proofs/counts.md. Neighbours: two days of footage, over all sources counted together, with equal
frame times, that differ in what any K stays of at most rho seconds each show. Sensitivity: `dpose.privacy.stays`,
by query; a row outside its declared range is clamped or replaced by zeros first (`Mechanism.clamped`).
Noise: exact discrete Laplace or Gaussian, independent for each number. Public: schedule, sizes, frame times, rate,
ranges, areas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.measure.config import CountConfig
from dpose.measure.queries import QUERIES, CountQuery
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.discrete import MAX_SCALE, discrete_gaussian, discrete_laplace
from dpose.privacy.events import ExactEvent, Gaussian, Laplace
from dpose.privacy.fields import Exact, Positive, StatementPart, Text, statement_part
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.ranges import exact_text
from dpose.privacy.renyi import zcdp_budget
from dpose.privacy.stays import DAY, Moved, touched_chunks

Counts = NDArray[np.int64]
"""The numbers of one query in one window, (width,)."""
MOST_SOURCES = 1000


@statement_part
class Schedule(StatementPart):
    """The public schedule of one day.

    Attributes:
        day: The calendar day, as it is declared; its numbers begin at its midnight.
        sources: How many sources are counted together.
        begin: When frames may begin, seconds since midnight.
        end: When they have ended.
        names: Declared names of live sources; none of files.
    """

    day: Text
    sources: Positive
    begin: Exact
    end: Exact
    names: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.begin < self.end <= DAY and self.sources <= MOST_SOURCES):
            said = f"from {exact_text(self.begin)} to {exact_text(self.end)} s of a day, {self.sources} sources"
            raise DposeError("schedule-leaves-day", said, "schedule", "count each calendar day by itself")


@dataclass(frozen=True)
class Mechanism:
    """The noise of one query.

    Attributes:
        name: The query's.
        query: What it counts.
        most: The largest number that one chunk gives, or people of a histogram.
        frame_most: The largest number of one frame; 0 for a query of chunks.
        event: The noise, and what the day's vector of this query moves at most.
        levels: Of the binary tree; 1 without one.
    """

    name: str
    query: CountQuery
    most: int
    frame_most: int
    event: ExactEvent
    levels: int

    def clamped(self, row: Sequence[int] | None) -> Counts:
        """A chunk's numbers in their declared range: what the sensitivity rests on, whatever made them.

        Args:
            row: A number for each frame, for the chunk, or for each bin; None if the chunk failed: zeros then, as for
                numbers of which there are too many.
        """
        values = [] if row is None else [max(0, int(value)) for value in row]
        if self.frame_most:
            own = [min(value, self.frame_most) for value in values]
            return np.array([min(sum(own), self.most)], np.int64)
        if len(values) != self.query.width or (self.query.bins and sum(values) > self.most):
            return np.zeros(self.query.width, np.int64)
        return np.array([min(value, self.most) for value in values], np.int64)

    def noised(self, sums: Counts, source: NoiseSource, place: int, level: int) -> Counts:
        """A node's sums with exact noise: one draw for each of them, of a stream that serves this node alone.

        The node is number `place` of its level; level 0 has the windows.
        """
        stream = source.stream(Purpose.COUNT, place, f"{self.name} {level}".encode())
        if isinstance(self.event, Laplace):
            return sums + discrete_laplace(self.event.scale, sums.size, stream)
        return sums + discrete_gaussian(self.event.variance, sums.size, stream)


@dataclass(frozen=True)
class CountPlan:
    """A configuration bound to a schedule."""

    config: CountConfig
    schedule: Schedule

    @property
    def touched(self) -> int:
        """m: how many chunks what is hidden touches at most, a known subject's or those of the hidden stays."""
        config = self.config
        return min(config.subject_chunks or self.touched_by(config.times, config.visible), self.chunks)

    def touched_by(self, times: int, visible: Fraction) -> int:
        """How many chunks so many stays of `visible` seconds touch at most, and never more than there are."""
        config = self.config
        return min(touched_chunks(times, visible, config.lead, config.chunk), self.chunks)

    @property
    def windows(self) -> range:
        """Numbers of the scheduled windows, from midnight."""
        window = self.config.window
        return range(math.floor(self.schedule.begin / window), math.ceil(self.schedule.end / window))

    @property
    def window_chunks(self) -> int:
        """How many chunks a window holds, over all sources."""
        return int(self.config.window / self.config.chunk) * self.schedule.sources

    @property
    def chunks(self) -> int:
        """How many chunks the day's windows hold."""
        return self.window_chunks * len(self.windows)

    @cached_property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanism of each query, each with an equal share of the budget."""
        return {name: self._mechanism(name, self.touched) for name in self.config.queries}

    def _mechanism(self, name: str, touched: int) -> Mechanism:
        config, query = self.config, QUERIES[name]
        limit, share = config.most[name], len(config.queries)
        most = limit * config.chunk_frames if query.each_frame else limit
        levels = len(self.windows).bit_length() if config.totals and not query.each_frame else 1
        moved = self._moved(name, most, touched, levels)
        if config.delta:
            wanted = moved * share / (2 * Fraction(zcdp_budget(float(config.epsilon), config.delta)))
            # a deviation that is a whole number is drawn fastest
            event: ExactEvent = Gaussian(Fraction((math.isqrt(math.ceil(wanted) - 1) + 1) ** 2), moved)
            too_large = wanted > MAX_SCALE**2
        else:
            event = Laplace(moved / (config.epsilon / share), moved)
            too_large = event.scale > MAX_SCALE
        if too_large:
            raise DposeError("noise-too-large", "the noise would be beyond all numbers", name, "count less")
        return Mechanism(name, query, most, limit if query.each_frame else 0, event, levels)

    def _moved(self, name: str, most: int, touched: int, levels: int) -> Fraction:
        """How far the day's vector of a query moves, in L1 norm; where noise is Gaussian, in squared L2 norm."""
        moved = Moved.of_histogram(most) if QUERIES[name].bins else Moved.of_sums(most)
        if self.config.delta:
            return Fraction(moved.in_l2_squared(touched, self.window_chunks, levels))
        return Fraction(moved.in_l1(touched, levels))

    @property
    def events(self) -> tuple[ExactEvent, ...]:
        """One for each query."""
        return self.events_at(self.touched)

    def events_at(self, touched: int, days: int = 1) -> tuple[ExactEvent, ...]:
        """The same noise against the change of so many chunks, on so many days that are counted with this plan."""
        field = "sensitivity_squared" if self.config.delta else "sensitivity"
        events: list[ExactEvent] = []
        for name, own in self.mechanisms.items():
            moved: dict[str, Any] = {field: self._moved(name, own.most, touched, own.levels)}
            events.append(replace(own.event, **moved, steps=days))
        return tuple(events)

    @property
    def accountant(self) -> Accountant:
        """Pure losses add up exactly; Gaussian ones in zCDP."""
        return Accountant.ZCDP if self.config.delta else Accountant.PURE

    def cost_at(self, touched: int, days: int = 1) -> float | Fraction:
        """Epsilon of somebody who touches so many chunks, on so many days."""
        return cost(self.events_at(touched, days), self.config.delta, accountant=self.accountant)

    def divisor(self, query: CountQuery, window: int) -> Fraction:
        """What a window's noised number is divided by to be read: public, whatever its frames show."""
        if not query.mean:
            return self.config.rate if query.each_frame else Fraction(1)
        # of one source: the mean is of people present in all sources together
        return Fraction(max(1, self._looked_at(window)[1]))

    def filmed(self, window: int) -> tuple[Fraction, Fraction]:
        """When a window's frames begin and have ended, seconds since midnight: the schedule may cut it short."""
        width = self.config.window
        return max(self.schedule.begin, window * width), min(self.schedule.end, (window + 1) * width)

    def _looked_at(self, window: int) -> tuple[int, int]:
        """Chunks and frames of one source that are looked at in a window."""
        rate, chunk, (begin, end) = self.config.rate, self.config.chunk, self.filmed(window)
        return math.ceil(end / chunk) - math.floor(begin / chunk), math.ceil(end * rate) - math.ceil(begin * rate)

    def largest(self, mechanism: Mechanism, window: int) -> float:
        """The largest number that a window can have, whatever its frames show."""
        chunks, frames = self._looked_at(window)
        most = mechanism.most * chunks
        if mechanism.frame_most:
            most = min(most, mechanism.frame_most * frames)
        return float(most * self.schedule.sources / self.divisor(mechanism.query, window))


def bind_count(config: CountConfig, schedule: Schedule) -> CountPlan:
    """The plan of a configuration for a schedule.

    Raises:
        DposeError: the schedule leaves its day, the noise would be too large, or chunks of a live source might wait for
            one another, so that a stay would show in chunks that do not see it.
    """
    plan = CountPlan(config, schedule)
    if schedule.names and (config.deadline is None or config.deadline > config.live_deadline):
        said = f"a chunk of a live source may take {exact_text(config.live_deadline)} s at most"
        raise DposeError("deadline-too-long", said, "deadline", "leave it out, and it is that long")
    if (spent := plan.cost_at(plan.touched)) > config.epsilon:
        raise DposeError("budget-too-small", f"the day costs {float(spent)}, above epsilon", "epsilon")
    return plan


def whole_day(config: CountConfig, day: str, names: tuple[str, ...] = ()) -> CountPlan:
    """The plan of a whole calendar day of one source, or of the sources that have these names."""
    return bind_count(config, Schedule(day, max(1, len(names)), Fraction(0), DAY, names))
