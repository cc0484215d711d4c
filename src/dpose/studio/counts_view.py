"""The counts page: what `dpose count` has published below the folders, of a live source the last 24 hours.

Values and intervals are computed from the noised numbers alone, of folders whose statement follows from its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.measure import NUMBERS
from dpose.measure.folder import Count, read_folder
from dpose.measure.windows import readings
from dpose.privacy.ranges import upper
from dpose.studio.roots import Roots
from dpose.studio.runs_view import DEPTH

SHOWN = timedelta(hours=24)
"""How much of a live source is shown."""


def count_list(roots: Roots, now: datetime) -> list[dict[str, Any]]:
    """All counts below the folders by name, the days of a live source together.

    Args:
        roots: The folders.
        now: The time, as a live source's days count it.
    """
    found: dict[Path, list[tuple[str, Count | str]]] = {}
    for root in roots.folders:
        for folder in roots.below(root, DEPTH, lambda one: (one / NUMBERS).is_file()):
            try:
                count: Count | str = read_folder(roots.closed(folder))
            except DposeError as error:
                count = error.line()
            live = not isinstance(count, str) and bool(count.plan.schedule.names)
            found.setdefault(folder.parent if live else folder, []).append((folder.name, count))
    return [_source(place.name, counts, now) for place, counts in sorted(found.items())]


def _source(name: str, counts: list[tuple[str, Count | str]], now: datetime) -> dict[str, Any]:
    series: dict[str, dict[str, Any]] = {}
    said: dict[str, None] = {}
    for day, count in counts:
        if isinstance(count, str):
            said[f"{day}: {count}"] = None
            continue
        plan = count.plan
        since = _since(plan.schedule.day, now) if plan.schedule.names else None
        for title, unit, point in _points(count, since):
            series.setdefault(title, {"name": title, "unit": unit, "points": []})["points"].append(point)
        hidden = f"epsilon {upper(plan.config.epsilon)} a day for {plan.config.neighbours.describe()}"
        said[", ".join((*plan.schedule.names, hidden))] = None
    return {"name": name, "said": list(said), "series": list(series.values()), "x": _axis(counts)}


def _axis(counts: list[tuple[str, Count | str]]) -> str:
    live = any(not isinstance(count, str) and count.plan.schedule.names for _, count in counts)
    return "hours from now" if live else "hours since midnight"


def _since(day: str, now: datetime) -> float:
    """Hours from now to the midnight that a live source's day begins at."""
    return (datetime.fromisoformat(day) - now) / timedelta(hours=1)


def _points(count: Count, since: float | None) -> Iterator[tuple[str, str, list[float]]]:
    """Name and unit of each number, and its window's middle in hours, its value and the ends of its interval."""
    hours = float(count.plan.config.window) / 3600
    for reading in readings(count.plan, count.shown):
        at = (since or 0.0) + (reading.window + 0.5) * hours
        if since is None or at >= -SHOWN / timedelta(hours=1):
            yield reading.name, reading.unit, [at, reading.value, reading.low, reading.high]
