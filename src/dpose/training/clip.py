"""The clip of per-unit gradients: their bound, the sensitivity of their sum, and the grid that they are summed on.

clip = Clip(0.5)                         # or plan.clip
clip.sensitivity(Relation.REPLACE)       # 1.0: how far the sum moves between neighbours
clip.grid                                # the multiples that contributions are rounded to, with the same bound
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpose.privacy.neighbours import Relation

if TYPE_CHECKING:
    from dpose.training.grid import Grid


@dataclass(frozen=True)
class Clip:
    """How each unit's gradient is bounded before gradients are summed.

    >>> Clip(0.5).bound, Clip(0.5, normalised=True).bound
    (0.5, 1.0)
    >>> Clip(0.5).sensitivity(Relation.ZERO_OUT), Clip(0.5).sensitivity(Relation.REPLACE)
    (0.5, 1.0)

    Attributes:
        norm: The clipping norm C: a longer gradient is scaled down to this L2 norm.
        normalised: Whether clipped gradients are divided by C, so that C does not scale the optimizer's step.
    """

    norm: float
    normalised: bool = False

    @property
    def bound(self) -> float:
        """The L2 norm that one unit's contribution to the sum has at most: `Event.sensitivity`."""
        return 1.0 if self.normalised else self.norm

    def sensitivity(self, relation: Relation) -> float:
        """How far the sum moves between neighbours at most, in L2 norm.

        **Guarantee.** A unit that is zeroed out, added or removed takes its contribution with it, of norm `bound` at
        most. A unit that is replaced takes one and brings another: twice that. Accountants are given `bound`, and
        double it themselves under replacement (docs/proofs/dp-sgd.md).
        """
        return 2 * self.bound if relation is Relation.REPLACE else self.bound

    @property
    def grid(self) -> Grid:
        """The integer grid of the sum: a contribution that is rounded to it has norm `bound` at most, exactly."""
        from dpose.training.grid import Grid  # imports torch, which a plan does without

        return Grid.of(self.bound)
