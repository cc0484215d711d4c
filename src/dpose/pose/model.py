"""The pose model: a backbone and a codec's head, and the choice of parameters that train.

The backbone is TinyViT (Wu et al. 2022) by default (`dpose.pose.backbones`), and so is the head of the codec
SimCC (Li et al. 2022; `dpose.pose.codec`).
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.extensions import YOUR_OWN, registered
from dpose.pose.backbones import Backbone, backbone_named
from dpose.pose.codec import CODECS, DEFAULT, codec_of, codecs_for
from dpose.pose.norms import Norm, replace_batch_norms
from dpose.pose.outputs import Codec, Outputs
from dpose.pose.skeletons import SKELETONS, skeleton_from_dict, skeleton_to_dict

Strategy = Literal["light", "finetune", "full", "scratch", "head"]

LIGHT = 2**15
"""Size of the largest convolution that the strategy "light" trains, in weights."""


LARGEST_SIDE = 8192
"""Largest side of an input, pixels: windows and positions are enumerated when a model is made."""


@dataclass(frozen=True)
class PoseConfig:
    """Configuration of a pose model: all but its weights.

    Attributes:
        preset: The backbone (`dpose.pose.backbones`): "nano" (1.2 M parameters, for a CPU), "lite0", TinyViT's "5m",
            "11m", "21m", "timm:NAME" for any of timm's, "vitpose:base" and its like, or one that was registered.
        input_size: (H, W) in pixels; (0, 0) stands for a map of 8x6 cells: 128x96 for nano and lite0, 256x192 for
            TinyViT.
        skeleton: A name in `dpose.pose.skeletons.SKELETONS`.
        norm: The layer after each convolution. "batch": BatchNorm, for public data only. "folded": nothing,
            BatchNorm has been folded into the convolution. "group": GroupNorm, for training privately from
            scratch.
        split_ratio: SimCC bins a pixel, a whole number.
        sigma: Standard deviation of the Gaussian of labels and scores, in the codec's own unit. For SimCC: bins, and 0
            stands for 6 at 256 rows and split ratio 2, and in proportion to the bins of the y axis otherwise: 3 for
            nano. For the others see `dpose.pose.heatmap` and `dpose.pose.codec.RegressionCodec`.
        upsample: Factor between the last map and the joints' maps in the head; 0 stands for the backbone's default,
            usually 2.
        stride: Picture pixels per cell of the backbone's map; 0 stands for the backbone's default.
        codec: Meaning of the outputs (`dpose.pose.codec`): "simcc", "heatmap", "regression", or one that was
            registered; "" stands for the backbone's default, usually "simcc".
        directions: Number of directions of the linear correction of joints (`dpose.pose.correction`); 0 for none.

    Raises:
        DposeError: a value is not possible.
    """

    preset: str = "5m"
    input_size: tuple[int, int] = (0, 0)
    skeleton: str = "mpii"
    norm: Norm = "batch"
    split_ratio: float = 2.0
    sigma: float = 0.0
    upsample: int = 0
    stride: int = 0
    codec: str = ""
    directions: int = 0

    def __post_init__(self) -> None:
        backbone = backbone_named(self.preset, self.stride)
        known = registered(str(self.codec or DEFAULT), CODECS)
        codecs = codecs_for(backbone)
        codec = self.codec or codecs[0]
        if codec not in codecs:
            fix = f"choose from {', '.join(codecs)}{'' if known else f', {YOUR_OWN}'}"
            raise DposeError("codec-unsupported", f"has no codec {codec}", self.preset, fix)
        _one_of("norm", self.norm, get_args(Norm))
        _one_of("skeleton", self.skeleton, tuple(SKELETONS))
        size = tuple(self.input_size)
        if size == (0, 0):
            size = backbone.input_size
        step = backbone.stride
        if len(size) != 2 or not all(type(n) is int and n > 0 and n % step == 0 for n in size):
            raise DposeError(
                "input-size-unsupported",
                f"must be height and width, multiples of {step} for {self.preset}",
                f"input_size {size}",
            )
        if max(size) > LARGEST_SIDE:
            raise DposeError(
                "input-size-too-large", f"is larger than {LARGEST_SIDE} pixels a side", f"input_size {size}"
            )
        if not (self.split_ratio >= 1 and float(self.split_ratio).is_integer()):
            raise DposeError(
                "split-ratio-out-of-range", "must be a whole number, at least 1", f"split_ratio {self.split_ratio}"
            )
        upsample = self.upsample
        if type(upsample) is not int or upsample < 0:
            raise DposeError(
                "upsample-out-of-range",
                "must be a whole number, at least 1, or 0 for the backbone's own",
                f"upsample {upsample}",
            )
        if type(self.directions) is not int or not 0 <= self.directions <= 2 * self.joints:
            raise DposeError(
                "directions-out-of-range",
                f"must be a whole number from 0 to {2 * self.joints}, two a joint",
                f"directions {self.directions}",
            )
        object.__setattr__(self, "codec", codec)
        object.__setattr__(self, "stride", backbone.stride)
        object.__setattr__(self, "input_size", size)
        object.__setattr__(self, "upsample", upsample or backbone.upsample)
        object.__setattr__(self, "split_ratio", float(self.split_ratio))
        sigma = codec_of(self).sigma
        if not 0 < sigma < float("inf"):
            raise DposeError("sigma-not-positive", "must be positive", f"sigma {self.sigma}")
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
        """Return the configuration, ready for JSON. The codec SimCC is left out."""
        values = {**asdict(self), "input_size": list(self.input_size), "skeleton": skeleton_to_dict(self.skeleton)}
        if self.codec == DEFAULT:
            del values["codec"]
        if not self.directions:
            del values["directions"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "model") -> PoseConfig:
        """Read the configuration, or part of one, that `to_dict` returned; missing keys have their defaults.

        A missing codec stands for SimCC, unless the backbone does not support it.

        Args:
            values: As from JSON or YAML.
            where: The source that an error names.

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
                raise DposeError("setting-unknown", f"unknown key {key}", where, hint)
            if not _same_kind(value, known[key]):
                raise DposeError("setting-invalid", f"{key} cannot be {value!r}", where)
        given = dict(values)
        if "input_size" in given:
            given["input_size"] = tuple(given["input_size"])
        if "codec" not in given:
            backbone = backbone_named(given.get("preset", cls.preset), given.get("stride", 0))
            given["codec"] = DEFAULT if DEFAULT in codecs_for(backbone) else ""
        return cls(**given)


