"""Common types of codecs: the outputs of a head, and the settings of a model that a codec reads.

A module of its own, below every codec and below the model that has one.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

Outputs = tuple[Tensor, ...]
"""Outputs of a head for N pictures, (N, ...) each."""


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
