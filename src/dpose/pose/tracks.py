"""Who is who from frame to frame of a video: people keep a number while they are found, and through short gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.pose.oks import joint_similarity
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO, Skeleton

MISSED = 5
"""Frames in a row that a person may be missed in."""
LEAST = 0.2
"""People of two frames who are less alike are two."""
SIGMA = 0.08
"""A joint's falloff where nobody has measured one: about that of COCO's shoulders and knees."""
WIDER = 1.5
"""How much farther a joint may be in the frame after than labellers of one frame differ, and for each missed frame."""
SHOWN = 0.1
"""Joints with a lower score say nothing about who it is."""


@dataclass
class _Track:
    """A person who is followed."""

    number: int
    person: FoundPerson
    step: NDArray[np.float64]
    missed: int = 0

    def expected(self) -> NDArray[np.float64]:
        """Where the joints are now if the person moved on as before."""
        return self.person.pose.keypoints + self.step * (self.missed + 1)


class Tracker:
    """Gives numbers, from 1, to the people of a video, frame after frame.

    The people of a frame are assigned to those that are followed so that the sum of their likeness is largest
    (Hungarian method); pairs less alike than `least` stay apart. Likeness is the larger of two: the similarity of the
    poses (as OKS, with the falloffs of the skeleton's joints, wider since both move), and the overlap of the boxes
    around their joints. A followed person is expected to move on as in the frames before. Nothing is told from clothes
    or faces: a person who comes back later is a new one.

    Args:
        skeleton: Of the people.
        missed: For so many frames in a row a person may be missed and keeps the number.
        least: In (0, 1].
    """

    def __init__(self, skeleton: Skeleton, missed: int = MISSED, least: float = LEAST) -> None:
        self._sigmas = sigmas_of(skeleton)
        self._missed, self._least = missed, least
        self._tracks: list[_Track] = []
        self._next = 1
        self._begun = False

    @property
    def followed(self) -> list[FoundPerson] | None:
        """Who is to be looked for in the next frame: everybody who is followed, as last found; None for the first."""
        return [track.person for track in self._tracks] if self._begun else None

    def __call__(self, people: Sequence[FoundPerson]) -> list[int]:
        """The numbers of the people of the next frame, in their order."""
        from scipy.optimize import linear_sum_assignment

        self._begun = True
        alike = np.array([[self._likeness(track, person) for person in people] for track in self._tracks])
        chosen: dict[int, _Track] = {}
        if alike.size:
            rows, columns = linear_sum_assignment(np.where(alike < self._least, 0.0, alike), maximize=True)
            chosen = {
                int(c): self._tracks[r]
                for r, c in zip(rows, columns, strict=True)
                if alike[r, c] >= self._least
            }
        for track in self._tracks:
            track.missed += 1
        numbers = []
        for n, person in enumerate(people):
            if n in chosen:
                _follow(chosen[n], person)
            else:
                chosen[n] = _Track(self._next, person, np.zeros(2))
                self._next += 1
                self._tracks.append(chosen[n])
            numbers.append(chosen[n].number)
        self._tracks = [track for track in self._tracks if track.missed <= self._missed]
        return numbers

    def _likeness(self, track: _Track, person: FoundPerson) -> float:
        points, expected = person.pose.keypoints, track.expected()
        ours, theirs = _told(track.person.pose), _told(person.pose)
        one, two = _around(expected[ours]), _around(points[theirs])
        if one is None or two is None:
            return 0.0
        both = ours & theirs
        pose = 0.0
        if both.any():
            area = (_area(one) + _area(two)) / 2
            wider = self._sigmas[both] * WIDER * (1 + track.missed / 2)
            # joints that only one of the two has count as unlike
            pose = float(joint_similarity(points[both], expected[both], area, tuple(wider)).sum())
            pose /= int((ours | theirs).sum())
        return max(pose, _overlap(one, two))


def sigmas_of(skeleton: Skeleton) -> NDArray[np.float64]:
    """(J,), the falloff of each joint in OKS: the skeleton's own, else COCO's for joints it shares, else `SIGMA`."""
    if skeleton.sigmas:
        return np.array(skeleton.sigmas)
    known = dict(zip(COCO.joints, COCO.sigmas, strict=True))
    return np.array([known.get(joint, SIGMA) for joint in skeleton.joints])


def _follow(track: _Track, person: FoundPerson) -> None:
    """The track goes on with a person, `missed` frames after the last."""
    before, now = track.person.pose, person.pose
    both = _told(before) & _told(now)
    if both.any():
        moved = np.median(now.keypoints[both] - before.keypoints[both], axis=0) / track.missed
        track.step = (track.step + moved) / 2
    track.person, track.missed = person, 0


def _told(pose: Pose) -> NDArray[np.bool_]:
    """(J,), which joints say where a person is: those of some score, or all finite ones where none has any."""
    finite = np.asarray(np.isfinite(pose.keypoints).all(axis=1))
    sure = finite & (pose.scores >= SHOWN)
    return sure if sure.any() else finite


def _around(points: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The box (4,) around points, with no side below a pixel; None without a point."""
    if not len(points):
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    return np.concatenate([low, np.maximum(high, low + 1)])


def _area(box: NDArray[np.float64]) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))


def _overlap(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """What two boxes have in common, of their union."""
    sides = np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    return common / (_area(one) + _area(two) - common)
