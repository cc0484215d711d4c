"""The day's windows: chunks' rows are summed, noised once, and read with intervals.

    windows = Windows(plan, noise)
    windows.add(source=0, chunk=17, rows={"falls": [0]})
    shown = windows.release(0)                              # noised numbers alone: what is published of a window
    read = readings(plan, [shown])                          # values and intervals, from those numbers and nothing else

**Guarantee.** A chunk's row enters one window, once, and one node of each level of the tree (`Windows.add`); every
number leaves with noise of its own (`Mechanism.noised`). All of `readings` is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpose.measure.plan import CountPlan, Counts, Mechanism
from dpose.privacy.intervals import CONFIDENCE, half_width
from dpose.privacy.noise import NoiseSource
from dpose.privacy.ranges import lower, upper

Raw = Mapping[str, Sequence[Sequence[int]]]
"""By query: the window's noised numbers, then those of each larger node of the tree that ends with the window."""


@dataclass(frozen=True)
class ShownWindow:
    """What is published of a window.

    Attributes:
        number: From midnight.
        raw: Noised numbers.
    """

    number: int
    raw: Raw


@dataclass(frozen=True)
class CountReading:
    """One number as it is read.

    Attributes:
        window: Number of its window, from midnight.
        name: The query's, of a histogram with the bin's: "speed 0.1-0.3"; of a running total with " total" behind it.
        value: In the query's unit, not negative.
        low: Of the interval that holds the number without noise with `CONFIDENCE`.
        high: The same.
        unit: The query's.
    """

    window: int
    name: str
    value: float
    low: float
    high: float
    unit: str


class Windows:
    """Sums of the rows of a day, in memory, and their release; the noise source serves this day alone."""

    def __init__(self, plan: CountPlan, source: NoiseSource) -> None:
        self._plan, self._noise = plan, source
        self._sums: dict[tuple[str, int, int], Counts] = {}  # by query, level and node
        self._last: dict[int, int] = {}

    def add(self, source: int, chunk: int, rows: Mapping[str, Sequence[int]] | None) -> None:
        """Add a chunk's rows by query to the sums of its window, clamped to their declared ranges.

        Chunks, by number from midnight, come in order of time for each source; one that failed has None for rows.

        Raises:
            RuntimeError: the chunk was added before, or its window is not one of the schedule.
        """
        plan = self._plan
        window = int(chunk * plan.config.chunk / plan.config.window)
        if chunk <= self._last.get(source, -1) or not 0 <= source < plan.schedule.sources:
            raise RuntimeError(f"chunk {chunk} of source {source} was counted before")
        place = window - plan.windows.start
        if window not in plan.windows:
            raise RuntimeError(f"chunk {chunk} lies in no scheduled window")
        self._last[source] = chunk
        for name, mechanism in plan.mechanisms.items():
            row = mechanism.clamped(None if rows is None else rows.get(name))
            for level in range(mechanism.levels):
                key = (name, level, place >> level)
                self._sums[key] = self._sums.get(key, 0) + row

    def release(self, number: int) -> ShownWindow:
        """Noise a window's numbers, once, and those of the nodes that end with it; their sums are forgotten."""
        raw: dict[str, list[list[int]]] = {}
        place = number - self._plan.windows.start
        for name, mechanism in self._plan.mechanisms.items():
            zeros = np.zeros(mechanism.query.width, np.int64)
            raw[name] = [
                mechanism.noised(self._sums.pop((name, level, node), zeros), self._noise, node, level).tolist()
                for level, node in ended_nodes(place, mechanism.levels)
            ]
        return ShownWindow(number, raw)


def ended_nodes(place: int, levels: int) -> Iterator[tuple[int, int]]:
    """Level and number of a tree's nodes that end with a window, number `place` of the schedule; itself first."""
    for level in range(levels):
        if (place + 1) % (1 << level):
            return
        yield level, place >> level


def readings(plan: CountPlan, shown: Sequence[ShownWindow]) -> list[CountReading]:
    """All numbers of a day as they are read, window by window; totals only as far as no window is missing.

    The windows shown are in order of time.
    """
    found: list[CountReading] = []
    for mechanism in plan.mechanisms.values():
        for one in shown:
            found += _window_readings(plan, mechanism, one)
        if mechanism.levels > 1:
            found += _total_readings(plan, mechanism, shown)
    return sorted(found, key=lambda reading: reading.window)


def widest(read: Sequence[CountReading]) -> Iterator[str]:
    """The widest interval under each name, ready to print: of what is published, and nothing else."""
    for name in dict.fromkeys(reading.name for reading in read):
        one = max((reading for reading in read if reading.name == name), key=lambda reading: reading.high - reading.low)
        yield f"{name}: the widest interval is {lower(one.low, 3)} to {upper(one.high, 3)} {one.unit}"


def _names(mechanism: Mechanism) -> list[str]:
    bins = mechanism.query.bins
    return [f"{mechanism.name} {one}" for one in bins] if bins else [mechanism.name]


def _window_readings(plan: CountPlan, mechanism: Mechanism, shown: ShownWindow) -> Iterator[CountReading]:
    query, divisor = mechanism.query, float(plan.divisor(mechanism.query, shown.number))
    most = plan.largest(mechanism, shown.number)
    half = half_width(mechanism.event, 1 - CONFIDENCE)
    for name, raw in zip(_names(mechanism), shown.raw[mechanism.name][0], strict=True):
        value, low, high = (min(max(x / divisor, 0.0), most) for x in (raw, raw - half, raw + half))
        if low == high:  # noise beyond its interval: all that is known is the range
            low, high = 0.0, most
        yield CountReading(shown.number, name, value, low, high, query.unit)


def _total_readings(plan: CountPlan, mechanism: Mechanism, shown: Sequence[ShownWindow]) -> Iterator[CountReading]:
    """Running totals: sums of the fewest nodes that make up the windows so far."""
    nodes: list[tuple[int, Sequence[int]]] = []
    least = [0.0] * mechanism.query.width
    for place, one in enumerate(shown):
        if one.number - plan.windows.start != place:
            return
        raw = one.raw[mechanism.name]
        top = len(raw) - 1
        nodes = [*(node for node in nodes if node[0] > top), (top, raw[top])]
        # each node's interval fails with its share of the probability
        half = len(nodes) * half_width(mechanism.event, (1 - CONFIDENCE) / len(nodes))
        for k, name in enumerate(_names(mechanism)):
            total = sum(values[k] for _, values in nodes)
            low, high = max(total - half, 0), max(total + half, 0)
            least[k] = max(least[k], total)  # what happened stays counted
            yield CountReading(one.number, f"{name} total", least[k], float(low), float(high), mechanism.query.unit)
