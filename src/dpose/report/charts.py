"""The charts of runs and audits: something by step, trade-off curves, what is bounded, joints before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from dpose.privacy.attackers import FALSE_POSITIVES
from dpose.privacy.ranges import as_given
from dpose.privacy.tradeoff import TradeOff
from dpose.report.inline import LIGHT, MISSING, SERIES, at_most, brief, showable
from dpose.report.plots import INK, Curve, formatted, legend_label, page_canvas, styled, svg

POINTS = 200
"""A longer line is drawn as the means of so many stretches, in a band from lowest to highest."""
REFERENCE = 1.0
"""The epsilon drawn for comparison beside a larger one: what is commonly called strong."""
ROW = 24


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
    with styled():
        figure, axes = page_canvas(height)
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
            brief(float(f"{y:.3g}")), (x, y), (8, 0), textcoords="offset points", va="center", color=INK, weight="bold"
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
            x, y = (np.concatenate([[least], x[kept]]), np.concatenate([[np.interp(least, x, y)], y[kept]]))
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
        formatted(axis, lambda value: f"{100 * value:g}%")
    axes.set_xlabel(showable(names[0]), loc="right")
    axes.set_title(showable(names[1]), loc="left", fontsize="medium")


def bound_on_attacks(bound: TradeOff, unit: str, describes: str, reference: TradeOff | None = None) -> Markup:
    """The most an attacker can find at each rate of false alarms, beside one who learns nothing.

    Args:
        bound: Of the guarantee.
        unit: What is protected.
        describes: What a reader who cannot see the chart should know.
        reference: That of epsilon `REFERENCE`, to compare with.
    """
    points = attack_bound(bound)
    found = float(bound.power(FALSE_POSITIVES)[0])
    curves = [Rates(((0, 0), (1, 1)), colour="base", style="--", width=1)]
    if reference is not None:
        curves.append(Rates(attack_bound(reference), colour="base", width=1.5))
    with styled():
        figure, axes = page_canvas(386)
        trade_off(
            axes,
            [*curves, Rates(points)],
            ruled_out=[*points, (1, 1)],
            names=(f"false alarms, of {unit}s that were not used", f"{unit}s found, of those that were used"),
        )
        axes.plot([FALSE_POSITIVES], [found], "o", color=LIGHT["accent"], markersize=8, clip_on=False)
        # under the diagonal, where no bound ever runs
        key = f"\u25cf at {FALSE_POSITIVES:.0%} false alarms: {at_most(found, times=100)}% at most"
        axes.text(0.98, 0.07, key, ha="right", color=INK, weight="bold")
        axes.text(0.7, 0.6, "learns nothing", rotation=45, transform_rotates_text=True, ha="center", va="center")
        if reference is not None:
            # named where the line climbs and the diagonal is still far below it
            at = (0.165 + 0.03, float(reference.power(0.165)[0]) - 0.03)
            axes.text(*at, f"epsilon {as_given(REFERENCE)}")
        return svg(figure, describes)


def attack_bound(bound: TradeOff) -> list[tuple[float, float]]:
    """The curve as a line: where it is the bound of one pair, with the bend where its two lines meet."""
    rates = np.concatenate([[0.0], np.logspace(-4, -2, 21), np.linspace(0.02, 1.0, 50)])
    if len(bound.pairs) == 1:
        ((epsilon, delta),) = bound.pairs
        rates = np.array([0.0, (1 - delta) / (1 + math.exp(min(epsilon, 700.0))), 1 - delta, 1.0])
    return list(zip(rates.tolist(), bound.power(rates).tolist(), strict=True))


def paired_dots(
    rows: Sequence[tuple[str, float | None, float | None]], describes: str, *, before: str, after: str, x_title: str
) -> Markup:
    """A row a joint: a hollow dot before, a full one after, and the way between them.

    Args:
        rows: (joint, before, after), percentages; None if there is none.
        describes: What a reader who cannot see the chart should know.
        before: What the hollow dots are; empty where there are none.
        after: What the full dots are.
        x_title: What is drawn.
    """
    full: dict[str, Any] = {"marker": "o", "markersize": 8, "ls": "", "color": LIGHT["accent"], "clip_on": False}
    hollow: dict[str, Any] = {**full, "color": LIGHT["base"], "markerfacecolor": LIGHT["paper"], "markeredgewidth": 2}
    highest = max([100.0, *(v for _, *pair in rows for v in pair if v is not None)])
    with styled():
        figure, axes = page_canvas(86 + ROW * len(rows))
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
            (Line2D([], [], **look), legend_label(name)) for look, name in ((full, after), (hollow, before)) if name
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


@dataclass(frozen=True)
class Spending:
    """What data had given after something had read them.

    Attributes:
        when: The day, for readers.
        what: Which kind of reader it was; one kind has one colour.
        epsilon: Epsilon of all artefacts so far; None if this one has no bound.
    """

    when: str
    what: str
    epsilon: float | None


def spending_over_time(rows: Sequence[Spending], describes: str, *, limit: float | None = None) -> Markup:
    """What has been spent in all, rising with each artefact; what has no bound as a cross on the line.

    Args:
        rows: At least one, in the order in which they happened.
        describes: What a reader who cannot see the chart should know.
        limit: A budget, drawn as a line across with what is left below it shaded.
    """
    values, last = [], 0.0
    for row in rows:
        last = last if row.epsilon is None else row.epsilon
        values.append(last)
    kinds = list(dict.fromkeys(row.what for row in rows))
    with styled():
        figure, axes = page_canvas(264)
        end = len(rows) + 0.5
        axes.step([0.5, *range(1, len(rows) + 1), end], [0.0, *values, last], where="post", color=LIGHT["accent"], lw=2)
        if limit is not None:
            axes.axhline(limit, color=LIGHT["warn"], ls="--", lw=1.5)
            axes.annotate(f"budget {as_given(limit)}", (0.5, limit), (2, 4), textcoords="offset points", color=INK)
            if limit > last:
                axes.axhspan(last, limit, color=LIGHT["wash"], lw=0, zorder=0)
        for kind in kinds:
            of_kind = [(k + 1, values[k], row) for k, row in enumerate(rows) if row.what == kind]
            colour = LIGHT[SERIES[kinds.index(kind) % len(SERIES)]]
            for marker, wanted in (("o", False), ("x", True)):
                shown = [(x, y) for x, y, row in of_kind if (row.epsilon is None) is wanted]
                if shown:
                    label = legend_label(kind + (", no bound" if wanted else ""))
                    axes.plot(*zip(*shown, strict=True), marker, color=colour, markersize=7, mew=2, label=label)
        axes.set_xlim(0.5, end)
        axes.set_ylim(0, 1.15 * max(last, limit or 0.0) or 1.0)
        every = max(1, math.ceil(len(rows) / 4))
        ticks = [k for k in range(len(rows)) if k % every == 0]
        axes.set_xticks([k + 1 for k in ticks], [showable(rows[k].when) for k in ticks])
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axes.grid(False, axis="x")
        axes.set_title("epsilon in all", loc="left", fontsize=12.5, pad=34)
        axes.annotate(
            at_most(last), (end, last), (4, 0), textcoords="offset points", va="center", color=INK, weight="bold"
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0, columnspacing=1.2, handletextpad=0.2)
        return svg(figure, describes)
