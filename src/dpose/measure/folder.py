"""The folder of a count: numbers as JSON and CSV, a plot, the statement and its seal; and whether it holds.

    write_folder(folder, Count(plan, statement, shown))
    for day in count_folders(folder): print(verify_folder(day))

Nothing else of a video is ever written: no frame, crop, track or pose.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_json, file_text, json_text, read_bytes, write_atomic
from dpose.measure import NUMBERS, PLOT, SEAL, STATEMENT, TABLE
from dpose.measure.plan import CountPlan
from dpose.measure.statement import check_recorded_count
from dpose.measure.windows import CountReading, ShownWindow, ended_nodes, readings
from dpose.privacy.entries import open_seal, sealed_alone
from dpose.privacy.ranges import lower, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.privacy.stays import DAY

FORMAT = "dpose/counts/1"
COLUMNS = ("begin", "end", "query", "value", "low", "high", "unit")


@dataclass(frozen=True)
class Count:
    """What a count has published.

    Attributes:
        plan: The plan.
        statement: What it guarantees.
        shown: The windows, in order of time.
        gaps: When a source's transport gave nothing, seconds since midnight.
    """

    plan: CountPlan
    statement: PrivacyStatement
    shown: tuple[ShownWindow, ...]
    gaps: tuple[tuple[float, float], ...] = ()


def write_folder(folder: Path, count: Count, *, plot: bool = True) -> PrivacyStatement:
    """Write a count, each file beside and renamed, over what was shown of it before; return the sealed statement.

    Without `plot`, a plot that is there stays as it is.
    """
    read = readings(count.plan, count.shown)
    kept = not plot and (folder / PLOT).exists()
    files = {PLOT: read_bytes(folder / PLOT) if kept else _plot(count.plan, read), **_texts(count, read)}
    statement, line = sealed_alone(count.statement, _digests(files))
    # the numbers last: where they are, all else is, so that a counter that was killed can go on
    for name, data in {STATEMENT: statement.to_json().encode(), SEAL: line, **files}.items():
        write_atomic(folder / name, data)
    return statement


def read_folder(folder: Path) -> Count:
    """What a folder holds; whether all of it fits together is for `verify_folder` to say."""
    where = str(folder / NUMBERS)
    try:
        values = file_json(folder / NUMBERS)
        text = file_text(folder / STATEMENT)
    except (OSError, ValueError) as error:
        raise DposeError("count-unreadable", f"holds no count that can be read ({error})", str(folder)) from error
    statement = PrivacyStatement.from_json(text, str(folder / STATEMENT))
    plan = check_recorded_count(statement, str(folder / STATEMENT))
    try:
        if values["format"] != FORMAT:
            raise ValueError("another format")
        shown = tuple(ShownWindow(int(one["window"]), one["noised"]) for one in values["windows"])
        gaps = tuple((float(a), float(b)) for a, b in values["gaps"])
        for one in shown:
            _check_shape(plan, one)
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("count-malformed", f"is no list of counts ({error})", where) from error
    if [one.number for one in shown] != sorted({one.number for one in shown}):
        raise DposeError("windows-out-of-order", "shows a window twice, or out of order", where, "do not rely on it")
    return Count(plan, statement, shown, gaps)


def _check_shape(plan: CountPlan, shown: ShownWindow) -> None:
    if shown.number not in plan.windows or set(shown.raw) != set(plan.mechanisms):
        raise ValueError(f"window {shown.number} is not of the schedule")
    for name, mechanism in plan.mechanisms.items():
        nodes = len(list(ended_nodes(shown.number - plan.windows.start, mechanism.levels)))
        rows = shown.raw[name]
        whole = all(type(value) is int for row in rows for value in row)
        if len(rows) != nodes or any(len(row) != mechanism.query.width for row in rows) or not whole:
            raise ValueError(f"window {shown.number} has other numbers of {name}")


def verify_folder(folder: Path) -> tuple[str, ...]:
    """Check a count: its statement adds up and follows from what it records, its files are those that were sealed.

    It returns what was found, ready to print.

    Raises:
        DposeError: something is missing, altered or does not add up.
    """
    count = read_folder(folder)
    spent = count.statement.verify()
    seal = open_seal(count.statement, read_bytes(folder / SEAL), str(folder))
    files = {name: read_bytes(folder / name) for name in (NUMBERS, TABLE, PLOT)}
    seal.check_digests(_digests(files), str(folder))
    for name, wanted in _texts(count, readings(count.plan, count.shown)).items():
        if files[name] != wanted:
            said = "holds values that do not follow from its noised numbers"
            raise DposeError("count-not-of-noise", said, str(folder / name), "do not rely on it")
    missing = len(count.plan.windows) - len(count.shown)
    lines = [
        f"the day costs epsilon {upper(spent or 0, 6)} for {count.plan.config.neighbours.describe()}; "
        f"{upper(count.statement.epsilon or 0, 6)} is claimed",
        f"{len(count.shown):,} of {_windows(len(count.plan.windows))} shown, each once; values and intervals follow "
        "from noised numbers",
        "the seal holds: statement, numbers, table and plot are those that were sealed",
    ]
    if count.statement.kind is Kind.SEEDED:
        lines.append("nothing is guaranteed: the noise came from a seed")
    return (*lines, *([f"{_windows(missing)} not shown"] if missing else []))


def _windows(count: int) -> str:
    return "1 window is" if count == 1 else f"{count:,} windows are"


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def window_times(plan: CountPlan, window: int) -> tuple[str, str]:
    """When a window begins and ends: date and time, of a day whose name is no date the time alone."""
    begin, end = (_moment(plan.schedule.day, (window + k) * plan.config.window) for k in (0, 1))
    return begin, end


def _moment(day: str, seconds: Fraction) -> str:
    after = timedelta(seconds=float(seconds))
    try:
        return (datetime.fromisoformat(day) + after).isoformat()
    except (ValueError, OverflowError):  # no date, or the calendar's last
        return "24:00:00" if seconds == DAY else (datetime.min + after).time().isoformat()


def _texts(count: Count, read: Sequence[CountReading]) -> dict[str, bytes]:
    """The table and the numbers, as they are written."""
    own: dict[int, list[CountReading]] = {one.number: [] for one in count.shown}
    for reading in read:
        own[reading.window].append(reading)
    windows: list[dict[str, Any]] = []
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for one in count.shown:
        begin, end = window_times(count.plan, one.number)
        for r in own[one.number]:
            low, high = lower(r.low, 6).replace(",", ""), upper(r.high, 6).replace(",", "")
            table.writerow((begin, end, r.name, f"{r.value:g}", low, high, r.unit))
        values = [{k: v for k, v in asdict(r).items() if k != "window"} for r in own[one.number]]
        windows.append({"window": one.number, "begin": begin, "end": end, "noised": dict(one.raw), "values": values})
    gaps = [list(gap) for gap in count.gaps]
    numbers = json_text({"format": FORMAT, "windows": windows, "gaps": gaps}, 1) + "\n"
    return {TABLE: text.getvalue().encode(), NUMBERS: numbers.encode()}


def _plot(plan: CountPlan, read: Sequence[CountReading]) -> bytes:
    from dpose.report.windows import BarPanel, window_bars

    hours = float(plan.config.window) / 3600
    series: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for r in read:
        series.setdefault((r.name, r.unit), []).append((r.window * hours, r.value, r.low, r.high))
    panels = [BarPanel("\n".join(dict.fromkeys(title)), rows) for title, rows in series.items()]
    return window_bars(plan.schedule.day, panels, hours)
