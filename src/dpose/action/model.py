"""The action model: MViT-B 16x4 (Fan et al. 2021), seed 004's, or a small network for CPUs.

Neither has BatchNorm, dropout or stochastic depth: nothing mixes clips and nothing but the engine's noise is random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from dpose.action.nano import TUBE, NanoNet
from dpose.errors import DposeError, did_you_mean

ActionPreset = Literal["nano", "mvit-b"]
ActionStrategy = Literal["finetune", "full", "scratch"]

MEAN, STD = 0.45, 0.225
"""Kinetics' normalisation, of every channel, of values in 0 to 1."""
PRETRAINED = (
    "save torchvision's weights once as safetensors: python -c \"import safetensors.torch as s; "
    "import torchvision.models.video as v; "
    "s.save_file(v.mvit_v1_b(weights='KINETICS400_V1').state_dict(), 'mvit.safetensors')\""
)
_MVIT_LAST = ("head.", "net.norm.", "net.blocks.14.", "net.blocks.15.")


@dataclass(frozen=True)
class ActionConfig:
    """What an action model is, apart from its weights.

    Attributes:
        classes: The names of what it tells apart, in the order of its outputs.
        preset: "nano" (0.14 M parameters, for a CPU) or "mvit-b" (36.6 M).
        frames: T, of a clip; 0 stands for 16. One frame is a picture. MViT takes 16 always.
        stride: Every how manieth frame of a video a clip takes; 0 stands for the preset's: 1 for nano, 4 for mvit-b.
        input_size: (H, W) in pixels; (0, 0) stands for the preset's: 64x64 for nano, 224x224 for mvit-b.

    Raises:
        DposeError: a value is not possible.
    """

    classes: tuple[str, ...]
    preset: ActionPreset = "nano"
    frames: int = 0
    stride: int = 0
    input_size: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.preset not in get_args(ActionPreset):
            raise DposeError(
                "preset-unknown",
                "there is no such preset of the action model",
                f"preset {self.preset}",
                f"choose from {', '.join(get_args(ActionPreset))}",
            )
        if len(self.classes) < 1 or len(set(self.classes)) < len(self.classes):
            raise DposeError("classes-invalid", "an action model needs classes of different names", "classes")
        nano = self.preset == "nano"
        own = {"frames": 16, "stride": 1 if nano else 4, "input_size": (64, 64) if nano else (224, 224)}
        for name, value in own.items():
            given = getattr(self, name)
            if not given or given == (0, 0):
                object.__setattr__(self, name, value)
        object.__setattr__(self, "classes", tuple(self.classes))
        size = tuple(self.input_size)
        object.__setattr__(self, "input_size", size)
        if self.stride < 1:
            raise DposeError("stride-out-of-range", "must be at least 1", f"stride {self.stride}")
        if not nano and (self.frames, size) != (16, (224, 224)):
            raise DposeError(
                "frames-unsupported",
                "mvit-b takes 16 frames of 224x224 pixels",
                f"{self.frames} frames of {size}",
            )
        if nano and (self.frames < 1 or (self.frames > 1 and self.frames % TUBE)):
            raise DposeError("frames-not-even", "must be one, or an even number", f"frames {self.frames}")
        if len(size) != 2 or not all(type(n) is int and 16 <= n <= 512 for n in size):
            raise DposeError(
                "input-size-out-of-range", "must be height and width between 16 and 512", f"input_size {size}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The configuration, ready for JSON."""
        return {**asdict(self), "classes": list(self.classes), "input_size": list(self.input_size)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "model") -> ActionConfig:
        """The configuration that `to_dict` gave.

        Raises:
            DposeError: a key is unknown (names the nearest) or missing, or a value is not possible.
        """
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise DposeError(
                    "setting-unknown", f"unknown key {key}", where, did_you_mean(str(key), known)
                )
        try:
            given = {**values, "classes": tuple(values["classes"])}
            if "input_size" in given:
                given["input_size"] = tuple(given["input_size"])
            return cls(**given)
        except (KeyError, TypeError) as error:
            raise DposeError("config-invalid", f"describes no action model ({error})", where) from error


class ActionModel(nn.Module):
    """A clip to the logits of its classes.

    `forward` takes (N, 3, T, H, W) RGB of 0 to 255, uint8 or float, of the configuration's sizes, and gives
    (N, classes). Each row depends on that clip alone.

    Attributes:
        config: What it is.
    """

    def __init__(self, config: ActionConfig) -> None:
        super().__init__()
        self.config = config
        if config.preset == "nano":
            nano = NanoNet(config.frames)
            self.net: nn.Module = nano
            features = nano.features
        else:
            self.net, features = mvit_b()
        self.head = nn.Linear(features, len(config.classes))

    def forward(self, clips: Tensor) -> Tensor:
        """(N, 3, T, H, W) of 0 to 255 to logits (N, classes)."""
        wanted = (3, self.config.frames, *self.config.input_size)
        if clips.ndim != 5 or tuple(clips.shape[1:]) != wanted:
            raise DposeError(
                "clips-of-wrong-shape",
                f"the model takes clips of shape (N, {wanted})",
                f"{tuple(clips.shape)}",
            )
        scaled = (clips.to(self.head.weight.dtype) / 255 - MEAN) / STD
        return cast(Tensor, self.head(self.net(scaled)))


def mvit_b() -> tuple[nn.Module, int]:
    """MViT-B 16x4 of torchvision, without its head and without anything random, and its number of features."""
    from torchvision.models.video import mvit_v1_b

    net = mvit_v1_b(weights=None, dropout=0.0, attention_dropout=0.0, stochastic_depth_prob=0.0)
    return headless(net)


def headless(net: Any) -> tuple[nn.Module, int]:
    """A torchvision MViT with its classifier taken off, and the number of features that it then gives."""
    features = int(net.head[-1].in_features)
    net.head = nn.Identity()
    return cast(nn.Module, net), features


def load_pretrained(model: ActionModel, path: Path) -> None:
    """Start MViT from Kinetics-400 weights in a safetensors file with torchvision's names; the head stays fresh.

    Raises:
        DposeError: the model is no MViT, or the file is missing, no safetensors file, or of another model.
    """
    if model.config.preset != "mvit-b":
        raise DposeError(
            "pretrained-weights-unsuitable",
            "takes no weights of torchvision's MViT",
            f"preset {model.config.preset}",
        )
    if not path.is_file():
        raise DposeError("pretrained-weights-missing", "no pretrained weights there", str(path), PRETRAINED)
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise DposeError(
            "weights-damaged", "is no safetensors file, or is damaged", str(path), PRETRAINED
        ) from error
    body = {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}
    wanted = model.net.state_dict()
    wrong = [
        n for n in {**wanted, **body} if n not in body or n not in wanted or body[n].shape != wanted[n].shape
    ]
    if wrong:
        raise DposeError(
            "weights-of-other-model", f"is not of MViT-B: {wrong[0]} does not fit", str(path), PRETRAINED
        )
    model.net.load_state_dict(body)


def apply_action_strategy(model: ActionModel, strategy: ActionStrategy) -> list[str]:
    """Set which parameters train, and name them.

    * "finetune": the last two blocks of MViT (of nano: the last halving), every norm layer and the head train.
    * "full", "scratch": everything trains. They differ in where the weights come from.

    Raises:
        DposeError: there is no such strategy.
    """
    if strategy not in get_args(ActionStrategy):
        raise DposeError(
            "strategy-unknown",
            "there is no such strategy",
            strategy,
            f"choose from {', '.join(get_args(ActionStrategy))}",
        )
    norms = {n for n, m in model.named_modules() if isinstance(m, nn.LayerNorm | nn.GroupNorm)}
    last = _MVIT_LAST if model.config.preset == "mvit-b" else ("head.", "net.spatial.3.", "net.temporal.2.")
    trainable = []
    for name, parameter in model.named_parameters():
        trains = strategy != "finetune" or name.startswith(last) or name.rpartition(".")[0] in norms
        parameter.requires_grad_(trains)
        if trains:
            trainable.append(name)
    return trainable


def fresh_model(config: ActionConfig, seed: int | None = None) -> ActionModel:
    """A model with random weights: from `seed`, or from the operating system."""
    if seed is None:
        torch.seed()
    else:
        torch.manual_seed(seed)
    return ActionModel(config)
