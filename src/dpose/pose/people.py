"""People found in a picture: where each one is, how sure that is, and the joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpose.pose.data.detections import Box
from dpose.pose.predict import Pose
from dpose.pose.skeletons import Skeleton


@dataclass(frozen=True)
class FoundPerson:
    """One person in a picture.

    Attributes:
        pose: The joints, in pixels of the picture, in the order of the finder's skeleton.
        score: In [0, 1], how sure it is that a person is there.
        region: The square that the joints were read from; its `turn` brings the person upright.
        following: Where the person is to be looked for in the next frame of a video.
    """

    pose: Pose
    score: float
    region: Box
    following: Box


class PeopleFinder(Protocol):
    """Finds people and their joints in a picture."""

    skeleton: Skeleton

    def __call__(
        self,
        image: NDArray[np.uint8],
        boxes: Sequence[Box] | None = None,
        before: Sequence[FoundPerson] | None = None,
    ) -> list[FoundPerson]:
        """The people of a picture, surest first.

        Args:
            image: uint8, (H, W, 3) RGB.
            boxes: One person is looked for in each of them, and a person is given for each, in their order; everywhere
                where None.
            before: Those who are followed in the video, as they were last found, a few frames ago at most: they are
                looked for where they were. None for a picture, and for the first frame.
        """
