"""RTMPose: CSPNeXt as a backbone, and the head that gates joints by each other, as readable torch modules.

Jiang et al. 2023, "RTMPose: real-time multi-person pose estimation based on MMPose". Modules have mmpose's names, and
so have its tensors. The head's outputs are SimCC's, with the factor 10 by which mmpose multiplies its outputs
in loss and score (`beta`) folded into the last layers: logits in nats. No layer but BatchNorm mixes pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.norms import Norm, replace_batch_norms
from dpose.pose.outputs import CodecSettings
from dpose.pose.simcc import SimccCodec, bins

BETA = 10.0
"""Factor by which mmpose multiplies its outputs before a softmax, and its labels too."""
SIGMA = 1.67
"""Standard deviation of the labels at 256 rows, in bins of 512: mmpose's Gaussians of 4.9 and 5.66 bins, times `BETA`,
through a softmax are near Gaussians of 1.55 and 1.79, on a floor. In its labels of 768 bins they are wider by the root
of 768 / 512.
"""
HIDDEN, KEYS, WIDER = 256, 128, 2
"""Width of a joint's vector between the head's layers, of the vector that joints are compared by, and factor of the
gates' width.
"""
STAGES = ((128, 3), (256, 6), (512, 6), (1024, 3))
"""Channels and blocks of each stage at width and depth 1."""


class ConvModule(nn.Module):
    """A convolution, BatchNorm and SiLU."""

    def __init__(self, into: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        """(N, into, H, W) to (N, out, H / stride, W / stride)."""
        return F.silu(self.bn(self.conv(x)))


class DepthwiseConv(nn.Module):
    """One 5x5 kernel a channel, then a 1x1 convolution, each with BatchNorm and SiLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise_conv = ConvModule(channels, channels, 5, groups=channels)
        self.pointwise_conv = ConvModule(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        return cast(Tensor, self.pointwise_conv(self.depthwise_conv(x)))


class CspNextBlock(nn.Module):
    """A 3x3 convolution and a depthwise one, plus the input if `residual`."""

    def __init__(self, channels: int, residual: bool) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, channels, 3)
        self.conv2 = DepthwiseConv(channels)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        y: Tensor = self.conv2(self.conv1(x))
        return x + y if self.residual else y


