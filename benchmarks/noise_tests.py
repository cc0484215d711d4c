"""What share of archives is refuted that have no noise, or that of four times the epsilon that they claim.

    python benchmarks/noise_tests.py                       # the four photographs of scikit-image
    python benchmarks/noise_tests.py --data synthetic:studio:test --limit 20

Neighbours are 16 pixels. Noise is drawn from seeds: of archives with noise there are `--draws` of each picture. Those
with the noise of four times the epsilon (8 sold as 2) and genuine ones are counted apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpose.errors import DposeError
from dpose.privacy.noise import AesNoise, Key
from dpose.release.config import Pixelization
from dpose.release.grid import Shape
from dpose.release.noise_tests import noise_verdict
from dpose.release.pixelization import PixelizationPlan
from dpose_lab.photos.spec import open_photos

CELLS = ("auto", "8", "16", "32", "64")
EPSILONS = (Fraction(1, 2), Fraction(2), Fraction(8))
TRUTHS = ("none", "4 x", "genuine")
LIGHTER = 4


def plan_of(
    shape: tuple[int, ...], epsilon: Fraction, delta: float, colour: str, block: int | str | None
) -> PixelizationPlan:
    config = Pixelization.of(epsilon, "pixels:16", block, delta=delta, colour=colour, restore="none")
    return PixelizationPlan.of(config, Shape.of(*shape))


def refuted(
    pictures: list[NDArray[np.uint8]], truth: str, draws: int, epsilon: Fraction, *how: *tuple[float, str, int | str]
) -> Iterator[bool]:
    """Whether each archive is refuted: of each picture one without noise, or some with it."""
    for number, picture in enumerate(pictures):
        plan = plan_of(picture.shape, epsilon, *how)
        lighter = plan_of(picture.shape, epsilon * LIGHTER, *how[:2], plan.config.block)
        made = replace(plan, stages=lighter.stages) if truth == "4 x" else plan
        for draw in range(1 if truth == "none" else draws):
            released = made.release(picture, AesNoise(Key.from_seed(draw * len(pictures) + number)))
            if truth == "none":
                released = replace(released, sums=bare(plan, picture))
            try:
                noise_verdict(released, plan.events, "")
                yield False
            except DposeError:
                yield True


def bare(plan: PixelizationPlan, picture: NDArray[np.uint8]) -> dict[str, NDArray[np.int64]]:
    layers, colour = plan.layers, plan.colour
    found = {"luma": layers.cells.apply(picture) @ np.array(colour.luma).T}
    if colour.chroma:
        found["chroma"] = layers.coarse.apply(picture) @ np.array(colour.chroma).T
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="skimage")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    photos = open_photos(options.data, (480, 640)).limit(options.limit)
    pictures = [colours for i in range(len(photos)) if (colours := photos.load(i).colours) is not None]
    ends = [f"{truth}, {float(epsilon):g}" for truth in TRUTHS for epsilon in EPSILONS]
    table = Table("noise", "colour", "block", *ends, title=f"{len(pictures)} pictures, refuted in %")
    for delta, colour, block in ((d, c, b) for d in (0.0, 1e-5) for c in ("ycc", "rgb", "grey") for b in CELLS):
        row = []
        for truth in TRUTHS:
            for epsilon in EPSILONS:
                size = block if block == "auto" else int(block)
                found = list(refuted(pictures, truth, options.draws, epsilon, delta, colour, size))
                row.append(f"{100 * sum(found) / len(found):.0f}")
        table.add_row("Gaussian" if delta else "Laplace", colour, block, *row)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
