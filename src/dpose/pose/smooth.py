"""Joints of a video made steadier: the one-euro filter (Casiez, Roussel and Vogel, CHI 2012)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.pose.predict import Pose

LEAST_CUTOFF = 1.0
"""Hertz: how slow a joint at rest is let move (the paper's fcmin)."""
BETA = 20.0
"""By how many hertz the cutoff rises for a speed of one person's size a second."""
SPEED_CUTOFF = 1.0
"""Hertz, of the speed's own filter (the paper's dcutoff)."""


class OneEuro:
    """Smooths one person's joints, frame after frame: strongly at rest, hardly in a quick movement.

    Each coordinate is an exponential average whose cutoff rises with its smoothed speed (the paper's equations 3 to 5).
    Speeds are counted in the person's sizes, so that people near and far are smoothed alike. A joint that is not finite
    is left as it is and begins anew afterwards.

    Args:
        least_cutoff: Hertz.
        beta: Hertz for a person's size a second.
    """

    def __init__(self, least_cutoff: float = LEAST_CUTOFF, beta: float = BETA) -> None:
        self._least, self._beta = least_cutoff, beta
        self._time = -math.inf
        self._points: NDArray[np.float64] | None = None
        self._speeds: NDArray[np.float64] = np.zeros(0)

    def __call__(self, points: ArrayLike, time: float, size: float) -> NDArray[np.float64]:
        """The joints of the next frame, smoothed.

        Args:
            points: (J, 2), pixels.
            time: Of the frame, seconds; after that of the call before, else the joints are taken as they are.
            size: Of the person, pixels (> 0).

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
        cutoff = self._least + self._beta * np.abs(speed) / size
        share = _share(cutoff, passed)
        smooth = np.where(known, share * new + (1 - share) * self._points, new)
        self._points, self._speeds, self._time = smooth, np.where(known, speed, 0.0), time
        return smooth.copy()


class Smoother:
    """One filter for each person of a video, by the number of the person's track."""

    def __init__(self) -> None:
        self._filters: dict[int, OneEuro] = {}

    def __call__(self, number: int, pose: Pose, time: float) -> Pose:
        """A person's joints in a frame, smoothed; scores stay.

        Args:
            number: The track's.
            pose: As it was found.
            time: Of the frame, seconds.
        """
        finite = pose.keypoints[np.isfinite(pose.keypoints).all(axis=1)]
        size = float(np.hypot(*np.ptp(finite, axis=0))) if len(finite) else 1.0
        smoothed = self._filters.setdefault(number, OneEuro())(pose.keypoints, time, max(size, 1.0))
        return Pose(smoothed, pose.scores)


def _share(cutoff: NDArray[np.float64], passed: float) -> NDArray[np.float64]:
    """How much of a new value counts (equation 3), for cutoffs in hertz and seconds passed."""
    around = 2 * math.pi * cutoff * passed
    return np.asarray(around / (around + 1))
