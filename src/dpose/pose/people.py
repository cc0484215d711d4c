"""People found in a picture; and by any pose model: one in each box, or one who fills the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpose.pose.crops import Box, whole_frame
from dpose.pose.export import run_by_onnx
from dpose.pose.model import PoseModel
from dpose.pose.oks import person_score
from dpose.pose.predict import Pose, predict_frames
from dpose.pose.skeletons import SKELETONS, Skeleton


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


MANY_FRAMES = 5000
"""Of a video with so many ONNX Runtime predicts, where it is installed: below, an export takes longer than it gains."""


@runtime_checkable
class FramesFinder(Protocol):
    """A finder of people that asks nothing of the frame before, and is faster on several frames at once."""

    skeleton: Skeleton

    def frames(
        self,
        images: Sequence[NDArray[np.uint8]],
        boxes: Sequence[Sequence[Box] | None],
        of: int = 0,
    ) -> list[list[FoundPerson]]:
        """The people of each picture, as `dpose.pose.people.PeopleFinder` gives them.

        Args:
            images: Each uint8, (H, W, 3) RGB.
            boxes: The people of each picture, or None where it is for the finder to look everywhere.
            of: How many frames the video has, where it is known: a long one is worth a preparation.
        """


class ModelPeople:
    """Looks for one person in each box by a pose model, or takes the whole picture as one person.

    A person's score is the box's times the mean of the joints' (`dpose.pose.oks.person_score`).

    Attributes:
        model: As it was given.
        skeleton: The model's.

    Args:
        model: On its device; faster as `dpose.pose.predict.for_prediction` makes it.
        flip_test: Average with the mirrored crop: a little better, at twice the cost.
    """

    def __init__(self, model: PoseModel, *, flip_test: bool = False) -> None:
        self.model, self.skeleton = model, SKELETONS[model.config.skeleton]
        self._runs, self._flip_test, self._prepared = model, flip_test, False

    def __call__(
        self,
        image: NDArray[np.uint8],
        boxes: Sequence[Box] | None = None,
        before: Sequence[FoundPerson] | None = None,
    ) -> list[FoundPerson]:
        """The people of a picture (`dpose.pose.people.PeopleFinder`); the frame before makes no difference."""
        return self.frames([image], [boxes])[0]

    def one(self, image: NDArray[np.uint8]) -> FoundPerson:
        """The person that a picture is of, read from all of it."""
        return self(image)[0]

    def frames(
        self,
        images: Sequence[NDArray[np.uint8]],
        boxes: Sequence[Sequence[Box] | None],
        of: int = 0,
    ) -> list[list[FoundPerson]]:
        """The people of several pictures (`FramesFinder`).

        Of a long video ONNX Runtime predicts, where it is installed.
        """
        if of >= MANY_FRAMES and not self._prepared and self.model.mean.device.type == "cpu":
            self._prepared = True
            self._runs = run_by_onnx(self.model, images) or self.model
        corners = [None if found is None else [box.corners for box in found] for found in boxes]
        predicted = predict_frames(self._runs, images, corners, flip_test=self._flip_test)
        people = []
        for image, found, poses in zip(images, boxes, predicted, strict=True):
            size = cast(tuple[int, int], image.shape[:2])
            given = [Box(whole_frame(size).astype(np.float64), 1.0)] if found is None else found
            people.append(
                [
                    FoundPerson(pose, float(person_score([box.score], [pose.scores])[0]), box, box)
                    for pose, box in zip(poses, given, strict=True)
                ]
            )
        return people
