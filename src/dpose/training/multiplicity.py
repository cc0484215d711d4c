"""Augmentation multiplicity: several augmented copies of a unit's views in one gradient (De et al. 2022).

The unit's gradient is the mean over all of them and is clipped once, so copies cost time and no noise.
"""

from __future__ import annotations

import numpy as np

from dpose.errors import DposeError
from dpose.units import MAX_VIEWS, UnitDataset, View


class Copies:
    """The units of `dataset`, each with `count` augmented copies of its views.

    Of a unit with more than `MAX_VIEWS` of them the loader takes a random `MAX_VIEWS`.

    Args:
        dataset: Augments what it loads.
        count: Copies, 1 to `MAX_VIEWS`.

    Raises:
        DposeError: `count` is out of range.
    """

    def __init__(self, dataset: UnitDataset, count: int) -> None:
        if not 1 <= count <= MAX_VIEWS:
            raise DposeError(f"a unit has 1 to {MAX_VIEWS} augmented copies, not {count}")
        self.dataset, self.count = dataset, count

    @property
    def unit(self) -> str:
        """The dataset's."""
        return self.dataset.unit

    def __len__(self) -> int:
        return len(self.dataset)

    def unit_id(self, index: int) -> str:
        """The unit's own."""
        return self.dataset.unit_id(index)

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """The unit's own."""
        return self.dataset.content_hashes(index)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """`count` loads of the unit, one after the other."""
        return [view for _ in range(self.count) for view in self.dataset.load(index, rng)]
