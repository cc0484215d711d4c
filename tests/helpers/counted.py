"""Films for counts: frames whose first pixel says who is in them, and a finder that reads it."""

import time as clock
from fractions import Fraction

import numpy as np

from dpose.measure.folder import Count, write_folder
from dpose.measure.statement import count_statement
from dpose.measure.windows import Windows
from dpose.media.timed import TimedFrame
from dpose.pose.crops import Box
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO
from dpose.privacy.noise import AesNoise, Key

SIZE = (48, 64)
STANDING, LYING, SITTING = 1, 2, 3


def person(x, y, posture=STANDING, size=12.0):
    """Somebody with hips at (x, y), of this posture, whose trunk is `size` pixels long."""
    up, down = {STANDING: ((0, -1), (0, 1)), LYING: ((-1, 0), (1, 0)), SITTING: ((0, -1), (1, 0.1))}[posture]
    points = np.full((17, 2), np.nan)
    scores = np.zeros(17)
    for name, offset in {
        "shoulder": size * np.array(up),
        "hip": np.zeros(2),
        "knee": 0.9 * size * np.array(down),
        "ankle": 1.7 * size * np.array(down),
    }.items():
        for side in "lr":
            k = COCO.joints.index(f"{side}_{name}")
            points[k] = np.array([x, y]) + offset + (8 if side == "l" else -8) * np.array(up)[::-1]
            scores[k] = 1.0
    region = Box(np.array([x - size, y - size, x + size, y + size]), 1.0)
    return FoundPerson(Pose(points, scores), 1.0, region, region)


class Reader:
    """Finds as many people as a frame's first pixel says, of the posture that its second says.

    Its third pixel moves them to the right. One of 255 people breaks it. It counts the frames that it has seen, and
    with `moody` sees one person more in each frame but its first.
    """

    skeleton = COCO

    def __init__(self, moody=False):
        self.moody, self.calls = moody, 0

    def __call__(self, image, boxes=None, before=None):
        count, posture, x = (int(v) for v in image[0, :3, 0])
        if count == 255:
            raise RuntimeError("a frame that breaks the detector")
        self.calls += 1
        count += self.moody and self.calls > 1
        return [person(20.0 + x + 60 * k, 24.0, posture or STANDING) for k in range(count)]


def frame(time, count, posture=STANDING, x=0):
    """A frame at `time` seconds after midnight."""
    pixels = np.zeros((*SIZE, 3), np.uint8)
    pixels[0, :3] = np.array([count, posture, x])[:, None]
    return TimedFrame(Fraction(time), pixels)


def film(counts, rate=1, start=0):
    """Frames of so many people each, at a rate."""
    return [frame(Fraction(start) + Fraction(k, rate), count) for k, count in enumerate(counts)]


def count_folder(folder, plan):
    """Write a count of footage without anybody; its noise comes from a seed."""
    windows = Windows(plan, AesNoise(Key.from_seed(1)))
    shown = tuple(windows.release(window) for window in plan.windows)
    folder.mkdir(parents=True)
    write_folder(folder, Count(plan, count_statement(plan), shown))


def camera(count=1, rate=10, silent=(), until=None):
    """A live source whose frames come by the clock, but for spans of seconds after the first."""

    def frames(stopped, now):
        begun = now()
        while not stopped():
            if until is not None and now() - begun > until:
                raise OSError("the camera is gone")
            if not any(a <= now() - begun < b for a, b in silent):
                yield TimedFrame(now(), frame(0, count).pixels)
            clock.sleep(1 / rate)

    return frames
