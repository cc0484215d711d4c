"""Drawing by matplotlib: the style of all charts (`charts` has their kinds).

A chart is drawn once: as SVG whose colours are the page's own, light or dark, or as a PNG on white. Texts in it may
come from anywhere: no character is taken for mathematics or markup. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text as Writing
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from dpose.report.inline import LIGHT, showable

WIDTH = 400
"""Width of a chart on a page: about that wide on a phone and on a desk, so that its text keeps its size."""
LONGEST = 20
"""Characters of a legend."""

INK, GRID = LIGHT["ink"], LIGHT["grid"]

Curve = Sequence[tuple[float, float]]

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
def styled(**more: Any) -> Iterator[None]:
    """Matplotlib's settings for all charts, and `more`, for as long as the context lasts."""
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
        if text.get_color() == "black":  # it has no colour of its own, and dark paper needs another
            text.set_color(LIGHT["soft"])
    # the salt tells the identifiers of a page's charts apart
    with styled(**{"svg.hashsalt": describes.encode("utf-8", "replace").decode()}):
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
    with styled():
        figure.savefig(buffer, format="png", metadata={"Software": ""})
    return buffer.getvalue()


def sheet(rows: int, columns: int, title: str, width: float = 3.5, height: float = 2.7) -> tuple[Canvas, NDArray]:  # type: ignore[type-arg]
    """An empty figure and its axes, (rows, columns), of so many inches each."""
    with styled(**{"font.size": 9}):
        figure = Canvas(figsize=(width * columns, height * rows + 0.5), dpi=140, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(showable(title), color=INK, fontsize=11)
        return figure, figure.subplots(rows, columns, squeeze=False)


def finish(axes: Axes, x: str, y: str) -> None:
    """Labels of one panel."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)


def formatted(axis: object, write: Callable[[float], str]) -> None:
    """Have an axis' numbers written by `write`: logarithmic axes would write formulas."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))  # type: ignore[attr-defined]
    axis.set_minor_formatter(NullFormatter())  # type: ignore[attr-defined]


def page_canvas(height: float) -> tuple[Canvas, Axes]:
    """A figure of `WIDTH` by `height` units of a page, with its axes."""
    figure = Canvas(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure, figure.subplots()


def legend_label(text: str) -> str:
    """For a legend, which leaves out names that begin with "_"."""
    short = showable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "\u2026")
    return f" {short}" if short.startswith("_") else short
