"""The pose model: a backbone and a coordinate classification head, and which of its parameters train.

The backbone is TinyViT (Wu et al. 2022) or another, the head that of Li et al. 2022 (SimCC): a 1x1
convolution to one channel a joint, upsampled, flattened, and one linear layer an axis, shared by the joints,
to that axis' bins.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.backbones import Backbone, backbone_named
from dpose.pose.norms import Norm, replace_batch_norms
from dpose.pose.simcc import bins
from dpose.pose.skeletons import SKELETONS, skeleton_from_dict, skeleton_to_dict
from dpose.pose.tinyvit import replace_conv_norms

Strategy = Literal["light", "finetune", "full", "scratch"]

LIGHT = 2**15
"""Numbers in the largest convolution that the strategy "light" trains."""


LARGEST_SIDE = 8192
"""Of the pictures that a model takes, in pixels: windows and positions are counted one by one when it is made."""


@dataclass(frozen=True)
class PoseConfig:
    """What a pose model is, apart from its weights.

    Attributes:
        preset: The backbone (`dpose.pose.backbones`): "nano" (1.2 M parameters, for a CPU), "lite0", TinyViT's "5m",
            "11m", "21m", "timm:NAME" for any of timm's, or one that was registered.
        input_size: (H, W) in pixels; (0, 0) stands for a map of 8x6 cells: 128x96 for nano and lite0, 256x192 for
            TinyViT.
        skeleton: A name in `dpose.pose.skeletons.SKELETONS`.
        norm: What follows each convolution. "batch": BatchNorm, for public data only. "folded": nothing,
            BatchNorm has been folded into the convolution. "group": GroupNorm, for training privately from
            scratch.
        split_ratio: SimCC bins a pixel, a whole number.
        sigma: Of the labels' Gaussian, in bins; 0 stands for 6 at 256 rows and split ratio 2, and in
            proportion to the bins of the y axis otherwise: 3 for nano.
        upsample: Factor between the last map and the joints' maps in the head.
        stride: Picture pixels a cell of the backbone's map; 0 stands for the backbone's own.

    Raises:
        DposeError: a value is not possible.
    """

    preset: str = "5m"
    input_size: tuple[int, int] = (0, 0)
    skeleton: str = "mpii"
    norm: Norm = "batch"
    split_ratio: float = 2.0
    sigma: float = 0.0
    upsample: int = 2
    stride: int = 0

    def __post_init__(self) -> None:
        backbone = backbone_named(self.preset, self.stride)
        _one_of("norm", self.norm, get_args(Norm))
        _one_of("skeleton", self.skeleton, tuple(SKELETONS))
        size = tuple(self.input_size)
        if size == (0, 0):
            size = backbone.input_size
        step = backbone.stride
        if len(size) != 2 or not all(type(n) is int and n > 0 and n % step == 0 for n in size):
            raise DposeError(
                f"must be height and width, multiples of {step} for {self.preset}", f"input_size {size}"
            )
        if max(size) > LARGEST_SIDE:
            raise DposeError(f"is larger than {LARGEST_SIDE} pixels a side", f"input_size {size}")
        if not (self.split_ratio >= 1 and float(self.split_ratio).is_integer()):
            raise DposeError("must be a whole number, at least 1", f"split_ratio {self.split_ratio}")
        if type(self.upsample) is not int or self.upsample < 1:
            raise DposeError("must be a whole number, at least 1", f"upsample {self.upsample}")
        sigma = self.sigma or 6.0 * bins(size[0], self.split_ratio) / 512
        if not 0 < sigma < float("inf"):
            raise DposeError("must be positive", f"sigma {self.sigma}")
        object.__setattr__(self, "stride", backbone.stride)
        object.__setattr__(self, "input_size", size)
        object.__setattr__(self, "split_ratio", float(self.split_ratio))
        object.__setattr__(self, "sigma", float(sigma))

    @property
    def backbone(self) -> Backbone:
        """The backbone, with the configuration's stride."""
        return backbone_named(self.preset, self.stride)

    @property
    def joints(self) -> int:
        """The number of joints J."""
        return len(SKELETONS[self.skeleton].joints)

    def to_dict(self) -> dict[str, Any]:
        """The configuration, ready for JSON."""
        return {
            **asdict(self),
            "input_size": list(self.input_size),
            "skeleton": skeleton_to_dict(self.skeleton),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "model") -> PoseConfig:
        """The configuration that `to_dict` gave, or part of one: what is left out has its default.

        Args:
            values: As from JSON or YAML.
            where: What an error names as the place of the mistake.

        Raises:
            DposeError: a key is unknown (names the nearest), or a value is of the wrong kind or not possible.
        """
        known = {field.name: field.default for field in fields(cls)}
        if isinstance(values.get("skeleton"), Mapping):
            values = {**values, "skeleton": skeleton_from_dict(values["skeleton"], where)}
        for key, value in values.items():
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                raise DposeError(f"unknown key {key}", where, hint)
            if not _same_kind(value, known[key]):
                raise DposeError(f"{key} cannot be {value!r}", where)
        given = dict(values)
        if "input_size" in given:
            given["input_size"] = tuple(given["input_size"])
        return cls(**given)


