"""Charts by matplotlib, in the few kinds that all reports need.

A chart is drawn once: as SVG whose colours are the page's own, light or dark, or as a PNG on white. Texts in it may
come from anywhere: no character is taken for mathematics or markup. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import cv2
import matplotlib
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text as Writing
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from dpose.media.drawing import picture_grid
from dpose.media.images import encode_image
from dpose.privacy.rounding import as_given
from dpose.privacy.wording import FALSE_POSITIVES, true_positives
from dpose.report.inline import showable
from dpose.report.numbers import MISSING, at_most, brief
from dpose.report.palette import LIGHT, SERIES
from dpose.report.results import Figure

WIDTH = 400
"""Of a chart of a page: about that wide on a phone and on a desk, so that its text keeps its size."""
POINTS = 200
"""A longer line is drawn as the means of so many stretches, in a band from lowest to highest."""
REFERENCE = 1.0
"""The epsilon drawn for comparison beside a larger one: what is commonly called strong."""
ROW = 24
PANEL = 260
"""Longer side of a picture in a sheet, pixels."""
LONGEST = 20
"""Characters of a legend."""

INK, GRID = LIGHT["ink"], LIGHT["grid"]
COLOURS = {
    "paper": LIGHT["orange"],
    "dpose": LIGHT["blue"],
    "public": LIGHT["teal"],
    "private": LIGHT["blue"],
}
LINES = {"paper": "--", "dpose": "-", "public": "-", "private": "-"}
DARK_INK, PALE_INK = "#10151a", "#fefefe"
"""Of text on coloured cells, which are the same on light and dark paper."""

Curve = Sequence[tuple[float, float]]
Setting = TypeVar("Setting", bound=float)

_STYLE: Mapping[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 12.5,
    "text.parse_math": False,
    "text.color": LIGHT["soft"],
    "axes.titlecolor": INK,
    "axes.edgecolor": LIGHT["base"],
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.9,
    "xtick.color": LIGHT["base"],
    "ytick.color": LIGHT["base"],
    "xtick.labelcolor": LIGHT["soft"],
    "ytick.labelcolor": LIGHT["soft"],
    "legend.frameon": False,
    "svg.fonttype": "none",
}
_NAMES = {light: f"var(--{name})" for name, light in LIGHT.items()}


@contextmanager
def _style(**more: Any) -> Iterator[None]:
    chosen: Any = {**_STYLE, **more}
    with matplotlib.rc_context(chosen), warnings.catch_warnings():
        # a page has fonts of its own, and a label that is too long is no reason to complain
        warnings.filterwarnings("ignore", "Glyph|Matplotlib currently|constrained_layout")
        yield


def svg(figure: Canvas, describes: str) -> Markup:
    """The figure as an element of a page, its colours those of the style sheet.

    Args:
        figure: With colours of `palette`; others stay as they are.
        describes: What a reader who cannot see it should know.
    """
    buffer = io.StringIO()
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    for text in figure.findobj(Writing):
        if text.get_color() == "black":  # nobody gave it a colour, and dark paper needs another
            text.set_color(LIGHT["soft"])
    # the salt tells the identifiers of a page's charts apart
    with _style(**{"svg.hashsalt": describes.encode("utf-8", "replace").decode()}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawn = buffer.getvalue()
    width, height = (72 * side for side in figure.get_size_inches())
    # what matplotlib writes before its first group is a document's head, which a page has already
    body = drawn[drawn.index("<g ") : drawn.rindex("</svg>")]
    body = re.sub(r'style="[^"]*"', lambda found: _coloured(found[0]), body)
    body = re.sub(r'<g id="[^"]*"', "<g", body).replace("xlink:href=", "href=")
    body = re.sub(r"\s*\n\s*", " ", body)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(showable(describes))}" class="chart" '
        f'style="max-width:{1.2 * width:.0f}px">{body}</svg>'
    )


def _coloured(style: str) -> str:
    style = re.sub(r"font-family: [^;\"]*;? ?", "", style)
    return re.sub("#[0-9a-f]{6}", lambda found: _NAMES.get(found[0], found[0]), style)


def png(figure: Canvas) -> bytes:
    """The figure as the content of a file, on white."""
    buffer = io.BytesIO()
    with _style():
        figure.savefig(buffer, format="png", metadata={"Software": ""})
    return buffer.getvalue()


def rendered(name: str, figure: Canvas, caption: str) -> Figure:
    """The figure, as a file and within the page."""
    return Figure(name, caption, png=png(figure), svg=svg(figure, caption))


def sheet(
    rows: int, columns: int, title: str, width: float = 3.5, height: float = 2.7
) -> tuple[Canvas, NDArray]:  # type: ignore[type-arg]
    """An empty figure and its axes, (rows, columns), of so many inches each."""
    with _style(**{"font.size": 9}):
        figure = Canvas(figsize=(width * columns, height * rows + 0.5), dpi=140, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(showable(title), color=INK, fontsize=11)
        return figure, figure.subplots(rows, columns, squeeze=False)


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
        _formatted(axes.xaxis, lambda value: f"{value:g}")
    if log_y:
        axes.set_yscale("log")
        _formatted(axes.yaxis, lambda value: f"{value:,g}")
    if ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        _formatted(axes.xaxis, lambda value: f"{value:g}")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    if zero:
        axes.set_ylim(bottom=0)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)


def _formatted(axis: object, write: Callable[[float], str]) -> None:
    # logarithmic axes would write their numbers as formulas
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))  # type: ignore[attr-defined]
    axis.set_minor_formatter(NullFormatter())  # type: ignore[attr-defined]


def _canvas(height: float, width: float = WIDTH) -> tuple[Canvas, Axes]:
    """A figure of `width` by `height` units of a page, with its axes."""
    figure = Canvas(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure, figure.subplots()


def _label(text: str) -> str:
    """For a legend, which leaves out names that begin with "_"."""
    short = showable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "\u2026")
    return f" {short}" if short.startswith("_") else short


def line_by_step(
    points: Curve,
    describes: str,
    *,
    y_title: str = "",
    above: Sequence[tuple[float, str]] = (),
    above_title: str = "",
    height: int = 214,
) -> Markup:
    """Something by step, from zero upwards, its last value written beside it; in a band where it is long.

    Args:
        points: (step, value), in the order of the steps; at least one.
        describes: What a reader who cannot see the chart should know.
        y_title: What is drawn, with its unit; empty where the caption says so.
        above: Labels of a second scale over the chart: (step, text).
        above_title: What that scale is.
        height: Of the picture; the width is 400.
    """
    with _style():
        figure, axes = _canvas(height)
        middle, mean, low, high = _thinned(points)
        if len(points) > POINTS:
            axes.fill_between(middle, low, high, color=LIGHT["accent"], alpha=0.16, lw=0)
        few = len(points) <= 24
        axes.plot(middle, mean, color=LIGHT["accent"], lw=2, marker="o" if few else "", markersize=6)
        values = [y for _, y in points]
        bottom, top = min(0.0, *values), max(0.0, *values)
        heights = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
        rungs = heights.tick_values(bottom, top if top - bottom > 1e-200 else bottom + 1)
        axes.set_ylim(min(rungs[0], bottom), max(rungs[-1], top))
        end = max(points[-1][0], 1)
        axes.set_xlim(0, end)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(heights)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axes.grid(False, axis="x")
        axes.set_xlabel("step", loc="right")
        if y_title:
            axes.set_title(showable(y_title), loc="left", fontsize=12.5)
        if above:
            _second_scale(axes, above, above_title, end)
        x, y = points[-1]
        axes.annotate(
            brief(float(f"{y:.3g}")),
            (x, y),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            weight="bold",
        )
        for drawn in axes.lines:
            drawn.set_clip_on(False)
        return svg(figure, describes)


def _second_scale(axes: Axes, labels: Sequence[tuple[float, str]], title: str, end: float) -> None:
    """A line over the chart with its labels, as many as there is room for; the last one always."""
    kept: list[tuple[float, str]] = []
    for step, label in reversed(labels):
        if not kept or kept[-1][0] - step >= 0.17 * end:
            kept.append((step, label))
    other = axes.secondary_xaxis("top")
    other.set_xticks([step for step, _ in kept], [showable(label) for _, label in kept])
    other.set_xlabel(showable(title), loc="right")


def _thinned(points: Curve) -> tuple[NDArray[np.float64], ...]:
    """Steps, and the mean, least and greatest value around each."""
    size = math.ceil(len(points) / POINTS)
    chunks = [np.asarray(points[k : k + size], np.float64) for k in range(0, len(points), size)]
    x, mean = np.stack([chunk.mean(0) for chunk in chunks], axis=1)
    return x, mean, np.stack([c[:, 1].min() for c in chunks]), np.stack([c[:, 1].max() for c in chunks])


def _tick(value: float) -> str:
    """Short enough for the margin."""
    return brief(value) if value == 0 or 0.01 <= abs(value) < 1e5 else brief(float(f"{value:.1e}"))


@dataclass(frozen=True)
class Rates:
    """False against true positives.

    Attributes:
        points: (false, true), both rising.
        label: For the legend; "" for none.
        colour: A name of the palette.
        style: matplotlib's.
        width: Of the line.
        stairs: Whether it is an empirical curve, which rises in steps.
    """

    points: Curve
    label: str = ""
    colour: str = "accent"
    style: str = "-"
    width: float = 2.0
    stairs: bool = False


@dataclass(frozen=True)
class MeasuredRates:
    """A point with its intervals: (low, value, high) of false and of true positives."""

    false: tuple[float, float, float]
    true: tuple[float, float, float]
    colour: str = "accent"


def trade_off(
    axes: Axes,
    curves: Sequence[Rates],
    *,
    ruled_out: Curve = (),
    measured: Sequence[MeasuredRates] = (),
    least: float = 0.0,
    names: tuple[str, str] = ("", ""),
) -> None:
    """What attacks find at each rate of false alarms.

    Args:
        axes: To draw on.
        curves: Each with its look.
        ruled_out: The area above this curve is shaded: no attacker gets there.
        measured: Points with their intervals.
        least: Where the axes begin, which are then logarithmic; 0 for plain ones.
        names: Of the axes: false and true positives.
    """
    top = 1.0

    def on_axes(points: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        x, y = np.asarray(points, np.float64).reshape(-1, 2).T
        if least and len(x) and x[0] < least < x[-1]:
            kept = x > least  # the curve begins where the axis does
            x, y = (
                np.concatenate([[least], x[kept]]),
                np.concatenate([[np.interp(least, x, y)], y[kept]]),
            )
        return np.clip(x, least, top), np.clip(y, least, top)

    if ruled_out:
        x, y = on_axes(ruled_out)
        axes.fill_between(x, y, top, color=LIGHT["ruled-out"], lw=0, zorder=0)
    for one in curves:
        x, y = on_axes(one.points)
        axes.plot(
            x,
            y,
            one.style,
            color=LIGHT[one.colour],
            lw=one.width,
            label=one.label or None,
            drawstyle="steps-post" if one.stairs else "default",
        )
    for point in measured:
        (left, x, right), (low, y, high) = np.clip([point.false, point.true], least, top)
        axes.errorbar(
            x,
            y,
            xerr=[[x - left], [right - x]],
            yerr=[[y - low], [high - y]],
            fmt="o",
            color=LIGHT[point.colour],
            markersize=6,
            elinewidth=1.2,
            capsize=2,
        )
    if least:
        axes.set(xscale="log", yscale="log")
        axes.minorticks_off()
    axes.set(xlim=(least, top), ylim=(least, top))
    for axis in (axes.xaxis, axes.yaxis):
        if not least:
            axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        _formatted(axis, lambda value: f"{100 * value:g}%")
    axes.set_xlabel(showable(names[0]), loc="right")
    axes.set_title(showable(names[1]), loc="left", fontsize="medium")


def trade_off_chart(
    describes: str,
    curves: Sequence[Rates],
    *,
    ruled_out: Curve = (),
    measured: Sequence[MeasuredRates] = (),
    least: float = 0.0,
    names: tuple[str, str] = ("", ""),
    height: int = 360,
) -> Markup:
    """`trade_off` as a chart of a page."""
    with _style():
        figure, axes = _canvas(height)
        trade_off(axes, curves, ruled_out=ruled_out, measured=measured, least=least, names=names)
        return svg(figure, describes)


def bound_on_attacks(epsilon: float, delta: float, unit: str, describes: str) -> Markup:
    """The most an attacker can find at each rate of false alarms, beside one who learns nothing.

    Args:
        epsilon: Of the guarantee.
        delta: Of the guarantee.
        unit: What is protected.
        describes: What a reader who cannot see the chart should know.
    """
    bound, found = attack_bound(epsilon, delta), true_positives(epsilon, delta)
    curves = [Rates(((0, 0), (1, 1)), colour="base", style="--", width=1)]
    if epsilon > 1.5 * REFERENCE:
        curves.append(Rates(attack_bound(REFERENCE, delta), colour="base", width=1.5))
    with _style():
        figure, axes = _canvas(386)
        trade_off(
            axes,
            [*curves, Rates(bound)],
            ruled_out=[*bound, (1, 1)],
            names=(f"false alarms, of {unit}s that were not used", f"{unit}s found, of those that were used"),
        )
        axes.plot([FALSE_POSITIVES], [found], "o", color=LIGHT["accent"], markersize=8, clip_on=False)
        # under the diagonal, where no bound ever runs
        key = f"\u25cf at {FALSE_POSITIVES:.0%} false alarms: {at_most(found, times=100)}% at most"
        axes.text(0.98, 0.07, key, ha="right", color=INK, weight="bold")
        axes.text(
            0.7, 0.6, "learns nothing", rotation=45, transform_rotates_text=True, ha="center", va="center"
        )
        if epsilon > 1.5 * REFERENCE:
            # named where the line climbs and the diagonal is still far below it
            at = (0.165 + 0.03, true_positives(REFERENCE, delta, 0.165) - 0.03)
            axes.text(*at, f"epsilon {as_given(REFERENCE)}")
        return svg(figure, describes)


def attack_bound(epsilon: float, delta: float) -> list[tuple[float, float]]:
    """`true_positives` as a line: it is straight between its bend, where its two bounds meet, and its ends."""
    bend = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    return [(a, true_positives(epsilon, delta, a)) for a in (0.0, bend, 1 - delta, 1.0)]


def paired_dots(
    rows: Sequence[tuple[str, float | None, float | None]],
    describes: str,
    *,
    before: str,
    after: str,
    x_title: str,
) -> Markup:
    """A row a joint: a hollow dot before, a full one after, and the way between them.

    Args:
        rows: (joint, before, after), percentages; None where there is none.
        describes: What a reader who cannot see the chart should know.
        before: What the hollow dots are; empty where there are none.
        after: What the full dots are.
        x_title: What is drawn.
    """
    full: dict[str, Any] = {
        "marker": "o",
        "markersize": 8,
        "ls": "",
        "color": LIGHT["accent"],
        "clip_on": False,
    }
    hollow: dict[str, Any] = {
        **full,
        "color": LIGHT["base"],
        "markerfacecolor": LIGHT["paper"],
        "markeredgewidth": 2,
    }
    highest = max([100.0, *(v for _, *pair in rows for v in pair if v is not None)])
    with _style():
        figure, axes = _canvas(86 + ROW * len(rows))
        for k, (_, old, new) in enumerate(rows):
            if new is None:
                axes.annotate(MISSING, (0, k), (6, 0), textcoords="offset points", va="center")
                continue
            start = old if old is not None else 0.0
            axes.plot([start, new], [k, k], color=LIGHT["rule"], lw=4, zorder=1, clip_on=False)
            if old is not None:
                axes.plot([old], [k], **hollow)
            axes.plot([new], [k], **full)
            # on the side away from the hollow dot, if the names leave room for it there
            left = new < start and new > 0.12 * highest
            x, side = (new, -9) if left else (max(start, new), 9)
            axes.annotate(
                f"{new:.1f}",
                (x, k),
                (side, 0),
                textcoords="offset points",
                va="center",
                ha="right" if left else "left",
                color=INK,
                weight="bold",
            )
        axes.set_yticks(range(len(rows)), [showable(name) for name, _, _ in rows], color=INK)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, highest)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_title(showable(x_title), loc="left", fontsize=12.5, pad=30)
        handles = [
            (Line2D([], [], **look), _label(name)) for look, name in ((full, after), (hollow, before)) if name
        ]
        axes.legend(
            [handle for handle, _ in handles],
            [name for _, name in handles],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=2,
            borderpad=0,
            columnspacing=1.2,
            handletextpad=0.2,
        )
        return svg(figure, describes)


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
        _formatted(panel.xaxis, lambda value: f"{value:g}")
    finish(panel, *axes_titles)
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    panel.set_ylim(-0.01, 1.02)
    return rendered(name, figure, caption)


def bars(
    name: str,
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    y_title: str,
    caption: str,
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
    across: Sequence[Setting],
    up: Sequence[Setting],
    title: str,
    span: tuple[float, float],
    write: str,
    *,
    names: tuple[str, str] = ("b", "n"),
    low_is_good: bool = False,
    missing: str = "",
) -> None:
    """Numbers by two settings, good ones bright; cells that are not there stay empty.

    Args:
        axes: To draw on.
        values: By (across, up).
        across: The settings of the columns.
        up: Those of the rows, the lowest first.
        title: Above it.
        span: The ends of the colours: one for all panels, or noise would look like an effect.
        write: How a number is written.
        names: Of the settings.
        low_is_good: Which end is bright.
        missing: Stands in empty cells.
    """
    field = np.array([[values.get((a, u), np.nan) for a in across] for u in up], np.float64)
    low, high = span
    axes.pcolormesh(
        np.ma.masked_invalid(field),
        cmap="viridis_r" if low_is_good else "viridis",
        vmin=low,
        vmax=high,
    )
    for (row, column), value in np.ndenumerate(field):
        text, colour = missing, LIGHT["soft"]
        if np.isfinite(value):
            dark = ((high - value) if low_is_good else (value - low)) < 0.6 * (high - low)
            text, colour = format(value, write), PALE_INK if dark else DARK_INK
        if text:
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour)
    axes.set_xticks(np.arange(len(across)) + 0.5, [as_given(a) for a in across])
    axes.set_yticks(np.arange(len(up)) + 0.5, [as_given(u) for u in up])
    axes.grid(False)
    axes.set_xlabel(names[0], fontsize=9)
    axes.set_ylabel(names[1], fontsize=9)
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
