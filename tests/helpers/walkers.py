"""A finder of people for tests: small figures that stand where a bright pixel is, so that nothing has to be learnt."""

import numpy as np

from dpose.pose.crops import Box
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose
from dpose.pose.skeletons import BLAZEPOSE

# a figure 40 pixels tall around its middle, x and y by joint; the rest of the 33 joints lie between these
_PLACES = {
    "nose": (0, -18), "l_eye": (1, -19), "r_eye": (-1, -19), "l_ear": (3, -18), "r_ear": (-3, -18),
    "l_shoulder": (6, -11), "r_shoulder": (-6, -11), "l_elbow": (9, -5), "r_elbow": (-9, -5),
    "l_wrist": (10, 1), "r_wrist": (-10, 1), "l_hip": (4, 3), "r_hip": (-4, 3), "l_knee": (4, 12), "r_knee": (-4, 12),
    "l_ankle": (4, 20), "r_ankle": (-4, 20),
}  # fmt: skip
FIGURE = np.array([_PLACES.get(joint, (0, 0)) for joint in BLAZEPOSE.joints], np.float64)


class Walkers:
    """Finds a person at every given place, a function of the time of the call.

    Attributes:
        skeleton: BlazePose's.
        calls: (boxes, people of the frame before) of every call.
    """

    skeleton = BLAZEPOSE

    def __init__(self, places, score=0.8):
        self._places, self._score = places, score
        self.calls = []

    def __call__(self, image, boxes=None, before=None):
        """The people of the next picture."""
        places = self._places(len(self.calls)) if callable(self._places) else self._places
        self.calls.append((boxes, before))
        if boxes is not None:
            places = [(box.corners[:2] + box.corners[2:]) / 2 for box in boxes]
        return [self._person(np.asarray(place, np.float64)) for place in places]

    def _person(self, middle):
        region = Box(np.concatenate([middle - 25, middle + 25]), self._score, 30.0)
        scores = np.linspace(0.5, 1.0, len(BLAZEPOSE))
        return FoundPerson(Pose(FIGURE + middle, scores), self._score, region, region)
