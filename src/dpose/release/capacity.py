"""Before a corpus is released: how long it would take, and what memory, disk and money, from what an item costs here.

    figures = Figures.read()                       # those that come with dpose, or a file of one's own machine
    for row in forecast(figures, Corpus(1_000_000, 1920, 1080), workers=(1, 8, 64)): ...

**Model.** An item of p pixels takes a worker w(p) = w0 + w1 p seconds of processor time, an engine's worker e more, and
the command c: it alone reserves, hands out, lists and commits. With W workers, a processor each, N items take

    start + N max((w(p) + e) / W, c)

so that no more workers than (w(p) + e) / c are of use. The line is through what was measured at several sizes; files
are lines of p, too, and memory one of the pixels of a frame. What is measured and what is extrapolated:
docs/guide/planning.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpose.errors import DposeError, did_you_mean

SHIPPED = Path(__file__).with_name("measured.json")
"""What `benchmarks/figures.py` measured on the machine that dpose was written on."""
SCHEMA = 1
COMMAND_BYTES = 1 << 10
"""What the command's memory grows by for an item: a file's names, and what it has read of the account's journal."""
FRAMES = 250
"""Frames a second of a video unless they are given."""


@dataclass(frozen=True)
class Corpus:
    """What is to be released.

    Attributes:
        items: Pictures or videos.
        width: Width of each item, pixels.
        height: Height of each item, pixels.
        mechanism: "pixelize", "release-video" or "obfuscate".
        frames: Frames of each video; None for pictures.
    """

    items: int
    width: int
    height: int
    mechanism: str = "pixelize"
    frames: int = FRAMES

    @property
    def pixels(self) -> int:
        """Pixels of an item, in all its frames."""
        return self.width * self.height * (1 if self.mechanism == "pixelize" else self.frames)


@dataclass(frozen=True)
class CostLine:
    """A cost that grows with pixels: `base + slope * pixels`, through what was measured.

    Attributes:
        base: Seconds of an item without pixels; not negative.
        slope: For a pixel; not negative.
        least: Pixels of the smallest item that was measured.
        most: Value of the largest item.
    """

    base: float
    slope: float
    least: int
    most: int

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> CostLine:
        """The line of least squared relative error through (pixels, cost), with nothing below zero."""
        weights = [1 / max(cost, 1e-12) ** 2 for _, cost in points]
        total = sum(weights)
        at = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
        mean = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
        spread = sum(w * (x - at) ** 2 for w, (x, _) in zip(weights, points, strict=True))
        both = sum(w * (x - at) * (y - mean) for w, (x, y) in zip(weights, points, strict=True))
        slope = max(0.0, both / spread) if spread else 0.0
        if mean - slope * at < 0:  # through zero
            squares = sum(w * x * x for w, (x, _) in zip(weights, points, strict=True))
            slope = sum(w * x * y for w, (x, y) in zip(weights, points, strict=True)) / squares
            return cls(0.0, slope, min(x for x, _ in points), max(x for x, _ in points))
        return cls(mean - slope * at, slope, min(x for x, _ in points), max(x for x, _ in points))

    def at(self, pixels: int) -> float:
        """The cost of an item of so many pixels."""
        return self.base + self.slope * pixels


@dataclass(frozen=True)
class EngineFigures:
    """What an engine costs.

    Attributes:
        name: "none" (a command without one), "local" or "ray".
        start: Seconds until its workers are ready.
        command: Seconds of the command's processor for an item, which no worker can take over.
        extra: Seconds of other processors for an item, besides the work.
        command_mib: Memory of the command, without what grows with items.
        engine_mib: Memory of the engine's own processes, on each machine.
    """

    name: str
    start: float
    command: float
    extra: float
    command_mib: float
    engine_mib: float


