"""Registry of backbones: dpose's own, those that were registered, and "timm:NAME" for any model of timm.

register_backbone(Backbone("mine", build=build, stride=16, input_size=(128, 96), frozen=("stem.",)))
PoseModel(PoseConfig(preset="mine"))
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from dpose import files
from dpose.errors import DposeError
from dpose.extensions import YOUR_OWN, registered

if TYPE_CHECKING:  # torch and timm wait until a network is built: a command refuses what it can without them
    from torch import nn

    Built = tuple[nn.Module, nn.Module, int]
    """A network with `forward_features`, (N, 3, H, W) normalised to (N, C, h, w); the module after it; and C."""

WEIGHTS = "model.safetensors"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Backbone:
    """A network that computes the feature map of a pose model.

    Attributes:
        name: `PoseConfig.preset`.
        build: Takes the input size (H, W), the norm, and either a flag for ImageNet weights or a file of weights, and
            returns the network; with `strides` it also takes the keyword `stride`. The network must neither mix the
            pictures of a batch nor write a buffer unless norm is "batch". Raises `DposeError` for weights that do not
            exist.
        stride: Picture pixels per cell of the map, on both axes; input sizes are its multiples.
        input_size: Default (H, W); (0, 0) stands for a map of 8x6 cells.
        frozen: Prefixes of the names, within the network, of parameters that the strategy "finetune" freezes.
        strides: Supported strides, if there is a choice.
        mean: Mean of red, green and blue, 0 to 1, for normalising pictures.
        std: Standard deviation for normalising pictures.
        codecs: Supported codecs, the default first (`dpose.pose.codec`); if empty, every codec whose head takes any
            feature map, with SimCC as the default. The head of a codec named here receives whatever the network and the
            module after it return.
        maps: True if the backbone supports, beside `codecs`, every codec whose head takes any feature map.
        upsample: Default number of cells of a joint's map per cell of the features, on an axis.
    """

    name: str
    build: Callable[..., Built]
    stride: int
    input_size: tuple[int, int] = (0, 0)
    frozen: tuple[str, ...] = ()
    strides: tuple[int, ...] = ()
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    codecs: tuple[str, ...] = ()
    maps: bool = False
    upsample: int = 2

    def __post_init__(self) -> None:
        if self.input_size == (0, 0):
            object.__setattr__(self, "input_size", (8 * self.stride, 6 * self.stride))

    def at(self, stride: int) -> Backbone:
        """Return the backbone with another stride; 0 stands for its default.

        Raises:
            DposeError: the stride is not supported; names those that are.
        """
        strides = self.strides or (self.stride,)
        if stride and stride not in strides:
            raise DposeError(
                "stride-unsupported",
                f"has no stride {stride}",
                self.name,
                f"choose from {', '.join(map(str, sorted(strides)))}",
            )
        stride = stride or self.stride
        build = partial(self.build, stride=stride) if self.strides else self.build
        size = self.input_size if stride == self.stride else (0, 0)
        return replace(self, build=build, stride=stride, input_size=size, strides=())

    def map_size(self, input_size: tuple[int, int]) -> tuple[int, int]:
        """Return (h, w) of the map for pictures of (H, W)."""
        return input_size[0] // self.stride, input_size[1] // self.stride


def _tiny_vit(preset: str) -> Backbone:
    return Backbone(
        preset,
        partial(_built, "tinyvit:build_backbone", preset),
        16 if preset == "nano" else 32,
        frozen=("patch_embed.", "stages.0.", "stages.1.", "stages.2."),
        strides=(32, 16),
    )


def _built(place: str, *how: Any, **more: Any) -> Built:
    return cast("Built", resolve_name(f"dpose.pose.{place}")(*how, **more))


def _blazepose(kind: str) -> Backbone:
    return Backbone(
        f"blazepose:{kind}",
        partial(_build_blazepose, kind),
        stride=4,
        input_size=(256, 256),
        frozen=("stem", "stages.0.", "stages.1.", "stages.2."),
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        codecs=("blazepose",),
    )


def _build_blazepose(kind: str, size: tuple[int, int], norm: str, pretrained: bool | Path) -> Any:
    from torch import nn

    from dpose.pose.blazepose import SIDE, BlazePoseTrunk

    if pretrained:
        raise DposeError(
            "imagenet-weights-missing",
            "has no ImageNet weights",
            f"preset blazepose:{kind}",
            f"start with --init blazepose:{kind}",
        )
    if size != (SIDE, SIDE):
        raise DposeError(
            "input-size-fixed",
            f"takes pictures of {SIDE}x{SIDE} alone",
            f"preset blazepose:{kind}",
            "leave model.input_size out",
        )
    trunk = BlazePoseTrunk(kind)
    return trunk, nn.Identity(), trunk.channels


VITPOSE = "vitpose:"
VITPOSE_SIZES = {"small": (384, 12, 12), "base": (768, 12, 12), "large": (1024, 24, 16), "huge": (1280, 32, 16)}
"""Channels, blocks and heads of ViTPose's four networks."""


