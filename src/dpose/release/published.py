"""Release algorithms of papers, run as printed for comparison. They guarantee nothing, and no algorithm is here.

Each comes from another package, as `dpose_lab` is, through the entry points of the group `dpose.operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.extensions import extensions
from dpose.privacy.noise import NoiseSource
from dpose.privacy.statement import PrivacyStatement
from dpose.release.config import Pixelization, ReleaseConfig
from dpose.release.grid import Shape

if TYPE_CHECKING:
    from dpose.release.mechanism import Released


class PublishedPlan(Protocol):
    """A published algorithm bound to a picture's or clip's shape. Guarantees nothing."""

    @property
    def config(self) -> ReleaseConfig:
        """The configuration; `paper` says which algorithm."""

    @property
    def shape(self) -> Shape:
        """The picture's or clip's sizes."""

    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """The algorithm on a clip, frame by frame.

        Args:
            frames: uint8, (H, W, C), in order.
            source: Where the generators' seeds come from.
            workers: Frames in work at a time, where they can be.
        """

    def statement(self) -> PrivacyStatement:
        """What was claimed, and what does not hold: a statement of kind `paper`."""

    def explained(self) -> list[str]:
        """What will be done and what does not hold, before a pixel is looked at: lines of text."""


@runtime_checkable
class PublishedPicturePlan(PublishedPlan, Protocol):
    """A published algorithm that releases each picture, or frame of a clip, by itself."""

    @property
    def frames(self) -> int | None:
        """Number of frames; None for a picture."""

    def release(self, picture: NDArray[np.uint8], source: NoiseSource, frame: int = 0) -> Released:
        """The algorithm on one picture."""


def published_plan(config: ReleaseConfig, shape: Shape) -> PublishedPlan:
    """The plan of the published algorithm that a config asks for.

    Args:
        config: A configuration that names a published algorithm.
        shape: The picture's or clip's sizes.
    """
    kind = "pictures" if isinstance(config, Pixelization) else "videos"
    for module in extensions("operators"):
        if kind in module.PUBLISHED:
            plan: PublishedPlan = module.PUBLISHED[kind](config, shape)
            return plan
    raise DposeError(
        "published-algorithm-missing",
        "published algorithms are not installed",
        "paper",
        "install dpose with dpose_lab, which has them",
    )
