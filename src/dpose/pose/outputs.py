"""What codecs have in common: the outputs of a head, and the settings of a model that a codec reads.

A module of its own, below every codec and below the model that has one.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

Outputs = tuple[Tensor, ...]
"""What a head gives of N pictures, (N, ...) each."""


class CodecSettings(Protocol):
    """The settings of a `dpose.pose.model.PoseConfig` that a codec is made from."""

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
        """Of the Gaussian that joints are taught with, in the codec's own unit; 0 stands for the codec's own."""

    @property
    def upsample(self) -> int:
        """Factor between the last map and the joints' maps in the head."""

    @property
    def stride(self) -> int:
        """Picture pixels a cell of the backbone's map."""

    @property
    def codec(self) -> str:
        """The codec's name."""
