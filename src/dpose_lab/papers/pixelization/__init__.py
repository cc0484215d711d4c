"""Seed 002: Liu, "A Parallel Region-Adaptive Differential Privacy Framework for Image Pixelization".

Figures 1 to 8 and Table V. Every sweep has dpose's mechanism beside the paper's algorithm as printed, at equal claims:
the tables give the true cost of paper mode.
"""

from collections.abc import Callable
from typing import Any

from dpose_lab.papers.experiment import Experiment, Request
from dpose_lab.papers.pixelization.storage import figure_4, figure_8
from dpose_lab.papers.pixelization.sweep import figure_1, figure_5, figure_6
from dpose_lab.papers.pixelization.timing import figure_3, table_5
from dpose_lab.papers.pixelization.visual import figure_2, figure_7


def _experiment(name: str, title: str, bind: Callable[[Request], Any], *more: str) -> Experiment:
    options = ("data", "limit", "seed", "data_public", *more)
    return Experiment(name, title, bind, reads=lambda bound: bound.data.hashes(), options=options)


EXPERIMENTS = (
    _experiment("002/figure1", "fidelity of pixelization by b, m and epsilon", figure_1),
    _experiment("002/figure2", "pictures by b, m and epsilon", figure_2),
    _experiment("002/figure3", "time by block", figure_3),
    _experiment("002/figure4", "storage by block", figure_4),
    _experiment("002/figure5", "fidelity of region-adaptive pixelization by b and n", figure_5, "segmenter"),
    _experiment("002/figure6", "fidelity of region-adaptive pixelization by epsilon", figure_6, "segmenter"),
    _experiment("002/figure7", "region-adaptive pictures, and what is found in them", figure_7, "segmenter"),
    _experiment("002/figure8", "storage by parts of a block", figure_8),
    _experiment("002/table5", "time beside a loop over cells", table_5),
)
