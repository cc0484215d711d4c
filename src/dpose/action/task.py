"""Two tasks for the training engine: the action in a clip, and attributes of the people in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from dpose.action.metrics import Attributes, Top1
from dpose.action.model import ActionConfig, ActionModel
from dpose.errors import DposeError
from dpose.units import UnitBatch, View, pad_views


class _ClipTask:
    """Common part of both tasks: clips, stacked, through an `ActionModel` of known classes."""

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


class ActionTask(_ClipTask):
    """Recognition of the action in a clip (`dpose.units.Task`).

    A view is a clip, (T, H, W, 3); its target holds "action", the number of its class. A video with several views is
    one unit: the mean of its clips' gradients is clipped once (MultiClip-DP, Luo et al. 2024).
    """

    def loss(
        self,
        model: torch.nn.Module,
        params: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Mapping[str, Tensor],
    ) -> Tensor:
        """Return the cross-entropy of each of V clips, (V,), at `params`.

        Args:
            model: An `ActionModel` of this task's classes.
            params: The trainable parameters by name.
            inputs: (V, 3, T, H, W), uint8 or float in 0 to 255.
            targets: "action" (V,), integers.
        """
        logits = self._logits(model, params, inputs)
        return F.cross_entropy(logits, targets["action"], reduction="none")

    def metric(self) -> Top1:
        """Create a metric."""
        return Top1()


class AttributeTask(_ClipTask):
    """Recognition of several attributes at once in a picture or clip (seed 004, section 4.3).

    The target holds "attributes" (A,): 1 present, 0 absent, -1 unknown and not learnt from.
    """

    name = "attributes"

    def loss(
        self,
        model: torch.nn.Module,
        params: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Mapping[str, Tensor],
    ) -> Tensor:
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
