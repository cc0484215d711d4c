"""BlazePose: its detector of people and its three landmark networks, as readable torch modules.

Bazarevsky et al. 2020, "BlazePose: On-device Real-time Body Pose tracking"; the layers are those of the networks that
MediaPipe publishes (Apache-2.0), without segmentation and world coordinates. `tools/convert_blazepose.py` makes the
weights. No layer mixes pictures of a batch and no buffer is written: gradients of single units are exact.

BatchNorm was folded into the convolutions before they were published, which left channels of sizes a thousandfold
apart: neither one learning rate nor one scale of noise fits them all. So each output channel of a convolution has a
fixed `scale`, a power of two near its own size, and what is stored and trained is the rest (`ScaledConv`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 256
"""Side of the square crop that the landmark networks take, pixels."""
POINTS = 39
"""Points of a landmark network: the 33 of the skeleton "blazepose", then centre and top of the person's circle, and
four."""
STRIDE = 4
"""Crop pixels per cell of the heat maps."""
REACH, SURE = 3, 0.5
"""Cells on each side of a point's own that `refined` reads, and the probability that one of them must reach."""
DETECTOR_SIDE = 224
"""Side of the square picture that the detector takes, pixels."""


class ScaledConv(nn.Module):
    """Convolution whose output channels are multiplied by fixed numbers: `scale * (weight * x + bias)`.

    Args:
        into: Input channels.
        out: Output channels.
        kernel: Side of the kernel.
        stride: 1 or 2.
        groups: `into` for one kernel a channel.
        padding: Rows and columns of zeros on each side; half the kernel by default.
    """

    scale: Tensor

    def __init__(
        self, into: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, padding: int | None = None
    ) -> None:
        super().__init__()
        around = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(into, out, kernel, stride, around, groups=groups)
        self.register_buffer("scale", torch.ones(out))
        self.folded = False

    def forward(self, x: Tensor) -> Tensor:
        """(N, into, H, W) to (N, out, H / stride, W / stride)."""
        y: Tensor = self.conv(x)
        if not self.folded:  # a map in bfloat16 becomes float32, in which blocks are summed
            scale = self.scale.view(-1, 1, 1)
            y = y.mul_(scale) if y.dtype == scale.dtype else y * scale
        return y

    @torch.no_grad()
    def fold(self) -> None:
        """Multiply weight and bias by the scale, for prediction: the same outputs up to rounding, faster."""
        if not self.folded:
            self.conv.weight.mul_(self.scale.view(-1, 1, 1, 1))
            cast(Tensor, self.conv.bias).mul_(self.scale)
            self.folded = True


