"""How scores are shown: numbers for JSON, and bars drawn by matplotlib, which is loaded when first needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpose.errors import DposeError


def for_json(value: float) -> float | None:
    """A score for JSON: None where it is nan."""
    return float(value) if math.isfinite(value) else None


def bar_panels(panels: Sequence[tuple[str, Mapping[str, float]]], top: float, title: str) -> Any:
    """A figure with one panel of horizontal bars for each table.

    Args:
        panels: (title, value by name); nan is drawn as no bar and written as "-".
        top: The best possible value: the axis' end.
        title: Above all panels.

    Returns:
        A `matplotlib.figure.Figure`, not shown and not known to pyplot: `figure.savefig("scores.png")`.

    Raises:
        DposeError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DposeError("package-missing", "plots need matplotlib", fix="pip install matplotlib") from error
    rows = max(len(table) for _, table in panels)
    figure = Figure(figsize=(5.5 * len(panels), 1.2 + 0.28 * rows), layout="constrained")
    for axis, (name, table) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        known = [v if math.isfinite(v) else 0.0 for v in table.values()]
        axis.barh(range(len(known)), known, color="#3c78c8")
        axis.set_yticks(range(len(known)), list(table))
        axis.set_xlim(0, top)
        axis.invert_yaxis()
        axis.set_title(name)
        axis.spines[["top", "right"]].set_visible(False)
        for place, value in enumerate(table.values()):
            told = "-" if not math.isfinite(value) else f"{value:.1f}" if top > 1 else f"{value:.2f}"
            axis.annotate(
                told, (known[place], place), xytext=(3, 0), textcoords="offset points", va="center", size=8
            )
    figure.suptitle(title)
    return figure
