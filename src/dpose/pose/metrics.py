"""PCKh: the share of joints found within a part of the head's length (Andriluka et al., CVPR 2014).

Beside it what all scores share: numbers for JSON, and bars.

Object keypoint similarity (OKS), non-maximum suppression by it, and the score of a person (Lin et al., ECCV 2014).

The similarity of a joint is exp(-d^2 / (2 s^2 k^2)), with d the distance in pixels, s^2 the person's area and k
twice the joint's sigma. OKS is the mean over the labelled joints: 1 for a perfect person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich import box
from rich.table import Table

from dpose.pose.skeletons import MPII

UNSCORED = (6, 7)
"""Pelvis and thorax: left out of every number."""

SCORED = tuple(j for j in range(len(MPII)) if j not in UNSCORED)

GROUPS: Mapping[str, tuple[int, ...]] = {
    "Head": (9,),
    "Shoulder": (12, 13),
    "Elbow": (11, 14),
    "Wrist": (10, 15),
    "Hip": (2, 3),
    "Knee": (1, 4),
    "Ankle": (0, 5),
}
"""Columns of the papers' tables, as MPII joints. Upper neck (8) has no column but counts in the mean."""


@dataclass(frozen=True)
class PCKhResult:
    """Result of `PCKh.compute`. All scores are percentages; nan where no joint was visible.

    Attributes:
        thresholds: In head lengths; the first is the one the columns show.
        correct: (T, 16), visible joints found, a row a threshold.
        visible: (16,), visible joints.
        people: Number of people scored.
        left_out: Number of people without a usable head length.
        whole_pictures: True if people were detected in whole pictures, without boxes.
        not_found: Number of people in whole pictures to whom no detection was assigned: all of their joints are missed.
    """

    thresholds: tuple[float, ...]
    correct: NDArray[np.int64]
    visible: NDArray[np.int64]
    people: int
    left_out: int
    whole_pictures: bool = False
    not_found: int = 0

    def joint(self, threshold: float) -> NDArray[np.float64]:
        """Return the score of each joint at one of the thresholds, (16,)."""
        return _percent(self.correct[self.thresholds.index(threshold)], self.visible)

    def mean(self, threshold: float) -> float:
        """Return the share of visible joints that are found, over the fourteen that are scored."""
        row = self.correct[self.thresholds.index(threshold)]
        scored = list(SCORED)
        return float(_percent(row[scored].sum(), self.visible[scored].sum()))

    def hits(self) -> NDArray[np.int64]:
        """Return (14, 2): for each scored joint the number found at the first threshold, and the number visible."""
        scored = list(SCORED)
        return np.stack([self.correct[0][scored], self.visible[scored]], axis=1)

    def columns(self) -> dict[str, float]:
        """Return the papers' columns at the first threshold, its mean, and the mean at each other threshold."""
        first, *others = self.thresholds
        joints = self.joint(first)
        table = {name: _mean_of(joints[list(group)]) for name, group in GROUPS.items()}
        table["Mean"] = self.mean(first)
        return table | {f"Mean@{t:g}": self.mean(t) for t in others}

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON: nan becomes None."""
        return {
            "metric": "PCKh",
            "threshold": self.thresholds[0],
            "main": "Mean",
            "unit": "%",
            "columns": {k: for_json(v) for k, v in self.columns().items()},
            "joints": {
                f"{t:g}": dict(zip(MPII.joints, map(for_json, self.joint(t)), strict=True)) for t in self.thresholds
            },
            "visible": dict(zip(MPII.joints, map(int, self.visible), strict=True)),
            "people": self.people,
            "left_out": self.left_out,
            **({"whole_pictures": True, "not_found": self.not_found} if self.whole_pictures else {}),
        }

    def __str__(self) -> str:
        cells = {name: f"{value:.2f}" for name, value in self.columns().items()}
        widths = [max(len(name), len(cell)) for name, cell in cells.items()]
        rows = (" ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in (cells, cells.values()))
        return "\n".join([*rows, self._footnote()])

    def __rich__(self) -> Table:
        table = Table(title=f"PCKh@{self.thresholds[0]:g}", caption=self._footnote(), box=box.SIMPLE_HEAD)
        table.padding = (0, 1, 0, 0)
        columns = self.columns()
        for name in columns:
            table.add_column(name, justify="right")
        table.add_row(*(f"{value:.2f}" for value in columns.values()))
        return table

    def plot(self) -> Any:
        """Draw the columns and each scored joint at the first threshold; a matplotlib Figure."""
        first = self.thresholds[0]
        joints = self.joint(first)
        return bar_panels(
            [(f"PCKh@{first:g}", self.columns()), ("by joint", {MPII.joints[j]: float(joints[j]) for j in SCORED})],
            top=100.0,
            title=f"PCKh@{first:g} {self.mean(first):.1f}",
        )

    def _footnote(self) -> str:
        note = f"{self.people} people, {int(self.visible[list(SCORED)].sum())} visible joints"
        if self.left_out:
            note += f"; {self.left_out} people left out, whose head length is unknown"
        if self.whole_pictures:
            note += f". Whole pictures, no boxes used; {self.not_found} people not found"
        return note


class PCKh:
    """PCKh on MPII's sixteen joints: `update(...)` with every batch, then `compute()`.

    A joint is found when its distance to the label is at most the threshold times the person's head length.
    Only visible joints count. Pelvis and thorax are left out. Head is the head top, the other columns the
    plain mean of right and left; Mean pools all fourteen joints, so each joint weighs by how often it is
    visible.

    Differences from the reference implementations:

    * Mean@0.1 is taken at 0.1. HRNet's evaluation reads row 11 of a table that starts at 0 in steps of
      0.01, which is the threshold 0.11, and so reports a higher number.
    * The threshold itself counts as found (<=), as in MPII's own script and HRNet. MMPose requires strictly
      less.
    * Means divide by visible joints. Averaging the joints' scores with equal weight, or dividing by all
      labels seen or not, gives other numbers under the same name.
    * A column whose joints are never visible is nan, and one side alone stands for its pair; the references
      divide by zero there.
    * People whose head length is unknown, zero or negative are left out and counted; the references have
      none.
    * Coordinates may start at 0 or 1: only differences are used. HRNet adds 1 to predictions since its
      labels are one-based there; here both come from the same loader.
    * A prediction that is not finite is a miss.

    Args:
        thresholds: In head lengths; the first gives the columns, the others a mean each.
    """

    def __init__(self, thresholds: Sequence[float] = (0.5, 0.1)) -> None:
        if not thresholds or len(set(thresholds)) != len(thresholds) or not all(t > 0 for t in thresholds):
            raise ValueError(f"thresholds must be positive and differ, got {tuple(thresholds)}")
        self.thresholds = tuple(float(t) for t in thresholds)
        self._correct = np.zeros((len(self.thresholds), len(MPII)), np.int64)
        self._visible = np.zeros(len(MPII), np.int64)
        self._people = 0
        self._left_out = 0

    def update(self, predicted: ArrayLike, true: ArrayLike, visible: ArrayLike, head_length: ArrayLike) -> None:
        """Add N people.

        Args:
            predicted: (N, 16, 2), pixels.
            true: (N, 16, 2), the same pixels.
            visible: (N, 16); above 0 where a joint is to be scored.
            head_length: (N,), the same pixels: 0.6 times the head box's diagonal on MPII.

        Raises:
            ValueError: the shapes do not match.
        """
        guess = np.asarray(predicted, np.float64)
        label = np.asarray(true, np.float64)
        seen = np.asarray(visible) > 0
        length = np.asarray(head_length, np.float64)
        shape = (len(length), len(MPII))
        if guess.shape != (*shape, 2) or label.shape != guess.shape or seen.shape != shape:
            raise ValueError(
                f"predicted {guess.shape}, true {label.shape}, visible {seen.shape} and head_length "
                f"{length.shape} do not match (N, 16, 2), (N, 16, 2), (N, 16), (N,)"
            )
        usable = np.isfinite(length) & (length > 0)
        seen = seen & usable[:, None]
        distance = np.linalg.norm(guess - label, axis=-1)
        distance = np.where(np.isfinite(distance), distance, np.inf)
        for row, threshold in zip(self._correct, self.thresholds, strict=True):
            # comparing distance <= t * length, not distance / length <= t: one rounding less at the boundary
            row += ((distance <= threshold * np.where(usable, length, 0)[:, None]) & seen).sum(axis=0)
        self._visible += seen.sum(axis=0)
        self._people += int(usable.sum())
        self._left_out += int((~usable).sum())

    def compute(self) -> PCKhResult:
        """Return the result over all people so far; the metric may be updated further."""
        return PCKhResult(self.thresholds, self._correct.copy(), self._visible.copy(), self._people, self._left_out)


def _percent(part: ArrayLike, whole: ArrayLike) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.asarray(100.0 * np.divide(part, whole, dtype=np.float64))


def _mean_of(scores: NDArray[np.float64]) -> float:
    known = scores[np.isfinite(scores)]
    return float(known.mean()) if len(known) else float("nan")


def for_json(value: float) -> float | None:
    """Return a score for JSON: None if it is nan."""
    return float(value) if math.isfinite(value) else None


def bar_panels(panels: Sequence[tuple[str, Mapping[str, float]]], top: float, title: str) -> Any:
    """Draw one panel of horizontal bars for each table.

    Args:
        panels: (title, value by name); nan is drawn as no bar and written as "-".
        top: The best possible value: the axis' end.
        title: Title above all panels.

    Returns:
        A `matplotlib.figure.Figure`, not shown and not known to pyplot: `figure.savefig("scores.png")`.
    """
    from matplotlib.figure import Figure

    rows = max(len(table) for _, table in panels)
    figure = Figure(figsize=(5.5 * len(panels), 1.2 + 0.28 * rows), layout="constrained")
    for axis, (name, table) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        known = [v if math.isfinite(v) else 0.0 for v in table.values()]
        axis.barh(range(len(known)), known, color="#3c78c8")
        axis.set_yticks(range(len(known)), list(table))
        axis.set_xlim(0, top)
        axis.invert_yaxis()
        axis.set_title(name)
        axis.spines[["top", "right"]].set_visible(False)
        for place, value in enumerate(table.values()):
            text = "-" if not math.isfinite(value) else f"{value:.1f}" if top > 1 else f"{value:.2f}"
            axis.annotate(text, (known[place], place), xytext=(3, 0), textcoords="offset points", va="center", size=8)
    figure.suptitle(title)
    return figure


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
    return np.asarray(np.exp(-squared / variance / (np.asarray(area, np.float64)[..., None] + np.spacing(1)) / 2))


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

    A person without a joint above it has score 0. Both factors lie in [0, 1] (`dpose.pose.outputs.Codec.decode`), so
    the product does too. The reference implementations use the heat maps' raw maxima, which have no upper bound.

    Args:
        box_scores: (N,), in [0, 1].
        joint_scores: (N, J), in [0, 1].
    """
    scores = np.asarray(joint_scores, np.float64)
    counted = scores > KEPT
    mean = (scores * counted).sum(axis=-1) / np.maximum(counted.sum(axis=-1), 1)
    return np.asarray(np.asarray(box_scores, np.float64) * mean)


def oks_nms(
    keypoints: ArrayLike, scores: ArrayLike, areas: ArrayLike, sigmas: Sequence[float], threshold: float = NMS
) -> list[int]:
    """Return which of N predicted people stay, by falling score: none is more than `threshold` like one before it.

    As HRNet's: the similarity of two predictions divides by the mean of their crops' areas, and every joint counts.
    At most `MOST` stay; people of equal score keep their order.

    Args:
        keypoints: (N, J, 2), pixels.
        scores: (N,).
        areas: (N,), of the crops that people were predicted in, pixels squared.
        sigmas: (J,).
        threshold: In (0, 1].

    Returns:
        Indices, best first.
    """
    points, area = np.asarray(keypoints, np.float64), np.asarray(areas, np.float64)
    variance = np.square(2 * np.asarray(sigmas, np.float64))
    order = list(np.argsort(-np.asarray(scores, np.float64), kind="stable"))
    chosen: list[int] = []
    while order and len(chosen) < MOST:
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
        values = {"metric": "OKS", "main": "Mean", "unit": "", "columns": columns}
        return {**values, "people": len(self.similarities), "left_out": self.left_out}

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
