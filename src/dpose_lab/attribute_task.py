"""Recognition of attributes of people, several at once: the task, and class-wise mAP and F1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dpose.action.task import ActionTask
from dpose.units import Tensors


@dataclass(frozen=True)
class AttributeResult:
    """Scores of predicted attributes.

    Attributes:
        names: Attributes that had positives and negatives.
        ap: Average precision of each, percent.
        f1: F1 of each at probability one half, percent.
        prevalence: Share of positives, percent: the average precision of guessing.
    """

    names: tuple[str, ...]
    ap: tuple[float, ...]
    f1: tuple[float, ...]
    prevalence: tuple[float, ...]

    @property
    def cmap(self) -> float:
        """The mean of the average precisions."""
        return float(np.mean(self.ap)) if self.ap else 0.0

    @property
    def mean_f1(self) -> float:
        """The mean of the F1 scores."""
        return float(np.mean(self.f1)) if self.f1 else 0.0

    @property
    def chance(self) -> float:
        """The cMAP of guessing."""
        return float(np.mean(self.prevalence)) if self.prevalence else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON."""
        return {
            "metric": "cMAP",
            "main": "cMAP",
            "unit": "%",
            "columns": {"cMAP": self.cmap, "F1": self.mean_f1, "cMAP of guessing": self.chance},
            "attributes": {
                n: {"ap": a, "f1": f, "prevalence": p}
                for n, a, f, p in zip(self.names, self.ap, self.f1, self.prevalence, strict=True)
            },
        }


class Attributes:
    """Accumulates logits (N, A) and targets' "attributes" (N, A): 1 present, 0 absent, -1 unknown."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._scores: list[NDArray[np.float64]] = []
        self._labels: list[NDArray[np.int64]] = []

    def update(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> None:
        """Add N pictures."""
        self._scores.append(outputs.detach().cpu().double().numpy())
        self._labels.append(targets["attributes"].cpu().long().numpy())

    def compute(self) -> AttributeResult:
        """Return the result over all pictures so far, without attributes that lack positives or negatives."""
        empty = np.zeros((0, len(self._names)))
        scores = np.concatenate([empty, *self._scores])
        labels = np.concatenate([empty.astype(np.int64), *self._labels])
        names, ap, f1, prevalence = [], [], [], []
        for column, name in enumerate(self._names):
            known = labels[:, column] >= 0
            truth, score = labels[known, column] == 1, scores[known, column]
            if not truth.any() or truth.all():
                continue
            names.append(name)
            ap.append(100 * average_precision(score, truth))
            f1.append(100 * f1_score(score > 0, truth))
            prevalence.append(100 * float(truth.mean()))
        return AttributeResult(tuple(names), tuple(ap), tuple(f1), tuple(prevalence))


def average_precision(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """Return the area under precision over recall, in steps; equal scores share one step.

    Args:
        scores: (N,), higher is more confident.
        truth: (N,), at least one true.
    """
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], np.cumsum(truth[order])
    last = np.append(ranked[1:] != ranked[:-1], True)
    true_positives, predicted = hits[last], np.flatnonzero(last) + 1
    gained = np.diff(true_positives, prepend=0)
    return float((true_positives / predicted * gained).sum() / hits[-1])


def f1_score(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Return the harmonic mean of precision and recall; 0 without true positives."""
    both = int((predicted & truth).sum())
    total = int(predicted.sum()) + int(truth.sum())
    return 2 * both / total if total else 0.0


class AttributeTask(ActionTask):
    """Recognition of several attributes at once in a picture or clip (seed 004, section 4.3).

    The target holds "attributes" (A,): 1 present, 0 absent, -1 unknown and not learnt from.
    """

    name = "attributes"

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: Tensor, targets: Tensors) -> Tensor:
        """Return the mean binary cross-entropy over the known attributes of each of V views, (V,), at `params`.

        Args:
            model: An `ActionModel` whose classes are the attributes.
            params: The trainable parameters by name.
            inputs: (V, 3, T, H, W), uint8 or float in 0 to 255.
            targets: "attributes" (V, A).
        """
        logits = self._logits(model, params, inputs)
        truth = targets["attributes"].to(logits.dtype)
        known = (truth >= 0).to(logits.dtype)
        each = F.binary_cross_entropy_with_logits(logits, truth.clamp_min(0), reduction="none")
        return (each * known).sum(1) / known.sum(1).clamp_min(1)

    def metric(self) -> Attributes:
        """Create a metric."""
        return Attributes(self.classes)
