"""How close released pictures come to their originals: today's blocks, and luma and chroma restored, by epsilon.

    python benchmarks/restoration.py               # astronaut, coffee, chelsea, rocket; m = 16; one table
    python benchmarks/restoration.py --invents     # how much of what is shown is not there, by size of detail
    python benchmarks/restoration.py --speed       # frames a second at 640x480 on one core, by block

Neither the restoration nor the prior by which cells are chosen has seen these photographs. Blocks are chosen with
hindsight in every column, for all pictures together (`oracle`: for each picture). Noise is what the mechanism draws:
Laplace of scale 255 * 3 * m / epsilon on sums of R, G and B; of scale 1020 m / epsilon on sums of Y4, and twice that on
sums of Co and Cg2.
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
from dpose.release.restoration import restore
from dpose.release.restoration.grid import FROM_RGB

EPSILONS = (0.5, 1.0, 2.0, 5.0, 8.0)
PICTURES = ("astronaut", "coffee", "chelsea", "rocket")
BLOCKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64)
FACTORS = (1, 2, 4)
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
        scales, blocks = (
            (scale, 8 * scale, 4 * scale),
            (how.block, how.block * how.factor, how.block * how.factor),
        )
    planes = []
    for channel, (noise, block) in enumerate(zip(scales, blocks, strict=True)):
        total, area = sums(wide[:, :, channel], block)
        levels = (total + rng.laplace(0, noise, total.shape)) / area
        planes.append(Plane(levels.astype(np.float32), (2**0.5 * noise / area).astype(np.float32), block))
    return Observed(tuple(planes), how.colour, *picture.shape[:2])


def error(picture: NDArray[np.uint8], shown: NDArray[np.uint8]) -> float:
    """PSNR, decibels."""
    return float(20 * np.log10(255 / np.sqrt(np.mean((picture.astype(np.float64) - shown) ** 2))))


def measure(
    pictures: list[NDArray[np.uint8]], ways: list[Cell], epsilon: float, draws: int
) -> NDArray[np.float64]:
    """Mean PSNR over draws, (ways, pictures)."""
    found = np.zeros((len(ways), len(pictures)))
    for row, how in enumerate(ways):
        for column, picture in enumerate(pictures):
            for draw in range(draws):
                seen = observe(
                    picture, how, epsilon, np.random.default_rng([draw, column, how.block, how.factor])
                )
                found[row, column] += error(picture, restore(seen, how.method)) / draws
    return found


def fits(how: Cell, epsilon: float) -> bool:
    """Whether a way is worth trying: noise of luma between 3 and 400 gray levels."""
    deviation = 2**0.5 * (765 if how.colour == "rgb" else 255) * M / epsilon / how.block**2
    return 3 < deviation < 400


def table(draws: int, factors: tuple[int, ...], console: Console) -> None:
    """PSNR by epsilon."""
    pictures = [np.asarray(getattr(skimage.data, name)())[..., :3] for name in PICTURES]
    shown = Table(title=f"PSNR, dB, mean of {', '.join(PICTURES)}; m = {M}, {draws} draws")
    columns = (
        "epsilon",
        "rgb 16",
        "rgb best",
        "oracle",
        "ycc tv",
        "ycc learned",
        "gain",
        "over rgb 16",
        "by picture",
    )
    for column in columns:
        shown.add_column(column, justify="right")
    for epsilon in EPSILONS:
        best = {}
        for name, colour, method in (
            ("rgb", "rgb", "none"),
            ("tv", "ycc", "tv"),
            ("learned", "ycc", "learned"),
        ):
            ways = [
                Cell(colour, block, factor, method)
                for block in BLOCKS
                for factor in ((1,) if colour == "rgb" else factors)
            ]
            ways = [how for how in ways if fits(how, epsilon)]
            found = measure(pictures, ways, epsilon, draws)
            top = int(found.mean(1).argmax())
            best[name] = (ways[top], found[top], found.max(0))
            if method == "learned":
                near = sorted(zip(found.mean(1), ways, strict=True), key=lambda pair: -pair[0])[:6]
                console.print(
                    f"  epsilon {epsilon:g}: " + ", ".join(f"{w.block}x{w.factor} {v:.2f}" for v, w in near)
                )
        default = measure(pictures, [Cell("rgb", 16, 1, "none")], epsilon, draws)[0].mean()

        told = {
            name: f"{values.mean():.2f} ({how.block}{f' x {how.factor}' if how.colour == 'ycc' else ''})"
            for name, (how, values, _) in best.items()
        }
        rgb, learned = best["rgb"][1], best["learned"][1]
        shown.add_row(
            f"{epsilon:g}",
            f"{default:.2f}",
            told["rgb"],
            f"{best['rgb'][2].mean():.2f}",
            told["tv"],
            told["learned"],
            f"{learned.mean() - rgb.mean():+.2f}",
            f"{learned.mean() - default:+.2f}",
            " ".join(f"{v:+.1f}" for v in learned - rgb),
        )
    console.print(shown)


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
            for column, picture in enumerate(pictures):
                for draw in range(draws):
                    rng = np.random.default_rng([draw, column])
                    seen = observe(picture, Cell("ycc", block, 4, method), epsilon, rng)
                    powers += agreement(picture @ FROM_RGB[0], restore(seen, method) @ FROM_RGB[0], block)
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
            restore(seen, "learned", around, around)
            times = []
            for _ in range(5):
                began = time.process_time()
                restore(seen, "learned", around, around)
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
    options.add_argument("--factors", type=int, nargs="+", default=list(FACTORS))
    given = options.parse_args()
    cv2.setNumThreads(1)
    console = Console(width=160)
    if given.speed:
        speed(console)
    elif given.invents:
        invents(given.draws, console)
    else:
        table(given.draws, tuple(given.factors), console)


if __name__ == "__main__":
    main()
