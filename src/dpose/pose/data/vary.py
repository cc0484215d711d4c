"""A view that is cropped already, augmented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.pose.crops import crop_transform, invert, transform_points, warp, whole_frame, zoom_of
from dpose.pose.data.augment import Augment, recolour
from dpose.units import View


def vary_view(view: View, augment: Augment, flip_order: Sequence[int], rng: np.random.Generator) -> View:
    """`view` under one draw of `augment`; its labels follow.

    What a turn or a smaller scale brings in from outside the crop is black, where `PoseUnits.load` would have taken it
    from the picture.

    Args:
        view: Of `PoseUnits`, or another picture of the same crop with its labels; uint8 (H, W, 3).
        augment: What to draw from.
        flip_order: The joints' order in a mirrored picture.
        rng: All randomness.
    """
    drawn = augment.draw(rng)
    height, width = view.image.shape[:2]
    size = (height, width)
    matrix = crop_transform(whole_frame(size), size, 1.0, drawn.rotation, drawn.scale, drawn.flip)
    order = list(flip_order) if drawn.flip else list(range(len(flip_order)))
    labelled = view.target["labelled"][order] > 0
    keypoints = transform_points(matrix, view.target["keypoints"][order])
    zoom = zoom_of(matrix)
    target = {
        **view.target,
        **target_of(
            keypoints,
            labelled,
            size,
            head_length=view.target["head_length"] * zoom,
            area=view.target["area"] * zoom**2,
            inverse=_after(view.target["inverse"], invert(matrix)),
        ),
    }
    return View(recolour(warp(view.image, matrix, size), drawn.colour), target, view.weight)


def target_of(
    keypoints: NDArray[np.float64],
    labelled: NDArray[np.bool_],
    size: tuple[int, int],
    *,
    head_length: ArrayLike,
    area: ArrayLike,
    inverse: NDArray[np.float64],
) -> dict[str, NDArray[Any]]:
    """The target of a view of one person, float32; joints that lie outside the view are not visible in it.

    Args:
        keypoints: (J, 2), pixels of the view.
        labelled: (J,) which of them are labelled.
        size: (H, W) of the view, pixels.
        head_length: PCKh's reference length, pixels of the view.
        area: OKS's area, pixels of the view squared.
        inverse: (2, 3) from the view to the picture.
    """
    height, width = size
    inside = ((keypoints >= -0.5) & (keypoints < (width - 0.5, height - 0.5))).all(axis=1)
    return {
        "keypoints": np.where(labelled[:, None], keypoints, 0).astype(np.float32),
        "visible": (labelled & inside).astype(np.float32),
        "labelled": labelled.astype(np.float32),
        "head_length": np.asarray(head_length, np.float32),
        "area": np.asarray(area, np.float32),
        "inverse": inverse.astype(np.float32),
    }


def _after(second: NDArray[Any], first: NDArray[Any]) -> NDArray[np.float64]:
    """The (2, 3) transform that does `first` and then `second`."""
    whole = np.vstack([np.asarray(first, np.float64), (0, 0, 1)])
    return np.asarray(np.asarray(second, np.float64) @ whole)
