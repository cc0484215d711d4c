"""How wide chroma's cells should be where the learned restoration shows them, on pictures that nothing is evaluated on.

    python benchmarks/chroma_cells.py --lspet ../shared/data/lspet     # 30 of LSPET's last 60 public pictures, seeded

`dpose.release.pixelization.GUIDED` was settled by this once. Each width takes its best block by the public prior.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dpose.pose.data import open_data
from dpose.privacy.noise import AesNoise, Key
from dpose.release.choosing import best_choice
from dpose.release.colour import FACTORS
from dpose.release.config import Pixelization
from dpose.release.grid import Shape
from dpose.release.pixelization import PixelizationPlan, cell_choices

HELD_OUT = 60
"""Of the public pictures: what the restoration was validated on and did not learn from."""


def main(lspet: Annotated[Path, typer.Option()] = Path("../shared/data/lspet")) -> None:
    """Print mean PSNR in decibels by epsilon and width."""
    public = open_data(f"lspet:{lspet}:public").pictures[-HELD_OUT::2]
    pictures = [picture.read()[0] for picture in public]
    widths = ", ".join(f"x{factor}" for factor in FACTORS)
    print(f"{len(pictures)} pictures, any 16 pixels; PSNR in dB for chroma {widths}")
    for epsilon in ("0.5", "1", "2", "5", "8"):
        means = [np.mean([psnr(k, image, epsilon, f) for k, image in enumerate(pictures)]) for f in FACTORS]
        print(f"epsilon {epsilon:>3}: " + "  ".join(f"{mean:.2f}" for mean in means), flush=True)


def psnr(seed: int, image: np.ndarray, epsilon: str, factor: int) -> float:
    """Of one release."""
    shape = Shape.of(*image.shape)
    asked = Pixelization.of(epsilon, 16, colour="ycc", chroma=factor)
    block = int(best_choice(cell_choices(asked, shape)).block)
    settled = Pixelization.of(epsilon, 16, block, colour="ycc", chroma=factor)
    shown = PixelizationPlan.of(settled, shape).release(image, AesNoise(Key.from_seed(seed))).picture()
    return float(10 * np.log10(255**2 / np.mean((shown.astype(float) - image) ** 2)))


if __name__ == "__main__":
    typer.run(main)
