"""What a release hides, drawn to scale: the pixels that neighbours may differ in beside a face and a person.

    draw_explanation(plan, Path("explain.png"))                        # on a blank canvas
    draw_explanation(plan, Path("explain.png"), released=picture)      # on what was released

It takes a plan, which knows sizes and settings, and never an original: there is no way for its pixels to get here.
"""

from __future__ import annotations

import math
import textwrap
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.privacy.ranges import as_given, upper
from dpose.release.colour_planes import ColourPlanes
from dpose.release.explain import explain_release
from dpose.release.grid import even_edges
from dpose.release.linear import LinearPlan
from dpose.release.objects import FACE, PERSON, RECOGNISABLE, TIMES, SoundPlan, box_epsilon, person_in, repeated_epsilon
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import AnyPlan
from dpose.release.projections import BlockMeans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HIDDEN, FACE_LINE, PERSON_LINE, GRID = "#c1121f", "#d95f02", "#1b5e9c", "#8d99a6"
"""Colours of the pixels that are hidden, of a face, of a person and of the blocks."""
PAPER, INK, QUIET = "#f3f4f6", "#1a1d21", "#5b6470"
WIDTH, HEIGHT, DPI = 12.6, 7.2, 100
"""Width and height of the drawing, inches, and dots an inch."""
VISIBLE = 9
"""Dots. What would be smaller is drawn once more, magnified."""
PER_LINE = 44
"""Letters in a line of the legend."""


