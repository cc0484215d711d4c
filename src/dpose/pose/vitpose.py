"""ViTPose: a plain vision transformer with one feature map, as a readable torch module.

Xu et al. 2022, "ViTPose: simple vision transformer baselines for human pose estimation"; its decoders are the heads of
the codecs "vitpose" and "vitpose-classic" (`dpose.pose.heatmap`). Parameters have the names of the published code. No
layer mixes pictures, nothing draws random numbers and there is no buffer: gradients of single units are exact.
Attention is two products and a softmax: torch's fused one has no rule for `vmap`, and runs unit by unit.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.errors import DposeError

PATCH = 16
"""Picture pixels per token, on both axes."""
PADDING = 2
"""Rows and columns of zeros around the picture before it is cut into patches: they begin two pixels outside of it."""
EPSILON = 1e-6
"""Epsilon of every LayerNorm, as published (timm's and mmpose's)."""
WIDER = 4
"""Channels within a block's MLP, in multiples of those of its tokens."""


class Attention(nn.Module):
    """Multi-head self-attention over the tokens of a picture."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) to the same shape."""
        count, tokens, width = x.shape
        three = self.qkv(x).view(count, tokens, 3, self.heads, width // self.heads)
        query, key, value = three.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * (width // self.heads) ** -0.5) @ key.transpose(-2, -1)
        mixed = scores.softmax(dim=-1) @ value
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(count, tokens, width))
        return out


class Mlp(nn.Module):
    """Two linear layers with a GELU between them, each token by itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, WIDER * width)
        self.fc2 = nn.Linear(WIDER * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) to the same shape."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, EPSILON)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, EPSILON)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) to the same shape."""
        x = x + self.attn(self.norm1(x))
        return cast(Tensor, x + self.mlp(self.norm2(x)))


class VitPoseTrunk(nn.Module):
    """Patches, positions, blocks and the last LayerNorm: pictures of one size to a feature map.

    Args:
        width: Channels of a token, C.
        depth: Number of blocks.
        heads: Number of attention heads; divides `width`.
        input_size: (H, W), multiples of `PATCH`.
    """

    def __init__(self, width: int, depth: int, heads: int, input_size: tuple[int, int]) -> None:
        super().__init__()
        self.map_size = input_size[0] // PATCH, input_size[1] // PATCH
        self.patch_embed = nn.Conv2d(3, width, PATCH, PATCH, PADDING)
        self.pos_embed = nn.Parameter(torch.zeros(1, self.map_size[0] * self.map_size[1], width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(width, EPSILON)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward_features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W), normalised, to (N, C, H / 16, W / 16)."""
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.last_norm(tokens)
        features: Tensor = tokens.transpose(1, 2).reshape(len(tokens), -1, *self.map_size)
        return features


def build_vitpose(
    width: int, depth: int, heads: int, size: tuple[int, int], norm: str, pretrained: object
) -> tuple[nn.Module, nn.Module, int]:
    """Build a `VitPoseTrunk` (`Backbone.build`), with random weights and without BatchNorm, whatever `norm` is."""
    if pretrained:
        raise DposeError(
            "backbone-without-own-weights",
            "starts from whole pose models alone",
            "a backbone of ViTPose",
            "give --init hf:OWNER/NAME or a folder",
        )
    return VitPoseTrunk(width, depth, heads, size), nn.Identity(), width
