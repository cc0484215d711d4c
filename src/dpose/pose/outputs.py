"""Common types of codecs: what one does, the outputs of a head, and the settings of a model that a codec reads.

A module of its own, below every codec and below the model that has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

Outputs = tuple[Tensor, ...]
"""Outputs of a head for N pictures, (N, ...) each."""


def numbers_like(like: Tensor, numbers: Sequence[float]) -> Tensor:
    """Numbers in the type and place of `like`, made there: a CUDA graph would copy a list from the host again."""
    return torch.stack([like.new_full((), number) for number in numbers])


class CodecSettings(Protocol):
    """Settings of a `dpose.pose.model.PoseConfig` from which a codec is made."""

    @property
    def input_size(self) -> tuple[int, int]:
        """(H, W) in pixels."""

    @property
    def skeleton(self) -> str:
        """A name in `dpose.pose.skeletons.SKELETONS`."""

    @property
    def split_ratio(self) -> float:
        """SimCC bins a pixel, a whole number."""

    @property
    def sigma(self) -> float:
        """Standard deviation of the labels' Gaussian, in the codec's own unit; 0 stands for the codec's default."""

    @property
    def upsample(self) -> int:
        """Factor between the last map and the joints' maps in the head."""

    @property
    def stride(self) -> int:
        """Picture pixels per cell of the backbone's map."""

    @property
    def codec(self) -> str:
        """The codec's name."""

    @property
    def directions(self) -> int:
        """Number of directions of the linear correction of joints; 0 for none."""


class Codec(Protocol):
    """Converts between a head's outputs and the positions of joints in the crop.

    Positions are pixels of the crop, x then y; whole numbers are pixel centres. One codec belongs to one `PoseConfig`.
    """

    @property
    def export_names(self) -> tuple[str, ...]:
        """Names of the outputs in an exported file."""

    @property
    def sigma(self) -> float:
        """Value of `PoseConfig.sigma`, or the codec's default where that is 0."""

    @property
    def joint_layers(self) -> Mapping[str, int] | None:
        """Layers of the head whose rows belong to joints, one joint after another, and the number of rows of a joint.

        All other layers are shared by the joints. Empty if the head is made for its joints and no others; None if one
        head serves every skeleton that the codec supports.
        """

    @property
    def fresh(self) -> float:
        """Scale of the initial weights of a new joint, relative to torch's own initialisation of such a layer."""

    @property
    def untaught(self) -> tuple[str, ...]:
        """Layers of the head that the loss does not reach. No strategy trains them, or they would drift."""

    @property
    def bin_layers(self) -> tuple[str, ...]:
        """Linear layers of the head from a joint's map to the logits of an axis' bins; empty for codecs without bins.

        Dividing all of them by a number divides the logits; resampling them makes a head for another size of pictures.
        """

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """Create an untrained head.

        Args:
            channels: Channels of the feature map.
            joints: Number of joints of the skeleton, J.
            map_size: (h, w) of the feature map.

        Returns:
            A module from the backbone's result, a map (N, channels, h, w), to the outputs.
        """

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """Compute the loss of each view, from that view alone; safe under `vmap(grad(...))`.

        Args:
            outputs: Outputs for V views.
            keypoints: (V, J, 2) pixels. Those of joints that are not visible are never read, and may be NaN.
            visible: (V, J); a joint counts where this is > 0.

        Returns:
            (V,), >= 0. The sum over joints divided by J, the number of joints of the skeleton and not of the visible
            ones: no view's gradient is scaled up because few of its joints are visible.
        """

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return positions (N, J, 2) in pixels and scores (N, J) in [0, 1], in the outputs' dtype."""

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """Average the outputs for crops and for the same crops mirrored, in the geometry of the unmirrored crops.

        Args:
            outputs: Outputs for N crops.
            mirrored: Outputs for the mirrored crops.
            partner: (J,), for each joint the one that it becomes in a mirror.
        """

    def chance(self) -> float:
        """Return the score to expect, in (0, 1), where the model knows nothing."""

    def explain(self) -> str:
        """Describe how `decode` finds a joint, as formulas with the outputs' names, for readers of an exported file.

        Two codecs with the same text read outputs alike.
        """
