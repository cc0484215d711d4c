"""Which cells are still to be run, and which of them may begin: for whatever runs several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from dpose_lab.papers.experiment import Bound, Cell, Outcome
from dpose_lab.papers.experiment_cell import read_cell, unmet


class Schedule:
    """Cells that are wanted and have no result yet. A cell begins after the one that it needs, and not if that failed.

    Args:
        bound: The experiment.
        folder: Claimed for its settings.
        progress: Called with the weight of what was done since.

    Attributes:
        left: Cells that have not begun.
    """

    def __init__(self, bound: Bound, folder: Path, progress: Callable[[int], None]) -> None:
        self.bound, self.folder, self.progress = bound, folder, progress
        self.left: list[Cell] = []
        self._failed: set[str] = set()

    def settled(self) -> Iterator[Outcome]:
        """The cells that are not to be run; all others are left from then on."""
        for cell in self.bound.cells:
            found = read_cell(self.folder, cell)
            if cell.wanted and found.status != "done":
                self.left.append(cell)
            else:
                self.progress(cell.weight if cell.wanted else 0)
                yield found

    def hopeless(self) -> Iterator[Outcome]:
        """The cells left whose needed cell has failed; they have failed, too."""
        for cell in [one for one in self.left if one.needs in self._failed]:
            self.left.remove(cell)
            yield self.ended(unmet(cell))

    def ready(self, running: Collection[str] = ()) -> list[Cell]:
        """The cells left that need none of those that are left or running."""
        waiting = {cell.key for cell in self.left} | set(running)
        return [cell for cell in self.left if cell.needs not in waiting]

    def ended(self, outcome: Outcome) -> Outcome:
        """Note how a cell ended; `outcome` itself."""
        if outcome.status == "failed":
            self._failed.add(outcome.cell.key)
        self.progress(outcome.cell.weight)
        return outcome