class SimccHead(nn.Module):
    """A map of features to the logits of every joint's bins, on two axes."""

    def __init__(
        self, channels: int, joints: int, map_size: tuple[int, int], upsample: int, counts: tuple[int, int]
    ):
        super().__init__()
        cells = map_size[0] * map_size[1] * upsample**2
        self.upsample = upsample
        self.joints = nn.Conv2d(channels, joints, 1)
        self.x = nn.Linear(cells, counts[0])
        self.y = nn.Linear(cells, counts[1])

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, h, w) to x logits (N, J, counts[0]) and y logits (N, J, counts[1])."""
        maps = self.joints(features)
        if self.upsample > 1:
            maps = F.interpolate(
                maps, scale_factor=float(self.upsample), mode="bilinear", align_corners=False
            )
        flat = maps.flatten(2)
        return self.x(flat), self.y(flat)


class PoseModel(nn.Module):
    """A picture of one person to the logits of each joint's place.

    `forward` takes (N, 3, H, W) RGB pictures of 0 to 255, uint8 or float, of exactly the configuration's
    input size, and gives x logits (N, J, W * k) and y logits (N, J, H * k). The ImageNet normalisation is
    inside, so training, prediction and export share it. Each row of the output depends on that picture alone,
    except that BatchNorm (norm "batch") mixes pictures in training mode.

    Attributes:
        config: What it is.
        source: The folder that it was loaded from, if any.

    Args:
        config: What to build.
        pretrained: Start the backbone from ImageNet weights, or from those in a file, by timm's names.

    Raises:
        DposeError: pretrained weights do not exist for the configuration, or cannot be had.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: PoseConfig, *, pretrained: bool | Path = False) -> None:
        super().__init__()
        self.config = config
        self.source: Path | None = None
        backbone = config.backbone
        self.backbone, self.norm, channels = backbone.build(config.input_size, config.norm, pretrained)
        height, width = config.input_size
        self.head = SimccHead(
            channels,
            config.joints,
            backbone.map_size(config.input_size),
            config.upsample,
            (bins(width, config.split_ratio), bins(height, config.split_ratio)),
        )
        for name, values in (("mean", backbone.mean), ("std", backbone.std)):
            scaled = torch.tensor(values, dtype=torch.float64).view(3, 1, 1) * 255
            self.register_buffer(name, scaled.float(), persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 3, H, W) of 0 to 255 to x logits (N, J, W * k) and y logits (N, J, H * k)."""
        if images.ndim != 4 or tuple(images.shape[1:]) != (3, *self.config.input_size):
            wanted = ", ".join(map(str, (3, *self.config.input_size)))
            raise DposeError(f"the model takes pictures of shape (N, {wanted})", f"{tuple(images.shape)}")
        dtype = self.head.joints.weight.dtype
        pictures = (images.to(dtype) - self.mean.to(dtype)) / self.std.to(dtype)
        features = self.norm(cast(Any, self.backbone).forward_features(pictures))
        return cast(tuple[Tensor, Tensor], self.head(features))

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "cpu") -> PoseModel:
        """The model in a model folder (`dpose.pose.folder.load_model`), or on the Hub as "hf:OWNER/NAME"."""
        if str(folder).startswith("hf:"):
            from dpose.pose.hub import from_hub

            return from_hub(str(folder), device)
        from dpose.pose.folder import load_model

        return load_model(Path(folder), device)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write a model folder that stands alone (`dpose.pose.hub.save_pretrained`)."""
        from dpose.pose.hub import save_pretrained

        return save_pretrained(self, folder)

    def push_to_hub(self, name: str, *, private: bool = True, token: str | None = None) -> str:
        """Upload the model to the Hugging Face Hub (`dpose.pose.hub.push_to_hub`)."""
        from dpose.pose.hub import push_to_hub

        return push_to_hub(self, name, private=private, token=token)


