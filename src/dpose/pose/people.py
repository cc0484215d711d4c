"""People found in a picture, by any pose model in each given box or in the whole picture; and hiding their faces.

Hiding faces gives no guarantee: a person who was not found keeps the face, and much besides a face identifies a person.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.pose.crops import Box, whole_frame
from dpose.pose.export import run_by_onnx
from dpose.pose.metrics import person_score
from dpose.pose.model import PoseModel
from dpose.pose.predict import Pose, predict_frames
from dpose.pose.skeletons import SKELETONS, Skeleton


@dataclass(frozen=True)
class FoundPerson:
    """One person in a picture.

    Attributes:
        pose: The joints, in pixels of the picture, in the order of the finder's skeleton.
        score: In [0, 1], the confidence that a person is there.
        region: The square that the joints were read from; its `turn` brings the person upright.
        following: Region in which to look for the person in the next frame of a video.
    """

    pose: Pose
    score: float
    region: Box
    following: Box


class PeopleFinder(Protocol):
    """Finds people and their joints in a picture."""

    skeleton: Skeleton

    def __call__(
        self, image: NDArray[np.uint8], boxes: Sequence[Box] | None = None, before: Sequence[FoundPerson] | None = None
    ) -> list[FoundPerson]:
        """Return the people of a picture, best score first.

        Args:
            image: uint8, (H, W, 3) RGB.
            boxes: One person is looked for in each of them, and one is returned for each, in their order; None searches
                the whole picture.
            before: People followed in the video, as last found, a few frames ago at most: they are looked for where
                they were. None for a picture, and for the first frame.
        """


MANY_FRAMES = 5000
"""Length of a video from which ONNX Runtime predicts, if installed: below, an export takes longer than it gains."""


@runtime_checkable
class FramesFinder(Protocol):
    """A finder of people that does not depend on the frame before, and is faster on several frames at once."""

    skeleton: Skeleton

    def frames(
        self, images: Sequence[NDArray[np.uint8]], boxes: Sequence[Sequence[Box] | None], of: int = 0
    ) -> list[list[FoundPerson]]:
        """Return the people of each picture, as `PeopleFinder` does.

        Args:
            images: Each uint8, (H, W, 3) RGB.
            boxes: The people of each picture, or None to search it.
            of: Number of frames of the video, if known: a long one is worth a preparation.
        """


class ModelPeople:
    """Looks for one person in each box by a pose model, or takes the whole picture as one person.

    A person's score is the box's times the mean of the joints' (`dpose.pose.metrics.person_score`). The model is faster
    after `dpose.pose.predict.for_prediction`; `flip_test` averages with the mirrored crop: a little better, at twice
    the cost.
    """

    def __init__(self, model: PoseModel, *, flip_test: bool = False) -> None:
        self.model, self.skeleton = model, SKELETONS[model.config.skeleton]
        self._runs, self._flip_test, self._prepared = model, flip_test, False

    def __call__(
        self, image: NDArray[np.uint8], boxes: Sequence[Box] | None = None, before: Sequence[FoundPerson] | None = None
    ) -> list[FoundPerson]:
        """Return the people of a picture (`PeopleFinder`); the frame before makes no difference."""
        return self.frames([image], [boxes])[0]

    def one(self, image: NDArray[np.uint8]) -> FoundPerson:
        """Return the person of a picture of one, read from the whole picture."""
        return self(image)[0]

    def frames(
        self, images: Sequence[NDArray[np.uint8]], boxes: Sequence[Sequence[Box] | None], of: int = 0
    ) -> list[list[FoundPerson]]:
        """Return the people of several pictures (`FramesFinder`). ONNX Runtime, if installed, predicts long videos."""
        if of >= MANY_FRAMES and not self._prepared and self.model.mean.device.type == "cpu":
            self._prepared = True
            self._runs = run_by_onnx(self.model, images) or self.model
        corners = [None if some is None else [box.corners for box in some] for some in boxes]
        predicted = predict_frames(self._runs, images, corners, flip_test=self._flip_test)
        people = []
        for image, some, poses in zip(images, boxes, predicted, strict=True):
            size = cast("tuple[int, int]", image.shape[:2])
            given = [Box(whole_frame(size).astype(np.float64), 1.0)] if some is None else some
            people.append(
                [
                    FoundPerson(pose, float(person_score([box.score], [pose.scores])[0]), box, box)
                    for pose, box in zip(poses, given, strict=True)
                ]
            )
        return people


FACE = ("nose", "l_eye", "r_eye", "l_ear", "r_ear", "l_mouth", "r_mouth")
HEAD = (("head_top", "upper_neck"), ("head_top", "neck"))
"""Pairs of joints that locate a head in skeletons without a face."""
COLOUR = (128, 128, 128)
SPREAD, SHOULDERS, TRUNK, LENGTH = 0.85, 0.4, 0.3, 0.65
"""Factors for the radius that is filled: of the largest distance between points of the face; of the shoulders'
distance; of that of shoulders' and hips' middles; of the way from the neck to the head's top. The largest radius is
taken, since each may be foreshortened.
"""


def has_head(skeleton: Skeleton) -> bool:
    """True if the skeleton locates a face."""
    return bool(_places(skeleton, FACE)) or any(set(pair) <= set(skeleton.joints) for pair in HEAD)


def head_circle(pose: Pose, skeleton: Skeleton) -> tuple[float, float, float] | None:
    """Return middle (x, y) and radius, pixels, of the circle around a person's face; None if no joint locates it.

    Scores are ignored: hiding a wrong place is better than not hiding a face.
    """
    points, where = pose.keypoints, {joint: place for place, joint in enumerate(skeleton.joints)}
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(points).all(axis=1))
    face = points[[k for k in _places(skeleton, FACE) if finite[k]]]
    middles = [
        points[[where[f"l_{name}"], where[f"r_{name}"]]]
        for name in ("shoulder", "hip")
        if {f"l_{name}", f"r_{name}"} <= set(where)
    ]
    sizes = [SHOULDERS * math.dist(*pair) for pair in middles[:1]]
    if len(middles) == 2:
        sizes.append(TRUNK * math.dist(*(pair.mean(axis=0) for pair in middles)))
    sizes = [size for size in sizes if math.isfinite(size)]
    if len(face):
        centre = face.mean(axis=0)
        apart = np.linalg.norm(face[:, None] - face[None], axis=2).max()
        # whatever else is wrong, every point of the face lies inside
        reach = 1.2 * np.linalg.norm(face - centre, axis=1).max()
        return float(centre[0]), float(centre[1]), max(float(SPREAD * apart), float(reach), 2.0, *sizes)
    for pair in HEAD:
        if set(pair) <= set(where) and finite[[where[name] for name in pair]].all():
            top, neck = (points[where[name]] for name in pair)
            # the face is nearer to the neck than the hair is
            x, y = 0.55 * top + 0.45 * neck
            return float(x), float(y), max(LENGTH * math.dist(top, neck), 2.0)
    return None


def hide_faces(image: NDArray[np.uint8], poses: Sequence[Pose], skeleton: Skeleton) -> tuple[NDArray[np.uint8], int]:
    """Return a copy of a picture with the face of every pose filled with grey, and how many faces were in the picture.

    Faces of people who were not found stay as they were, and bodies, clothes and places are always shown.

    Args:
        image: uint8, (H, W, 3) RGB.
        poses: The people who were found.
        skeleton: Skeleton of the poses.
    """
    shown, hidden = np.ascontiguousarray(image).copy(), 0
    height, width = image.shape[:2]
    for pose in poses:
        circle = head_circle(pose, skeleton)
        if circle is None:
            continue
        x, y, radius = circle
        if not (-radius < x < width + radius and -radius < y < height + radius):
            continue
        # more than the picture's diagonal fills it all, and OpenCV's numbers are of 32 bits
        reach = min(math.ceil(radius), height + width)
        cv2.circle(shown, (round(x), round(y)), reach, COLOUR, cv2.FILLED)
        hidden += 1
    return shown, hidden


def _places(skeleton: Skeleton, names: Sequence[str]) -> list[int]:
    return [place for place, joint in enumerate(skeleton.joints) if joint in names]
