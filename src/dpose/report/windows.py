"""Bars of numbers by windows of a day, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpose.report.inline import LIGHT, SERIES
from dpose.report.plots import finish, png, sheet

AXES = (("hours", 1, 2.0), ("minutes", 60, 1 / 30), ("seconds", 3600, 0.0))
"""Units of the axis, how many make an hour, and from how many hours on each is taken."""


@dataclass(frozen=True)
class BarPanel:
    """One panel.

    Attributes:
        title: Beside it.
        rows: Hour at which a window begins, its number, and the ends of the number's interval.
    """

    title: str
    rows: Sequence[tuple[float, float, float, float]]


def window_bars(day: str, panels: Sequence[BarPanel], hours: float) -> bytes:
    """A PNG with a panel for each series of windows of `hours` each; the axis is in hours, minutes or seconds."""
    last = max((row[0] + hours for panel in panels for row in panel.rows), default=hours)
    unit, of_hour = next((name, size) for name, size, least in AXES if last >= least)
    figure, axes = sheet(
        max(1, len(panels)), 1, f"{day}: bars, and intervals of their noise (95 %)", width=9.0, height=2.2
    )
    for k, (panel, (drawn,)) in enumerate(zip(panels, axes, strict=False)):
        at = [(row[0] + hours / 2) * of_hour for row in panel.rows]
        drawn.bar(
            at,
            [row[1] for row in panel.rows],
            0.9 * hours * of_hour,
            color=LIGHT[SERIES[(k + 1) % len(SERIES)]],
            zorder=2,
        )
        drawn.vlines(
            at, [row[2] for row in panel.rows], [row[3] for row in panel.rows], color=LIGHT["ink"], lw=1, zorder=3
        )
        finish(drawn, f"{unit} since midnight" if k == len(panels) - 1 else "", panel.title)
    return png(figure)
