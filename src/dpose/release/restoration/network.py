"""What the learned restoration's network is given, and what its output stands for. Shared by use and training.

One frame is six maps: the released levels, divided by the deviation that they have of all causes, and how little noise
there is on a logarithmic scale. Zeros mean that nothing is known, which is what lies outside of a picture and what a
clip's first frame has before it. The network gives what to add to a linear guess, on a grid twice as fine.
"""

from __future__ import annotations

import cv2
import numpy as np

from dpose.release.restoration.grid import Singles

SPREAD: Singles = np.array([0.25, 0.15, 0.1], np.float32)[:, None, None]
"""About how much Y, Co and Cg of a cell vary over natural pictures, in units of the peak."""
NOTHING, LEAST = 8.0, 0.001
"""Deviations of noise, in units of the peak, above and below which nothing changes."""
MAPS = 19
"""Number of input maps: six of this frame, six of the one before, six of the one after, and how coarse colour is."""
GAIN = 0.25
"""The network's output is multiplied by this."""
MIDDLE: Singles = np.array([0.5, 0, 0], np.float32)[:, None, None]


def frame_maps(levels: Singles, deviation: Singles) -> Singles:
    """Six maps of a frame, (6, rows, columns), from levels and deviations (3, rows, columns) in units of the peak."""
    known = np.maximum(deviation, LEAST)
    scaled = (levels - MIDDLE) / np.sqrt(SPREAD**2 + known**2)
    trust = np.maximum(np.log2(NOTHING / known) / 8, 0)
    return np.concatenate([np.where(trust > 0, scaled, 0), trust]).astype(np.float32)


def linear_guess(levels: Singles, deviation: Singles) -> Singles:
    """Levels drawn to the middle as far as noise asks for, on a grid twice as fine: (3, 2 rows, 2 columns)."""
    shrunk = MIDDLE + (levels - MIDDLE) * (SPREAD**2 / (SPREAD**2 + deviation**2))
    rows, columns = levels.shape[1:]
    finer = [cv2.resize(plane, (2 * columns, 2 * rows), interpolation=cv2.INTER_LINEAR) for plane in shrunk]
    return np.stack(finer).astype(np.float32)
