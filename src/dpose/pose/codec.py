"""Codecs: what a head's outputs mean and where joints are; the registry of codecs, and the codec by regression.

Only a codec interprets a head's outputs. Task, metric, prediction and export pass them on to it.

register_codec("mine", lambda config: MyCodec(config.input_size))
PoseModel(PoseConfig(codec="mine"))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.extensions import YOUR_OWN, registered
from dpose.pose.correction import CorrectedCodec
from dpose.pose.outputs import Codec, CodecSettings, Outputs, numbers_like
from dpose.pose.simcc import SimccCodec
from dpose.pose.skeletons import SKELETONS

if TYPE_CHECKING:
    from dpose.pose.backbones import Backbone


@dataclass(frozen=True)
class CodecEntry:
    """A registered codec.

    Attributes:
        make: Creates the codec for a configuration, whose `sigma` may be 0.
        maps: True if the head takes any backbone's feature map. Otherwise only backbones that name the codec can have
            it.
    """

    make: Callable[[CodecSettings], Codec]
    maps: bool = True


BEND = 1 / 32
"""Difference at which the smooth L1 loss of a share changes from quadratic to linear: 4 of nano's 128 rows."""


class RegressionHead(nn.Module):
    """Maps the mean of a feature map to the shares and the score of every joint.

    A 1x1 convolution and no linear layer, so that the strategy "light" trains it as it does the heads of other codecs.
    The three rows of a joint are x, y and score; where all are 0 the joint is in the picture's middle, with a score of
    `chance`.
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
    """Codec by regression: outputs are shares (N, J, 2) and score logits (N, J).

    A share is 0 at the picture's left or upper edge and 1 at the right or lower one, so pixel x is share
    (x + 1/2) / W.

    Attributes:
        input_size: (H, W) in pixels.
        sigma: Standard deviation, in pixels, of the Gaussian of distances that is the target of a score.
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
        """Create the codec of a configuration; the default sigma is a sixteenth of the picture's height."""
        return cls(config.input_size, config.sigma or config.input_size[0] / 16)

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """Create a head for any size of the map."""
        return RegressionHead(channels, joints, self.chance(), self.fresh)

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """Smooth L1 of both shares (Girshick 2015, equation 3, bent at `BEND`), plus the cross-entropy of the score.

        The target of a score is exp(-d^2 / (2 sigma^2)), d the distance in pixels between the predicted and the
        labelled position; no gradient goes through it to the position. A joint outside the picture has weight 0.
        """
        from dpose.pose.heatmap import inside

        shares, scores = outputs
        places, weight = inside(keypoints.to(shares.dtype), visible, self.input_size)
        size = numbers_like(shares, self.input_size[::-1])
        wanted = (places + 0.5) / size
        off = F.smooth_l1_loss(shares, wanted, reduction="none", beta=BEND).sum(dim=-1)
        far = ((shares.detach() - wanted) * size).square().sum(dim=-1)
        near = torch.exp(-0.5 * far / self.sigma**2)
        unsure = F.binary_cross_entropy_with_logits(scores, near, reduction="none")
        return ((off + unsure) * weight).sum(dim=-1) / weight.shape[-1]

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return both shares in pixels, not clamped to the picture, and the sigmoid of the score logits."""
        shares, scores = outputs
        return shares * numbers_like(shares, self.input_size[::-1]) - 0.5, scores.sigmoid()

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """Average the shares, with x of the mirrored crops reflected, and the score logits."""
        (shares, scores), (turned, others) = outputs, mirrored
        turned = turned[:, partner]
        back = torch.stack([1 - turned[..., 0], turned[..., 1]], dim=-1)
        return (shares + back) / 2, (scores + others[:, partner]) / 2

    def chance(self) -> float:
        """Return the mean target of a score for joints anywhere in the picture."""
        height, width = self.input_size
        return min(0.5, 2 * math.pi * self.sigma**2 / (height * width))

    def explain(self) -> str:
        """Both formulas."""
        height, width = self.input_size
        return (
            f"x = {width} * shares[joint, 0] - 0.5, y = {height} * shares[joint, 1] - 0.5; "
            "score = 1 / (1 + exp(-score_logits[joint]))"
        )


def _heatmap(**settings: Any) -> Callable[[CodecSettings], Codec]:
    def make(config: CodecSettings) -> Codec:
        from dpose.pose.heatmap import HeatmapCodec

        return HeatmapCodec.of(config, **settings)

    return make


def _blazepose(config: CodecSettings) -> Codec:
    from dpose.pose.blaze_codec import BlazePoseCodec

    return BlazePoseCodec.of(config)


def _rtmpose(config: CodecSettings) -> Codec:
    from dpose.pose.rtmpose import RtmposeCodec

    return RtmposeCodec.of(config)


CODECS: dict[str, CodecEntry] = {
    "simcc": CodecEntry(SimccCodec.of),
    "heatmap": CodecEntry(_heatmap()),
    "heatmap-deconv": CodecEntry(_heatmap(growth="transposed")),
    "regression": CodecEntry(RegressionCodec.of),
    "blazepose": CodecEntry(_blazepose, maps=False),
    "rtmpose": CodecEntry(_rtmpose, maps=False),
    # weights of other libraries, trained with other positions for a cell
    "vitpose": CodecEntry(_heatmap(growth="interpolated", places="corners"), maps=False),
    "vitpose-classic": CodecEntry(_heatmap(growth="transposed", places="corners"), maps=False),
    "heatmap-msra": CodecEntry(_heatmap(places="first"), maps=False),
    "heatmap-udp": CodecEntry(_heatmap(places="corners"), maps=False),
}
"""Codecs by name. The first is the default for configurations and backbones that name none."""

DEFAULT = "simcc"


def register_codec(name: str, make: Callable[[CodecSettings], Codec], *, maps: bool = True) -> None:
    """Register a codec under a name (`CodecEntry`).

    Raises:
        DposeError: the name is taken.
    """
    if name in CODECS:
        raise DposeError("codec-exists", "there is a codec of this name already", name, "choose another name")
    CODECS[name] = CodecEntry(make, maps)


def codecs_for(backbone: Backbone) -> tuple[str, ...]:
    """Return the names of the codecs that a backbone can have, its default first."""
    maps = tuple(name for name, entry in CODECS.items() if entry.maps)
    return tuple(dict.fromkeys((*backbone.codecs, *(maps if backbone.maps or not backbone.codecs else ()))))


def codec_of(config: CodecSettings) -> Codec:
    """Return the codec of a configuration."""
    if not registered(config.codec, CODECS):
        fix = f"choose from {', '.join(CODECS)}, {YOUR_OWN}"
        raise DposeError("codec-unknown", "there is no such codec", f"codec {config.codec}", fix)
    codec = CODECS[config.codec].make(config)
    if not config.directions:
        return codec
    return CorrectedCodec(codec, len(SKELETONS[config.skeleton]), config.directions, max(config.input_size))


def base_of(codec: Codec) -> Codec:
    """Return the codec whose joints are corrected; the codec itself without a correction."""
    return codec.base if isinstance(codec, CorrectedCodec) else codec
