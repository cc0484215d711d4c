"""Kinds of charts and sheets that papers and attacks alone need, in the style of `dpose.report.plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from dpose.media.drawing import picture_grid
from dpose.media.images import encode_image
from dpose.privacy.ranges import as_given
from dpose.report.inline import LIGHT, SERIES
from dpose.report.plots import Curve, formatted, png, sheet, svg
from dpose.report.plots import finish as labelled
from dpose.report.results import Figure

PANEL = 260
"""Longer side of a picture in a sheet, pixels."""
DARK_INK, PALE_INK = "#10151a", "#fefefe"
"""Colours of text on coloured cells, which are the same on light and dark paper."""
COLOURS = {"paper": LIGHT["orange"], "dpose": LIGHT["blue"], "public": LIGHT["teal"], "private": LIGHT["blue"]}
LINES = {"paper": "--", "dpose": "-", "public": "-", "private": "-"}

Setting = TypeVar("Setting", bound=float)


def rendered(name: str, figure: Canvas, caption: str) -> Figure:
    """The figure, as a file and within the page."""
    return Figure(name, caption, png=png(figure), svg=svg(figure, caption))


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
    """Labels and scales of one panel."""
    if log_x:
        axes.set_xscale("log", base=2)
        formatted(axes.xaxis, lambda value: f"{value:g}")
    if log_y:
        axes.set_yscale("log")
        formatted(axes.yaxis, lambda value: f"{value:,g}")
    if ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        formatted(axes.xaxis, lambda value: f"{value:g}")
    labelled(axes, x, y)
    if zero:
        axes.set_ylim(bottom=0)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)


def curves(
    name: str,
    title: str,
    rows: Sequence[tuple[str, str, Curve]],
    chance: Curve,
    axes_titles: tuple[str, str],
    caption: str,
    *,
    log_x: bool = False,
) -> Figure:
    """Rising rates, one colour a first name, dashed for the second one "plain"; guessing is grey.

    Args:
        name: Of the file.
        title: Above the panel.
        rows: (release, attacker, curve).
        chance: The curve of guessing.
        axes_titles: Below and beside.
        caption: What it shows.
        log_x: Whether the lower axis is logarithmic.
    """
    figure, ((panel,),) = sheet(1, 1, title, width=10.0, height=4.4)
    groups = list(dict.fromkeys(group for group, _, _ in rows))
    for group, second, curve in rows:
        colour = LIGHT[SERIES[groups.index(group) % len(SERIES)]]
        style = "--" if second == "plain" else "-"
        panel.plot(*zip(*curve, strict=True), style, color=colour, lw=1.7, label=f"{group}; {second}")
    panel.plot(*zip(*chance, strict=True), ":", color=LIGHT["base"], lw=1.6, label="guessing")
    if log_x:
        panel.set_xscale("log")
        formatted(panel.xaxis, lambda value: f"{value:g}")
    elif all(float(x).is_integer() for x, _ in chance):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish(panel, *axes_titles)
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    panel.set_ylim(-0.01, 1.02)
    return rendered(name, figure, caption)


def bars(
    name: str, title: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], y_title: str, caption: str
) -> Figure:
    """Groups of bars, one a row; the last row is what guessing gives."""
    figure, ((panel,),) = sheet(1, 1, title, width=max(7.0, 0.8 * len(names)), height=4.0)
    width = 0.84 / len(rows)
    for k, (label, values) in enumerate(rows):
        colour = LIGHT["base"] if k == len(rows) - 1 else LIGHT[SERIES[k % len(SERIES)]]
        at = np.arange(len(names)) + (k - (len(rows) - 1) / 2) * width
        panel.bar(at, values, width=0.92 * width, color=colour, label=label, zorder=2)
    finish(panel, "", y_title, legend=True, zero=True)
    panel.set_xticks(range(len(names)), list(names), rotation=28, ha="right", fontsize=8)
    return rendered(name, figure, caption)


def heat_map(
    axes: Axes,
    values: Mapping[tuple[Setting, Setting], float],
    across: tuple[str, Sequence[Setting]],
    up: tuple[str, Sequence[Setting]],
    title: str,
    span: tuple[float, float],
    write: str,
    missing: str = "",
) -> None:
    """Numbers by two settings, good ones bright; cells that are not there stay empty.

    Args:
        axes: To draw on.
        values: By (across, up).
        across: Name and values of the setting by columns.
        up: Those of the setting by rows, the lowest first.
        title: Above it.
        span: The dull and the bright end of the colours: one for all panels, or noise would look like an effect.
        write: How a number is written.
        missing: Stands in empty cells.
    """
    (column_name, columns), (row_name, rows), (dull, bright) = across, up, span
    field = np.array([[values.get((a, u), np.nan) for a in columns] for u in rows], np.float64)
    colours = "viridis" if dull <= bright else "viridis_r"
    axes.pcolormesh(np.ma.masked_invalid(field), cmap=colours, vmin=min(span), vmax=max(span))
    for (row, column), value in np.ndenumerate(field):
        text, colour = missing, LIGHT["soft"]
        if np.isfinite(value):
            dark = abs(value - dull) < 0.6 * abs(bright - dull)
            text, colour = format(value, write), PALE_INK if dark else DARK_INK
        if text:
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour)
    axes.set_xticks(np.arange(len(columns)) + 0.5, [as_given(a) for a in columns])
    axes.set_yticks(np.arange(len(rows)) + 0.5, [as_given(u) for u in rows])
    axes.grid(False)
    axes.set_xlabel(column_name, fontsize=9)
    axes.set_ylabel(row_name, fontsize=9)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=8, length=0)


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
