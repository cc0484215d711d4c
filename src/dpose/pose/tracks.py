"""Tracks of the people of a video, through short gaps, and smoothing of their joints.

The filter is the one-euro filter (Casiez, Roussel and Vogel, CHI 2012).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.pose.metrics import joint_similarity
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO, Skeleton

MISSED = 5
"""Largest number of consecutive frames in which a person may be missed."""
LEAST = 0.2
"""Least similarity of a person in two frames."""
SIGMA = 0.08
"""Falloff of a joint without a measured one: about that of COCO's shoulders and knees."""
WIDER = 1.5
"""Factor of the falloff from one frame to the next, relative to that of labellers of one frame, and for each missed
frame."""
SHOWN = 0.1
"""Least score of a joint that helps to identify a person."""
LEAST_CUTOFF = 1.0
"""Cutoff in hertz for a joint at rest (the paper's fcmin)."""
BETA = 20.0
"""Increase of the cutoff in hertz for a speed of one person's size a second."""
SPEED_CUTOFF = 1.0
"""Cutoff in hertz of the speed's own filter (the paper's dcutoff)."""


@dataclass
class _Track:
    """A person who is followed."""

    number: int
    person: FoundPerson
    step: NDArray[np.float64]
    missed: int = 0

    def expected(self) -> NDArray[np.float64]:
        """Return the joints' current positions if the person moved on as before."""
        return self.person.pose.keypoints + self.step * (self.missed + 1)


class Tracker:
    """Gives numbers, from 1, to the people of a video, frame after frame.

    The people of a frame are assigned to those that are followed so that the sum of their similarities is largest
    (Hungarian method); pairs less similar than `least` stay apart. Similarity is the larger of two: the similarity of
    the poses (as OKS, with the falloffs of the skeleton's joints, wider since both move), and the overlap of the boxes
    around their joints. A followed person is expected to move on as in the frames before. Neither clothes nor faces are
    used: a person who comes back later gets a new number.

    Args:
        skeleton: Skeleton of the people.
    """

    def __init__(self, skeleton: Skeleton) -> None:
        self._sigmas = sigmas_of(skeleton)
        self._tracks: list[_Track] = []
        self._next = 1
        self._begun = False

    @property
    def followed(self) -> list[FoundPerson] | None:
        """The people to look for in the next frame, as last found; None for the first frame."""
        return [track.person for track in self._tracks] if self._begun else None

    def __call__(self, people: Sequence[FoundPerson]) -> list[int]:
        """Return the numbers of the people of the next frame, in their order."""
        from scipy.optimize import linear_sum_assignment

        self._begun = True
        alike = np.array([[self._likeness(track, person) for person in people] for track in self._tracks])
        chosen: dict[int, _Track] = {}
        if alike.size:
            rows, columns = linear_sum_assignment(np.where(alike < LEAST, 0.0, alike), maximize=True)
            chosen = {int(c): self._tracks[r] for r, c in zip(rows, columns, strict=True) if alike[r, c] >= LEAST}
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
        self._tracks = [track for track in self._tracks if track.missed <= MISSED]
        return numbers

    def _likeness(self, track: _Track, person: FoundPerson) -> float:
        points, expected = person.pose.keypoints, track.expected()
        ours, theirs = _located(track.person.pose), _located(person.pose)
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
    """Return (J,), the OKS falloff of each joint: the skeleton's own, else COCO's by name, else `SIGMA`."""
    if skeleton.sigmas:
        return np.array(skeleton.sigmas)
    known = dict(zip(COCO.joints, COCO.sigmas, strict=True))
    return np.array([known.get(joint, SIGMA) for joint in skeleton.joints])


def _follow(track: _Track, person: FoundPerson) -> None:
    """Continue a track with a person found `missed` frames after the last."""
    before, now = track.person.pose, person.pose
    both = _located(before) & _located(now)
    if both.any():
        moved = np.median(now.keypoints[both] - before.keypoints[both], axis=0) / track.missed
        track.step = (track.step + moved) / 2
    track.person, track.missed = person, 0


def _located(pose: Pose) -> NDArray[np.bool_]:
    """Return (J,), true for joints that locate a person: those of some score, or all finite ones if none has any."""
    finite = np.asarray(np.isfinite(pose.keypoints).all(axis=1))
    sure = finite & (pose.scores >= SHOWN)
    return sure if sure.any() else finite


def _around(points: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the box (4,) around points, with no side below a pixel; None without a point."""
    if not len(points):
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    return np.concatenate([low, np.maximum(high, low + 1)])


def _area(box: NDArray[np.float64]) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))


def _overlap(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Intersection over union of two boxes."""
    sides = np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    return common / (_area(one) + _area(two) - common)


class OneEuro:
    """Smooths one person's joints, frame after frame: strongly at rest, hardly in a quick movement.

    Each coordinate is an exponential average whose cutoff rises with its smoothed speed (the paper's equations 3 to 5).
    Speeds are measured in the person's sizes, so that people near and far are smoothed alike. A joint that is not
    finite is left as it is, and its filter starts again afterwards.
    """

    def __init__(self) -> None:
        self._time = -math.inf
        self._points: NDArray[np.float64] | None = None
        self._speeds: NDArray[np.float64] = np.zeros(0)

    def __call__(self, points: ArrayLike, time: float, size: float) -> NDArray[np.float64]:
        """Smooth the joints of the next frame.

        Args:
            points: (J, 2), pixels.
            time: Time of the frame, seconds; if it is not after the call before, the joints are returned as they are.
            size: Size of the person, pixels (> 0).

        Returns:
            (J, 2) float64.
        """
        new = np.asarray(points, np.float64)
        passed = time - self._time
        if self._points is None or not (0 < passed < math.inf):
            self._points, self._speeds, self._time = new.copy(), np.zeros_like(new), time
            return new.copy()
        known = np.isfinite(self._points) & np.isfinite(new)
        speed = np.where(known, (new - self._points) / passed, 0.0)
        share = _share(np.array(SPEED_CUTOFF), passed)
        speed = share * speed + (1 - share) * self._speeds
        cutoff = LEAST_CUTOFF + BETA * np.abs(speed) / size
        share = _share(cutoff, passed)
        smooth = np.where(known, share * new + (1 - share) * self._points, new)
        self._points, self._speeds, self._time = smooth, np.where(known, speed, 0.0), time
        return smooth.copy()


class Smoother:
    """One filter for each person of a video, by the number of the person's track."""

    def __init__(self) -> None:
        self._filters: dict[int, OneEuro] = {}

    def __call__(self, number: int, pose: Pose, time: float) -> Pose:
        """Smooth a person's joints in a frame; scores stay.

        Args:
            number: The track's number.
            pose: The person's joints.
            time: Time of the frame, seconds.
        """
        finite = pose.keypoints[np.isfinite(pose.keypoints).all(axis=1)]
        size = float(np.hypot(*np.ptp(finite, axis=0))) if len(finite) else 1.0
        smoothed = self._filters.setdefault(number, OneEuro())(pose.keypoints, time, max(size, 1.0))
        return Pose(smoothed, pose.scores)


def _share(cutoff: NDArray[np.float64], passed: float) -> NDArray[np.float64]:
    """Return the weight of a new value (equation 3), for cutoffs in hertz and the time passed in seconds."""
    around = 2 * math.pi * cutoff * passed
    return np.asarray(around / (around + 1))
