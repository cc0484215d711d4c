"""A detector of people (torchvision's), for pictures that nobody has drawn boxes in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import torch
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.data.detections import Box

_PERSON = 1  # COCO's number
_INSTEAD = "give boxes with --box, --detections or --labels"


class PersonDetector:
    """Faster R-CNN with a MobileNetV3 backbone, trained on COCO (`dpose.pose.boxes.Boxes`).

    Its weights, 74 MiB, are no part of dpose: torchvision fetches them once from download.pytorch.org and keeps them in
    torch's cache folder. Pictures never leave this machine.

    Args:
        least: People found with a lower score are left out.
        device: Where it runs.

    Raises:
        DposeError: the weights are not there and cannot be fetched; the message says where to put them.
    """

    def __init__(self, least: float = 0.5, device: str = "cpu") -> None:
        from torchvision.models import detection

        weights = detection.FasterRCNN_MobileNet_V3_Large_320_FPN_Weights.COCO_V1
        try:
            # the backbone's own weights would be fetched first, and then overwritten
            self._model: Any = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
                weights=weights, weights_backbone=None
            )
        except (URLError, OSError, RuntimeError) as error:
            folder = Path(torch.hub.get_dir()) / "checkpoints"
            raise DposeError(
                "detector-weights-unavailable",
                f"the person detector's weights cannot be had ({_reason(error)})",
                weights.url,
                f"fetch that file on a machine with a network and put it into {os.fspath(folder)}, or {_INSTEAD}",
            ) from error
        self._model = self._model.to(device).eval()
        self._least, self._device = least, device

    def __call__(self, name: str, number: int, image: NDArray[np.uint8]) -> Sequence[Box]:
        """The people found, best first."""
        picture = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).to(self._device) / 255
        with torch.inference_mode():
            (found,) = self._model([picture])
        people = (found["labels"] == _PERSON) & (found["scores"] >= self._least)
        corners, scores = found["boxes"][people].double().cpu().numpy(), found["scores"][people].cpu().numpy()
        return [Box(c, float(s)) for c, s in zip(corners, scores, strict=True) if c[2] > c[0] and c[3] > c[1]]


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    return " ".join(str(cause).split())[:120] or type(error).__name__
