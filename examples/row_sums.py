"""A release operator of one's own: sums along the rows of a picture, released, saved and verified.

    python examples/row_sums.py picture.png

One class says what is kept of a picture, how it is put back, and how much of it a neighbouring picture can change. One
line registers it. Noise, accounting, statement, file and `verify` are dpose's. Whoever is to verify the file needs the
class too: verification computes the sensitivity from it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpose.privacy.neighbours import ONE_FRAME, Neighbours
from dpose.release.grid import Shape
from dpose.release.operators import GridOperator, Sensitivity, Values, register_operator


@dataclass(frozen=True)
class RowSums(GridOperator):
    """The sum of each row of pixels, for every channel; a group of frames is added up first.

    A row of a group is a cell: every pixel lies in one, so a pixel moves one sum a channel by at most 255.
    """

    shape: Shape
    groups: int
    columns: int = 1

    @property
    def rows(self) -> int:
        """As many as the picture has."""
        return self.shape.height

    def apply(self, total: Values, frames: int) -> Values:
        """int64, (rows * C,)."""
        return total.sum(axis=1, dtype=np.int64).reshape(-1)

    def adjoint(self, values: Values, frames: int) -> Values:
        """Every pixel takes its row's value, (H, W, C)."""
        return values.reshape(self.shape.height, 1, self.shape.channels).repeat(self.shape.width, 1)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """M pixels, of every frame under scope "frame", move the sums by 255 m C in L1 norm, and at worst all one sum.

        No row of no group can change by more than all its pixels do, but that is not counted: a bound may be larger.
        """
        many = self.shape.frames if neighbours.scope == "frame" else 1
        assert neighbours.scope in ("clip", "frame", ONE_FRAME)
        moved = 255 * neighbours.count * many
        return Sensitivity(Fraction(moved * self.shape.channels), Fraction(moved**2 * self.shape.channels))


def register() -> None:
    """Make the operator known under its name."""
    register_operator("row-sums", lambda shape, *grid: RowSums(shape, grid[2]), "the mean of each row")


def main(path: str) -> None:
    """Release a picture into private.png beside where this runs, and verify it."""
    from pathlib import Path

    from dpose.media.images import read_pixels
    from dpose.release.api import release_array
    from dpose.release.config import Projection
    from dpose.release.verify import verify_release

    config = Projection.of(epsilon=1, delta=0, neighbours="pixels:16", operator="row-sums")
    release = release_array(read_pixels(path), config)
    release.save("private.png")
    print(release.statement.paragraph())
    print(verify_release(Path("private.png"))[1])


if __name__ == "__main__":
    register()
    main(sys.argv[1])
