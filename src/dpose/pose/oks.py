"""Object keypoint similarity (OKS), non-maximum suppression by it, and the score of a person (Lin et al., ECCV 2014).

The similarity of a joint is exp(-d^2 / (2 s^2 k^2)), with d the distance in pixels, s^2 the person's area and k
twice the joint's sigma. OKS is the mean over the labelled joints: 1 for a perfect person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.pose.metrics import for_json

KEPT = 0.2
"""Least score of a joint that counts in a person's score."""

NMS = 0.9
"""Largest similarity of two people of whom both stay."""

MOST = 20
"""Largest number of people a picture."""


def joint_similarity(
    predicted: ArrayLike, true: ArrayLike, area: ArrayLike, sigmas: Sequence[float]
) -> NDArray[np.float64]:
    """Compute the similarity of each joint, (..., J) in [0, 1].

    Args:
        predicted: (..., J, 2), pixels; a joint that is not finite has similarity 0.
        true: (..., J, 2), the same pixels.
        area: (...), pixels squared, the person's segmentation.
        sigmas: (J,), COCO's falloff.
    """
    squared = np.square(np.asarray(predicted, np.float64) - np.asarray(true, np.float64)).sum(axis=-1)
    squared = np.where(np.isfinite(squared), squared, np.inf)
    variance = np.square(2 * np.asarray(sigmas, np.float64))
    # pycocotools adds the smallest spacing of doubles, so that an area of 0 divides
    return np.asarray(
        np.exp(-squared / variance / (np.asarray(area, np.float64)[..., None] + np.spacing(1)) / 2)
    )


def oks(
    predicted: ArrayLike, true: ArrayLike, labelled: ArrayLike, area: ArrayLike, sigmas: Sequence[float]
) -> NDArray[np.float64]:
    """Compute object keypoint similarity, (...) in [0, 1]; nan for a person without a labelled joint.

    Args:
        predicted: (..., J, 2), pixels.
        true: (..., J, 2), the same pixels.
        labelled: (..., J), > 0 where labelled.
        area: (...), pixels squared.
        sigmas: (J,).
    """
    seen = np.asarray(labelled) > 0
    similarity = joint_similarity(predicted, true, area, sigmas)
    count = seen.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.divide((similarity * seen).sum(axis=-1), count, dtype=np.float64))


def person_score(box_scores: ArrayLike, joint_scores: ArrayLike) -> NDArray[np.float64]:
    """Compute the score that ranks people, (N,) in [0, 1]: box score times the mean of the joints' scores above `KEPT`.

    A person without a joint above it has score 0. Both factors lie in [0, 1] (`dpose.pose.codec.Codec.decode`), so the
    product does too. The reference implementations use the heat maps' raw maxima, which have no upper bound.

    Args:
        box_scores: (N,), in [0, 1].
        joint_scores: (N, J), in [0, 1].
    """
    scores = np.asarray(joint_scores, np.float64)
    counted = scores > KEPT
    mean = (scores * counted).sum(axis=-1) / np.maximum(counted.sum(axis=-1), 1)
    return np.asarray(np.asarray(box_scores, np.float64) * mean)


def oks_nms(
    keypoints: ArrayLike,
    scores: ArrayLike,
    areas: ArrayLike,
    sigmas: Sequence[float],
    threshold: float = NMS,
    most: int = MOST,
) -> list[int]:
    """Return which of N predicted people stay, by falling score: none is more than `threshold` like one before it.

    As HRNet's: the similarity of two predictions divides by the mean of their crops' areas, and every joint counts.
    People of equal score keep their order.

    Args:
        keypoints: (N, J, 2), pixels.
        scores: (N,).
        areas: (N,), of the crops that people were predicted in, pixels squared.
        sigmas: (J,).
        threshold: In (0, 1].
        most: Largest number that stay.

    Returns:
        Indices, best first.
    """
    points, area = np.asarray(keypoints, np.float64), np.asarray(areas, np.float64)
    variance = np.square(2 * np.asarray(sigmas, np.float64))
    order = list(np.argsort(-np.asarray(scores, np.float64), kind="stable"))
    chosen: list[int] = []
    while order and len(chosen) < most:
        best = int(order.pop(0))
        chosen.append(best)
        if order:
            squared = np.square(points[order] - points[best]).sum(axis=-1)
            between = (area[order] + area[best])[:, None] / 2 + np.spacing(1)
            alike = np.exp(-squared / variance / between / 2).mean(axis=-1)
            order = [o for o, a in zip(order, alike, strict=True) if not a > threshold]
    return chosen


@dataclass(frozen=True)
class OKSResult:
    """Result of `OKS.compute`; nan if no person was scored.

    Attributes:
        similarities: (N,), the OKS of each person scored.
        left_out: Number of people without a labelled joint or a known area.
    """

    similarities: NDArray[np.float64]
    left_out: int

    def columns(self) -> dict[str, float]:
        """Return the mean OKS, and the shares of people of an OKS of at least 0.5 and 0.75."""
        values = self.similarities
        if not len(values):
            return dict.fromkeys(("Mean", "OKS50", "OKS75"), float("nan"))
        return {
            "Mean": float(values.mean()),
            "OKS50": float((values >= 0.5).mean()),
            "OKS75": float((values >= 0.75).mean()),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON: nan becomes None."""
        columns = {k: for_json(v) for k, v in self.columns().items()}
        return {
            "metric": "OKS",
            "columns": columns,
            "people": len(self.similarities),
            "left_out": self.left_out,
        }

    def __str__(self) -> str:
        numbers = ", ".join(f"{k} {v:.3f}" for k, v in self.columns().items())
        note = f"{len(self.similarities)} people in their own boxes"
        return f"{numbers} ({note}{f', {self.left_out} left out' if self.left_out else ''})"


class OKS:
    """OKS of people in their own boxes: `update(...)` with every batch, then `compute()`.

    For watching a model of COCO's joints learn. It is not AP, since no detection is involved: there are neither missed
    people nor false detections (`dpose.pose.ap.KeypointAP`).

    Args:
        sigmas: (J,), the skeleton's.
    """

    def __init__(self, sigmas: Sequence[float]) -> None:
        self._sigmas = tuple(sigmas)
        self._similarities: list[NDArray[np.float64]] = []
        self._left_out = 0

    def update(self, predicted: ArrayLike, true: ArrayLike, labelled: ArrayLike, area: ArrayLike) -> None:
        """Add N people.

        Args:
            predicted: (N, J, 2), pixels.
            true: (N, J, 2), the same pixels.
            labelled: (N, J); above 0 where labelled.
            area: (N,), the same pixels, squared.
        """
        size = np.asarray(area, np.float64)
        usable = np.isfinite(size) & (np.asarray(labelled) > 0).any(axis=-1)
        similarities = oks(predicted, true, labelled, np.where(usable, size, 1), self._sigmas)
        self._similarities.append(similarities[usable])
        self._left_out += int((~usable).sum())

    def compute(self) -> OKSResult:
        """Return the result over all people so far; the metric may be updated further."""
        return OKSResult(np.concatenate([np.zeros(0), *self._similarities]), self._left_out)