def fold_batchnorm(model: PoseModel) -> PoseModel:
    """A copy of the model with every BatchNorm, as it is in evaluation, folded (`dpose.pose.norms`).

    Equal to `model` in evaluation mode, up to rounding. No layer of the copy mixes examples and no buffer is
    written, in training mode too, which is what makes it fit for per-unit gradients. Every parameter of the
    copy trains: apply the strategy to it. A model without BatchNorm is copied as it is.
    """
    copied = copy.deepcopy(model)
    if model.config.norm == "batch":
        replace_conv_norms(copied, "folded")
        network = cast(Any, copied.backbone)
        example = copied.mean.new_zeros((1, 3, *model.config.input_size))
        like = next(network.parameters())
        replace_batch_norms(network, "folded", lambda: network.forward_features(example.to(like)))
        copied.config = replace(model.config, norm="folded")
    return copied.requires_grad_()


def apply_strategy(model: PoseModel, strategy: Strategy) -> list[str]:
    """Set which parameters train, and name them.

    * "light": convolutions of at most `LIGHT` numbers, norms and biases; not the matrices of attention, MLP and head,
      nor larger convolutions, which are the matrices of networks without attention, nor position biases. Noise is the
      same for every number, and the gradients of those matrices have the least signal a number (docs/results.md).
      After bias-only training (Bu et al. 2022, "Differentially private bias-term only fine-tuning of foundation
      models").
    * "finetune": what the backbone says is frozen: all before its last stage (of TinyViT the patch embedding and three
      stages; of timm's models what stands before the last place where the map shrinks, or before the last quarter of
      the blocks where it never does). The rest, every LayerNorm (those of frozen stages too) and the head train. The
      papers' strategy.
    * "full", "scratch": everything trains. They differ in where the weights come from, not here.

    Frozen layers with no trainable parameter before them, with "finetune" the patch embedding, stage one and the entry
    of stage two, cost a forward pass and no backward pass, nor memory for its activations.

    Raises:
        DposeError: there is no such strategy.
    """
    _one_of("strategy", strategy, get_args(Strategy))
    layers = dict(model.named_modules())
    frozen = tuple(f"backbone.{start}" for start in model.config.backbone.frozen)
    trainable = []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_trains(strategy, name, layers[name.rpartition(".")[0]], frozen))
        if parameter.requires_grad:
            trainable.append(name)
    return trainable


def _trains(strategy: Strategy, name: str, layer: nn.Module, frozen: tuple[str, ...]) -> bool:
    """Whether the parameter `name` of `layer` is trained."""
    if strategy == "light":
        small = isinstance(layer, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d)
        small |= isinstance(layer, nn.Conv2d) and layer.weight.numel() <= LIGHT
        return small or name.endswith(".bias")
    return strategy != "finetune" or not name.startswith(frozen) or isinstance(layer, nn.LayerNorm)


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise DposeError("there is no such " + what, f"{what} {value}", f"choose from {', '.join(allowed)}")


def _same_kind(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, (list, tuple))
    if isinstance(default, float):
        return type(value) in (int, float)
    return type(value) is type(default)
