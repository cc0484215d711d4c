"""Figure 3 and Table V: time of a release, beside the paper's algorithms on the same machine in the same run."""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpose.privacy.noise import AesNoise, Key
from dpose.release.config import Pixelization
from dpose.release.grid import Shape
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind
from dpose.report.plots import sheet
from dpose.report.results import Figure, Table
from dpose_lab import plots as drawing
from dpose_lab.baselines.pixelization import PaperPlan
from dpose_lab.papers.experiment import Cell, Findings, Outcome, Request, Values
from dpose_lab.papers.pixelization.data import (
    PETS,
    VENICE,
    Data,
    ShownOutcomes,
    cell_of,
    four_digits,
    printed_of,
    with_count,
)
from dpose_lab.photos.photo import Photo

METHODS = {
    "loop": ("Algorithm 1, a loop", 1),
    "numpy": ("Algorithm 2, NumPy", 2),
    "dpose": ("dpose, exact noise", None),
}
"""Methods by key: the name in tables, and the number of the paper's algorithm."""
BLOCKS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)


@dataclass(frozen=True)
class Timing:
    """Timing of methods that take turns on each photo, so that a slower machine slows all of them.

    Attributes:
        data: Photos.
        blocks: Block sides, a cell each.
        methods: Keys of `METHODS`.
        seed: Seed of the noise.
        table: True for Table V, False for Figure 3.
    """

    data: Data
    blocks: tuple[int, ...]
    methods: tuple[str, ...]
    seed: int
    table: bool

    @property
    def settings(self) -> Values:
        """Settings that the results depend on, besides the machine."""
        return {
            **self.data.to_dict(),
            "seed": self.seed,
            "grid": [f"{method}-b{block}" for block in self.blocks for method in self.methods],
        }

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per block and set of photos."""
        return [
            cell_of(number, f"b{block}", {"b": block}, len(photos))
            for number, photos in enumerate(self.data.sets)
            for block in self.blocks
        ]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Measure seconds per photo, by method, without reading and measuring."""
        photos = self.data.sets[cell.settings["data"] - 1]
        methods = {name: _method(name, cell.settings["b"], self.seed) for name in self.methods}
        taken: dict[str, list[float]] = {name: [] for name in methods}
        for run in methods.values():
            run(photos.load(0))  # compiled and cached before the clock runs
        for index in range(len(photos)):
            photo = photos.load(index)
            for name, run in methods.items():
                start = time.perf_counter()
                run(photo)
                taken[name].append(time.perf_counter() - start)
            progress()
        return {
            "photos": len(photos),
            "size": f"{photo.pixels.shape[1]}x{photo.pixels.shape[0]}",
            **{name: {"median": statistics.median(seconds), "total": sum(seconds)} for name, seconds in taken.items()},
        }

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present tables and, for Figure 3, figures."""
        shown = ShownOutcomes(outcomes)
        notes = (
            *self.data.notes(),
            f"machine: {platform.machine()}, {os.cpu_count()} cores; every method on one thread of the CPU, taking "
            "turns on each picture; the first call is not counted",
            "Algorithms 1 and 2 draw floating-point noise from NumPy's generator; dpose draws exact noise from AES, "
            "which is most of its time at small b",
            *printed_of("table5" if self.table else "figure3").notes(),
        )
        if self.table:
            return Findings(tuple(_table_5(self, shown, k) for k in range(len(self.data.sets))), (), notes)
        tables, drawings = zip(*(_figure_3(self, shown, k) for k in range(len(self.data.sets))), strict=True)
        return Findings(tables, drawings, notes)


def figure_3(request: Request) -> Timing:
    """Open the experiment of time by block."""
    return Timing(Data.open(request, [PETS, VENICE], 10), BLOCKS, ("numpy", "dpose"), request.noise_seed, False)


def table_5(request: Request) -> Timing:
    """Open the experiment of time at b = 16, beside the loop."""
    return Timing(Data.open(request, [PETS, VENICE], 10), (16,), tuple(METHODS), request.noise_seed, True)


def _method(name: str, block: int, seed: int) -> Callable[[Photo], Any]:
    config = Pixelization.of("0.5", 16, block, paper=METHODS[name][1], colour="rgb", restore="none")
    source, number = AesNoise(Key.from_seed(seed)), itertools.count()

    def run(photo: Photo) -> Any:
        height, width = photo.pixels.shape
        plan = bind(config, Shape.of(height, width))
        assert isinstance(plan, PixelizationPlan | PaperPlan)
        return plan.release(photo.pixels, source, next(number)).picture()

    return run


def _figure_3(timing: Timing, shown: ShownOutcomes, number: int) -> tuple[Table, Figure]:
    photos = timing.data.sets[number]
    rows = []
    for block in timing.blocks:
        values = shown.values(f"{number + 1}-b{block}")
        status = shown.by_key[f"{number + 1}-b{block}"].status
        cells = [f"{1000 * values[name]['median']:.2f}" if values else status for name in timing.methods]
        totals = [f"{values[name]['total']:.3f}" if values else status for name in timing.methods]
        rows.append((str(block), *cells, *totals))
    head = (
        "b",
        *(f"{METHODS[name][0]}: ms, median" for name in timing.methods),
        *(f"{METHODS[name][0]}: total, s" for name in timing.methods),
    )
    figure, axes = sheet(1, 2, f"{photos.title}, {with_count(len(photos), 'picture')}", 4.4, 3.2)
    for name, mechanism in zip(timing.methods, ("paper", "dpose"), strict=True):
        for column, (measured, scale) in enumerate((("total", 1), ("median", 1000))):
            curve = [
                (block, scale * values[name][measured])
                for block in timing.blocks
                if (values := shown.values(f"{number + 1}-b{block}")) is not None
            ]
            drawing.line(axes[0, column], curve, METHODS[name][0], drawing.COLOURS[mechanism], drawing.LINES[mechanism])
    for column, label in enumerate(("total, seconds", "a picture, ms (median)")):
        drawing.finish(axes[0, column], "block b, pixels", label, ticks=timing.blocks, legend=not column, zero=True)
    name = f"figure3-{number + 1}" if len(timing.data.sets) > 1 else "figure3"
    caption = f"{photos.title}: time by block, total and a picture, one thread"
    return Table(f"{photos.title}: time by block", head, tuple(rows)), drawing.rendered(name, figure, caption)


def _table_5(timing: Timing, shown: ShownOutcomes, number: int) -> Table:
    photos, key = timing.data.sets[number], f"{number + 1}-b16"
    values, status = shown.values(key), shown.by_key[key].status
    rows: list[tuple[str, ...]] = []
    for name in timing.methods:
        title = METHODS[name][0]
        if values is None:
            rows.append((title, *(status,) * 3, "", "", ""))
            continue
        mine, loop = values[name], values["loop"]
        reading = printed_of("table5").reading({"size": values["size"], "method": name})
        read = reading.values if reading else {}
        text = partial(_read, read)
        rows.append(
            (
                title,
                f"{mine['median']:.5f}",
                f"{mine['total']:.3f}, {with_count(values['photos'], 'picture')}",
                f"{loop['median'] / mine['median']:.1f}x",
                text("seconds"),
                f"{text('total')}, {read['frames']} frames" if read else "",
                f"{text('speedup')}x" if read else "",
            )
        )
    head = ("method", "s a picture", "total, s", "speedup", "s, the paper", "total, the paper", "speedup")
    return Table(f"{photos.title}: b = 16, m = 16, epsilon 0.5; medians, the paper's are averages", head, tuple(rows))


def _read(values: Any, name: str) -> str:
    return four_digits(values[name]) if name in values else ""
