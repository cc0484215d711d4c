"""A small network for clips, trainable from nothing on one CPU core, with and without per-unit gradients.

Space and time are convolved by turns (Tran et al. 2018), normalised by GroupNorm: nothing mixes clips and no buffer is
written.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (24, 40, 64, 96)
"""Channels after each halving of the picture."""
TUBE = 2
"""Successive frames that enter together."""


class NanoNet(nn.Module):
    """(N, 3, T, H, W) of about unit range to (N, features).

    Beside its colours, each frame enters with its difference from the clip's mean: what stands still is nothing there.

    Args:
        frames: T; one, or a multiple of four.
    """

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames
        spatial: list[nn.Module] = []
        temporal: list[nn.Module] = []
        norms: list[nn.Module] = []
        before = 6 * min(frames, TUBE)
        for i, width in enumerate(WIDTHS):
            spatial.append(nn.Conv2d(before, width, 5 if i == 0 else 3, 2, 2 if i == 0 else 1))
            norms.append(nn.GroupNorm(8, width))
            if frames > 1 and i:
                temporal.append(nn.Linear(3 * width, width))
            before = width
        self.spatial, self.norms = nn.ModuleList(spatial), nn.ModuleList(norms)
        self.temporal = nn.ModuleList(temporal)
        self.features = 2 * before

    def forward(self, clips: Tensor) -> Tensor:
        """The mean and the largest of every feature over space and time, (N, features)."""
        n, _, t, h, w = clips.shape
        both = torch.cat([clips, 3 * (clips - clips.mean(2, keepdim=True))], 1).movedim(1, 2)
        tube = min(t, TUBE)
        x = both.reshape(n * (t // tube), tube * 6, h, w)
        times = t // tube
        for i, (conv, norm) in enumerate(zip(self.spatial, self.norms, strict=True)):
            x = F.gelu(norm(conv(x)))
            if self.temporal and i:
                x = x + self._along_time(x, n, times, self.temporal[i - 1])
        flat = x.reshape(n, times, x.shape[1], -1)
        return torch.cat([flat.mean((1, 3)), flat.amax((1, 3))], 1)

    def _along_time(self, x: Tensor, n: int, times: int, mix: nn.Module) -> Tensor:
        """A convolution of three along time, as a linear map of each place's three successive values."""
        _, channels, h, w = x.shape
        places = x.reshape(n, times, channels, h * w)
        padded = F.pad(places, (0, 0, 0, 0, 1, 1))
        three = torch.cat([padded[:, i : i + times] for i in range(3)], 2)
        mixed = mix(three.transpose(2, 3)).transpose(2, 3)
        return F.gelu(mixed).reshape(n * times, channels, h, w)
