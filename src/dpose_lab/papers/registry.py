"""Every experiment by name. A paper is a module with a tuple `EXPERIMENTS`, and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from dpose_lab.papers import pixelization, pose, quality, utility, video
from dpose_lab.papers.experiment import Experiment

PAPERS = (pose, pixelization, video, quality, utility)
EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment for paper in PAPERS for experiment in paper.EXPERIMENTS
}
