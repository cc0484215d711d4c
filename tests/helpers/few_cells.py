"""A small experiment, with some of its cells."""

from dataclasses import dataclass

import cv2
import numpy as np

from dpose_lab.papers.experiment import Request
from dpose_lab.papers.experiment_cell import claim_folder
from dpose_lab.papers.registry import EXPERIMENTS

NAME = "002/figure1"


@dataclass
class Some:
    """An experiment with some of its cells."""

    whole: object
    cells: list

    def run(self, cell, progress):
        return self.whole.run(cell, progress)


def few_cells(tmp_path):
    """A request, the experiment bound to it, and the folder that its results have claimed."""
    (tmp_path / "seq" / "img1").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for frame in (1, 2):
        picture = rng.integers(0, 256, (20, 40)).astype(np.uint8)
        cv2.imwrite(str(tmp_path / "seq" / "img1" / f"{frame:06d}.png"), picture)
    request = Request(data=(f"mot:{tmp_path / 'seq'}",), limit=1, processes=2)
    whole = EXPERIMENTS[NAME].bind(request)
    claim_folder(tmp_path / "out", whole.settings)
    return request, whole, tmp_path / "out"