class PoseModel(nn.Module):
    """Network from a picture of one person to the outputs of its codec.

    `forward` takes (N, 3, H, W) RGB pictures of 0 to 255, uint8 or float, of exactly the configuration's
    input size, and returns the outputs of the codec's head, a tuple: for SimCC x logits (N, J, W * k) and y logits
    (N, J, H * k). The normalisation of colours is inside, so training, prediction and export share it. Each row of
    an output depends on that picture alone, except that BatchNorm (norm "batch") mixes pictures in training mode.

    Attributes:
        config: The configuration.
        source: The folder that it was loaded from, if any.

    Args:
        config: The configuration.
        pretrained: Start the backbone from ImageNet weights, or from those in a file, by timm's names.

    Raises:
        DposeError: pretrained weights do not exist for the configuration, or cannot be downloaded.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: PoseConfig, *, pretrained: bool | Path = False) -> None:
        super().__init__()
        self.config = config
        self.source: Path | None = None
        backbone = config.backbone
        self.backbone, self.norm, channels = backbone.build(config.input_size, config.norm, pretrained)
        self.head = self.codec.head(channels, config.joints, backbone.map_size(config.input_size))
        for name, values in (("mean", backbone.mean), ("std", backbone.std)):
            scaled = torch.tensor(values, dtype=torch.float64).view(3, 1, 1) * 255
            self.register_buffer(name, scaled.float(), persistent=False)

    @property
    def codec(self) -> Codec:
        """The codec of the outputs."""
        return codec_of(self.config)

    def forward(self, images: Tensor) -> Outputs:
        """(N, 3, H, W) of 0 to 255 to the outputs of the head, (N, ...) each."""
        if images.ndim != 4 or tuple(images.shape[1:]) != (3, *self.config.input_size):
            wanted = ", ".join(map(str, (3, *self.config.input_size)))
            raise DposeError(
                "pictures-of-wrong-shape", f"the model takes pictures of shape (N, {wanted})", f"{tuple(images.shape)}"
            )
        dtype = next(self.head.parameters()).dtype
        pictures = (images.to(dtype) - self.mean.to(dtype)) / self.std.to(dtype)
        features = self.norm(cast(Any, self.backbone).forward_features(pictures))
        return cast(Outputs, self.head(features))


def fold_batchnorm(model: PoseModel) -> PoseModel:
    """Return a copy of the model with every BatchNorm, as it is in evaluation, folded (`dpose.pose.norms`).

    Equal to `model` in evaluation mode, up to rounding. No layer of the copy mixes examples and no buffer is
    written, in training mode too, which makes per-unit gradients exact. Every parameter of the
    copy trains: apply the strategy to it. A model without BatchNorm is copied as it is.

    Raises:
        DposeError: it is no pose model of dpose's.
    """
    _check_ours(model, "in a model of your own use nn.GroupNorm in place of BatchNorm")
    copied = copy.deepcopy(model)
    if model.config.norm == "batch":
        from dpose.pose.tinyvit import replace_conv_norms  # importing timm takes a second: only if needed

        replace_conv_norms(copied, "folded")
        network = cast(Any, copied.backbone)
        example = copied.mean.new_zeros((1, 3, *model.config.input_size))
        like = next(network.parameters())
        replace_batch_norms(network, "folded", lambda: network.forward_features(example.to(like)))
        copied.config = replace(model.config, norm="folded")
    return copied.requires_grad_()


def apply_strategy(model: PoseModel, strategy: Strategy) -> list[str]:
    """Set which parameters train, and return their names.

    * "light": convolutions of at most `LIGHT` numbers, norms and biases; not the matrices of attention, MLP and head,
      nor larger convolutions, which are the matrices of networks without attention, nor position biases. Noise is the
      same for every number, and the gradients of those matrices have the least signal a number (docs/lab/results.md).
      After bias-only training (Bu et al. 2022, "Differentially private bias-term only fine-tuning of foundation
      models").
    * "finetune": the backbone's `frozen` parameters do not train: all before its last stage (of TinyViT the patch
      embedding and three stages; of timm's models what stands before the last place where the map shrinks, or before
      the last quarter of the blocks where it never does). The rest, every LayerNorm (those of frozen stages too) and
      the head train. The papers' strategy.
    * "head": the head alone; of a head with a linear correction the correction alone.
    * "full", "scratch": everything trains that the loss reaches. They differ in where the weights come from, not here.

    Frozen layers with no trainable parameter before them, with "finetune" the patch embedding, stage one and the entry
    of stage two, cost a forward pass and no backward pass, nor memory for its activations.

    Raises:
        DposeError: there is no such strategy, or it is no pose model of dpose's.
    """
    _one_of("strategy", strategy, get_args(Strategy))
    _check_ours(model, "set requires_grad of your own model's parameters, and use nn.GroupNorm in place of BatchNorm")
    layers = dict(model.named_modules())
    frozen = tuple(f"backbone.{start}" for start in model.config.backbone.frozen)
    untaught = tuple(f"head.{layer}." for layer in model.codec.untaught)
    if strategy == "head":
        frozen = ("backbone.", "norm.", "head.base.") if model.config.directions else ("backbone.", "norm.")
    trainable = []
    for name, parameter in model.named_parameters():
        trains = _trains(strategy, name, layers[name.rpartition(".")[0]], frozen)
        parameter.requires_grad_(trains and not name.startswith(untaught))
        if parameter.requires_grad:
            trainable.append(name)
    return trainable


def _trains(strategy: Strategy, name: str, layer: nn.Module, frozen: tuple[str, ...]) -> bool:
    """True if the parameter `name` of `layer` is trained."""
    if strategy == "light":
        small = isinstance(layer, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d)
        small |= isinstance(layer, nn.Conv2d) and layer.weight.numel() <= LIGHT
        return small or name.endswith(".bias")
    if strategy in ("full", "scratch") or not name.startswith(frozen):
        return True
    return strategy == "finetune" and isinstance(layer, nn.LayerNorm)


def _check_ours(model: object, fix: str) -> None:
    if not isinstance(model, PoseModel):
        raise DposeError("model-not-pose", f"must be a dpose.PoseModel, not {type(model).__name__}", "model", fix)


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise DposeError(
            "choice-unknown", "there is no such " + what, f"{what} {value}", f"choose from {', '.join(allowed)}"
        )


def _same_kind(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, (list, tuple))
    if isinstance(default, float):
        return type(value) in (int, float)
    return type(value) is type(default)
