"""Figures in one style: dpose in blue tones, paper mode in orange."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from dpose.media.drawing import picture_grid
from dpose.media.images import encode_image

INK, GRID = "#22303c", "#e5e7eb"
COLOURS = {"paper": "#c2410c", "dpose": "#1d4ed8", "public": "#0d9488", "private": "#1d4ed8"}
LINES = {"paper": "--", "dpose": "-", "public": "-", "private": "-"}
PANEL = 260
"""Longer side of a picture in a sheet, pixels."""

Curve = Sequence[tuple[float, float]]


def sheet(
    rows: int, columns: int, title: str, width: float = 3.5, height: float = 2.7
) -> tuple[Figure, NDArray]:  # type: ignore[type-arg]
    """An empty figure and its axes, (rows, columns)."""
    figure = Figure(figsize=(width * columns, height * rows + 0.5), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, color=INK, fontsize=11)
    return figure, figure.subplots(rows, columns, squeeze=False)


def png(figure: Figure) -> bytes:
    """The figure's file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": ""})
    return buffer.getvalue()


def line(axes: Axes, curve: Curve, label: str, colour: str, style: str = "-") -> None:
    """A curve with its points."""
    if curve:
        x, y = zip(*curve, strict=True)
        axes.plot(x, y, style, color=colour, marker="o", markersize=3.2, lw=1.5, label=label)


def finish(
    axes: Axes,
    x: str,
    y: str,
    *,
    ticks: Sequence[float] = (),
    log_x: bool = False,
    log_y: bool = False,
    legend: bool = False,
    zero: bool = False,
) -> None:
    """Labels, scales and grid of one panel."""
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    if ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    if zero:
        axes.set_ylim(bottom=0)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)


def heat_map(
    axes: Axes,
    values: Mapping[tuple[int, int], float],
    blocks: Sequence[int],
    parts: Sequence[int],
    title: str,
    span: tuple[float, float],
    write: str,
    *,
    low_is_good: bool = False,
) -> None:
    """Numbers by b (across) and n (up), good ones bright; cells that are not there stay white."""
    field = np.full((len(parts), len(blocks)), np.nan)
    for (b, n), value in values.items():
        field[parts.index(n), blocks.index(b)] = value
    low, high = span
    axes.imshow(
        field,
        cmap="viridis_r" if low_is_good else "viridis",
        vmin=low,
        vmax=high,
        origin="lower",
        aspect="auto",
    )
    for (row, column), value in np.ndenumerate(field):
        if not np.isnan(value):
            dark = ((high - value) if low_is_good else (value - low)) < 0.6 * (high - low)
            axes.text(
                column,
                row,
                format(value, write),
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if dark else INK,
            )
    axes.set_xticks(range(len(blocks)), [str(b) for b in blocks])
    axes.set_yticks(range(len(parts)), [str(n) for n in parts])
    axes.set_xlabel("b", fontsize=9, color=INK)
    axes.set_ylabel("n", fontsize=9, color=INK)
    axes.set_title(title, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)


def pictures(panels: Sequence[tuple[str, NDArray[np.uint8]]], columns: int) -> bytes:
    """Labelled pictures in rows, as PNG."""
    shown = [_colour(_fitted(picture)) for _, picture in panels]
    return encode_image(picture_grid(shown, columns, pad=6, labels=[label for label, _ in panels]), ".png")


def _fitted(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = picture.shape[:2]
    scale = PANEL / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(
        cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST), np.uint8
    )


def _colour(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(picture[:, :, None], 3, axis=2) if picture.ndim == 2 else picture
