"""The pose task: the part of poses that the training engine needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from dpose.errors import DposeError
from dpose.pose.codec import codec_of
from dpose.pose.metrics import OKS, PCKh
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.outputs import Codec, Outputs
from dpose.pose.skeletons import MPII, SKELETONS, joint_map, skeleton_named
from dpose.units import Precision, Result, Tensors, UnitBatch, View, pad_views


class PoseTask:
    """2D human pose (`dpose.units.Task`).

    A view is a crop of one person, at the model's input size. Its target holds "keypoints" (J, 2), pixels of
    the crop, x then y; "visible" (J,), learnt from where > 0; and, for the metric, "labelled" (J,), scored
    where > 0, and "head_length" or "area", a scalar in pixels of the crop, or those squared.

    Args:
        skeleton: A name in `dpose.pose.skeletons.SKELETONS`.
        codec: The model's (`PoseModel.codec`); SimCC of two bins a pixel by default.
        labels: Skeleton of the labels that the metric compares with, if it is not the model's.
        precision: "bf16" runs the model in bfloat16 (autocast) when the loss is computed; weights, loss and gradients
            stay float32.

    Raises:
        DposeError: there is no such skeleton.
    """

    name = "pose"

    def __init__(
        self,
        skeleton: str = "mpii",
        codec: Codec | None = None,
        labels: str | None = None,
        precision: Precision = "float32",
    ) -> None:
        for name in (skeleton, labels or skeleton):
            skeleton_named(name)
        self.skeleton = skeleton
        self.codec = codec or codec_of(PoseConfig())
        self.labels = labels or skeleton
        self.precision = precision

    def build_model(self, config: Any) -> PoseModel:
        """Create an untrained model.

        Args:
            config: A `PoseConfig`, or the mapping that its `to_dict` returns.

        Raises:
            DposeError: the configuration is not possible, or is for another skeleton or codec.
        """
        built = config if isinstance(config, PoseConfig) else PoseConfig.from_dict(config)
        self._check(built)
        return PoseModel(built)

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: Tensor, targets: Tensors) -> Tensor:
        """Return the codec's loss of each of V views, (V,), at `params`.

        Args:
            model: A `PoseModel` for this task's skeleton.
            params: The trainable parameters by name; the rest stay as they are in `model`.
            inputs: (V, 3, H, W), uint8 or float in 0 to 255.
            targets: "keypoints" (V, J, 2) and "visible" (V, J).

        A view's loss depends on that view alone, unless the model has BatchNorm in training mode. Safe under
        `vmap(grad(...))`.
        """
        if not isinstance(model, PoseModel):
            raise DposeError("model-of-other-task", f"the pose task trains a PoseModel, not a {type(model).__name__}")
        self._check(model.config)
        labelled, joints = targets["keypoints"].shape[-2], len(skeleton_named(self.skeleton))
        if labelled != joints:
            said = f"the labels are of {labelled} joints, and the model of {joints}"
            raise DposeError("joints-differ", said, f"skeleton {self.skeleton}", "open the data with that skeleton")
        if self.precision == "bf16":
            with torch.autocast(inputs.device.type, torch.bfloat16):
                outputs = functional_call(model, dict(params), (inputs,))
            outputs = tuple(output.float() for output in outputs)
        else:
            outputs = functional_call(model, dict(params), (inputs,))
        return model.codec.loss(outputs, targets["keypoints"], targets["visible"])

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units into a batch, padded with views of weight 0."""
        return pad_views(units)

    def metric(self) -> PoseMetric:
        """Create a metric: OKS if the labels' skeleton has sigmas (COCO's), else PCKh on MPII's joints."""
        return PoseMetric(self.codec, self.skeleton, self.labels)

    def _check(self, config: PoseConfig) -> None:
        if config.skeleton != self.skeleton:
            raise DposeError("skeleton-differs", f"the model is for {config.skeleton}", f"skeleton {self.skeleton}")
        actual, wanted = codec_of(config).explain(), self.codec.explain()
        if actual != wanted:
            raise DposeError("codec-differs", f"the model's joints are found by {actual}", f"a task of {wanted}")


class PoseMetric:
    """OKS or PCKh of the decoded outputs (`dpose.units.Metric`), on the joints that model and labels share."""

    def __init__(self, codec: Codec, skeleton: str = "mpii", labels: str = "mpii") -> None:
        scored = SKELETONS[labels] if SKELETONS[labels].sigmas else MPII
        self._codec = codec
        self._predicted = joint_map(skeleton, scored, predicted=True)
        self._labelled = joint_map(labels, scored)
        self._metric: PCKh | OKS = OKS(scored.sigmas) if scored.sigmas else PCKh()

    def update(self, outputs: Outputs, targets: Mapping[str, Tensor]) -> None:
        """Add N views.

        Args:
            outputs: The model's.
            targets: "keypoints" (N, K, 2), "labelled" (N, K), and "head_length" (N,) for PCKh or "area" (N,) for OKS.
                "labelled" and not "visible": a joint outside the crop is not learnt from, but it is scored.
                Joints that the model does not have are not scored.
        """
        predicted, _ = self._codec.decode(outputs)
        labelled = self._labelled.values(targets["labelled"].cpu().numpy())
        labelled[:, list(self._predicted.missing)] = 0
        self._metric.update(
            self._predicted.points(predicted.cpu().numpy()),
            self._labelled.points(targets["keypoints"].cpu().numpy()),
            labelled,
            targets["area" if isinstance(self._metric, OKS) else "head_length"].cpu().numpy(),
        )

    def compute(self) -> Result:
        """Return the result over all views so far."""
        return self._metric.compute()
