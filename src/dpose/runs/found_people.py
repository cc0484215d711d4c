"""The people found in pictures and frames, in COCO's fields and with the requested joints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.crops import Box
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO, OWN, SKELETONS, JointMap, Skeleton, check_skeleton, joint_map

ROOM = 0.08
"""Share of the sides of the box around somebody's joints: how much wider it is on each side. It is then
likest to the boxes that people draw (of eight people in COCO's pictures 0.77 of the union is common, without 0.68)."""


@dataclass(frozen=True)
class Found:
    """One person of a picture or frame, ready to be drawn and written.

    Attributes:
        pose: Joints of the requested skeleton; nan, with score 0, where the finder has no such joint.
        score: In [0, 1], of the person.
        box: (4,), x0, y0, x1, y1 around the person, pixels.
        track: The person's number in a video; None in a picture.
    """

    pose: Pose
    score: float
    box: NDArray[np.float64]
    track: int | None = None


def requested_joints(own: Skeleton, name: str | None = None) -> JointMap:
    """The map from a finder's joints to those that are drawn and written.

    Args:
        own: The finder's.
        name: A built-in skeleton's, or "own". Where None: COCO's if the finder has all of its joints, else its own.

    Raises:
        DposeError: no such skeleton, or not one of its joints follows from the finder's.
    """
    if name is None:
        to_coco = joint_map(own, COCO, predicted=True)
        return joint_map(own, own) if to_coco.missing else to_coco
    check_skeleton(name)
    way = joint_map(own, own if name == OWN else SKELETONS[name], predicted=True)
    if len(way.missing) == len(way.target):
        raise DposeError(
            "model-joints-missing",
            f"the model finds none of these joints ({', '.join(own.joints[:4])}, ...)",
            f"--skeleton {name}",
            f"give {OWN}",
        )
    return way


def mapped(pose: Pose, way: JointMap) -> Pose:
    """A finder's joints as those of the requested skeleton; scores are held to [0, 1]."""
    return Pose(way.points(pose.keypoints), np.clip(np.nan_to_num(way.values(pose.scores)), 0, 1))


def person_box(pose: Pose, size: tuple[int, int], given: Box | None, region: Box) -> NDArray[np.float64]:
    """A person's box, (4,): the one that was given, else one around the joints, as far as it lies in the picture.

    Args:
        pose: All joints of the finder.
        size: (H, W) of the picture.
        given: Where the person was looked for, if somebody said so.
        region: Where the joints were read from, for people without a joint in the picture.
    """
    if given is not None:
        return np.asarray(given.corners, np.float64)
    edge = np.array([size[1], size[0]], np.float64)
    points = pose.keypoints[np.isfinite(pose.keypoints).all(axis=1)]
    if len(points):
        low, high = points.min(axis=0), points.max(axis=0)
        room = ROOM * (high - low)
        low, high = np.clip(low - room, 0, edge), np.clip(high + room, 0, edge)
        if (high > low).all():
            return np.concatenate([low, high])
    return np.clip(np.asarray(region.corners, np.float64), 0, np.tile(edge, 2))


class Document:
    """COCO's form of what was found: images (a frame is one, too), annotations, and one category.

    Attributes:
        values: Ready for JSON.

    Args:
        way: From the finder's joints to those that are written; derived ones are listed in the category.
    """

    def __init__(self, way: JointMap) -> None:
        skeleton = way.target
        category: dict[str, Any] = {
            "id": 1,
            "name": "person",
            "keypoints": list(skeleton.joints),
            "skeleton": [[a + 1, b + 1] for a, b in skeleton.edges],
        }
        if way.derived:
            category["derived"] = [skeleton.joints[t] for t in sorted(t for t, _ in way.derived)]
        if way.missing:
            category["missing"] = [skeleton.joints[t] for t in way.missing]
        self.values: dict[str, Any] = {"images": [], "annotations": [], "categories": [category]}
        self._taken: set[int] = set()
        self._next = 1

    def add(
        self, name: PurePath, size: tuple[int, int], facts: Mapping[str, Any], people: Sequence[Found]
    ) -> None:
        """Add a picture or frame and its people.

        Args:
            name: Of the picture or video, below what the command named.
            size: (H, W), pixels.
            facts: Of a frame: its number and time; empty for a picture.
            people: In it; may be none.
        """
        # a picture called by a number keeps it, as COCO's are; all others get the next that is free
        number = int(name.stem) if name.stem.isdecimal() and not facts else self._next
        while number in self._taken:
            self._next += 1
            number = self._next
        self._taken.add(number)
        self.values["images"].append(
            {"id": number, "file_name": name.as_posix(), "height": size[0], "width": size[1], **facts}
        )
        annotations = self.values["annotations"]
        for person in people:
            x0, y0, x1, y1 = (round(float(v), 3) for v in person.box)
            points = np.column_stack([person.pose.keypoints, person.pose.scores])
            there = np.asarray(np.isfinite(points).all(axis=1))
            annotation = {
                "id": len(annotations) + 1,
                "image_id": number,
                "category_id": 1,
                "keypoints": np.where(there[:, None], points, 0.0).round(3).ravel().tolist(),
                "num_keypoints": int((there & (person.pose.scores > 0)).sum()),
                "score": float(np.clip(person.score, 0, 1)),
                "bbox": [x0, y0, round(x1 - x0, 3), round(y1 - y0, 3)],
                "area": round((x1 - x0) * (y1 - y0), 3),
                "iscrowd": 0,
                "segmentation": [],
            }
            if person.track is not None:
                annotation["track_id"] = person.track
            annotations.append(annotation)
