"""Quality of released pictures and films: the former default, the best of its kind, and the gain by restoration."""

from dpose_lab.papers.experiment import Experiment
from dpose_lab.papers.quality.study import quality_study

EXPERIMENTS = (
    Experiment(
        "release-quality",
        "PSNR, SSIM and MSE of released pictures by epsilon, restored and painted",
        quality_study,
        reads=lambda bound: bound.data.hashes(),
    ),
)
