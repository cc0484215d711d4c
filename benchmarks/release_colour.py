"""Released pictures beside their originals: colours taken alike or apart, blocks fixed, chosen, or known afterwards.

    python benchmarks/release_colour.py

PSNR in dB, the mean of four photographs of scikit-image (astronaut, coffee, chelsea, rocket) and of three seeds, for 16
pixels and Laplace noise. Cells are painted as they were released: nothing is restored. The former default was rgb in
blocks of 16. "Hindsight" takes the best of all blocks for each picture by looking at the original: nobody can release
so, and it is what a choice made beforehand is measured against. `auto` expects a restoration, and so takes smaller
blocks than painting asks for ("chosen for painting"). None of these photographs had a part in the prior.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dpose.media.images import read_image
from dpose.privacy.noise import AesNoise, Key
from dpose.release.choosing import SIDES, best_choice, cell_choices, decibels
from dpose.release.config import ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.pixelization import PixelizationPlan

PICTURES = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg")
EPSILONS = ("0.5", "1", "2", "5", "8")
SEEDS = 3


def score(config: ReleaseConfig, picture: np.ndarray) -> float:
    """The mean PSNR of a few releases."""
    plan = PixelizationPlan.of(config, Shape.of(*picture.shape))
    found = []
    for seed in range(SEEDS):
        shown = plan.release(picture, AesNoise(Key.from_seed(seed))).picture()
        found.append(decibels(float(np.mean((shown.astype(float) - picture) ** 2))))
    return float(np.mean(found))


def main() -> None:
    """Print the table."""
    folder = Path(skimage.__file__).parent / "data"
    pictures = [read_image(folder / name) for name in PICTURES]
    names = ("former default", "rgb, hindsight", "ycc, hindsight", "ycc, chosen for painting", "ycc, auto")
    table = Table("epsilon", *names, "auto's blocks", title="PSNR, dB; painted, not restored")
    for epsilon in track(EPSILONS, "releases"):
        rows = []
        blocks = []
        for picture in pictures:
            shape = Shape.of(*picture.shape)
            auto = ReleaseConfig.of(epsilon, 16, "auto", colour=None)
            plan = PixelizationPlan.of(auto, shape)
            painted = best_choice(cell_choices(auto, shape), restored=False)
            block, factor = int(painted.block), painted.factor
            blocks.append(f"{plan.config.block} x{plan.config.chroma}")
            sides = [side for side in SIDES if 6 <= side <= min(shape.height, shape.width)]
            rows.append(
                [
                    score(ReleaseConfig.of(epsilon, 16, 16), picture),
                    max(score(ReleaseConfig.of(epsilon, 16, side), picture) for side in sides),
                    max(
                        score(ReleaseConfig.of(epsilon, 16, side, colour="ycc", chroma=2), picture)
                        for side in sides
                    ),
                    score(ReleaseConfig.of(epsilon, 16, block, colour="ycc", chroma=factor), picture),
                    score(auto, picture),
                ]
            )
        means = np.mean(rows, axis=0)
        table.add_row(epsilon, *(f"{value:.2f}" for value in means), ", ".join(sorted(set(blocks))))
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
