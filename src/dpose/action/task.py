"""The task of recognizing the action in a clip, for the training engine, and its metric: top-1 accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from dpose.action.model import ActionConfig, ActionModel
from dpose.errors import DposeError
from dpose.units import Metric, Tensors, UnitBatch, View, pad_views


@dataclass(frozen=True)
class Top1Result:
    """Top-1 accuracy.

    Attributes:
        correct: Number of clips whose largest logit is the true class's.
        count: Number of clips.
    """

    correct: int
    count: int

    @property
    def top1(self) -> float:
        """The accuracy in percent; 0 without clips."""
        return 100 * self.correct / self.count if self.count else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON."""
        return {"metric": "Top-1", "main": "Top-1", "unit": "%", "columns": {"Top-1": self.top1}, "clips": self.count}

    def __rich__(self) -> str:
        return f"Top-1 {self.top1:.2f} % of {self.count:,} clips"


class Top1:
    """Accumulates logits (N, classes) and targets' "action" (N,)."""

    def __init__(self) -> None:
        self._correct = self._count = 0

    def update(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> None:
        """Add N clips."""
        self._correct += int((outputs.argmax(1).cpu() == targets["action"].cpu()).sum())
        self._count += len(outputs)

    def compute(self) -> Top1Result:
        """Return the result over all clips so far."""
        return Top1Result(self._correct, self._count)


class ActionTask:
    """Recognition of the action in a clip (`dpose.units.Task`).

    A view is a clip, (T, H, W, 3); its target holds "action", the number of its class. A video with several views is
    one unit: the mean of its clips' gradients is clipped once (MultiClip-DP, Luo et al. 2024).
    """

    name = "action"

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)

    def build_model(self, config: Any) -> ActionModel:
        """Create an untrained model.

        Args:
            config: An `ActionConfig`, or the mapping that its `to_dict` returns.
        """
        built = config if isinstance(config, ActionConfig) else ActionConfig.from_dict(config)
        self._check(built)
        return ActionModel(built)

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units of clips into a batch, padded with views of weight 0."""
        return pad_views(units)

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: Tensor, targets: Tensors) -> Tensor:
        """Return the cross-entropy of each of V clips, (V,), at `params`.

        Args:
            model: An `ActionModel` of this task's classes.
            params: The trainable parameters by name.
            inputs: (V, 3, T, H, W), uint8 or float in 0 to 255.
            targets: "action" (V,), integers.
        """
        logits = self._logits(model, params, inputs)
        return F.cross_entropy(logits, targets["action"], reduction="none")

    def metric(self) -> Metric:
        """Create a metric."""
        return Top1()

    def _logits(self, model: torch.nn.Module, params: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        if not isinstance(model, ActionModel):
            raise DposeError(
                "model-of-other-task", f"the action task trains an ActionModel, not a {type(model).__name__}"
            )
        self._check(model.config)
        logits: Tensor = functional_call(model, dict(params), (inputs,))
        return logits

    def _check(self, config: ActionConfig) -> None:
        if config.classes != self.classes:
            raise DposeError(
                "classes-differ",
                f"the model knows {len(config.classes)} classes that are not the data's {len(self.classes)}",
                fix="use a model that was trained on these data",
            )