class InvertedResidual(nn.Module):
    """Block of MobileNetV2: wider, one kernel a channel, narrower, plus the input if the shape is the same."""

    def __init__(self, into: int, out: int, expansion: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        wide = into * expansion
        self.expand = ScaledConv(into, wide)
        self.depthwise = ScaledConv(wide, wide, kernel, stride, groups=wide)
        self.project = ScaledConv(wide, out)
        self.residual = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        """(N, into, H, W) to (N, out, H / stride, W / stride)."""
        y: Tensor = self.project(_clamped(self.depthwise(_clamped(self.expand(x)))))
        return y.add_(x) if self.residual else y


class SeparableConv(nn.Module):
    """One 3x3 kernel a channel, then a 1x1 convolution to other channels.

    Args:
        into: Input channels.
        out: Output channels.
        stride: 1 or 2.
        activations: Two flags: an activation between the convolutions, and one after them.
    """

    def __init__(self, into: int, out: int, stride: int = 1, activations: tuple[bool, bool] = (True, True)) -> None:
        super().__init__()
        self.depthwise = ScaledConv(into, into, 3, stride, groups=into)
        self.pointwise = ScaledConv(into, out)
        self.activations = activations

    def forward(self, x: Tensor) -> Tensor:
        """(N, into, H, W) to (N, out, H / stride, W / stride)."""
        between, after = self.activations
        x = self.depthwise(x)
        y: Tensor = self.pointwise(_clamped(x) if between else x)
        return _clamped(y) if after else y


class BlazeBlock(nn.Module):
    """Separable convolution plus its input, pooled where the map shrinks, with zeros for new channels.

    Args:
        into: Input channels.
        out: Output channels, at least as many.
        stride: 1 or 2.
        between: True for an activation after the channels' kernels.
    """

    def __init__(self, into: int, out: int, stride: int = 1, between: bool = True) -> None:
        super().__init__()
        self.depthwise = ScaledConv(into, into, 3, stride, groups=into, padding=1 if stride == 1 else 0)
        self.pointwise = ScaledConv(into, out)
        self.stride, self.more, self.between = stride, out - into, between

    def forward(self, x: Tensor) -> Tensor:
        """(N, into, H, W) to (N, out, H / stride, W / stride)."""
        shortcut, padded = x, x
        if self.stride == 2:
            # TensorFlow's padding: of an even side, only behind its end
            shortcut, padded = F.max_pool2d(x, 2), F.pad(x, (0, 1, 0, 1))
        y = self.depthwise(padded)
        y = self.pointwise(_clamped(y) if self.between else y)
        if self.more:
            shortcut = F.pad(shortcut, (0, 0, 0, 0, 0, self.more))
        return _clamped(y.add_(shortcut))


@dataclass(frozen=True)
class Stage:
    """Inverted residual blocks of one width.

    Attributes:
        width: Output channels of each block.
        kernel: Kernel side of the first block.
        stride: Stride of the first block.
        then: Kernel sides of the other blocks.
        expansions: Expansion factors of the blocks; one number counts for all.
    """

    width: int
    kernel: int
    stride: int
    then: tuple[int, ...]
    expansions: tuple[int, ...] = (6,)

    def build(self, into: int) -> nn.Sequential:
        """Build the blocks."""
        kernels = (self.kernel, *self.then)
        expansions = self.expansions * len(kernels) if len(self.expansions) == 1 else self.expansions
        return nn.Sequential(
            *(
                InvertedResidual(self.width if n else into, self.width, e, k, 1 if n else self.stride)
                for n, (e, k) in enumerate(zip(expansions, kernels, strict=True))
            )
        )


@dataclass(frozen=True)
class TrunkSizes:
    """Dimensions of a landmark network.

    Attributes:
        stem: Channels at half resolution.
        stages: Stages of the trunk, at 1/4, 1/8, 1/16 (two of them) and 1/32 of the crop.
        neck: Channels of the feature pyramid that the heat maps are read from.
        tower: (channels, blocks after the one that halves the map) of each step from the pyramid, or from the trunk's
            end, down to the 2x2 map that coordinates are read from.
        from_pyramid: True if the tower begins at the pyramid's 64x64 map, with the trunk's maps added on its way.
    """

    stem: int
    stages: tuple[Stage, ...]
    neck: int
    tower: tuple[tuple[int, int], ...]
    from_pyramid: bool = False


SIZES = {
    "lite": TrunkSizes(
        8,
        (
            Stage(16, 3, 2, (3,), (4, 6)),
            Stage(24, 5, 2, (5,)),
            Stage(40, 3, 2, (3, 3)),
            Stage(56, 5, 1, (5, 5)),
            Stage(96, 5, 2, (5, 5, 5)),
        ),
        32,
        ((192, 2), (192, 3)),
    ),
    "full": TrunkSizes(
        16,
        (
            Stage(24, 3, 2, (3,), (4, 6)),
            Stage(32, 5, 2, (5,)),
            Stage(64, 3, 2, (3, 3)),
            Stage(88, 5, 1, (5, 5)),
            Stage(144, 5, 2, (5, 5, 5)),
        ),
        48,
        ((288, 4), (288, 5)),
    ),
    "heavy": TrunkSizes(
        24,
        (
            Stage(32, 3, 2, (3, 3, 3), (4, 4, 6, 6)),
            Stage(56, 5, 2, (5, 5, 5)),
            Stage(112, 3, 2, (3,) * 5),
            Stage(160, 5, 1, (5,) * 5),
            Stage(272, 5, 2, (5,) * 7),
        ),
        48,
        ((96, 6), (192, 7), (288, 7), (288, 7), (288, 7)),
        from_pyramid=True,
    ),
}
"""Networks by name; 1.3, 3.1 and 13.6 million parameters."""


class BlazePoseTrunk(nn.Module):
    """Landmark network up to the input of its head (`BlazePoseHead`).

    Args:
        kind: A name in `SIZES`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        sizes = SIZES[kind]
        self.stem = ScaledConv(3, 24, 3, 2)
        self.stem_depthwise = ScaledConv(24, 24, 3, groups=24)
        self.stem_project = ScaledConv(24, sizes.stem)
        widths = [stage.width for stage in sizes.stages]
        self.stages = nn.ModuleList(
            stage.build(into) for stage, into in zip(sizes.stages, (sizes.stem, *widths), strict=False)
        )
        wide = 6 * widths[-1]
        self.top_expand = ScaledConv(widths[-1], wide)
        self.top_depthwise = ScaledConv(wide, wide, 3, groups=wide)
        taps = (widths[0], widths[1], widths[3], wide)  # at 1/4, 1/8, 1/16 and 1/32
        self.lateral = nn.ModuleList(SeparableConv(tap, sizes.neck) for tap in taps)
        into = sizes.neck if sizes.from_pyramid else sizes.tower[0][0]
        steps = []
        for channels, more in sizes.tower:
            blocks = [BlazeBlock(into, channels, 2), *(BlazeBlock(channels, channels) for _ in range(more))]
            steps.append(nn.Sequential(*blocks))
            into = channels
        self.tower = nn.ModuleList(steps)
        entries = zip(taps[1:], sizes.tower, strict=False) if sizes.from_pyramid else [(wide, sizes.tower[0])]
        self.entries = nn.ModuleList(SeparableConv(tap, channels) for tap, (channels, _) in entries)
        self.from_pyramid = sizes.from_pyramid
        self.channels = (sizes.neck, into)

    def forward_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 3, 256, 256) of 0 to 1 to the pyramid's map (N, neck, 64, 64) and the tower's (N, C, 2, 2)."""
        x = self.stem_project(_clamped(self.stem_depthwise(_clamped(self.stem(x)))))
        taps = []
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if number in (0, 1, 3):
                taps.append(x)
        taps.append(_clamped(self.top_depthwise(_clamped(self.top_expand(x)))))
        pyramid = self.lateral[3](taps[3])
        for level in (2, 1, 0):
            pyramid = F.interpolate(pyramid, scale_factor=2.0, mode="bilinear") + self.lateral[level](taps[level])
        if not self.from_pyramid:
            y = self.entries[0](taps[3])
            for step in self.tower:
                y = step(y)
            return pyramid, y
        y = pyramid
        for number, step in enumerate(self.tower):
            y = step(y)
            if number < len(self.entries):
                y = y + self.entries[number](taps[number + 1])
        return pyramid, y


class BlazePoseHead(nn.Module):
    """Last convolutions: coordinates of points, their heat maps, and presence of a person."""

    def __init__(self, channels: tuple[int, int], points: int = POINTS) -> None:
        super().__init__()
        neck, tower = channels
        self.heat = ScaledConv(neck, points)
        self.places = ScaledConv(tower, 2 * points, 2, padding=0)
        self.facts = ScaledConv(tower, 3 * points, 2, padding=0)
        self.presence = ScaledConv(tower, 1, 2, padding=0)
        self.points = points

    def forward(self, maps: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Convert the trunk's two maps to coordinates (N, P, 5), heat maps (N, P, 64, 64) and presence (N,).

        The five are x, y and depth in pixels of the crop, and the logits of "visible" and of "in the picture"; heat
        maps and presence are logits, too.
        """
        pyramid, tower = maps
        places, facts = self.places(tower).flatten(1), self.facts(tower).flatten(1)
        coordinates = torch.cat([places.view(-1, self.points, 2), facts.view(-1, self.points, 3)], -1)
        return coordinates, self.heat(pyramid), self.presence(tower).flatten()


class BlazePoseDetector(nn.Module):
    """Detector of people: a box, a score and four points at each of 2,254 anchors.

    The first of the four points is the middle of the hips and the second lies on the circle about it that holds the
    whole body, above the head: together they say where the person is, how large, and how turned.
    """

    STAGES = (
        Stage(24, 3, 2, (3,), (4, 6)),
        Stage(40, 5, 2, (5,)),
        Stage(80, 3, 2, (3, 3)),
        Stage(112, 5, 1, (5, 5)),
        Stage(192, 5, 2, (5, 5, 5)),
    )
    ANCHORS = ((28, 2), (14, 2), (7, 6))
    """(cells a side, anchors a cell) of the three maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ScaledConv(3, 24, 3, 2)
        self.stem_depthwise = ScaledConv(24, 24, 3, groups=24)
        self.stem_project = ScaledConv(24, 16)
        widths = [stage.width for stage in self.STAGES]
        self.stages = nn.ModuleList(stage.build(into) for stage, into in zip(self.STAGES, (16, *widths), strict=False))
        self.top_expand = ScaledConv(192, 1152)
        self.top_depthwise = ScaledConv(1152, 1152, 3, groups=1152)
        self.lateral = nn.ModuleList(
            SeparableConv(into, out, activations=(False, True)) for into, out in ((40, 96), (112, 192))
        )
        self.up = nn.ModuleList((ScaledConv(1152, 192), ScaledConv(192, 96)))
        self.refine = nn.ModuleList(
            nn.Sequential(BlazeBlock(c, c, between=False), BlazeBlock(c, c, between=False)) for c in (192, 96)
        )
        channels = (24, 48, 288)
        anchors = [count for _, count in self.ANCHORS]
        # both are read at each anchor of a map, at half the map's resolution
        self.scores, self.places = (
            nn.ModuleList(
                SeparableConv(c, width * n, 2, activations=(False, False))
                for c, n in zip(channels, anchors, strict=True)
            )
            for width in (1, 12)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 3, 224, 224) of -1 to 1 to places (N, 2254, 12) and the logits of their scores (N, 2254).

        A place is the box' centre and size and four points, x then y, in pixels from the anchor (`anchors`).
        """
        x = self.stem_project(_clamped(self.stem_depthwise(_clamped(self.stem(x)))))
        taps = []
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if number in (1, 3):
                taps.append(x)
        top = _clamped(self.top_depthwise(_clamped(self.top_expand(x))))
        maps, y = [top], top
        for level, (up, refine) in enumerate(zip(self.up, self.refine, strict=True)):
            y = _clamped(up(F.interpolate(y, scale_factor=2.0, mode="bilinear")))
            y = refine(self.lateral[1 - level](taps[1 - level]) + y)
            maps.append(y)
        scores, places = [], []
        for map_, score, place in zip(reversed(maps), self.scores, self.places, strict=True):
            wide = _depth_to_space(map_)
            scores.append(score(wide).permute(0, 2, 3, 1).flatten(1))
            places.append(place(wide).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, 12)))
        return torch.cat(places, 1), torch.cat(scores, 1)

    @classmethod
    def anchors(cls) -> Tensor:
        """Return (2254, 2) float32: centres of the anchors' cells, x then y, in pixels of the detector's input."""
        centres = []
        for side, count in cls.ANCHORS:
            middle = (torch.arange(side) + 0.5) * (DETECTOR_SIDE / side)
            y, x = torch.meshgrid(middle, middle, indexing="ij")
            centres.append(torch.stack([x, y], -1).view(-1, 1, 2).expand(-1, count, 2).reshape(-1, 2))
        return torch.cat(centres)


def _clamped(x: Tensor) -> Tensor:
    """`relu6` in the memory of `x`, a convolution's output that is read nowhere else."""
    return F.relu6(x, inplace=True)


def _depth_to_space(x: Tensor) -> Tensor:
    """Rearrange four channels to one at twice the resolution, in TensorFlow's order of channels."""
    n, c, h, w = x.shape
    return x.view(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


def fold_scales(model: nn.Module) -> None:
    """Fold the scale of every `ScaledConv` within a module (`ScaledConv.fold`)."""
    for layer in model.modules():
        if isinstance(layer, ScaledConv):
            layer.fold()


def refined(points: Tensor, heat: Tensor) -> Tensor:
    """Move points to the mean of the heat map near them.

    The mean of the cells of a window about the point, weighted by the heat map's probabilities. A point stays where it
    is if no cell of the window reaches `SURE`, or if it lies outside the map.

    Args:
        points: (N, P, 2), x and y in pixels of the crop.
        heat: (N, P, h, w) logits, `STRIDE` pixels a cell.

    Returns:
        (N, P, 2), in pixels of the crop.
    """
    rows, columns = heat.shape[-2:]
    cell = torch.floor(points / STRIDE).long()
    inside = (cell >= 0).all(-1) & (cell[..., 0] < columns) & (cell[..., 1] < rows)
    offset = torch.arange(-REACH, REACH + 1, device=points.device)
    x, y = cell[..., 0, None] + offset, cell[..., 1, None] + offset  # (N, P, 2 * REACH + 1)
    within = ((y >= 0) & (y < rows))[..., :, None] & ((x >= 0) & (x < columns))[..., None, :]
    index = y.clamp(0, rows - 1)[..., :, None] * columns + x.clamp(0, columns - 1)[..., None, :]
    window = heat.flatten(-2).gather(-1, index.flatten(-2)).view(index.shape)
    weight = torch.sigmoid(window) * within
    total = weight.sum((-2, -1))
    moved = torch.stack([(weight.sum(-2) * x).sum(-1), (weight.sum(-1) * y).sum(-1)], -1)
    moved = moved / total.clamp_min(1e-12)[..., None] * STRIDE
    sure = inside & (weight.amax((-2, -1)) >= SURE)
    return torch.where(sure[..., None], moved, points)
