"""Utility of releases: a pose model tested on released pictures and clips, and trained on released pictures."""

from dpose_lab.papers.experiment import Experiment
from dpose_lab.papers.utility.study import Utility

EXPERIMENTS = (
    Experiment(
        "release-utility",
        "what a pose model finds in released pictures and clips, and what it learns from them",
        Utility.of,
        reads=Utility.hashes,
        options=("data", "limit", "seed", "data_public", "quick"),
    ),
)