class ChannelAttention(nn.Module):
    """Multiplies each channel by a number between 0 and 1, computed from the means of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        return x * F.hardsigmoid(self.fc(x.mean((2, 3), keepdim=True)))


class CspLayer(nn.Module):
    """Half of the channels through blocks, half past them, joined."""

    def __init__(self, channels: int, blocks: int, residual: bool) -> None:
        super().__init__()
        half = channels // 2
        self.main_conv = ConvModule(channels, half, 1)
        self.short_conv = ConvModule(channels, half, 1)
        self.blocks = nn.Sequential(*(CspNextBlock(half, residual) for _ in range(blocks)))
        self.attention = ChannelAttention(2 * half)
        self.final_conv = ConvModule(2 * half, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        both = torch.cat([self.blocks(self.main_conv(x)), self.short_conv(x)], dim=1)
        return cast(Tensor, self.final_conv(self.attention(both)))


class PyramidPooling(nn.Module):
    """The map concatenated with its maxima within 5, 9 and 13 cells."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, channels // 2, 1)
        self.conv2 = ConvModule(channels // 2 * 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        x = self.conv1(x)
        pooled = [F.max_pool2d(x, side, 1, side // 2) for side in (5, 9, 13)]
        return cast(Tensor, self.conv2(torch.cat([x, *pooled], dim=1)))


class CspNext(nn.Module):
    """Backbone of a stem and four stages, 32 pixels per cell.

    Args:
        depth: Factor of the number of blocks in `STAGES`.
        width: Factor of its channels.
    """

    def __init__(self, depth: float, width: float) -> None:
        super().__init__()
        into, half = int(64 * width), int(64 * width // 2)
        self.stem = nn.Sequential(ConvModule(3, half, 3, 2), ConvModule(half, half, 3), ConvModule(half, into, 3))
        for number, (channels, blocks) in enumerate(STAGES, 1):
            out, last = int(channels * width), number == len(STAGES)
            layers: list[nn.Module] = [ConvModule(into, out, 3, 2)]
            layers += [PyramidPooling(out)] if last else []
            layers.append(CspLayer(out, max(round(blocks * depth), 1), residual=not last))
            self.add_module(f"stage{number}", nn.Sequential(*layers))
            into = out
        self.channels = into

    def forward_features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W), normalised, to (N, C, H / 32, W / 32)."""
        for layer in self.children():
            x = layer(x)
        return x


class ScaleNorm(nn.Module):
    """Divides vectors by the root of their mean square, times one learnt number."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to the same shape."""
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True) * x.shape[-1] ** -0.5
        return cast(Tensor, x / size.clamp(min=1e-5) * self.g)


class ChannelScale(nn.Module):
    """A learnt factor for each element of a vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to the same shape."""
        return x * self.scale


class GatedAttention(nn.Module):
    """Self-attention among the joints, gated (Hua et al. 2022, "Transformer quality in linear time")."""

    def __init__(self) -> None:
        super().__init__()
        wide = WIDER * HIDDEN
        self.ln = ScaleNorm()
        self.uv = nn.Linear(HIDDEN, 2 * wide + KEYS, bias=False)
        self.gamma = nn.Parameter(torch.rand(2, KEYS))
        self.beta = nn.Parameter(torch.rand(2, KEYS))
        self.o = nn.Linear(wide, HIDDEN, bias=False)
        self.res_scale = ChannelScale(HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        """(N, J, 256) to the same shape."""
        wide = WIDER * HIDDEN
        gates, values, base = torch.split(F.silu(self.uv(self.ln(x))), [wide, wide, KEYS], dim=-1)
        query, key = (base[..., None, :] * self.gamma + self.beta).unbind(-2)
        weights = F.relu(query @ key.mT / math.sqrt(KEYS)).square()
        return cast(Tensor, self.res_scale(x) + self.o(gates * (weights @ values)))


class RtmposeHead(nn.Module):
    """Maps features to the logits of every joint's bins, on two axes.

    Args:
        channels: Channels of the features.
        joints: Number of joints, J.
        cells: Cells of the feature map.
        counts: Bins of x and of y.
    """

    def __init__(self, channels: int, joints: int, cells: int, counts: tuple[int, int]) -> None:
        super().__init__()
        self.final_layer = nn.Conv2d(channels, joints, 7, padding=3)
        self.mlp = nn.Sequential(ScaleNorm(), nn.Linear(cells, HIDDEN, bias=False))
        self.gau = GatedAttention()
        self.cls_x = nn.Linear(HIDDEN, counts[0], bias=False)
        self.cls_y = nn.Linear(HIDDEN, counts[1], bias=False)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, h, w) to x logits (N, J, W * k) and y logits (N, J, H * k)."""
        joints = self.gau(self.mlp(self.final_layer(features).flatten(2)))
        return self.cls_x(joints), self.cls_y(joints)


@dataclass(frozen=True)
class RtmposeCodec(SimccCodec):
    """SimCC with RTMPose's head and the width of its labels."""

    joint_layers: ClassVar[dict[str, int]] = {"final_layer": 1}
    bin_layers: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, config: CodecSettings) -> RtmposeCodec:
        """Create the codec of a configuration; the default sigma is `SIGMA`."""
        rows = bins(config.input_size[0], config.split_ratio)
        sigma = config.sigma or SIGMA * math.sqrt(rows / 512)
        return cls(config.input_size, config.split_ratio, sigma, config.upsample)

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """Create a head for this size of pictures alone."""
        height, width = self.input_size
        counts = bins(width, self.split_ratio), bins(height, self.split_ratio)
        return RtmposeHead(channels, joints, map_size[0] * map_size[1], counts)


def build_rtmpose(
    depth: float, width: float, size: tuple[int, int], norm: Norm, pretrained: object
) -> tuple[nn.Module, nn.Module, int]:
    """Build a `CspNext` (`Backbone.build`), with weights drawn at random."""
    if pretrained:
        raise DposeError(
            "backbone-without-own-weights",
            "starts from whole pose models alone",
            "a backbone of RTMPose",
            "give --init FILE.pth of mmpose",
        )
    network = CspNext(depth, width)
    example = torch.zeros(1, 3, *size)
    replace_batch_norms(network, norm, lambda: network.forward_features(example))
    return network, nn.Identity(), network.channels
