"""A trade-off curve on logarithmic axes: what an attack found, under what is ruled out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpose.audits.record import AttackedRun, Curve
from dpose.report.charts import WIDTH, Plane, chart
from dpose.report.markup import Html, tag

LEAST = 5e-4
"""Where both axes begin."""
TICKS = (1e-3, 1e-2, 1e-1, 1.0)


def tradeoff_chart(
    attacked: AttackedRun, allowed: Curve, pair: Curve, describes: str, *, height: int = 360
) -> Html:
    """True against false positives, found and at most allowed.

    The shaded area is ruled out: what lies above it for (epsilon, delta) alone is the darker part.

    Args:
        attacked: The run.
        allowed: The most that the claimed mechanism allows.
        pair: The most that epsilon and delta alone allow.
        describes: What a reader who cannot see the chart should know.
        height: Of the picture; the width is 400.
    """
    plane = Plane(50, WIDTH - 14, 34, height - 52, math.log10(LEAST), 0, math.log10(LEAST), 0)
    corner = [(math.log10(LEAST), 0.0)]
    most, outer = _logarithmic(allowed), _logarithmic(pair)
    parts = [
        tag("path", d=plane.path([*most, (0.0, 0.0), *corner]) + "Z", class_="ruled-out"),
        *_grid(plane, height),
        tag("path", d=plane.path([(plane.x0, plane.y0), (0, 0)]), class_="diagonal"),
        tag("path", d=plane.path(outer), class_="diagonal"),
        tag("path", d=plane.path(most), class_="reference"),
        tag("path", d=plane.path(_logarithmic(_stairs(attacked.curve))), class_="line"),
        *_points(plane, attacked),
        tag("text", "found, of those that were in", x=2, y=14, class_="title"),
        tag(
            "text",
            "false alarms, of those that were not",
            x=plane.right,
            y=height - 10,
            text_anchor="end",
            class_="title",
        ),
    ]
    return chart(height, describes, parts)


def _grid(plane: Plane, height: int) -> list[Html]:
    parts = []
    for tick in TICKS:
        at = math.log10(tick)
        x, y = plane.x(at), plane.y(at)
        parts.append(tag("path", d=f"M{x:.1f} {plane.top}V{plane.bottom}", class_="grid"))
        parts.append(tag("path", d=f"M{plane.left} {y:.1f}H{plane.right}", class_="grid"))
        anchor = "end" if tick == 1 else "middle"
        parts.append(tag("text", _percent(tick), x=f"{x:.1f}", y=height - 34, text_anchor=anchor))
        parts.append(tag("text", _percent(tick), x=plane.left - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    parts.append(tag("path", d=f"M{plane.left} {plane.bottom}H{plane.right}", class_="axis"))
    return parts


def _points(plane: Plane, attacked: AttackedRun) -> list[Html]:
    """The rates that are reported, with their intervals both ways."""
    parts = []
    for rates in attacked.rates:
        low, at, high = (plane.y(_log(v)) for v in (rates.true.low, rates.true.rate, rates.true.high))
        left, x, right = (plane.x(_log(v)) for v in (rates.false.low, rates.false.rate, rates.false.high))
        parts.append(
            tag(
                "path", d=f"M{x:.1f} {low:.1f}V{high:.1f}M{left:.1f} {at:.1f}H{right:.1f}", class_="reference"
            )
        )
        parts.append(tag("circle", cx=f"{x:.1f}", cy=f"{at:.1f}", r=4, class_="dot"))
    return parts


def _log(rate: float) -> float:
    return math.log10(min(max(rate, LEAST), 1.0))


def _logarithmic(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The part of the curve that lies on the axes, from their left end on."""
    inside = [(f, t) for f, t in curve if f >= LEAST]
    before = [(f, t) for f, t in curve if f < LEAST]
    if before and inside:
        (f0, t0), (f1, t1) = before[-1], inside[0]
        inside.insert(0, (LEAST, t0 + (t1 - t0) * (LEAST - f0) / (f1 - f0)))
    return [(_log(f), _log(t)) for f, t in inside]


def _stairs(curve: Curve) -> list[tuple[float, float]]:
    """An empirical curve as the steps that it is."""
    steps: list[tuple[float, float]] = []
    for f, t in curve:
        if steps and f > steps[-1][0]:
            steps.append((f, steps[-1][1]))
        steps.append((f, t))
    return steps


def _percent(rate: float) -> str:
    return f"{100 * rate:g}%"
