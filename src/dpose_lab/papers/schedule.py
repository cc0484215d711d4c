"""Scheduling of cells for runners that run several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from dpose_lab.papers.experiment import Bound, Cell, Outcome
from dpose_lab.papers.experiment_cell import read_cell, unmet


class Schedule:
    """Wanted cells that have no result yet. A cell starts after the one that it needs, unless that failed.

    Args:
        bound: The experiment with its data.
        folder: Folder claimed for the settings.
        progress: Called with the weight of finished work.

    Attributes:
        left: Cells that have not started.
    """

    def __init__(self, bound: Bound, folder: Path, progress: Callable[[int], None]) -> None:
        self.bound, self.folder, self.progress = bound, folder, progress
        self.left: list[Cell] = []
        self._failed: set[str] = set()

    def settled(self) -> Iterator[Outcome]:
        """Yield the outcomes of cells that are not to be run; all others become `left`."""
        for cell in self.bound.cells:
            outcome = read_cell(self.folder, cell)
            if cell.wanted and outcome.status != "done":
                self.left.append(cell)
            else:
                self.progress(cell.weight if cell.wanted else 0)
                yield outcome

    def hopeless(self) -> Iterator[Outcome]:
        """Remove and yield cells whose needed cell has failed; they have failed, too."""
        for cell in [one for one in self.left if one.needs in self._failed]:
            self.left.remove(cell)
            yield self.ended(unmet(cell))

    def ready(self, running: Collection[str] = ()) -> list[Cell]:
        """Cells left that need none of the cells that are left or running."""
        waiting = {cell.key for cell in self.left} | set(running)
        return [cell for cell in self.left if cell.needs not in waiting]

    def ended(self, outcome: Outcome) -> Outcome:
        """Record a cell's outcome, and return it."""
        if outcome.status == "failed":
            self._failed.add(outcome.cell.key)
        self.progress(outcome.cell.weight)
        return outcome
