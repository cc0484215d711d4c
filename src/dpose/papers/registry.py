"""Every experiment by name. A paper is a module with a tuple `EXPERIMENTS`, and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from dpose.papers import pixelization, pose, quality, video
from dpose.papers.experiment import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for paper in (pose, pixelization, video, quality)
    for experiment in paper.EXPERIMENTS
}
