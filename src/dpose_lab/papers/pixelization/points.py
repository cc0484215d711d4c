"""Base of the experiments that measure points on photos."""

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
        data: Photos.
        points: Points measured on each photo.
        seed: Seed of the noise, so that a release can be repeated for a figure.
        segmenter: Segmenter; None if nothing is segmented.
        draw: Makes tables and figures from the experiment and its finished cells.
    """

    data: Data
    points: tuple[Point, ...]
    seed: int
    segmenter: Segmenter | None
    draw: Callable[[Any, ShownOutcomes], Findings]

    @property
    def settings(self) -> Values:
        """Settings that the results depend on."""
        return {
            **self.data.to_dict(),
            "seed": self.seed,
            "segmenter": self.segmenter.name if self.segmenter else "",
            "grid": [point.key for point in self.points],
        }

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present tables and figures."""
        return self.draw(self, ShownOutcomes(outcomes))

    def notes(self, name: str) -> tuple[str, ...]:
        """Notes for the reader."""
        who = [f"segmenter: {self.segmenter.name}"] if self.segmenter else []
        return (*self.data.notes(), *who, PAPER_MODE, *printed_of(name).notes(), ORIGINALS)
