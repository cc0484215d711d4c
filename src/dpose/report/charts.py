"""Charts as SVG: drawn here, coloured by the page's style sheet, with no script.

All are 400 units wide and as wide as their place on the page, which is about that on a phone and on a desk: so their
text keeps its size. Every chart has a text that says what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpose.privacy.rounding import as_given
from dpose.privacy.wording import FALSE_POSITIVES, true_positives
from dpose.report.markup import Html, tag, together
from dpose.report.numbers import MISSING, at_most, brief, ticks, tidy

WIDTH = 400
POINTS = 200
"""A longer line is drawn as the means of so many stretches, in a band from lowest to highest."""
ROW = 24
REFERENCE = 1.0
"""The epsilon drawn for comparison beside a larger one: what is commonly called strong."""


@dataclass(frozen=True)
class Plane:
    """Where the numbers (x0..x1, y0..y1) lie on the picture (left..right, bottom..top)."""

    left: float
    right: float
    top: float
    bottom: float
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        """From a number to the picture."""
        return self.left + (value - self.x0) / (self.x1 - self.x0) * (self.right - self.left)

    def y(self, value: float) -> float:
        """From a number to the picture."""
        return self.bottom - (value - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """Through the points, as SVG writes it."""
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)


def line_chart(
    points: Sequence[tuple[float, float]],
    describes: str,
    *,
    y_title: str = "",
    above: Sequence[tuple[float, str]] = (),
    above_title: str = "",
    height: int = 214,
) -> Html:
    """Something by step, from zero upwards, its last value written beside it.

    Args:
        points: (step, value), in the order of the steps; at least one.
        describes: What a reader who cannot see the chart should know.
        y_title: What is drawn, with its unit; empty where the caption says so.
        above: Labels of a second scale over the chart: (step, text).
        above_title: What that scale is.
        height: Of the picture; the width is 400.
    """
    values = [y for _, y in points]
    y_ticks = ticks(min(0.0, *values), max(0.0, *values))
    end = max(points[-1][0], 1)
    plane = Plane(
        46, WIDTH - 58, 62 if above else 34 if y_title else 16, height - 24, 0, end, y_ticks[0], y_ticks[-1]
    )
    parts = [
        *_horizontals(plane, y_ticks),
        *_steps(plane),
    ]
    if y_title:
        parts.append(tag("text", y_title, x=2, y=14, class_="title"))
    if above:
        parts += _second_scale(plane, above, above_title)
    line, band = _thinned(points)
    if band:
        parts.append(tag("path", d=plane.path(band) + "Z", class_="band"))
    parts.append(tag("path", d=plane.path(line), class_="line"))
    if len(points) <= 24:
        parts += [_dot(plane.x(x), plane.y(y), "dot") for x, y in points]
    x, y = points[-1]
    parts.append(tag("text", brief(_short(y)), x=plane.x(x) + 8, y=plane.y(y) + 4, class_="value"))
    return chart(height, describes, parts)


def attack_chart(epsilon: float, delta: float, unit: str, describes: str) -> Html:
    """The most an attacker can find at each rate of false alarms, beside one who learns nothing.

    Args:
        epsilon: Of the guarantee.
        delta: Of the guarantee.
        unit: What is protected.
        describes: What a reader who cannot see the chart should know.
    """
    height = 386
    plane = Plane(46, WIDTH - 14, 34, height - 52, 0, 1, 0, 1)
    curve = _bound(epsilon, delta)
    shares = [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [
        tag("path", d=plane.path([*curve, (0, 1)]) + "Z", class_="ruled-out"),
        *_horizontals(plane, shares, percent=True),
        *(
            tag("text", f"{a:.0%}", x=plane.x(a), y=height - 34, text_anchor="end" if a == 1 else "middle")
            for a in shares
        ),
        tag("path", d=plane.path([(0, 0), (1, 1)]), class_="diagonal"),
        _along(plane, 0.62, "learns nothing"),
    ]
    if epsilon > 1.5 * REFERENCE:
        # named where the line climbs and the diagonal is still far below it
        x, y = plane.x(0.165) + 10, plane.y(true_positives(REFERENCE, delta, 0.165)) + 8
        parts.append(tag("path", d=plane.path(_bound(REFERENCE, delta)), class_="reference"))
        parts.append(tag("text", f"epsilon {as_given(REFERENCE)}", x=f"{x:.1f}", y=f"{y:.1f}", class_="halo"))
    found = true_positives(epsilon, delta)
    # the dot is explained under the diagonal, where no bound ever runs
    key = f"at {FALSE_POSITIVES:.0%} false alarms: {at_most(found, times=100)}% at most"
    parts += [
        tag("path", d=plane.path(curve), class_="line"),
        _dot(plane.x(FALSE_POSITIVES), plane.y(found), "dot"),
        tag(
            "text",
            "\u25cf ",
            tag("tspan", key, class_="value"),
            x=plane.right - 8,
            y=f"{plane.y(0.09):.1f}",
            text_anchor="end",
            class_="key",
        ),
        tag("text", f"{unit}s found, of those that were used", x=2, y=14, class_="title"),
        tag(
            "text",
            f"false alarms, of {unit}s that were not used",
            x=plane.right,
            y=height - 10,
            text_anchor="end",
            class_="title",
        ),
    ]
    return chart(height, describes, parts)


def joints_chart(
    rows: Sequence[tuple[str, float | None, float | None]],
    describes: str,
    *,
    before: str,
    after: str,
    x_title: str,
) -> Html:
    """A row a joint: a hollow dot before, a full one after, and the way between them.

    Args:
        rows: (joint, before, after), percentages; None where there is none.
        describes: What a reader who cannot see the chart should know.
        before: What the hollow dots are; empty where there are none.
        after: What the full dots are.
        x_title: What is drawn.
    """
    values = [v for _, *pair in rows for v in pair if v is not None]
    highest = max([*values, 1.0])
    x_ticks = [t for t in ticks(0.0, highest) if t <= 100 or highest > 100]
    top, height = 58, 58 + ROW * len(rows) + 28
    plane = Plane(112, WIDTH - 48, top, top + ROW * len(rows), 0, x_ticks[-1], 0, 1)
    parts = [tag("text", x_title, x=2, y=14, class_="title"), *_legend(before, after)]
    for t in x_ticks:
        x = plane.x(t)
        parts.append(tag("path", d=f"M{x:.1f} {top}V{plane.bottom}", class_="grid"))
        parts.append(tag("text", f"{t:g}", x=x, y=plane.bottom + 18, text_anchor="middle"))
    for k, (name, old, new) in enumerate(rows):
        y = top + ROW * (k + 0.5)
        parts.append(tag("text", name, x=plane.left - 10, y=y + 4, text_anchor="end", class_="name"))
        if new is None:
            parts.append(tag("text", MISSING, x=plane.left + 6, y=y + 4))
            continue
        start = old if old is not None else 0.0
        parts.append(tag("path", d=f"M{plane.x(start):.1f} {y}H{plane.x(new):.1f}", class_="way"))
        if old is not None:
            parts.append(_dot(plane.x(old), y, "hollow"))
        parts.append(_dot(plane.x(new), y, "dot"))
        # on the side away from the hollow dot, if the names leave room for it there
        left = new < start and plane.x(new) - plane.left > 36
        x, anchor = (plane.x(new) - 10, "end") if left else (plane.x(max(start, new)) + 10, "start")
        parts.append(tag("text", f"{new:.1f}", x=f"{x:.1f}", y=y + 4, text_anchor=anchor, class_="value"))
    return chart(height, describes, parts)


def chart(height: float, describes: str, parts: Sequence[Html]) -> Html:
    """A drawing of `WIDTH` by `height`; `describes` is for who cannot see it."""
    return tag(
        "svg",
        together(parts),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=describes,
        class_="chart",
    )


def _dot(x: float, y: float, kind: str) -> Html:
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=kind)


def _horizontals(plane: Plane, values: Sequence[float], *, percent: bool = False) -> list[Html]:
    parts = []
    for value in values:
        y = plane.y(value)
        parts.append(
            tag("path", d=f"M{plane.left} {y:.1f}H{plane.right}", class_="axis" if value == 0 else "grid")
        )
        label = f"{value:.0%}" if percent else _tick(value)
        parts.append(tag("text", label, x=plane.left - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    return parts


def _steps(plane: Plane) -> list[Html]:
    inside = [t for t in ticks(plane.x0, plane.x1, 5) if t <= plane.x1 and t == round(t)]
    labels = [
        tag("text", f"{t:,.0f}", x=f"{plane.x(t):.1f}", y=plane.bottom + 18, text_anchor="middle")
        for t in inside
    ]
    return [*labels, tag("text", "step", x=WIDTH - 2, y=plane.bottom + 18, text_anchor="end", class_="title")]


def _second_scale(plane: Plane, labels: Sequence[tuple[float, str]], title: str) -> list[Html]:
    """A line over the chart with its labels, as many as there is room for; the last one always."""
    parts = [
        tag("text", title, x=WIDTH - 2, y=14, text_anchor="end", class_="title"),
        tag("path", d=f"M{plane.left} {plane.top - 10}H{plane.right}", class_="second-axis"),
    ]
    taken = math.inf
    for step, label in reversed(labels):
        x = plane.x(step)
        if taken - x < 52:
            continue
        taken = x
        parts.append(tag("path", d=f"M{x:.1f} {plane.top - 14}V{plane.top - 6}", class_="second-axis"))
        parts.append(tag("text", label, x=f"{x:.1f}", y=plane.top - 19, text_anchor="middle"))
    return parts


def _legend(before: str, after: str) -> list[Html]:
    """Hollow and full dot with their names, the second one where the first leaves off."""
    parts, x = [], 118.0
    for kind, name in (("dot", after), ("hollow", before)):
        if name:
            short = name if len(name) <= 20 else name[:19] + "\u2026"
            parts += [_dot(x, 36, kind), tag("text", short, x=x + 10, y=40)]
            x += 10 + 7 * len(short) + 22
    return parts


def _bound(epsilon: float, delta: float) -> list[tuple[float, float]]:
    """`true_positives` as a line: it is straight between its bend, where its two bounds meet, and its ends."""
    bend = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    return [(a, true_positives(epsilon, delta, a)) for a in (0.0, bend, 1 - delta, 1.0)]


def _along(plane: Plane, share: float, label: str) -> Html:
    """Text under the diagonal, turned as the diagonal is."""
    x, y = plane.x(share), plane.y(share)
    angle = -math.degrees(math.atan2(plane.bottom - plane.top, plane.right - plane.left))
    turned = f"rotate({angle:.1f} {x:.1f} {y:.1f})"
    return tag(
        "text", label, x=f"{x:.1f}", y=f"{y + 18:.1f}", text_anchor="middle", transform=turned, class_="halo"
    )


def _thinned(
    points: Sequence[tuple[float, float]],
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The line to draw, and the outline of the band around it; no band where every point is drawn."""
    if len(points) <= POINTS:
        return list(points), []
    size = math.ceil(len(points) / POINTS)
    chunks = [points[k : k + size] for k in range(0, len(points), size)]
    middle = [sum(x for x, _ in chunk) / len(chunk) for chunk in chunks]
    line = [(x, sum(y for _, y in chunk) / len(chunk)) for x, chunk in zip(middle, chunks, strict=True)]
    high = [(x, max(y for _, y in chunk)) for x, chunk in zip(middle, chunks, strict=True)]
    low = [(x, min(y for _, y in chunk)) for x, chunk in zip(middle, chunks, strict=True)]
    return line, [*high, *reversed(low)]


def _tick(value: float) -> str:
    """Short enough for the margin."""
    if value == 0 or 0.01 <= abs(value) < 1e5:
        return brief(value)
    mantissa, exponent = f"{value:.1e}".split("e")
    return tidy(f"{mantissa.removesuffix('.0')}e{exponent}")


def _short(value: float) -> float:
    return float(f"{value:.3g}")
