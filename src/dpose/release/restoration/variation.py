"""Restoration by total variation: each plane as flat as its known noise allows (Chambolle 2004), then enlarged."""

from __future__ import annotations

import cv2
import numpy as np

from dpose.release.planes import Observed
from dpose.release.restoration.grid import TO_RGB, Singles, enlarged, luma_chroma

WEIGHT = 0.45
"""Of the total variation, over the noise's deviation; chosen on public photographs."""
STEPS = 60


def by_variation(observed: Observed) -> Singles:
    """Gray levels, (H, W, C), not cut off."""
    from skimage.restoration import denoise_tv_chambolle

    shown = []
    for plane in luma_chroma(observed):
        weight = WEIGHT * float(np.median(plane.deviation)) / observed.peak
        smooth = denoise_tv_chambolle(
            plane.levels / observed.peak, weight=max(weight, 1e-6), max_num_iter=STEPS
        )
        fine = np.asarray(smooth, np.float32) * observed.peak
        shown.append(enlarged(fine, plane.levels.shape, observed, plane.block, cv2.INTER_CUBIC)[:, :, 0])
    stacked: Singles = np.stack(shown, axis=2)
    return stacked @ TO_RGB.T if len(shown) == 3 else stacked
