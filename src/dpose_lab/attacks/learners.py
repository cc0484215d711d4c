"""The network of the reconstruction attack, from released pictures to raw ones, and measures of its fidelity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from dpose_lab.stats import Floats

BATCH = 32
RATE = 3e-3
Picture = NDArray[np.uint8]


class Restorer(nn.Module):
    """A U-Net (Ronneberger et al. 2015) with two levels, over 4 x 4 pixels at a time; it learns the residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _step(48, 32, 1)
        self.second = nn.Sequential(_step(32, 64, 2), _step(64, 64, 1))
        self.up = _step(64 + 32, 48, 1)
        self.last = nn.Conv2d(48, 48, 3, padding=1)
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    def forward(self, pictures: Tensor) -> Tensor:
        """Map (N, 3, H, W), float about 0, to the same shape; H and W are multiples of 8."""
        one = self.first(F.pixel_unshuffle(pictures, 4))
        two = self.second(one)
        one = self.up(torch.cat([F.interpolate(two, scale_factor=2.0), one], 1))
        added: Tensor = F.pixel_shuffle(self.last(one), 4)
        return pictures + added


def _step(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def resized(pictures: Sequence[Picture], size: tuple[int, int]) -> list[Picture]:
    """Resize pictures to `size` (height, width), in colour: uint8 (H, W, 3); shrinking averages."""
    height, width = size
    made = []
    for picture in pictures:
        colour = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
        method = cv2.INTER_AREA if colour.shape[0] > height else cv2.INTER_LINEAR
        small: Any = cv2.resize(colour, (width, height), interpolation=method)
        made.append(np.asarray(small, np.uint8))
    return made


def learn_restoring(
    shown: Sequence[Picture], raw: Sequence[Picture], epochs: int, seed: int, progress: Callable[[], None]
) -> Restorer:
    """Learn from public people: least absolute error, AdamW, a cosine schedule; pairs are mirrored at random.

    Args:
        shown: uint8 (H, W, 3), released; H and W are multiples of 8.
        raw: Originals, in the same order.
        epochs: Passes over the pairs.
        seed: Seed of weights and order.
        progress: Called after each of `steps_of` steps.
    """
    given, wanted = _tensor(shown), _tensor(raw)
    total = steps_of(len(shown), epochs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Restorer()
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 + 0.5 * math.cos(math.pi * k / total))
        for _ in range(epochs):
            order = torch.randperm(len(given))
            for start in range(0, len(given), BATCH):
                rows = order[start : start + BATCH]
                one, other = given[rows], wanted[rows]
                if torch.rand(()) < 0.5:
                    one, other = one.flip(3), other.flip(3)
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(F.l1_loss(net(one), other))
                optimizer.step()
                schedule.step()
                progress()
    return net.eval()


def steps_of(pictures: int, epochs: int) -> int:
    """Number of optimisation steps."""
    return epochs * math.ceil(pictures / BATCH)


@torch.no_grad()
def restored(net: Restorer, shown: Sequence[Picture]) -> list[Picture]:
    """Reconstruct released pictures: uint8 (H, W, 3)."""
    given = _tensor(shown)
    made = torch.cat([net(given[k : k + 4 * BATCH]) for k in range(0, len(given), 4 * BATCH)])
    levels = ((made + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    return list(levels.permute(0, 2, 3, 1).contiguous().numpy())


def _tensor(pictures: Sequence[Picture]) -> Tensor:
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    return stacked.float() / 127.5 - 1.0


def psnr(one: Picture, other: Picture) -> float:
    """Peak signal-to-noise ratio, decibel; 99 for equal pictures."""
    error = float(np.mean((one.astype(np.float64) - other) ** 2))
    return min(99.0, 10 * math.log10(255**2 / error)) if error else 99.0


def ssim(one: Picture, other: Picture) -> float:
    """Structural similarity (Wang et al. 2004), scikit-image's with its 7 x 7 window, averaged over the channels."""
    from skimage.metrics import structural_similarity

    return float(structural_similarity(one, other, data_range=255, channel_axis=2))


def each(measure: Callable[[Picture, Picture], float], one: Sequence[Picture], other: Sequence[Picture]) -> Floats:
    """Measure each pair of pictures, (N,)."""
    return np.asarray([measure(a, b) for a, b in zip(one, other, strict=True)], np.float64)
