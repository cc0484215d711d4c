"""Seed 004: Tchangmena A Nken et al., "Video-DPRP", tables 1 to 5.

One kind of cell, a method and a run, serves all tables: train on what the method releases, test on raw and on released
videos, and learn from released frames what a witness would say of the people in them.
"""

from functools import partial

from dpose_lab.papers.experiment import Experiment
from dpose_lab.papers.video import actions
from dpose_lab.papers.video.tables import Study

TITLES = {
    "table1": "action and privacy beside visual privacy techniques",
    "table2": "action beside private training",
    "table3": "action and privacy by dimension k, the paper's algorithm",
    "table4": "action and privacy by budget split b, as printed",
    "table5": "time of releasing a video",
}
EXPERIMENTS = (
    tuple(
        Experiment(
            f"004/{table}",
            title,
            partial(Study.of, table),
            reads=Study.hashes,
            options=("data", "limit", "seed", "data_public", "quick", "external"),
        )
        for table, title in TITLES.items()
    )
    + actions.EXPERIMENTS
)
