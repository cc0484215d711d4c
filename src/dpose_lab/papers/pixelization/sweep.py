"""Figures 1, 5 and 6: fidelity over b, n, m and epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpose.report.plots import sheet
from dpose.report.results import Table
from dpose_lab import plots as drawing
from dpose_lab.papers.experiment import Cell, Findings, Request, Values
from dpose_lab.papers.pixelization.data import (
    PETS,
    PORTRAIT,
    Data,
    ShownOutcomes,
    averaged,
    cell_of,
    four_digits,
    printed_of,
    three,
)
from dpose_lab.papers.pixelization.measure import MECHANISMS, ORIGINAL, Point, measure
from dpose_lab.papers.pixelization.points import PointsOnPhotos
from dpose_lab.papers.pixelization.segmenting import open_segmenter
from dpose_lab.plots import heat_map

UNIFORM = ("dpose", "paper")
REGIONAL = ("private", "public", "paper")
AXES: Mapping[str, tuple[Any, ...]] = {
    "b": (2, 4, 6, 8, 10, 12, 14, 16, 18, 20),
    "m": (4, 8, 16, 32, 64, 128, 256),
    "epsilon": ("0.1", "0.25", "0.5", "0.75", "1", "1.5", "2"),
}
LABELS = {"b": "block b, pixels", "m": "m, pixels", "epsilon": "epsilon"}
POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
BUDGETS = ("0.1", "0.2", "0.3", "0.4", "0.5", "1", "2", "5", "10")
FIGURE_5, FIGURE_6 = Point("", m=32), Point("", b=32, n=8, m=32)
MEASURES = (("iou", "IoU"), ("dice", "Dice"), ("mse", "MSE"), ("ssim", "SSIM"))
REFERENCE = Point(ORIGINAL, 1, 1, 1, "1")


@dataclass(frozen=True)
class Sweep(PointsOnPhotos):
    """Points measured on photos, one cell a set of photos and point."""

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per point and set of photos."""
        return [
            cell_of(number, point.key, point.to_dict(), len(photos))
            for number, photos in enumerate(self.data.sets)
            for point in self.points
        ]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Measure one point on all photos."""
        photos = self.data.sets[cell.settings["data"] - 1]
        point = Point(**{name: value for name, value in cell.settings.items() if name != "data"})
        measures = []
        for index in range(len(photos)):
            measures.append(measure(point, photos.load(index), self.seed, self.segmenter))
            progress()
        return averaged(measures)


def figure_1(request: Request) -> Sweep:
    """Open the experiment of MSE and SSIM over b, m and epsilon."""
    points = [
        replace(Point(mechanism), **{axis: value})
        for axis, values in AXES.items()
        for value in values
        for mechanism in UNIFORM
    ]
    return Sweep(Data.open(request, [PETS], 50), tuple(dict.fromkeys(points)), request.noise_seed, None, _show_1)


def figure_5(request: Request) -> Sweep:
    """Open the experiment of IoU, Dice, MSE and SSIM over b and n."""
    points = [
        replace(FIGURE_5, mechanism="dpose" if n == 1 and mechanism != "paper" else mechanism, b=b, n=n)
        for b in POWERS
        for n in POWERS
        if n <= b
        for mechanism in REGIONAL
    ]
    return _regional(request, [REFERENCE, *points], _show_5)


def figure_6(request: Request) -> Sweep:
    """Open the experiment of IoU, Dice, MSE and SSIM over epsilon."""
    points = [replace(FIGURE_6, mechanism=mechanism, epsilon=epsilon) for epsilon in BUDGETS for mechanism in REGIONAL]
    return _regional(request, [REFERENCE, *points], _show_6)


def _regional(request: Request, points: Sequence[Point], draw: Callable[[Sweep, ShownOutcomes], Findings]) -> Sweep:
    data = Data.open(request, [PORTRAIT], 50, masks=True)
    return Sweep(data, tuple(dict.fromkeys(points)), request.noise_seed, open_segmenter(request.segmenter), draw)


def _show_1(sweep: Sweep, shown: ShownOutcomes) -> Findings:
    tables, drawings = [], []
    for number, photos in enumerate(sweep.data.sets):

        def key(axis: str, value: Any, mechanism: str, number: int = number) -> str:
            return f"{number + 1}-{replace(Point(mechanism), **{axis: value}).key}"

        figure, axes = sheet(2, len(AXES), f"{photos.title}, {len(photos)} pictures")
        for column, (axis, values) in enumerate(AXES.items()):
            fixed = ", ".join(f"{k} = {v}" for k, v in vars(Point("")).items() if k in AXES and k != axis)
            tables.append(
                Table(
                    f"{photos.title}: {axis} ({fixed})",
                    (axis, "MSE dpose", "MSE paper mode", "SSIM dpose", "SSIM paper mode", "its true epsilon"),
                    tuple(
                        (
                            str(value),
                            shown.text(key(axis, value, "dpose"), "mse"),
                            shown.text(key(axis, value, "paper"), "mse"),
                            shown.text(key(axis, value, "dpose"), "ssim", three),
                            shown.text(key(axis, value, "paper"), "ssim", three),
                            shown.text(key(axis, value, "paper"), "true_epsilon"),
                        )
                        for value in values
                    ),
                )
            )
            for row, (measured, label) in enumerate((("mse", "MSE"), ("ssim", "SSIM"))):
                for mechanism in UNIFORM:
                    keys = [(float(value), key(axis, value, mechanism)) for value in values]
                    drawing.line(
                        axes[row, column],
                        shown.curve(keys, measured),
                        MECHANISMS[mechanism],
                        drawing.COLOURS[mechanism],
                        drawing.LINES[mechanism],
                    )
                drawing.finish(
                    axes[row, column],
                    f"{LABELS[axis]} ({fixed})" if row else "",
                    label,
                    ticks=[float(value) for value in values if value not in ("0.25", "0.75")],
                    log_x=axis == "m",
                    log_y=measured == "mse",
                    legend=not row and not column,
                )
        name = f"figure1-{number + 1}" if len(sweep.data.sets) > 1 else "figure1"
        caption = (
            f"{photos.title}: MSE and SSIM by b, m and epsilon, at equal claims; what paper mode really costs is in "
            "the tables"
        )
        drawings.append(drawing.rendered(name, figure, caption))
    return Findings(tuple(tables), tuple(drawings), sweep.notes("figure1"))


def _key(number: int, mechanism: str, point: Point) -> str:
    """Key of the cell of a mechanism at a point; without parts both of dpose's mechanisms are the same."""
    whole = "dpose" if point.n == 1 and mechanism != "paper" else mechanism
    return f"{number + 1}-{replace(point, mechanism=whole).key}"


