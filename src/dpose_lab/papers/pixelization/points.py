"""What an experiment of points on photos is made of, however its cells are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpose_lab.papers.experiment import Findings, Outcome, Values
from dpose_lab.papers.pixelization.data import ORIGINALS, PAPER_MODE, Data, ShownOutcomes, printed_of
from dpose_lab.papers.pixelization.measure import Point
from dpose_lab.papers.pixelization.segmenting import Segmenter


@dataclass(frozen=True)
class PointsOnPhotos:
    """Points measured on photos.

    Attributes:
        data: The photos.
        points: What is measured on each of them.
        seed: Of the noise: a release can be made again for a figure.
        segmenter: None where nothing is segmented.
        draw: Makes tables and figures, from the experiment and what is done of it.
    """

    data: Data
    points: tuple[Point, ...]
    seed: int
    segmenter: Segmenter | None
    draw: Callable[[Any, ShownOutcomes], Findings]

    @property
    def settings(self) -> Values:
        """All that the results depend on."""
        return {
            **self.data.to_dict(),
            "seed": self.seed,
            "segmenter": self.segmenter.name if self.segmenter else "",
            "grid": [point.key for point in self.points],
        }

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Tables and figures."""
        return self.draw(self, ShownOutcomes(outcomes))

    def notes(self, name: str) -> tuple[str, ...]:
        """What the reader must know."""
        who = [f"segmenter: {self.segmenter.name}"] if self.segmenter else []
        return (*self.data.notes(), *who, PAPER_MODE, *printed_of(name).notes(), ORIGINALS)
