"""What a restoration invents, and what it costs. How close it comes is `dpose reproduce release-quality`.

    python benchmarks/restoration.py --invents     # how much of what is shown is not there, by size of detail
    python benchmarks/restoration.py --speed       # frames a second at 640x480 on one core, by block

The restoration has not seen these photographs (astronaut, coffee, chelsea, rocket; m = 16). Noise is what the mechanism
draws: Laplace of scale 255 * 3 * m / epsilon on sums of R, G and B; of scale 1020 m / epsilon on sums of Y4, and twice
that on sums of Co and Cg2.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import skimage.data
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpose.release.planes import Observed, Plane
from dpose.release.restoration import FROM_RGB, Restoration

PICTURES = ("astronaut", "coffee", "chelsea", "rocket")
M = 16


@dataclass(frozen=True)
class Cell:
    """One way to release: colour, block, how much wider colour's cells are, and the restoration."""

    colour: str
    block: int
    factor: int
    method: str


def sums(values: NDArray[Any], block: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums and areas of a plane's cells."""
    rows, columns = (np.arange(0, length, block) for length in values.shape)
    found = np.add.reduceat(np.add.reduceat(values.astype(np.float64), rows, 0), columns, 1)
    ones = np.add.reduceat(np.add.reduceat(np.ones(values.shape), rows, 0), columns, 1)
    return found, ones


def observe(picture: NDArray[np.uint8], how: Cell, epsilon: float, rng: np.random.Generator) -> Observed:
    """A release of a picture, by the mechanism's law."""
    wide = picture.astype(np.float64)
    scale = (765 if how.colour == "rgb" else 255) * M / epsilon
    scales, blocks = (scale,) * 3, (how.block,) * 3
    if how.colour == "ycc":
        wide = wide @ FROM_RGB.T
        # noise of Co and Cg2 = 2 Cg is twice that of Y4 = 4 Y
        scales, blocks = ((scale, 8 * scale, 4 * scale), (how.block, how.block * how.factor, how.block * how.factor))
    planes = []
    for channel, (noise, block) in enumerate(zip(scales, blocks, strict=True)):
        total, area = sums(wide[:, :, channel], block)
        levels = (total + rng.laplace(0, noise, total.shape)) / area
        planes.append(Plane(levels.astype(np.float32), (2**0.5 * noise / area).astype(np.float32), block))
    return Observed(tuple(planes), how.colour, *picture.shape[:2])


BANDS = ((8.0, 1e9), (4.0, 8.0), (2.0, 4.0), (0.0, 2.0))
"""Wavelengths, in luma's blocks. Cells cannot tell what is shorter than two."""
WAYS = ((0.5, 24), (1.0, 20), (1.0, 6), (2.0, 12), (5.0, 8), (8.0, 7), (8.0, 2))
"""Epsilon and luma's block for `invents`; colour's cells are four times as wide. Some blocks are far too small."""


def invents(draws: int, console: Console) -> None:
    """What is shown of luma, over what is there, by size of detail; and the share of it that is not there.

    Of a mean over all that may have been, the part that does not agree with the original is nothing on average: <shown,
    original> = <shown, shown>. Invented is 1 - <shown, original> / <shown, shown>.
    """
    shown = Table(title="contrast shown / invented share, by wavelength in blocks")
    for column in ("epsilon", "block", "restoration", "over 8", "4 to 8", "2 to 4", "below 2"):
        shown.add_column(column, justify="right")
    pictures = [np.asarray(getattr(skimage.data, name)())[..., :3] for name in PICTURES]
    for epsilon, block in WAYS:
        for method in ("none", "tv", "learned"):
            powers = np.zeros((len(BANDS), 3))
            for number, picture in enumerate(pictures):
                for draw in range(draws):
                    rng = np.random.default_rng([draw, number])
                    seen = observe(picture, Cell("ycc", block, 4, method), epsilon, rng)
                    powers += agreement(picture @ FROM_RGB[0], Restoration(method).apply(seen) @ FROM_RGB[0], block)
            told = [f"{(a / b) ** 0.5:.2f} / {max(0, 1 - ab / a):.2f}" for a, b, ab in powers]
            shown.add_row(f"{epsilon:g}", str(block), method, *told)
    console.print(shown)


def agreement(truth: NDArray[Any], shown: NDArray[Any], block: int) -> NDArray[np.float64]:
    """<shown, shown>, <truth, truth> and <shown, truth> in each of `BANDS`."""
    window = np.outer(*(np.hanning(n) for n in truth.shape))
    one, other = (np.fft.fft2((values - values.mean()) * window) for values in (shown, truth))
    rows, columns = (np.fft.fftfreq(n) for n in truth.shape)
    waves = 1 / np.maximum(np.hypot(rows[:, None], columns), 1e-12) / block
    found = []
    for low, high in BANDS:
        inside = (waves > low) & (waves <= high)
        a, b = one[inside], other[inside]
        found.append([np.sum(np.abs(a) ** 2), np.sum(np.abs(b) ** 2), np.sum((a * b.conj()).real)])
    return np.array(found)


def speed(console: Console) -> None:
    """Frames a second of the learned restoration."""
    shown = Table(title="learned restoration of 640x480, one core")
    for column in ("block", "ms", "frames a second", "ms with the frames before and after"):
        shown.add_column(column, justify="right")
    picture = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    for block in (1, 2, 3, 4, 6, 8, 16, 32):
        seen = observe(picture, Cell("ycc", block, 2, "learned"), 2.0, np.random.default_rng(1))
        taken = []
        for around in (None, seen):
            Restoration("learned").apply(seen, around, around)
            times = []
            for _ in range(5):
                began = time.process_time()
                Restoration("learned").apply(seen, around, around)
                times.append(time.process_time() - began)
            taken.append(float(np.median(times)))
        shown.add_row(str(block), f"{taken[0] * 1e3:.0f}", f"{1 / taken[0]:.1f}", f"{taken[1] * 1e3:.0f}")
    console.print(shown)


def main() -> None:
    """Print one table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--speed", action="store_true")
    options.add_argument("--invents", action="store_true")
    options.add_argument("--draws", type=int, default=2)
    given = options.parse_args()
    cv2.setNumThreads(1)
    console = Console(width=160)
    if given.speed:
        speed(console)
    if given.invents:
        invents(given.draws, console)
    if not (given.speed or given.invents):
        options.print_help()


if __name__ == "__main__":
    main()