@cache
def _vitpose(name: str) -> Backbone:
    sizes = VITPOSE_SIZES.get(name)
    if sizes is None and re.fullmatch(r"[1-9]\d{0,4}x[1-9]\d{0,2}x[1-9]\d{0,2}", name):
        width, depth, heads = map(int, name.split("x"))
        sizes = (width, depth, heads) if width % heads == 0 else None
    if sizes is None:
        known = ", ".join(VITPOSE + size for size in VITPOSE_SIZES)
        raise DposeError(
            "preset-unknown",
            "there is no such preset",
            f"preset {VITPOSE}{name}",
            f"choose from {known}, or {VITPOSE}CHANNELSxBLOCKSxHEADS, channels a multiple of heads",
        )
    return Backbone(
        VITPOSE + name,
        partial(_built, "vitpose:build_vitpose", *sizes),
        stride=16,
        input_size=(256, 192),
        # all but the last quarter of the blocks
        frozen=("patch_embed.", "pos_embed", *(f"blocks.{n}." for n in range(3 * sizes[1] // 4))),
        codecs=("vitpose", "vitpose-classic"),
        maps=True,
        upsample=4,
    )


RTMPOSE_SIZES = {"t": (0.167, 0.375), "s": (0.33, 0.5), "m": (0.67, 0.75), "l": (1.0, 1.0), "x": (1.33, 1.25)}
"""Depth and width of RTMPose's networks, relative to the one called "l"."""


def _rtmpose(name: str) -> Backbone:
    return Backbone(
        f"rtmpose:{name}",
        partial(_built, "rtmpose:build_rtmpose", *RTMPOSE_SIZES[name]),
        stride=32,
        input_size=(256, 192),
        frozen=("stem.", "stage1.", "stage2.", "stage3."),
        codecs=("rtmpose",),
        maps=True,
    )


BACKBONES: dict[str, Backbone] = {
    **{preset: _tiny_vit(preset) for preset in ("nano", "5m", "11m", "21m")},
    **{f"blazepose:{kind}": _blazepose(kind) for kind in ("lite", "full", "heavy")},
    **{f"rtmpose:{name}": _rtmpose(name) for name in RTMPOSE_SIZES},
}
"""Backbones by name. "nano" has 1.2 M parameters and is for a CPU, those with a number are TinyViT's own, BlazePose's
and RTMPose's have a head of their own.
"""

TIMM = "timm:"
ALIASES = {
    "lite0": "timm:efficientnet_lite0",
    "blazepose": "blazepose:full",
    **{f"timm:tiny_vit_{preset}_224": preset for preset in ("5m", "11m", "21m")},
}
"""Other names of backbones. `lite0` has 3.4 M parameters and ImageNet weights that need no hub."""


def shipped_weights() -> dict[str, Path]:
    """Return the public weights that come with dpose: model folders by name."""
    folders = sorted(path.parent for path in files.SHIPPED.rglob(WEIGHTS))
    return {":".join(folder.relative_to(files.SHIPPED).parts): folder for folder in folders}


def shipped_for(preset: str) -> Path | None:
    """Return the weights that come with dpose for a backbone, by any of its names, or None."""
    known = ALIASES.get(preset, preset)
    return next((f for name, f in shipped_weights().items() if ALIASES.get(name, name) == known), None)


def check_strategy(strategy: str, temperature: float | None, *, started: bool, model: bool) -> None:
    """Refuse a strategy or a temperature that does not go with the initial weights.

    `started` is True if there are initial weights, `model` if they are those of a whole model, which has logits for the
    temperature to divide.
    """
    if temperature is not None and not model:
        raise DposeError(
            "temperature-without-init",
            "there are no first weights whose logits it could divide",
            f"model.temperature={temperature:g}",
            "give --init FOLDER, or leave it out",
        )
    if started and strategy == "scratch":
        raise DposeError(
            "init-with-scratch", "strategy scratch takes no --init", fix="use finetune or full, or leave --init out"
        )
    if not started and strategy != "scratch":
        raise DposeError(
            "init-missing",
            f"strategy {strategy} starts from trained weights",
            fix="give --init FOLDER, --init FILE or --init imagenet, or --strategy scratch",
        )


def register_backbone(backbone: Backbone) -> None:
    """Register a backbone under its name.

    Raises:
        DposeError: the name is taken.
    """
    if backbone.name in (*BACKBONES, *ALIASES) or backbone.name.startswith(tuple(FAMILIES)):
        raise DposeError(
            "backbone-exists", "there is a backbone of this name already", backbone.name, "choose another name"
        )
    BACKBONES[backbone.name] = backbone


def backbone_named(name: str, stride: int = 0) -> Backbone:
    """Return the backbone called `name`, with a stride, or its default stride if that is 0."""
    known = ALIASES.get(name, name)
    for beginning, family in FAMILIES.items():
        if known.startswith(beginning):
            return replace(family(known.removeprefix(beginning)), name=name).at(stride)
    if not registered(known, BACKBONES):
        names = ", ".join([*BACKBONES, "lite0", *(VITPOSE + size for size in VITPOSE_SIZES)])
        fix = f"choose from {names}, or timm:NAME, {YOUR_OWN}"
        raise DposeError("preset-unknown", "there is no such preset", f"preset {name}", fix)
    return BACKBONES[known].at(stride)


def timm_name(name: str) -> str:
    """Return timm's name of a backbone; "" if it is not a model of timm, or is dpose's own version of one."""
    known = ALIASES.get(name, name)
    return known.removeprefix(TIMM) if known.startswith(TIMM) else ""


@cache
def _of_timm(name: str) -> Backbone:
    from dpose.pose import timm_models

    model = timm_models.described(name)
    return Backbone(
        name,
        partial(timm_models.build_timm, name),
        # an 8x6 map at 128x96, as `nano` has, if the model supports it
        16 if 16 in model.strides else model.strides[0],
        frozen=model.frozen,
        strides=model.strides,
        mean=model.mean,
        std=model.std,
    )


@cache
def _of_hrnet(rest: str) -> Backbone:
    from dpose.pose import timm_models

    name = timm_models.HRNET + rest
    timm_models.check_name(name)
    return Backbone(
        TIMM + name,
        partial(timm_models.build_hrnet, name),
        stride=timm_models.HRNET_STRIDE,
        input_size=(256, 192),
        frozen=timm_models.HRNET_FROZEN,
        codecs=("heatmap", "heatmap-msra", "heatmap-udp"),
        maps=True,
        upsample=1,
    )


FAMILIES: dict[str, Callable[[str], Backbone]] = {"timm:hrnet_": _of_hrnet, TIMM: _of_timm, VITPOSE: _vitpose}
"""Backbones that are made from the rest of their names, by prefix; the first match counts."""