def draw_explanation(
    plan: AnyPlan,
    path: Path,
    *,
    rate: Fraction | None = None,
    face: tuple[int, int] = (FACE, FACE),
    released: NDArray[Any] | None = None,
) -> None:
    """Draw what a plan hides, beside what it does not.

    Args:
        plan: A config bound to a shape.
        path: A PNG file.
        rate: Frames a second, for a clip.
        face: A face's declared width and height, pixels.
        released: What was released by the plan, uint8 or uint16, (H, W) or (H, W, C), to draw on; None for a blank
            canvas.
    """
    if path.suffix.lower() != ".png":
        raise DposeError("drawing-suffix-unknown", "is drawn as PNG", str(path), "name it .png")
    if not isinstance(plan, PixelizationPlan | LinearPlan):
        said = "a published algorithm guarantees nothing that could be drawn"
        raise DposeError("paper-guarantees-nothing", said, "explain-picture")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shape = plan.shape
    with rc_context({"font.family": "DejaVu Sans", "font.size": 11, "text.color": INK, "path.simplify": True}):
        figure = Figure((WIDTH, HEIGHT), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        canvas = figure.add_axes((0.02, 0.09, 0.57, 0.80))
        canvas.set(xlim=(0, shape.width), ylim=(shape.height, 0), aspect="equal", xticks=[], yticks=[])
        canvas.set_facecolor(PAPER)
        if released is not None:
            shown = released.reshape(*released.shape[:2], -1) / shape.peak
            shown = shown.repeat(3, 2) if shown.shape[2] == 1 else shown
            canvas.imshow(shown, extent=(0, shape.width, shape.height, 0))
        dot = max(shape.width / (0.57 * WIDTH), shape.height / (0.80 * HEIGHT)) / DPI  # pixels of the picture
        if released is None:
            _draw_blocks(canvas, plan, dot)
        _draw_sizes(canvas, plan, face, dot)
        delta = f", delta {as_given(plan.config.delta)}" if plan.config.delta else ""
        title = f"What this release hides, to scale: epsilon {as_given(plan.config.epsilon)}{delta}"
        figure.text(0.02, 0.94, title, fontsize=16, weight="bold")
        _write_legend(figure.add_axes((0.61, 0.05, 0.38, 0.86)), plan, face, rate)
        drawn = (
            "on the released picture"
            if released is not None
            else "from the picture's size alone; none of its pixels is here"
        )
        what = "frame" if not shape.still else "picture"
        figure.text(0.02, 0.035, f"{what} of {shape.width:,} x {shape.height:,} pixels, drawn {drawn}", color=QUIET)
        data = BytesIO()
        figure.savefig(data, format="png", metadata={"Software": None})
    write_atomic(path, data.getvalue())


def hidden_sides(plan: SoundPlan) -> tuple[float, float]:
    """Width and height of what neighbours may differ in, in one frame: a box, or m pixels as a square that fits."""
    near, shape = plan.config.neighbours.resolved(plan.shape), plan.shape
    if near.box is not None:
        return near.box
    area = min(near.count, shape.pixels)
    side = math.sqrt(area)
    wide = min(max(side, area / shape.height), shape.width)
    return wide, area / wide


def _draw_blocks(axes: Axes, plan: SoundPlan, dot: float) -> None:
    """The cells' edges, where they are far enough apart to be seen."""
    shape = plan.shape
    if isinstance(plan, PixelizationPlan):
        down, across = (np.arange(0, side, plan.blocks.block) for side in (shape.height, shape.width))
    elif (grid := _luma_cells(plan)) is not None:
        down, across = even_edges(shape.height, grid.rows), even_edges(shape.width, grid.columns)
    else:
        return
    if shape.width / len(across) >= 4 * dot:
        axes.vlines(across, 0, shape.height, color=GRID, linewidth=0.4, alpha=0.6)
        axes.hlines(down, 0, shape.width, color=GRID, linewidth=0.4, alpha=0.6)


def _draw_sizes(axes: Axes, plan: SoundPlan, face: tuple[int, int], dot: float) -> None:
    """A person who stands on the left, the face at its top; to the right what is hidden."""
    from matplotlib.patches import Ellipse, FancyBboxPatch, Rectangle
    from matplotlib.patheffects import withStroke

    shape, (fw, fh) = plan.shape, face
    halo, gap = [withStroke(linewidth=5, foreground="white", alpha=0.8)], 14 * dot
    line: dict[str, Any] = {"fill": False, "linewidth": 2.2, "path_effects": halo}
    # at its true size: what does not fit is cut off by the frame, as a camera does it
    wide, tall = PERSON[0] * fw, PERSON[1] * fh
    cut = person_in(shape, face)
    left, top = min(gap, shape.width - cut[0]), shape.height - cut[1]
    middle = left + cut[0] / 2
    body = FancyBboxPatch(
        (middle - 0.36 * wide, top + 1.2 * fh),
        0.72 * wide,
        tall - 1.2 * fh,
        boxstyle=f"round,pad=0,rounding_size={0.22 * wide}",
        edgecolor=PERSON_LINE,
        **line,
    )
    axes.add_patch(body)
    axes.add_patch(Rectangle((left, top), *cut, edgecolor=PERSON_LINE, linestyle=(0, (6, 3)), **line))
    head = middle, top + fh / 2
    axes.add_patch(Rectangle((head[0] - fw / 2, top), fw, fh, edgecolor=FACE_LINE, **line))
    axes.add_patch(Ellipse(head, fw * 0.74, fh * 0.92, edgecolor=FACE_LINE, **line))
    for eye in (-0.15, 0.15):
        axes.add_patch(Ellipse((head[0] + fw * eye, head[1] - fh * 0.06), fw * 0.08, fh * 0.05, color=FACE_LINE))
    axes.add_patch(Rectangle((head[0] - fw * 0.1, head[1] + fh * 0.2), fw * 0.2, fh * 0.025, color=FACE_LINE))
    w, h = hidden_sides(plan)
    x = max(0, min(left + wide + 2 * gap, shape.width - w - gap))
    y = max(0, min(0.4 * shape.height, shape.height - h))
    axes.add_patch(Rectangle((x, y), w, h, color=HIDDEN, alpha=0.9 if w < fw else 0.35, linewidth=0))
    if min(w, h) < VISIBLE * dot:
        _magnify(axes, plan, (x + w / 2, y + h / 2), (w, h))


def _magnify(axes: Axes, plan: SoundPlan, place: tuple[float, float], sides: tuple[float, float]) -> None:
    """The hidden pixels once more, large, among the blocks around them."""
    from matplotlib.patches import Circle, Rectangle

    shape = plan.shape
    block: tuple[float, float] = (max(sides), max(sides))
    if isinstance(plan, PixelizationPlan):
        block = (plan.blocks.block, plan.blocks.block)
    elif (grid := _luma_cells(plan)) is not None:
        block = (shape.width / grid.columns, shape.height / grid.rows)
    reach = 1.5 * max(*block, *sides)
    side = 0.3 * min(shape.width, shape.height)
    edge = 0.03 * min(shape.width, shape.height)
    inset = axes.inset_axes(
        (1 - (side + edge) / shape.width, edge / shape.height, side / shape.width, side / shape.height)
    )
    inset.set(xlim=(0, 2 * reach), ylim=(2 * reach, 0), aspect="equal", xticks=[], yticks=[])
    inset.set_facecolor("white")
    for n in range(1, 1 + math.ceil(2 * reach / min(block))):
        inset.axvline(n * block[0], color=GRID, linewidth=1)
        inset.axhline(n * block[1], color=GRID, linewidth=1)
    inset.add_patch(Rectangle(block, *sides, color=HIDDEN))
    inset.text(0.05, 0.95, "magnified", fontsize=9, color=HIDDEN, va="top", transform=inset.transAxes)
    radius = 0.02 * max(shape.width, shape.height)
    axes.add_patch(Circle(place, radius, fill=False, edgecolor=HIDDEN, linewidth=1.4))
    corner = shape.width - side / 2 - edge, shape.height - side - edge
    arrow = {"arrowstyle": "->", "color": HIDDEN, "linewidth": 1.2, "shrinkA": 10, "shrinkB": 8}
    axes.annotate("", xy=corner, xytext=place, arrowprops=arrow)


def _write_legend(axes: Axes, plan: SoundPlan, face: tuple[int, int], rate: Fraction | None) -> None:
    from matplotlib.patches import Rectangle

    axes.set(xlim=(0, 1), ylim=(1, 0))
    axes.axis("off")
    entries = [(colour, head, textwrap.wrap(text, PER_LINE)) for colour, head, text in legend(plan, face, rate)]
    step = 1 / sum(len(lines) + 1.8 for _, _, lines in entries)
    at, size = step / 2, min(11.0, 0.62 * step * 0.86 * HEIGHT * 72)
    step = min(step, 0.036)
    for colour, head, lines in entries:
        if colour:
            axes.add_patch(Rectangle((0, at - 0.35 * step), 0.03, 0.7 * step, color=colour))
        axes.text(0.05, at, head, weight="bold", va="center", color=colour or INK, fontsize=size)
        for number, line in enumerate(lines, 1):
            axes.text(0.05, at + number * step, line, va="center", fontsize=size)
        at += step * (len(lines) + 1.8)


def legend(plan: SoundPlan, face: tuple[int, int], rate: Fraction | None = None) -> list[tuple[str, str, str]]:
    """What the drawing's parts mean: colour, heading and words of each."""
    shape, still = plan.shape, plan.shape.still
    near, about = plan.config.neighbours.resolved(shape), explain_release(plan, rate, alone=False, face=face)
    entries = [(HIDDEN, f"hidden: epsilon {as_given(plan.config.epsilon)}", near.describe())]
    fw, fh = min(face[0], shape.width), min(face[1], shape.height)
    wide, tall = person_in(shape, face)
    for colour, name, sides, size in (
        (FACE_LINE, "a face", (fw, fh), f"{fw} x {fh} pixels"),
        (PERSON_LINE, "a person", (wide, tall), f"{wide} x {tall} pixels"),
        (QUIET, f"the whole {'picture' if still else 'frame'}", (shape.width, shape.height), ""),
    ):
        cost = box_epsilon(plan, sides, frames=shape.frames)
        words = [size] if size else []
        if not still:
            words.append(f"{upper(box_epsilon(plan, sides))} in one frame")
        if name == "a face" and cost > RECOGNISABLE:
            words.append("epsilon no longer limits recognition of a face")
        entries.append(
            (
                colour,
                f"{name}: epsilon {upper(cost)}{'' if still else f' in all {shape.frames:,} frames'}",
                "; ".join(words),
            )
        )
    noise = [line.removeprefix("noise: ").split("each sum, ")[-1] for line in about if line.startswith("noise")]
    cells = _cells_words(plan)
    entries.append((QUIET, "blocks" if cells else "noise", cells + "; ".join(noise)))
    entries += [("", "over time", line) for line in about if " seen for " in line]
    many = box_epsilon(plan, (fw, fh), frames=shape.frames, times=TIMES)
    together = f"{upper(repeated_epsilon(plan))} for what is hidden, {upper(many)} for a face in each"
    head = f"{TIMES} {'pictures' if still else 'clips'} of one person"
    entries.append(("", head, f"add up: epsilon {together}"))
    odds = "it can raise an attacker's odds e^epsilon times: 1 is 3 times, 5 is 150, 20 is 500 million"
    return [*entries, ("", "what epsilon means", odds)]


def _luma_cells(plan: LinearPlan) -> BlockMeans | None:
    """The grid of the finest cells; None if the values are no cells'."""
    operator = plan.operator.planes[0] if isinstance(plan.operator, ColourPlanes) else plan.operator
    return operator if isinstance(operator, BlockMeans) else None


def _cells_words(plan: SoundPlan) -> str:
    shape = plan.shape
    if isinstance(plan, PixelizationPlan):
        sides = f"{plan.blocks.block} x {plan.blocks.block}"
    elif (grid := _luma_cells(plan)) is not None:
        sides = f"{shape.width / grid.columns:.3g} x {shape.height / grid.rows:.3g}"
    else:
        return ""
    wide = plan.config.chroma or 1
    return f"{sides} pixels{f' (chroma {wide} times as wide)' if wide > 1 else ''}, noise of "
