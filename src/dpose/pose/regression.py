"""Regression: a joint's place as two numbers, shares of the picture's width and height; and the codec of it.

Nothing here has control flow that depends on data, or mixes views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.pose.heatmap import inside
from dpose.pose.outputs import CodecSettings, Outputs

BEND = 1 / 32
"""Where the loss of a share turns from a parabola into a line: 4 of nano's 128 rows."""


class RegressionHead(nn.Module):
    """The mean of a map of features to the shares and the score of every joint.

    A 1x1 convolution and no linear layer, so that "light" trains it as it does the heads of the other codecs. Its rows
    of a joint are x, y and score; where all are 0 the joint is in the picture's middle, with a score of `chance`.
    """

    def __init__(self, channels: int, joints: int, chance: float, fresh: float):
        super().__init__()
        self.known = math.log(chance / (1 - chance))
        self.joints = nn.Conv2d(channels, 3 * joints, 1)
        with torch.no_grad():
            for parameter in self.joints.parameters():
                parameter.mul_(fresh)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, h, w) to shares (N, J, 2) and score logits (N, J)."""
        rows = self.joints(features.mean(dim=(-2, -1), keepdim=True)).flatten(1).unflatten(1, (-1, 3))
        # bfloat16 knows shares near 1/2 to a two hundred and fifty-sixth, but their distance from it far better
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        return rows[..., :2] + 0.5, rows[..., 2] + self.known


@dataclass(frozen=True)
class RegressionCodec:
    """Regression (`dpose.pose.codec.Codec`): outputs are shares (N, J, 2) and score logits (N, J).

    A share is 0 at the picture's left or upper edge and 1 at the right or lower one, so pixel x is share
    (x + 1/2) / W.

    Attributes:
        input_size: (H, W) in pixels.
        sigma: Of the Gaussian of distances that scores are taught with, pixels.
    """

    input_size: tuple[int, int]
    sigma: float

    export_names: ClassVar[tuple[str, ...]] = ("shares", "score_logits")
    joint_layers: ClassVar[dict[str, int]] = {"joints": 3}
    bin_layers: ClassVar[tuple[str, ...]] = ()
    untaught: ClassVar[tuple[str, ...]] = ()
    fresh: ClassVar[float] = 0.02

    @classmethod
    def of(cls, config: CodecSettings) -> RegressionCodec:
        """A configuration's; its sigma 0 stands for a sixteenth of the picture's height."""
        return cls(config.input_size, config.sigma or config.input_size[0] / 16)

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """For any size of the map."""
        return RegressionHead(channels, joints, self.chance(), self.fresh)

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """Smooth L1 of both shares (Girshick 2015, equation 3, bent at `BEND`), and the cross-entropy of the score.

        A score is taught exp(-d^2 / (2 sigma^2)) of the distance d, pixels, that the place is off: no gradient goes
        through it to the place. A joint outside the picture has weight 0.
        """
        shares, scores = outputs
        places, weight = inside(keypoints.to(shares.dtype), visible, self.input_size)
        size = self._extent(shares)
        wanted = (places + 0.5) / size
        off = F.smooth_l1_loss(shares, wanted, reduction="none", beta=BEND).sum(dim=-1)
        far = ((shares.detach() - wanted) * size).square().sum(dim=-1)
        near = torch.exp(-0.5 * far / self.sigma**2)
        unsure = F.binary_cross_entropy_with_logits(scores, near, reduction="none")
        return ((off + unsure) * weight).sum(dim=-1) / weight.shape[-1]

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Both shares in pixels, not kept inside the picture; the score is what the place's nearness is taken for."""
        shares, scores = outputs
        return shares * self._extent(shares) - 0.5, scores.sigmoid()

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """The mean of the shares, x of the mirrored crops counted from the other side, and of the score logits."""
        (shares, scores), (turned, others) = outputs, mirrored
        turned = turned[:, partner]
        back = torch.stack([1 - turned[..., 0], turned[..., 1]], dim=-1)
        return (shares + back) / 2, (scores + others[:, partner]) / 2

    def chance(self) -> float:
        """The mean of what a score is taught where joints may be anywhere in the picture."""
        height, width = self.input_size
        return min(0.5, 2 * math.pi * self.sigma**2 / (height * width))

    def explain(self) -> str:
        """Both formulas."""
        height, width = self.input_size
        return (
            f"x = {width} * shares[joint, 0] - 0.5, y = {height} * shares[joint, 1] - 0.5; "
            "score = 1 / (1 + exp(-score_logits[joint]))"
        )

    def _extent(self, like: Tensor) -> Tensor:
        """(W, H), pixels."""
        height, width = self.input_size
        return like.new_tensor([width, height])
