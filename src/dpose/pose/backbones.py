"""Every backbone by name, as timm has its models: a new one is one module and one entry here.

register_backbone(Backbone("mine", build=build, stride=16, input_size=(128, 96), frozen=("stem.",)))
PoseModel(PoseConfig(preset="mine"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from dpose.errors import DposeError
from dpose.pose import tinyvit
from dpose.pose.tinyvit import Norm

Built = tuple[nn.Module, nn.Module, int]
"""A network with `forward_features`: (N, 3, H, W) normalised to (N, C, h, w); what follows it; and C."""


@dataclass(frozen=True)
class Backbone:
    """How a pose model gets its map of features.

    Attributes:
        name: `PoseConfig.preset`.
        build: From input size (H, W), norm and whether ImageNet weights are asked for, to the network. It must neither
            mix the pictures of a batch nor write a buffer unless norm is "batch", and raises `DposeError` for weights
            that there are not.
        stride: Pixels of the picture to a cell of the map, on both axes; input sizes are its multiples.
        input_size: (H, W) where none is asked for.
        frozen: Beginnings of the names, within the network, of parameters that the strategy "finetune" freezes.
    """

    name: str
    build: Callable[[tuple[int, int], Norm, bool], Built]
    stride: int
    input_size: tuple[int, int]
    frozen: tuple[str, ...] = ()

    def map_size(self, input_size: tuple[int, int]) -> tuple[int, int]:
        """(h, w) of the map for pictures of (H, W)."""
        return input_size[0] // self.stride, input_size[1] // self.stride


def _tiny_vit(preset: str, input_size: tuple[int, int]) -> Backbone:
    return Backbone(
        preset,
        partial(tinyvit.build_backbone, preset),
        tinyvit.total_stride(preset),
        input_size,
        ("patch_embed.", "stages.0.", "stages.1.", "stages.2."),
    )


BACKBONES: dict[str, Backbone] = {
    backbone.name: backbone
    for backbone in (
        _tiny_vit("nano", (128, 96)),
        *(_tiny_vit(preset, (256, 192)) for preset in ("5m", "11m", "21m")),
    )
}
"""By name; "nano" has 1.2 M parameters and is for a CPU, the others are TinyViT's own."""


def register_backbone(backbone: Backbone) -> None:
    """Make a backbone known by its name.

    Raises:
        DposeError: the name is taken.
    """
    if backbone.name in BACKBONES:
        raise DposeError("there is a backbone of this name already", backbone.name, "choose another name")
    BACKBONES[backbone.name] = backbone


def backbone_named(name: str) -> Backbone:
    """The backbone called `name`.

    Raises:
        DposeError: there is none.
    """
    if name not in BACKBONES:
        raise DposeError("there is no such preset", f"preset {name}", f"choose from {', '.join(BACKBONES)}")
    return BACKBONES[name]
