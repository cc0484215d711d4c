"""The pose task: what the training engine needs to know of poses, and all that it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from dpose.errors import DposeError
from dpose.pose.metrics import PCKh
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.oks import OKS
from dpose.pose.simcc import simcc_loss
from dpose.pose.skeletons import MPII, SKELETONS, joint_map
from dpose.units import Precision, Result, UnitBatch, View, pad_views


class PoseTask:
    """2D human pose by coordinate classification (`dpose.units.Task`).

    A view is a crop of one person, at the model's input size. Its target holds "keypoints" (J, 2), pixels of
    the crop, x then y; "visible" (J,), learnt from where > 0; and, for the metric, "labelled" (J,), scored
    where > 0, and "head_length" or "area", a scalar in pixels of the crop, or those squared.

    Args:
        skeleton: A name in `dpose.pose.skeletons.SKELETONS`.
        split_ratio: SimCC bins a pixel, the model's.
        labels: The skeleton of what the metric compares with, where it is another than the model's.
        precision: "bf16" runs the model in bfloat16 (autocast) when the loss is computed; weights, loss and gradients
            stay float32.

    Raises:
        DposeError: there is no such skeleton.
    """

    name = "pose"

    def __init__(
        self,
        skeleton: str = "mpii",
        split_ratio: float = 2.0,
        labels: str | None = None,
        precision: Precision = "float32",
    ) -> None:
        for name in (skeleton, labels or skeleton):
            if name not in SKELETONS:
                raise DposeError("there is no such skeleton", name, f"choose from {', '.join(SKELETONS)}")
        self.skeleton = skeleton
        self.split_ratio = split_ratio
        self.labels = labels or skeleton
        self.precision = precision

    def build_model(self, config: Any) -> PoseModel:
        """A fresh model.

        Args:
            config: A `PoseConfig`, or the mapping that its `to_dict` gives.

        Raises:
            DposeError: the configuration is not possible, or is for another skeleton or split ratio.
        """
        built = config if isinstance(config, PoseConfig) else PoseConfig.from_dict(config)
        self._check(built)
        return PoseModel(built)

    def loss(
        self,
        model: torch.nn.Module,
        params: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Mapping[str, Tensor],
    ) -> Tensor:
        """The SimCC loss of each of V views, (V,), at `params` (`dpose.pose.simcc.simcc_loss`).

        Args:
            model: A `PoseModel` for this task's skeleton.
            params: The trainable parameters by name; the rest stay as they are in `model`.
            inputs: (V, 3, H, W), uint8 or float in 0 to 255.
            targets: "keypoints" (V, J, 2) and "visible" (V, J).

        A view's loss depends on that view alone, unless the model has BatchNorm in training mode. Safe under
        `vmap(grad(...))`.
        """
        if not isinstance(model, PoseModel):
            raise DposeError(f"the pose task trains a PoseModel, not a {type(model).__name__}")
        self._check(model.config)
        if self.precision == "bf16":
            with torch.autocast(inputs.device.type, torch.bfloat16):
                logits = functional_call(model, dict(params), (inputs,))
            x_logits, y_logits = (axis.float() for axis in logits)
        else:
            x_logits, y_logits = functional_call(model, dict(params), (inputs,))
        return simcc_loss(
            x_logits,
            y_logits,
            targets["keypoints"],
            targets["visible"],
            model.config.split_ratio,
            model.config.sigma,
        )

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units into a batch, padded with views of weight 0."""
        return pad_views(units)

    def metric(self) -> PoseMetric:
        """A fresh metric: OKS where the labels' skeleton has sigmas (COCO's), else PCKh on MPII's joints."""
        return PoseMetric(self.split_ratio, self.skeleton, self.labels)

    def _check(self, config: PoseConfig) -> None:
        if config.skeleton != self.skeleton:
            raise DposeError(f"the model is for {config.skeleton}", f"skeleton {self.skeleton}")
        if config.split_ratio != self.split_ratio:
            raise DposeError(
                f"the model has {config.split_ratio} bins a pixel", f"split_ratio {self.split_ratio}"
            )


class PoseMetric:
    """OKS or PCKh of the decoded logits (`dpose.units.Metric`), on the joints that model and labels share.

    Args:
        split_ratio: SimCC bins a pixel, the model's.
        skeleton: The model's.
        labels: The labels'. COCO's are scored by OKS, any other by PCKh, brought to MPII's joints.
    """

    def __init__(self, split_ratio: float, skeleton: str = "mpii", labels: str = "mpii") -> None:
        scored = SKELETONS[labels] if SKELETONS[labels].sigmas else MPII
        self._split_ratio = split_ratio
        self._predicted, self._labelled = joint_map(skeleton, scored), joint_map(labels, scored)
        self._metric: PCKh | OKS = OKS(scored.sigmas) if scored.sigmas else PCKh()

    def update(self, outputs: tuple[Tensor, Tensor], targets: Mapping[str, Tensor]) -> None:
        """Add N views.

        Args:
            outputs: The model's x logits (N, J, W * k) and y logits (N, J, H * k).
            targets: "keypoints" (N, K, 2), "labelled" (N, K), and "head_length" (N,) for PCKh or "area" (N,) for OKS.
                "labelled" and not "visible": a joint that the crop has lost is not learnt from, but it is scored.
                Joints that the model does not have are not scored.
        """
        predicted = torch.stack([o.argmax(dim=-1) / self._split_ratio for o in outputs], dim=-1)
        labelled = self._labelled.values(targets["labelled"].cpu().numpy())
        labelled[:, list(self._predicted.missing)] = 0
        self._metric.update(
            self._predicted.points(predicted.cpu().numpy()),
            self._labelled.points(targets["keypoints"].cpu().numpy()),
            labelled,
            targets["area" if isinstance(self._metric, OKS) else "head_length"].cpu().numpy(),
        )

    def compute(self) -> Result:
        """The result over everything seen."""
        return self._metric.compute()