def _row(shown: ShownOutcomes, key: str) -> tuple[str, ...]:
    return (
        *(shown.text(key, measured, four_digits if measured == "mse" else three) for measured, _ in MEASURES),
        shown.text(key, "mask_iou", three),
    )


HEAD = (*(title for _, title in MEASURES), "IoU of the partition alone")
PARTITION = (
    '"the partition alone": which blocks are divided is part of what is published; this is its IoU with the true mask, '
    "no segmenter needed"
)


def _beside(sweep: Sweep, shown: ShownOutcomes, name: str) -> Table:
    """Table of the numbers in the paper's text, beside the measured ones."""
    rows = []
    points = [point for point in sweep.points if point.mechanism in ("paper", ORIGINAL)]
    for number, photos in enumerate(sweep.data.sets):
        for point in points:
            reading = printed_of(name).reading(point.to_dict())
            own = [_key(number, mechanism, point) for mechanism in REGIONAL]
            if point.mechanism == ORIGINAL:
                where, keys = "unprotected originals", ["", "", f"{number + 1}-{point.key}"]
            else:
                where, keys = f"b = {point.b}, n = {point.n}, epsilon {point.epsilon}", own
            if reading is None and point.mechanism != ORIGINAL:
                continue
            for measured, title in MEASURES[: 2 if point.mechanism == ORIGINAL else 4]:
                write = four_digits if measured == "mse" else three
                read = "-" if reading is None else write(reading.values[measured])
                mine = (shown.text(key, measured, write) if key else "" for key in keys[::-1])
                rows.append((f"{photos.title}: {where}: {title}", read, *mine))
    head = ("measure", "the paper", "paper mode", "dpose, mask taken as public", "dpose, private regions")
    return Table("beside the numbers in the paper's text (its PPM-100 and its segmenter)", head, tuple(rows))


