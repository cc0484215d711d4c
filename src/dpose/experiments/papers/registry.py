"""Every experiment by name. A paper is a module with a tuple `EXPERIMENTS`, and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from dpose.experiments.papers import pixelization, pose, videos
from dpose.experiments.papers.experiment import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment for paper in (pose, pixelization, videos) for experiment in paper.EXPERIMENTS
}