@dataclass(frozen=True)
class Figures:
    """What was measured on a machine.

    Attributes:
        source: Where, when and by what the figures were measured: one line.
        lines: By mechanism, its lines of "seconds", "bytes_in", "bytes_out" and "mib".
        engines: By name.
        account_bytes: Bytes of the account and the list for an item.
    """

    source: str
    lines: dict[str, dict[str, CostLine]]
    engines: dict[str, EngineFigures]
    account_bytes: float

    @classmethod
    def read(cls, file: Path = SHIPPED) -> Figures:
        """What `benchmarks/figures.py` wrote."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if values["schema"] != SCHEMA:
                raise ValueError(f"schema {values['schema']}, this dpose reads {SCHEMA}")
            return cls._of(values)
        except OSError as error:
            raise DposeError("figures-unreadable", error.strerror or "cannot be read", str(file)) from error
        except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError, AttributeError) as error:
            raise DposeError(
                "figures-invalid",
                f"holds no figures ({type(error).__name__}: {error})",
                str(file),
                "write them with benchmarks/figures.py",
            ) from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Figures:
        points: dict[str, dict[str, list[tuple[int, float]]]] = {}
        commands = []
        for one in values["samples"]:
            pixels = int(one["width"]) * int(one["height"]) * max(1, int(one["frames"]))
            if one["mechanism"] == "pixelize":
                commands.append(float(one["command_seconds"]))
            of_it = points.setdefault(str(one["mechanism"]), {})
            for name, key in _COSTS.items():
                if not math.isfinite(cost := float(one[key])) or cost <= 0:
                    raise ValueError(f"{key} is {one[key]}")
                # a video is read frame by frame: memory follows the frame's size
                size = pixels // max(1, int(one["frames"])) if name == "mib" else pixels
                of_it.setdefault(name, []).append((size, cost))
        lines = {
            name: {cost: CostLine.through(found) for cost, found in costs.items()} for name, costs in points.items()
        }
        small = min(found for found, _ in points["pixelize"]["seconds"])
        alone = next(cost for pixels, cost in points["pixelize"]["seconds"] if pixels == small)
        mib = min(cost for _, cost in points["pixelize"]["mib"])
        # without an engine the command does everything itself
        engines = {"none": EngineFigures("none", 0.0, sum(commands) / len(commands), 0.0, mib, 0.0)}
        for one in values["engines"]:
            name = str(one["engine"])
            engines[name] = EngineFigures(
                name,
                float(one["start_seconds"]),
                float(one["command_seconds"]),
                max(0.0, float(one["worker_seconds"]) - alone),
                float(one["command_mib"]),
                float(one["engine_mib"]),
            )
        account = max(float(one["account_bytes"]) + float(one["list_bytes"]) for one in values["engines"])
        source = (
            f"{values['processor']}, {values['cores']} cores, load {values['load']}, {values['date']}, "
            f"dpose {values['dpose']}: {values['command']}"
        )
        return cls(source, lines, engines, account)


_COSTS = {"seconds": "worker_seconds", "bytes_in": "bytes_in", "bytes_out": "bytes_out", "mib": "mib"}


@dataclass(frozen=True)
class Forecast:
    """What a corpus would take.

    Attributes:
        engine: "none", "local" or "ray".
        workers: A processor each.
        seconds: From start to end, nothing else at work.
        rate: Items a second, once it has started.
        processor_seconds: Seconds of all processes together.
        limit: "workers", or "command": then more workers are of no use.
        useful: So many workers keep the command busy.
        command_bytes: Memory of the command, and of the engine beside it.
        worker_bytes: Memory of each worker.
        read_bytes: Originals: every worker reads one twice.
        written_bytes: Released files.
        account_bytes: The account and the list of the corpus.
        price: Cost of the workers' processors for that time; None without a price.
    """

    engine: str
    workers: int
    seconds: float
    rate: float
    processor_seconds: float
    limit: str
    useful: int
    command_bytes: float
    worker_bytes: float
    read_bytes: float
    written_bytes: float
    account_bytes: float
    price: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def forecast(
    figures: Figures, corpus: Corpus, workers: Sequence[int], price: float | None = None
) -> Iterator[Forecast]:
    """What a corpus would take by each engine and number of workers; without an engine there is one.

    Args:
        figures: Figures of a machine like those that will do it.
        corpus: What is to be released.
        workers: How many.
        price: Price of a processor for an hour, in whatever money.
    """
    if corpus.mechanism not in figures.lines:
        raise DposeError(
            "mechanism-not-measured",
            f"nothing was measured of {corpus.mechanism!r}, only of {', '.join(figures.lines)}",
            "--mechanism",
            did_you_mean(corpus.mechanism, figures.lines),
        )
    lines = figures.lines[corpus.mechanism]
    work, each = lines["seconds"].at(corpus.pixels), lines["mib"].at(corpus.width * corpus.height)
    for engine in figures.engines.values():
        for count in workers if engine.name != "none" else (1,):
            item, own = work + engine.extra, engine.command
            if engine.name == "none":  # one process, one after the other
                each_s, limit, useful = item + own, "workers", 1
            else:
                each_s = max(item / count, own)
                limit, useful = ("command" if own > item / count else "workers"), math.ceil(item / own)
            seconds = engine.start + corpus.items * each_s
            held = engine.command_mib + engine.engine_mib
            yield Forecast(
                engine=engine.name,
                workers=count,
                seconds=seconds,
                rate=1 / each_s,
                processor_seconds=corpus.items * (item + own),
                limit=limit,
                useful=useful,
                command_bytes=held * 2**20 + corpus.items * COMMAND_BYTES,
                worker_bytes=each * 2**20,
                read_bytes=corpus.items * lines["bytes_in"].at(corpus.pixels),
                written_bytes=corpus.items * lines["bytes_out"].at(corpus.pixels),
                account_bytes=corpus.items * figures.account_bytes,
                price=None if price is None else price * count * seconds / 3600,
            )


def beyond(figures: Figures, corpus: Corpus) -> str:
    """How far the corpus's items are from those that were measured, in a line; "" where they lie between them."""
    line = figures.lines[corpus.mechanism]["seconds"]
    if line.least <= corpus.pixels <= line.most:
        return ""
    side = "more" if corpus.pixels > line.most else "fewer"
    return (
        f"An item has {corpus.pixels:,} pixels, {side} than any that was measured ({line.least:,} to {line.most:,}): "
        "its costs are extrapolated along a line."
    )
