"""SimCC: a joint's position as two classifications, one over the bins of each axis; and the codec of it.

Pixel x of an axis of W pixels is bin x * k of its W * k bins, with k the split ratio (Li et al. 2022, "SimCC:
a Simple Coordinate Classification Perspective for Human Pose Estimation", section 3). Pixel centres are whole
numbers, so the first pixel is bin 0 and the last is bin (W - 1) * k.

Every function works on any leading dimensions, has no control flow that depends on data, and computes each
view from itself alone: all of it may run under `vmap(grad(...))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.pose.outputs import CodecSettings, Outputs

REACH = 3.0
"""Number of sigmas of the smoothing Gaussian that count as "at" a bin, in labels and in scores."""


def mirror_x(x_logits: Tensor, partner: Tensor, split_ratio: float) -> tuple[Tensor, Tensor]:
    """Return the x logits of a mirrored picture, reflected to the geometry of the unmirrored picture.

    In the mirrored picture pixel x stands at W - 1 - x, so bin b stands at k (W - 1) - b and not at the end
    of the vector minus b: reversing the vector alone would move every joint by k - 1 bins. The last k - 1
    bins lie beyond the last pixel's centre and have no counterpart.

    Args:
        x_logits: (N, J, W * k), of the mirrored picture.
        partner: (J,), for each joint the one that it becomes in a mirror.
        split_ratio: Bins a pixel, a whole number.

    Returns:
        The logits, (N, J, W * k), 0 in the bins without a counterpart; and (W * k,) bool, true for bins that have one.
    """
    shift = round(split_ratio) - 1
    turned = F.pad(x_logits[:, partner].flip(-1), (0, shift))[..., shift:]
    count = x_logits.shape[-1]
    return turned, torch.arange(count, device=x_logits.device) < count - shift


def bins(extent: int, split_ratio: float) -> int:
    """Return the number of bins of an axis of `extent` pixels."""
    return round(extent * split_ratio)


class SimccHead(nn.Module):
    """Maps features to the logits of every joint's bins, on two axes."""

    def __init__(self, channels: int, joints: int, map_size: tuple[int, int], upsample: int, counts: tuple[int, int]):
        super().__init__()
        cells = map_size[0] * map_size[1] * upsample**2
        self.upsample = upsample
        self.joints = nn.Conv2d(channels, joints, 1)
        self.x = nn.Linear(cells, counts[0])
        self.y = nn.Linear(cells, counts[1])

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, h, w) to x logits (N, J, counts[0]) and y logits (N, J, counts[1])."""
        maps = self.joints(features)
        if self.upsample > 1:
            maps = F.interpolate(maps, scale_factor=float(self.upsample), mode="bilinear", align_corners=False)
        flat = maps.flatten(2)
        return self.x(flat), self.y(flat)


@dataclass(frozen=True)
class SimccCodec:
    """Codec SimCC (`dpose.pose.outputs.Codec`): outputs are x logits (N, J, W * k) and y logits (N, J, H * k).

    Attributes:
        input_size: (H, W) in pixels.
        split_ratio: Bins a pixel, k, a whole number.
        sigma: Standard deviation of the labels' Gaussian, bins.
        upsample: Factor between the feature map and the joints' maps.
    """

    input_size: tuple[int, int]
    split_ratio: float
    sigma: float
    upsample: int

    export_names: ClassVar[tuple[str, ...]] = ("x_logits", "y_logits")
    joint_layers: ClassVar[dict[str, int]] = {"joints": 1}
    bin_layers: ClassVar[tuple[str, ...]] = ("x", "y")
    untaught: ClassVar[tuple[str, ...]] = ()
    fresh: ClassVar[float] = 1.0

    @classmethod
    def of(cls, config: CodecSettings) -> SimccCodec:
        """Create the codec of a configuration; the default sigma is 6 of 512 bins of the y axis."""
        sigma = config.sigma or 6.0 * bins(config.input_size[0], config.split_ratio) / 512
        return cls(config.input_size, config.split_ratio, sigma, config.upsample)

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """Create a 1x1 convolution to one map a joint, upsampled, and one linear layer an axis for all joints."""
        height, width = self.input_size
        counts = bins(width, self.split_ratio), bins(height, self.split_ratio)
        return SimccHead(channels, joints, map_size, self.upsample, counts)

    def encode(self, keypoints: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the smoothed labels of both axes, and the weight of each joint.

        The centre is round(x * k); the label is a Gaussian of `sigma` bins around it over the whole axis, normalised to
        sum 1 on the axis. A joint outside the picture whose centre +- 3 sigma lies wholly outside either axis has
        weight 0; the label of one nearer than that is at the border, the closest position that the axis has.

        Args:
            keypoints: (..., J, 2) pixels, x then y. Coordinates of joints that are not visible are never read: they may
                be anything, NaN too.
            visible: (..., J); a joint counts where this is > 0.

        Returns:
            Labels of x (..., J, W * k) and of y (..., J, H * k), and weights (..., J) of 0 or 1, all in the dtype of
            `keypoints`.
        """
        seen = visible > 0
        places = torch.where(seen[..., None], keypoints, torch.zeros_like(keypoints))
        height, width = self.input_size
        labels = []
        weight = seen
        for places_axis, extent in ((places[..., 0], width), (places[..., 1], height)):
            count = bins(extent, self.split_ratio)
            centre = torch.round(places_axis * self.split_ratio)
            first, last = -REACH * self.sigma, count - 1 + REACH * self.sigma
            weight = weight & (centre >= first) & (centre <= last)
            axis = torch.arange(count, dtype=keypoints.dtype, device=keypoints.device)
            # beyond first and last the weight is 0: the clamp only keeps 0 * overflow from becoming nan
            distance = axis - centre.clamp(first, last)[..., None]
            # softmax of the exponent: normalised to 1 however much of the Gaussian the axis cuts off
            labels.append(torch.softmax(-0.5 * (distance / self.sigma).square(), dim=-1))
        return labels[0], labels[1], weight.to(keypoints.dtype)

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """KL(label || softmax(logits)) of a joint over the bins of x, plus the same for y, times its weight."""
        x_logits, y_logits = outputs
        x_labels, y_labels, weight = self.encode(keypoints.to(x_logits.dtype), visible)
        joints = _divergence(x_labels, x_logits) + _divergence(y_labels, y_logits)
        return (joints * weight).sum(dim=-1) / weight.shape[-1]

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return argmax / k of each axis (of equal bins, the first): within 1 / (2 k) pixels of the encoded position.

        The score is the probability that the model puts within 3 sigma of its argmax, the smaller one of the two axes:
        0.997 if its distribution is as sharp as the labels, about 6 sigma / bins for a model that knows nothing.
        """
        coordinates, scores = [], []
        for logits in outputs:
            best = logits.argmax(dim=-1, keepdim=True)
            axis = torch.arange(logits.shape[-1], device=logits.device)
            near = (axis - best).abs() <= REACH * self.sigma
            probability = torch.softmax(logits, dim=-1)
            coordinates.append(best[..., 0].to(logits.dtype) / self.split_ratio)
            scores.append((probability * near).sum(dim=-1).clamp(0.0, 1.0))
        return torch.stack(coordinates, dim=-1), torch.minimum(scores[0], scores[1])

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """Average the logits with those of the mirrored crops, reflected by `mirror_x`."""
        (x_logits, y_logits), (x_mirrored, y_mirrored) = outputs, mirrored
        x_turned, has_counterpart = mirror_x(x_mirrored, partner, self.split_ratio)
        x_mean = torch.where(has_counterpart, (x_logits + x_turned) / 2, x_logits)
        return x_mean, (y_logits + y_mirrored[:, partner]) / 2

    def chance(self) -> float:
        """Return the share of the shorter axis' bins that lie within 3 sigma of one."""
        return 2 * REACH * self.sigma / bins(min(self.input_size), self.split_ratio)

    def explain(self) -> str:
        """Both formulas."""
        k = f"{self.split_ratio:g}"
        return f"x = argmax(x_logits) / {k}, y = argmax(y_logits) / {k}"


def _divergence(labels: Tensor, logits: Tensor) -> Tensor:
    """KL(labels || softmax(logits)) over the last dimension, in nats."""
    terms: Tensor = torch.special.xlogy(labels, labels) - labels * torch.log_softmax(logits, dim=-1)
    return terms.sum(dim=-1)
