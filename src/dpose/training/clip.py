"""What bounds each unit's gradient before the sum, and how far one unit can then move the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpose.privacy.neighbours import Relation

if TYPE_CHECKING:
    from dpose.training.grad_sample import Params
    from dpose.training.grid import Grid


@dataclass(frozen=True)
class Clip:
    """The bound of one unit's gradient, the sensitivity of the sum, and the grid of the sum.

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

        **Guarantee.** A unit that is zeroed out, added or removed takes its contribution with it: `bound`. One that is
        replaced also brings another: twice that. Accountants double it themselves (docs/proofs/dp-sgd.md).
        """
        return 2 * self.bound if relation is Relation.REPLACE else self.bound

    @property
    def grid(self) -> Grid:
        """The integer grid of the sum: a contribution that is rounded to it has norm `bound` at most, exactly."""
        from dpose.training.grid import Grid  # imports torch, which a plan does without

        return Grid.of(self.bound)


class PreClipping(Protocol):
    """A linear map of per-unit gradients before the clip, and its way back (`dpose.training.preclipping`)."""

    def each(self, gradients: Params) -> Params:
        """Of each unit's gradient (U, *parameter shape) the transformed one, (U, ...); of each unit alone."""

    def like(self, params: Params) -> Params:
        """Tensors of the shapes of one transformed gradient."""

    def back(self, noised: Params) -> Params:
        """From a noised transformed gradient to one of the parameters. Post-processing."""
