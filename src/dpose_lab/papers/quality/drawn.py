"""The figures of `release-quality`: curves, and one picture at every budget and in every way."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from dpose.release.choosing import decibels
from dpose.report.inline import LIGHT, SERIES
from dpose.report.plots import INK, Curve, sheet
from dpose.report.results import Figure
from dpose_lab import plots as drawing
from dpose_lab.papers.pixelization.measure import mse
from dpose_lab.papers.quality.measure import EPSILONS, WAYS, shown_picture
from dpose_lab.photos.photo import Photo

ROWS = ("former default\nrgb, blocks of 16", "best rgb block\nwith hindsight", "restored, tv", "restored, learned")
SIDE = (
    "The same budget in each\ncolumn. Epsilon is for any\n16 pixels: larger things\nkeep more of it, a face of\n"
    "100 x 100 pixels 1,250 at\nepsilon 2. These pictures\nhide small details, not\npersons."
)


def psnr_curves(sets: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Draw PSNR by epsilon, a panel per set of pictures and a line per way."""
    figure, axes = sheet(1, len(sets), "released beside the original", 4.2, 3.2)
    for panel, (title, curves) in zip(axes[0], sets.items(), strict=True):
        for way, colour, style in zip(WAYS, SERIES, ("--", "--", "-", "-"), strict=False):
            drawing.line(panel, curves[way], WAYS[way], LIGHT[colour], style)
        ticks = [float(epsilon) for epsilon in EPSILONS]
        drawing.finish(panel, "epsilon, any 16 pixels", "PSNR, dB", ticks=ticks, log_x=True, legend=True)
        panel.set_title(title, fontsize=9)
    return drawing.rendered("psnr", figure, "mean PSNR by epsilon, dashed what is painted, whole lines restored")


def five_budgets(photo: Photo, blocks: Mapping[tuple[str, str], int], seed: int) -> Canvas:
    """Draw the original, and a release for each way (rows) and epsilon (columns) with its PSNR.

    Args:
        photo: Photo with colours.
        blocks: Sides of rgb's cells, by way and epsilon.
        seed: Seed of the noise; the first draw is shown.
    """
    assert photo.colours is not None
    figure, axes = sheet(len(WAYS), 1 + len(EPSILONS), "", 1.62, 1.56)
    for panel in axes.flat:
        _bare(panel)
    axes[0, 0].imshow(photo.colours)
    axes[0, 0].set_title("original", fontsize=12, color=INK)
    for row, (way, name) in enumerate(zip(WAYS, ROWS, strict=True)):
        axes[row, 1].set_ylabel(name, fontsize=11, color=INK)
        for panel, epsilon in zip(axes[row, 1:], EPSILONS, strict=True):
            shown = shown_picture(way, epsilon, blocks[way, epsilon], photo.name, photo.colours, seed)
            panel.imshow(shown)
            panel.set_xlabel(f"{decibels(mse(photo.colours, shown)):.1f} dB", fontsize=11, labelpad=2)
            if not row:
                panel.set_title(f"epsilon {epsilon}", fontsize=12, color=INK)
    side = axes[1, 0]
    side.text(0, 1, SIDE, transform=side.transAxes, va="top", fontsize=9, linespacing=1.5)
    return figure


def _bare(panel: Axes) -> None:
    panel.set_xticks([])
    panel.set_yticks([])
    panel.grid(False)
    panel.spines[:].set_visible(False)