def _show_5(sweep: Sweep, shown: ShownOutcomes) -> Findings:
    tables, drawings = [_beside(sweep, shown, "figure5")], []
    spans = {"iou": (0.0, 1.0), "dice": (0.0, 1.0), "mse": (0.0, 20_000.0), "ssim": (0.0, 1.0)}
    points = [replace(FIGURE_5, b=b, n=n) for b in POWERS for n in POWERS if n <= b]
    for number, photos in enumerate(sweep.data.sets):
        figure, axes = sheet(len(REGIONAL), len(MEASURES), f"{photos.title}, m = 32, epsilon 0.5", 3.6, 3.0)
        for row, mechanism in enumerate(REGIONAL):
            keys = {point: _key(number, mechanism, point) for point in points}
            tables.append(
                Table(
                    f"{photos.title}: {MECHANISMS[mechanism]}",
                    ("b, n", *HEAD),
                    tuple((f"{p.b}, {p.n}", *_row(shown, keys[p])) for p in points),
                )
            )
            for column, (measured, title) in enumerate(MEASURES):
                grid = {(p.b, p.n): y for p in points for _, y in shown.curve([(0, keys[p])], measured)}
                heat_map(
                    axes[row, column],
                    grid,
                    ("b", POWERS),
                    ("n", POWERS),
                    f"{title}: {MECHANISMS[mechanism]}",
                    spans[measured][::-1] if measured == "mse" else spans[measured],
                    ".0f" if measured == "mse" else ".2f",
                )
        name = f"figure5-{number + 1}" if len(sweep.data.sets) > 1 else "figure5"
        caption = f"{photos.title}: fidelity by b and n; bottom row the paper's Algorithm 3, whose mask is raw"
        drawings.append(drawing.rendered(name, figure, caption))
    return Findings(tuple(tables), tuple(drawings), (*sweep.notes("figure5"), PARTITION))


def _show_6(sweep: Sweep, shown: ShownOutcomes) -> Findings:
    tables, drawings = [_beside(sweep, shown, "figure6")], []
    for number, photos in enumerate(sweep.data.sets):
        figure, axes = sheet(1, 4, f"{photos.title}, b = 32, n = 8, m = 32", 3.5, 3.0)
        for mechanism in REGIONAL:
            keys = [
                (float(epsilon), _key(number, mechanism, replace(FIGURE_6, epsilon=epsilon))) for epsilon in BUDGETS
            ]
            tables.append(
                Table(
                    f"{photos.title}: {MECHANISMS[mechanism]}",
                    ("epsilon", *HEAD),
                    tuple((epsilon, *_row(shown, key)) for epsilon, (_, key) in zip(BUDGETS, keys, strict=True)),
                )
            )
            for column, (measured, _) in enumerate(MEASURES):
                drawing.line(
                    axes[0, column],
                    shown.curve(keys, measured),
                    MECHANISMS[mechanism],
                    drawing.COLOURS[mechanism],
                    drawing.LINES[mechanism],
                )
        for column, (measured, title) in enumerate(MEASURES):
            drawing.finish(
                axes[0, column],
                "epsilon (in paper mode: claimed)",
                title,
                ticks=(0.1, 0.2, 0.5, 1, 2, 5, 10),
                log_x=True,
                legend=measured == "mse",
                zero=measured != "mse",
            )
        name = f"figure6-{number + 1}" if len(sweep.data.sets) > 1 else "figure6"
        caption = f"{photos.title}: fidelity by epsilon. Algorithm 3 in paper mode guarantees no epsilon at all."
        drawings.append(drawing.rendered(name, figure, caption))
    return Findings(tuple(tables), tuple(drawings), (*sweep.notes("figure6"), PARTITION))
