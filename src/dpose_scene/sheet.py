"""Contact sheets: many scenes in one picture, with their skeletons."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose_scene.render import Scene

EDGES = (
    (0, 1),
    (1, 2),
    (2, 6),
    (6, 3),
    (3, 4),
    (4, 5),
    (6, 7),
    (7, 8),
    (8, 9),
    (7, 12),
    (12, 11),
    (11, 10),
    (7, 13),
    (13, 14),
    (14, 15),
)
_RIGHT, _LEFT, _MIDDLE = (255, 120, 40), (40, 170, 255), (250, 230, 60)


def _edge_colour(a: int, b: int) -> tuple[int, int, int]:
    ends = {a, b}
    return _RIGHT if ends & {0, 1, 2, 10, 11, 12} else _LEFT if ends & {3, 4, 5, 13, 14, 15} else _MIDDLE


def contact_sheet(
    scenes: Sequence[Scene], columns: int = 8, scale: int = 2, skeleton: bool = True
) -> NDArray[np.uint8]:
    """A grid of pictures, uint8 (rows H scale, columns W scale, 3) RGB.

    Args:
        scenes: At least one, all of one size.
        columns: Pictures in a row.
        scale: Enlargement.
        skeleton: Draw the bones (right side orange, left side blue), with hollow dots for joints that are
            hidden.
    """
    if not scenes:
        raise DposeError("scenes-missing", "no scenes", "contact_sheet", "give at least one")
    height, width = scenes[0].image.shape[:2]
    if any(s.image.shape[:2] != (height, width) for s in scenes):
        raise DposeError(
            "scene-sizes-differ", "scenes of several sizes", "contact_sheet", "render them all at one size"
        )
    if columns < 1 or scale < 1:
        raise DposeError("columns-not-positive", "columns and scale must be at least one", "contact_sheet")
    rows = -(-len(scenes) // columns)
    sheet = np.full((rows * height * scale, columns * width * scale, 3), 24, np.uint8)
    for k, scene in enumerate(scenes):
        tile = cv2.resize(scene.image, (width * scale, height * scale), interpolation=cv2.INTER_CUBIC)
        if skeleton:
            points = [tuple(round(v) for v in (p + 0.5) * scale - 0.5) for p in scene.keypoints]
            for a, b in EDGES:
                cv2.line(tile, points[a], points[b], _edge_colour(a, b), 1, cv2.LINE_AA)
            for point, shown in zip(points, scene.visible, strict=True):
                cv2.circle(tile, point, 2, (255, 255, 255), -1 if shown else 1, cv2.LINE_AA)
        y, x = (k // columns) * height * scale, (k % columns) * width * scale
        sheet[y : y + height * scale, x : x + width * scale] = tile
    return sheet
