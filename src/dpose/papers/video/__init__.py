"""Seed 004: Tchangmena A Nken et al., "Video-DPRP", tables 1 to 5.

One kind of cell, a method and a run, serves all tables: train on what the method releases, test on raw and on released
videos, and learn from released frames what a witness would say of the people in them.
"""

from functools import partial

from dpose.papers.experiment import Experiment
from dpose.papers.video.tables import Study

EXPERIMENTS = (
    Experiment(
        "004/table1", "action and privacy beside visual privacy techniques", partial(Study.of, "table1")
    ),
    Experiment("004/table2", "action beside private training", partial(Study.of, "table2")),
    Experiment(
        "004/table3", "action and privacy by dimension k, the paper's algorithm", partial(Study.of, "table3")
    ),
    Experiment(
        "004/table4",
        "action and privacy by budget split b, as printed",
        partial(Study.of, "table4"),
    ),
    Experiment("004/table5", "time of releasing a video", partial(Study.of, "table5")),
)
