"""TinyViT as a backbone: timm's model, changed for per-unit gradients and for pictures that are not square.

Four things differ from timm's model (Wu et al. 2022, "TinyViT: Fast Pretraining Distillation for Small Vision
Transformers"), none of them in the names or the meaning of the weights:

* Windows are rectangles that tile the map exactly, so no zero tokens are attended to.
* Attention biases are read from their parameter each time. timm caches them in evaluation mode, where swapped
  or reloaded weights then go unseen and gradients to the biases are zero.
* BatchNorm can be folded into its convolution, or replaced by GroupNorm.
* Nothing mixes examples and nothing draws random numbers: no dropout, no stochastic depth.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, cast

import torch
from timm.models.tiny_vit import ConvNorm, TinyVit
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.norms import Norm, fold, group_norm
from dpose.pose.timm_models import create, refuse_group

WINDOWS = (8, 8, 16, 8)
"""Preferred side of a stage's windows: at 256x192 they are 8x8, 16x12 (the map) and 8x6 (the map)."""

NANO: dict[str, Any] = {
    "embed_dims": [32, 64, 96, 160],
    "depths": [1, 1, 3, 2],
    "num_heads": [1, 2, 3, 5],
    "mbconv_expand_ratio": 4.0,
}
"""Sizes of nano, 1.2 M parameters. Shallow and wide at the end: the early maps are large, and slow on a CPU."""

_STILL = {"drop_path_rate": 0.0, "drop_rate": 0.0}
"""Options that turn off random layers, in every version of timm since 1.0.20; no TinyViT drops anything else by
default."""


def stage_maps(stride: int, input_size: tuple[int, int]) -> list[tuple[int, int]]:
    """Return (H, W) of the map in each of the four stages."""
    return [(input_size[0] // s, input_size[1] // s) for s in (4, 8, 16, stride)]


def fit_window(extent: int, preferred: int) -> int:
    """Return the divisor of `extent` nearest to `preferred` in ratio (of two as near, the smaller)."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return min(divisors, key=lambda d: max(d / preferred, preferred / d))


class WindowAttention(nn.Module):
    """Multi-head self-attention in windows of (h, w) tokens, with a learnt bias for each offset (|dy|, |dx|).

    Takes over the layers of a timm attention; parameters keep their names.
    """

    def __init__(self, source: nn.Module, window: tuple[int, int]) -> None:
        super().__init__()
        attention = cast(Any, source)
        self.heads: int = attention.num_heads
        self.key_dim: int = attention.key_dim
        self.norm: nn.Module = attention.norm
        self.qkv: nn.Module = attention.qkv
        self.proj: nn.Module = attention.proj
        height, width = window
        side = attention.resolution[0]
        # timm numbers the offsets of its square window row by row: a smaller rectangle is a corner of that
        # table
        table = attention.attention_biases.detach().view(self.heads, side, side)[:, :height, :width]
        self.attention_biases = nn.Parameter(table.reshape(self.heads, height * width).clone())
        rows = (torch.arange(height)[:, None] - torch.arange(height)).abs()
        columns = (torch.arange(width)[:, None] - torch.arange(width)).abs()
        offsets = rows[:, None, :, None] * width + columns[None, :, None, :]
        self.offsets: Tensor
        self.register_buffer("offsets", offsets.flatten(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(windows, h * w, C) to the same shape."""
        windows, count, _ = tokens.shape
        query, key, value = (
            self.qkv(self.norm(tokens))
            .view(windows, count, self.heads, 3 * self.key_dim)
            .transpose(1, 2)
            .split(self.key_dim, dim=-1)
        )
        bias = self.attention_biases.index_select(1, self.offsets).view(self.heads, count, count)
        scores = (query * self.key_dim**-0.5) @ key.transpose(-2, -1) + bias
        mixed = scores.softmax(dim=-1) @ value
        return cast(Tensor, self.proj(mixed.transpose(1, 2).reshape(windows, count, -1)))


class WindowBlock(nn.Module):
    """Block of TinyViT: attention in windows, a depthwise convolution and an MLP, with two residuals."""

    def __init__(self, source: nn.Module, window: tuple[int, int]) -> None:
        super().__init__()
        block = cast(Any, source)
        self.window = window
        self.attn = WindowAttention(block.attn, window)
        self.mlp: nn.Module = block.mlp
        self.local_conv: nn.Module = block.local_conv

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to the same shape; H and W are multiples of the window's."""
        n, height, width, channels = x.shape
        h, w = self.window
        grid = (n, height // h, h, width // w, w, channels)
        windows = x.reshape(grid).transpose(2, 3).reshape(-1, h * w, channels)
        mixed: Tensor = self.attn(windows)
        x = x + mixed.view(n, height // h, width // w, h, w, channels).transpose(2, 3).reshape(x.shape)
        x = self.local_conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return cast(Tensor, x + self.mlp(x))


def build_backbone(
    preset: str, input_size: tuple[int, int], norm: Norm, pretrained: bool | Path = False, *, stride: int
) -> tuple[nn.Module, nn.Module, int]:
    """Build the backbone, the LayerNorm for its last map, and that map's channels (`Backbone.build`).

    `pretrained` weights do not exist for the preset "nano", and are refused with the norm "group", where they would
    mean nothing. At stride 16 the last stage keeps its resolution.
    """
    maps = stage_maps(stride, input_size)
    windows = [(fit_window(h, side), fit_window(w, side)) for (h, w), side in zip(maps, WINDOWS, strict=True)]
    squares = [max(window) for window in windows]
    if preset == "nano":
        if pretrained:
            raise DposeError(
                "pretrained-weights-missing",
                "there are no pretrained weights for nano",
                fix="use 5m, 11m, 21m or lite0",
            )
        backbone = TinyVit(num_classes=0, window_sizes=squares, **NANO, **_STILL)
    else:
        if pretrained:
            refuse_group(norm)
        backbone = create(f"tiny_vit_{preset}_224", pretrained, window_sizes=squares, **_STILL)
    if stride == 16:
        # the last stage keeps the map of the third: at 128x96 the head then sees 8x6, as 5m's does at 256x192
        backbone.stages[3].downsample.conv2.conv.stride = (1, 1)
    layer_norm = backbone.head.norm
    backbone.head = nn.Identity()
    for stage, window in zip(backbone.stages[1:], windows[1:], strict=True):
        stage.blocks = nn.Sequential(*(WindowBlock(block, window) for block in stage.blocks))
    if norm != "batch":
        replace_conv_norms(backbone, norm)
    return backbone, layer_norm, int(backbone.num_features)


def replace_conv_norms(module: nn.Module, norm: Norm) -> None:
    """Fold every BatchNorm of TinyViT inside `module` into its convolution, or replace it by GroupNorm."""
    for name, child in module.named_children():
        if not isinstance(child, ConvNorm):
            replace_conv_norms(child, norm)
        elif norm == "folded":
            setattr(module, name, fold(cast(nn.Conv2d, child.conv), child.bn))
        else:
            pair = OrderedDict[str, nn.Module](conv=child.conv, gn=group_norm(child.bn))
            setattr(module, name, nn.Sequential(pair))
