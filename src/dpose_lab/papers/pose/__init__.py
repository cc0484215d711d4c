"""Seeds 000 and 003: Sivangi et al., "Differentially Private 2D Human Pose Estimation"; and benchmarks like them.

One kind of cell, a training that is tested, serves every table and figure.
"""

from functools import partial

from dpose_lab.papers.experiment import Experiment
from dpose_lab.papers.pose.catalogue import DESIGNS
from dpose_lab.papers.pose.grid import TrainingGrid, cell_line

EXPERIMENTS = tuple(
    Experiment(
        design.name,
        design.title,
        partial(TrainingGrid.of, design),
        cell_line,
        options=("data", "limit", "seed", "grid", "processes", "engine", "partition", "slurm"),
    )
    for design in DESIGNS
)
