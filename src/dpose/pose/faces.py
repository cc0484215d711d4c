"""Where the faces of people with known joints are, to fill them.

Nothing is guaranteed: who is not found keeps the face, and much else than a face tells who somebody is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.pose.predict import Pose
from dpose.pose.skeletons import Skeleton

FACE = ("nose", "l_eye", "r_eye", "l_ear", "r_ear", "l_mouth", "r_mouth")
HEAD = (("head_top", "upper_neck"), ("head_top", "neck"))
"""What tells where a head is in skeletons without a face."""
COLOUR = (128, 128, 128)
SPREAD, SHOULDERS, TRUNK, LENGTH = 0.85, 0.4, 0.3, 0.65
"""The radius that is filled: of the largest distance between points of the face; of the shoulders' distance; of that of
shoulders' and hips' middles; of the way from the neck to the head's top. The largest is taken, since each may be
foreshortened."""


def has_head(skeleton: Skeleton) -> bool:
    """Whether the skeleton says where a face is."""
    return bool(_places(skeleton, FACE)) or any(set(pair) <= set(skeleton.joints) for pair in HEAD)


def head_circle(pose: Pose, skeleton: Skeleton) -> tuple[float, float, float] | None:
    """The middle (x, y) and radius of the circle that a person's face lies in, pixels; None where no joint tells it.

    Scores play no part: a face that is hidden in the wrong place is better than one that is not.

    Args:
        pose: Of the person.
        skeleton: Of the pose.
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
        # every point of the face lies inside, whatever else is wrong
        reach = 1.2 * np.linalg.norm(face - centre, axis=1).max()
        return float(centre[0]), float(centre[1]), max(float(SPREAD * apart), float(reach), 2.0, *sizes)
    for pair in HEAD:
        if set(pair) <= set(where) and finite[[where[name] for name in pair]].all():
            top, neck = (points[where[name]] for name in pair)
            # the face is nearer to the neck than the hair is
            x, y = 0.55 * top + 0.45 * neck
            return float(x), float(y), max(LENGTH * math.dist(top, neck), 2.0)
    return None


def hide_faces(
    image: NDArray[np.uint8], poses: Sequence[Pose], skeleton: Skeleton
) -> tuple[NDArray[np.uint8], int]:
    """A copy of a picture with the face of every pose filled with grey, and how many were in the picture.

    Faces of people who were not found stay as they were, and bodies, clothes and places are always shown.

    Args:
        image: uint8, (H, W, 3) RGB.
        poses: The people who were found.
        skeleton: Of the poses.
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
