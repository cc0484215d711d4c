"""The action model: MViT-B 16x4 (Fan et al. 2021), as in seed 004, or a small network for CPUs.

Neither has BatchNorm, dropout or stochastic depth: nothing mixes clips and nothing but the engine's noise is random.
The small network convolves space and time in turn (Tran et al. 2018), normalises by GroupNorm, and writes no buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from dpose.errors import DposeError, did_you_mean
from dpose.files import file_json, read_bytes

ActionPreset = Literal["nano", "mvit-b"]
ActionStrategy = Literal["finetune", "full", "scratch"]

MEAN, STD = 0.45, 0.225
"""Kinetics' normalisation, for every channel, of values in 0 to 1."""
PRETRAINED = (
    "save torchvision's weights once as safetensors: python -c \"import safetensors.torch as s; "
    "import torchvision.models.video as v; "
    "s.save_file(v.mvit_v1_b(weights='KINETICS400_V1').state_dict(), 'mvit.safetensors')\""
)
_MVIT_LAST = ("head.", "net.norm.", "net.blocks.14.", "net.blocks.15.")


WIDTHS = (24, 40, 64, 96)
"""Channels after each halving of the picture."""
TUBE = 2
"""Number of successive frames that enter together."""


class NanoNet(nn.Module):
    """Small network, (N, 3, T, H, W) of about unit range to (N, features), trainable on one CPU core.

    Beside its colours, each frame enters with its difference from the clip's mean, which is 0 where nothing moves.

    Args:
        frames: T; one, or a multiple of four.
    """

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames
        spatial: list[nn.Module] = []
        temporal: list[nn.Module] = []
        norms: list[nn.Module] = []
        before = 6 * min(frames, TUBE)
        for i, width in enumerate(WIDTHS):
            spatial.append(nn.Conv2d(before, width, 5 if i == 0 else 3, 2, 2 if i == 0 else 1))
            norms.append(nn.GroupNorm(8, width))
            if frames > 1 and i:
                temporal.append(nn.Linear(3 * width, width))
            before = width
        self.spatial, self.norms = nn.ModuleList(spatial), nn.ModuleList(norms)
        self.temporal = nn.ModuleList(temporal)
        self.features = 2 * before

    def forward(self, clips: Tensor) -> Tensor:
        """Return the mean and the maximum of every feature over space and time, (N, features)."""
        n, _, t, h, w = clips.shape
        both = torch.cat([clips, 3 * (clips - clips.mean(2, keepdim=True))], 1).movedim(1, 2)
        tube = min(t, TUBE)
        x = both.reshape(n * (t // tube), tube * 6, h, w)
        times = t // tube
        for i, (conv, norm) in enumerate(zip(self.spatial, self.norms, strict=True)):
            x = F.gelu(norm(conv(x)))
            if self.temporal and i:
                x = x + self._along_time(x, n, times, self.temporal[i - 1])
        flat = x.reshape(n, times, x.shape[1], -1)
        return torch.cat([flat.mean((1, 3)), flat.amax((1, 3))], 1)

    def _along_time(self, x: Tensor, n: int, times: int, mix: nn.Module) -> Tensor:
        """Convolve three frames along time, as a linear map of each place's three successive values."""
        _, channels, h, w = x.shape
        places = x.reshape(n, times, channels, h * w)
        padded = F.pad(places, (0, 0, 0, 0, 1, 1))
        three = torch.cat([padded[:, i : i + times] for i in range(3)], 2)
        mixed = mix(three.transpose(2, 3)).transpose(2, 3)
        return F.gelu(mixed).reshape(n * times, channels, h, w)


@dataclass(frozen=True)
class ActionConfig:
    """Configuration of an action model: all but its weights.

    Attributes:
        classes: Names of the classes, in the order of the outputs.
        preset: "nano" (0.14 M parameters, for a CPU) or "mvit-b" (36.6 M).
        frames: Frames of a clip, T; 0 stands for 16. One frame is a picture. MViT takes 16 always.
        stride: Step between a clip's frames in the video; 0 stands for the preset's default: 1 for nano, 4 for mvit-b.
        input_size: (H, W) in pixels; (0, 0) stands for the preset's: 64x64 for nano, 224x224 for mvit-b.
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
                "frames-unsupported", "mvit-b takes 16 frames of 224x224 pixels", f"{self.frames} frames of {size}"
            )
        if nano and (self.frames < 1 or (self.frames > 1 and self.frames % TUBE)):
            raise DposeError("frames-not-even", "must be one, or an even number", f"frames {self.frames}")
        if len(size) != 2 or not all(type(n) is int and 16 <= n <= 512 for n in size):
            raise DposeError(
                "input-size-out-of-range", "must be height and width between 16 and 512", f"input_size {size}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration, ready for JSON."""
        return {**asdict(self), "classes": list(self.classes), "input_size": list(self.input_size)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "model") -> ActionConfig:
        """Read the configuration that `to_dict` returned."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise DposeError("setting-unknown", f"unknown key {key}", where, did_you_mean(str(key), known))
        try:
            given = {**values, "classes": tuple(values["classes"])}
            if "input_size" in given:
                given["input_size"] = tuple(given["input_size"])
            return cls(**given)
        except (KeyError, TypeError) as error:
            raise DposeError("config-invalid", f"describes no action model ({error})", where) from error


class ActionModel(nn.Module):
    """Network from a clip to the logits of its classes.

    `forward` takes (N, 3, T, H, W) RGB of 0 to 255, uint8 or float, of the configuration's sizes, and returns
    (N, classes). Each row depends on that clip alone.

    Attributes:
        config: The configuration.
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
                "clips-of-wrong-shape", f"the model takes clips of shape (N, {wanted})", f"{tuple(clips.shape)}"
            )
        scaled = (clips.to(self.head.weight.dtype) / 255 - MEAN) / STD
        return cast(Tensor, self.head(self.net(scaled)))


def mvit_b() -> tuple[nn.Module, int]:
    """Return torchvision's MViT-B 16x4, without its head and without anything random, and its number of features."""
    from torchvision.models.video import mvit_v1_b

    net = mvit_v1_b(weights=None, dropout=0.0, attention_dropout=0.0, stochastic_depth_prob=0.0)
    return headless(net)


def headless(net: Any) -> tuple[nn.Module, int]:
    """Remove the classifier of a torchvision MViT; return it and the number of its features."""
    features = int(net.head[-1].in_features)
    net.head = nn.Identity()
    return cast(nn.Module, net), features


def load_pretrained(model: ActionModel, path: Path) -> None:
    """Start MViT from Kinetics-400 weights in a safetensors file with torchvision's names; the head stays untrained."""
    if model.config.preset != "mvit-b":
        raise DposeError(
            "pretrained-weights-unsuitable", "takes no weights of torchvision's MViT", f"preset {model.config.preset}"
        )
    if not path.is_file():
        raise DposeError("pretrained-weights-missing", "no pretrained weights there", str(path), PRETRAINED)
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise DposeError("weights-damaged", "is no safetensors file, or is damaged", str(path), PRETRAINED) from error
    body = {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}
    wanted = model.net.state_dict()
    wrong = [n for n in {**wanted, **body} if n not in body or n not in wanted or body[n].shape != wanted[n].shape]
    if wrong:
        raise DposeError("weights-of-other-model", f"is not of MViT-B: {wrong[0]} does not fit", str(path), PRETRAINED)
    model.net.load_state_dict(body)


def apply_action_strategy(model: ActionModel, strategy: ActionStrategy) -> list[str]:
    """Set which parameters train, and return their names.

    * "finetune": the last two blocks of MViT (of nano: the last halving), every norm layer and the head train.
    * "full", "scratch": everything trains. They differ in where the weights come from.
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
    """Create a model with random weights: from `seed`, or from the operating system."""
    if seed is None:
        torch.seed()
    else:
        torch.manual_seed(seed)
    return ActionModel(config)


def load_action_model(folder: Path) -> ActionModel:
    """Load the model in `folder`, in evaluation mode."""
    config = folder / "config.json"
    try:
        values = file_json(config)
        described = values["model"] if values.get("task") == "action" else None
    except (OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise DposeError(
            "model-missing", "holds no model", str(folder), "give a folder that dpose train made"
        ) from error
    if not isinstance(described, dict):
        raise DposeError("model-of-other-task", "holds no action model", str(folder))
    model = ActionModel(ActionConfig.from_dict(described, str(config)))
    weights = folder / "model.safetensors"
    try:
        tensors = safetensors.torch.load(read_bytes(weights))
    except (SafetensorError, ValueError) as error:
        raise DposeError(
            "weights-damaged", "is no safetensors file, or is damaged", str(weights), "copy it again"
        ) from error
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise DposeError("weights-of-other-model", "is of another model than its config.json", str(weights)) from error
    return model.eval()
