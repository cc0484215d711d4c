"""Any model of timm as a backbone, for pictures of any size and per-unit gradients; HRNet up to its finest branch.

Models are changed by rules that trace one forward pass and never by a list of names:

* layers that do not contribute to the feature map (classifiers, what follows pooling) are removed;
* the strides of the last strided layers are set to one, until a cell of the map has the requested stride (as in Luo et
  al. 2019, "Bag of tricks and a strong baseline for deep person re-identification"). No kernel is dilated: the content
  of a picture of 128x96 is as large for the last stage's kernels as that of one of 256x192 for the unchanged model;
* BatchNorm is replaced according to the requested norm (`dpose.pose.norms`);
* nothing draws random numbers and nothing is computed in place or stored from one pass to another.

HRNet (Sun et al. 2019, "Deep high-resolution representation learning for human pose estimation") ends at its branch of
the highest resolution, four pixels per cell, from which the codec "heatmap" reads heat maps by one 1x1 convolution.
Names of parameters are timm's, which are those of the published code and of mmpose. The layers that timm adds behind
the branches, for a classifier, and the last mixing of the other branches are left out.
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import timm
import torch
from timm.layers import Conv2dSame, LayerNorm2d, LayerNorm2dFp32
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from dpose.errors import DposeError
from dpose.pose.norms import Norm, batch_norms, replace_batch_norms
from dpose.pose.weights_file import imagenet_tensors, read_weights

SIDE = 256
"""Height and width of the traced picture for models that take any."""


@dataclass(frozen=True)
class Described:
    """Properties of a model of timm.

    Attributes:
        strides: Picture pixels per cell of the map, as timm has it, and the values to which it can be reduced.
        frozen: Prefixes of the names of parameters before the last stage.
        mean: Mean of the three colours, 0 to 1, for normalising pictures.
        std: Standard deviation for normalising pictures.
    """

    strides: tuple[int, ...]
    frozen: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@cache
def described(name: str) -> Described:
    """Describe timm's model `name` by one forward pass."""
    with torch.random.fork_rng(devices=[]):  # a first call must not change the numbers drawn next
        model = create(name)
    cfg = model.pretrained_cfg
    size = tuple(cfg["input_size"][1:]) if cfg.get("fixed_input_size") else (SIDE, SIDE)
    steps, features = _look(name, model, cast(tuple[int, int], size))
    if features.ndim == 3:
        cells = features.shape[1] - getattr(model, "num_prefix_tokens", 0)
        rows = math.isqrt(max(0, cells))
    else:
        rows = features.shape[1 if features.shape[-1] == model.num_features else 2]
        cells = rows * rows
    if rows < 2 or rows * rows != cells:
        raise _no_map(name)
    strides = [size[0] // rows]
    while strides[-1] in (outer := {after: before for _, before, after in steps}):
        strides.append(outer[strides[-1]])
    return Described(tuple(s for s in strides if s >= 4), _before_last_stage(model), cfg["mean"], cfg["std"])


def build_timm(
    name: str, input_size: tuple[int, int], norm: Norm, pretrained: bool | Path, stride: int
) -> tuple[nn.Module, nn.Module, int]:
    """Build timm's model `name`, the module from its features to a map, and the map's channels (`Backbone.build`).

    `input_size` is (H, W), multiples of `stride`, one of `Described.strides`. A model that mixes pictures or stores
    state in a way that cannot be replaced is refused.
    """
    if pretrained and batch_norms(create(name)):
        refuse_group(norm)
    model = create(name, pretrained)
    if hasattr(model, "set_input_size"):
        model.set_input_size(img_size=input_size)
    for place, before, _ in _look(name, model, input_size)[0]:
        if before >= stride:
            _make_no_step(model, place)
    with _Reads(model) as seen:
        features = _features(name, model, input_size)
    _take_out_unused(model, seen.used)
    tail = ToMap(
        (input_size[0] // stride, input_size[1] // stride),
        getattr(model, "num_prefix_tokens", 0),
        features.ndim == 4 and features.shape[-1] == model.num_features != features.shape[1],
        _head_norm(model),
    )
    if hasattr(model, "head") and not seen.used & {id(p) for p in model.head.parameters()}:
        model.head = nn.Identity()  # unless it takes part in computing the features
    if tuple(tail(features).shape[2:]) != tail.size:
        raise DposeError(
            "feature-map-size-wrong",
            f"gives no map of {tail.size[0]}x{tail.size[1]} for pictures of {input_size[0]}x{input_size[1]}",
            f"timm:{name}",
            "choose another input size or stride",
        )
    make_still(name, model)
    replace_batch_norms(model, norm, lambda: _features(name, model, input_size))
    if norm != "batch":
        _refuse_mixing(name, model, input_size)
    return model, tail, int(model.num_features)


class ToMap(nn.Module):
    """Converts a model's result, tokens (N, T, C) or a map of either layout, to a normalised map (N, C, h, w).

    Args:
        size: (h, w).
        prefix: Tokens before those of the map.
        channels_last: True if maps come as (N, h, w, C).
        norm: Norm of maps; Identity if the model's head begins with none.
    """

    def __init__(self, size: tuple[int, int], prefix: int, channels_last: bool, norm: nn.Module) -> None:
        super().__init__()
        self.size, self.prefix, self.channels_last = size, prefix, channels_last
        self.norm = norm

    def forward(self, features: Tensor) -> Tensor:
        """(N, T, C), (N, C, h, w) or (N, h, w, C) to (N, C, h, w)."""
        if features.ndim == 3:
            tokens = features[:, self.prefix :]
            if tokens.shape[1] != self.size[0] * self.size[1]:
                return features[..., None]
            features = tokens.transpose(1, 2).reshape(len(features), -1, *self.size)
        elif self.channels_last:
            features = features.permute(0, 3, 1, 2)
        return cast(Tensor, self.norm(features))


def check_name(name: str) -> None:
    """Refuse a name that timm does not know."""
    if not timm.is_model(name.partition(".")[0]):
        near = ", ".join(f"timm:{one}" for one in difflib.get_close_matches(name, timm.list_models(), 3, 0.5))
        hint = f"did you mean {near}?" if near else "timm.list_models() names those there are"
        raise DposeError("timm-model-unknown", "timm has no such model", f"timm:{name}", hint)


def refuse_group(norm: Norm) -> None:
    """Refuse GroupNorm in place of a trained network's BatchNorm, whose weights would mean nothing there."""
    if norm == "group":
        raise DposeError(
            "pretrained-needs-batchnorm",
            "pretrained weights need BatchNorm",
            "norm: group",
            "use norm: batch, then fold_batchnorm",
        )


def create(name: str, pretrained: bool | Path = False, **options: Any) -> Any:
    """Create timm's model `name`, with or without a tag, without a classifier.

    `pretrained` is True for ImageNet weights, or a file of weights; `options` are others of the model.
    """
    check_name(name)
    tensors: Mapping[str, Tensor] | None = None
    if isinstance(pretrained, Path):
        tensors = read_weights(pretrained, lambda: timm.create_model(name))
    elif pretrained:
        tensors = imagenet_tensors(name, lambda: timm.create_model(name))
    overlay = {} if tensors is None else {"pretrained_cfg_overlay": {"state_dict": dict(tensors)}}
    try:
        with _quiet():
            return timm.create_model(name, pretrained=bool(pretrained), num_classes=0, **overlay, **options)
    except Exception as error:  # huggingface_hub, urllib, safetensors and timm each raise their own
        reason = f"({type(error).__name__}: {' '.join(str(error).split())[:160]})"
        if not pretrained:
            raise DposeError("timm-model-refused", f"timm cannot make it {reason}", f"timm:{name}") from error
        raise DposeError(
            "pretrained-weights-unavailable",
            f"cannot get the pretrained weights {reason}",
            f"timm's {name}",
            "fetch them once where there is a network and copy the Hugging Face cache (HF_HOME) here, or start from a "
            "model folder or a file with --init",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client's line for each attempt to download weights; one line reports that all failed."""
    clients = [logging.getLogger(name) for name in ("huggingface_hub", "timm")]
    before = [client.level for client in clients]
    for client in clients:
        client.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for client, level in zip(clients, before, strict=True):
            client.setLevel(level)


def _features(name: str, model: Any, size: tuple[int, int]) -> Tensor:
    model.eval()
    try:
        with torch.no_grad():
            features = model.forward_features(torch.zeros(1, 3, *size))
    except Exception as error:  # a model's code may raise anything for a size that it was not made for
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise DposeError(
            "input-size-unsupported",
            f"cannot take pictures of {size[0]}x{size[1]} ({reason})",
            f"timm:{name}",
            "choose another input size or stride",
        ) from error
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise _no_map(name)
    return features


def _no_map(name: str) -> DposeError:
    return DposeError("feature-map-missing", "gives no map of features", f"timm:{name}", "choose a backbone that does")


def _look(name: str, model: Any, size: tuple[int, int]) -> tuple[list[tuple[str, int, int]], Tensor]:
    """Return the strided layers, each with the stride before it and behind it, and the features of the last layer."""
    steps: list[tuple[str, int, int]] = []

    def look(place: str, x: Any, out: Any) -> None:
        if isinstance(x, Tensor) and isinstance(out, Tensor) and x.ndim == out.ndim == 4:
            before, after = (round(size[0] / rows) for rows in (x.shape[2], out.shape[2]))
            if after > before:
                steps.append((place, before, after))

    hooks = [
        module.register_forward_hook(lambda _module, args, out, place=place: look(place, args[0], out))
        for place, module in model.named_modules()
        if hasattr(module, "stride") and not list(module.children())
    ]
    features = _features(name, model, size)
    for hook in hooks:
        hook.remove()
    return steps, features


def _make_no_step(model: nn.Module, place: str) -> None:
    layer = cast(Any, model.get_submodule(place))
    if isinstance(layer, nn.AvgPool2d) or (
        isinstance(layer, nn.MaxPool2d) and layer.kernel_size in (2, (2, 2)) and not layer.padding
    ):
        # at stride one each window is a cell; even windows would make the map smaller by one
        model.set_submodule(place, nn.Identity())
    elif isinstance(layer, nn.Conv2d) and not isinstance(layer, Conv2dSame) and layer.kernel_size[0] % 2 == 0:
        # an even kernel has no middle: one row and column more, behind, keep the map's size
        same = Conv2dSame(
            layer.in_channels, layer.out_channels, cast(Any, layer.kernel_size), groups=layer.groups, bias=False
        )
        same.weight, same.bias = layer.weight, layer.bias
        model.set_submodule(place, same)
    else:
        layer.stride = (1, 1) if isinstance(layer.stride, tuple) else 1


class _Reads(TorchFunctionMode):
    """Records the parameters that any function was called with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._all = {id(p) for p in model.parameters()}
        self.used: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.used |= self._all & set(map(id, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


def _take_out_unused(model: nn.Module, used: set[int]) -> None:
    """Replace every layer with no used parameter by Identity, except the head's norm."""
    keep = {id(p) for p in _head_norm(model).parameters()} | used
    for name, child in list(model.named_children()):
        own = {id(p) for p in child.parameters()}
        if own and not own & keep:
            setattr(model, name, nn.Identity())
        else:
            _take_out_unused(child, keep)


def _head_norm(model: nn.Module) -> nn.Module:
    """Return the norm of maps that a model's head begins with, behind its pooling; Identity if there is none."""
    norm = getattr(getattr(model, "head", None), "norm", None)
    return norm if isinstance(norm, LayerNorm2d | LayerNorm2dFp32) else nn.Identity()


def _before_last_stage(model: Any) -> tuple[str, ...]:
    """Return the prefixes of names of parameters up to the last but one stage in timm's `feature_info`.

    A stage is where the map shrinks; in a model whose map never does, the last quarter of the blocks is the last stage.
    """
    infos = list(getattr(model, "feature_info", None) or [])
    shrinks = len({info["reduction"] for info in infos}) > 1
    at = len(infos) - 2 if shrinks else 3 * len(infos) // 4 - 1
    if at < 0:
        return ()
    names = [name for name, _ in model.named_parameters()]
    last = [i for i, name in enumerate(names) if name.startswith(f"{infos[at]['module']}.")]
    places = [name.rpartition(".")[0] for name in names[: last[-1] + 1]] if last else []
    roots = [name for name in names if "." not in name]
    return tuple(dict.fromkeys([*roots, *(f"{place}." for place in places if place)]))


def make_still(name: str, model: nn.Module) -> None:
    """Turn off random numbers and in-place writes; refuse layers that store state from pass to pass."""
    for place, module in model.named_modules():
        layer = cast(Any, module)
        if hasattr(layer, "attention_bias_cache"):
            raise DposeError(
                "attention-cache-kept", "keeps attention biases from one pass to the next", f"timm:{name}, {place}"
            )
        if isinstance(getattr(layer, "inplace", None), bool):
            layer.inplace = False
        if isinstance(module, nn.modules.dropout._DropoutNd):
            layer.p = 0.0
        for chance in ("drop_prob", "attn_drop_rate"):
            if isinstance(getattr(layer, chance, None), float):
                setattr(layer, chance, 0.0)
        if isinstance(getattr(layer, "fused_attn", None), bool):
            layer.fused_attn = False


def _refuse_mixing(name: str, model: Any, size: tuple[int, int]) -> None:
    """Refuse a model that, in training mode, mixes pictures, stores state or draws random numbers."""
    pictures = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(0))
    buffers = {place: (b, b._version) for place, b in model.named_buffers()}
    model.train()
    with torch.no_grad():
        first, second = (model.forward_features(pictures[pair])[0] for pair in ([0, 1], [0, 2]))
    for place, buffer in model.named_buffers():
        if buffers.get(place) != (buffer, buffer._version):
            raise DposeError(
                "model-stores-state", "stores what it sees", f"timm:{name}, {place}", "choose another backbone"
            )
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-3 * float(first.abs().max())):
        raise DposeError(
            "model-mixes-units", "mixes pictures, or draws random numbers", f"timm:{name}", "choose another backbone"
        )


HRNET = "hrnet_"
HRNET_STRIDE = 4
HRNET_MULTIPLE = 32
"""Stride of the branch with the lowest resolution, pixels: input sizes are its multiples."""
HRNET_FROZEN = (
    *("conv1.", "bn1.", "conv2.", "bn2.", "layer1."),
    *("transition1.", "stage2.", "transition2.", "stage3."),
)
"""Prefixes of the names of parameters before the last stage, and of the transition into it."""


class HighestBranch(nn.Module):
    """Trunk of one of timm's HRNets, as a network with one map at its end.

    Args:
        model: Result of timm with `head=""`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        for name, child in model.named_children():
            if name not in ("global_pool", "head_drop", "classifier"):
                self.add_module(name, child)
        last = model.stage4[-1]
        last.fuse_layers = last.fuse_layers[:1]

    def forward_features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W), normalised, to (N, C, H / 4, W / 4)."""
        net = cast(Any, self)
        x = net.act1(net.bn1(net.conv1(x)))
        x = net.layer1(net.act2(net.bn2(net.conv2(x))))
        maps = net.stage2([step(x) for step in net.transition1])
        for transition, stage in ((net.transition2, net.stage3), (net.transition3, net.stage4)):
            # a new branch begins at the smallest map, the others go on
            maps = stage([step(maps[min(n, len(maps) - 1)]) for n, step in enumerate(transition)])
        highest: Tensor = maps[0]
        return highest


def build_hrnet(
    name: str, size: tuple[int, int], norm: Norm, pretrained: bool | Path
) -> tuple[nn.Module, nn.Module, int]:
    """Build the trunk of timm's HRNet `name` (`Backbone.build`); sides of pictures are multiples of 32."""
    if size[0] % HRNET_MULTIPLE or size[1] % HRNET_MULTIPLE:
        raise DposeError(
            "input-size-unsupported",
            f"takes pictures whose sides are multiples of {HRNET_MULTIPLE}",
            f"input_size {size}",
            "choose another",
        )
    if pretrained:
        refuse_group(norm)
    model = create(name, pretrained, head="")
    trunk = HighestBranch(model)
    make_still(name, trunk)
    example = torch.zeros(1, 3, *size)
    replace_batch_norms(trunk, norm, lambda: trunk.forward_features(example))
    return trunk, nn.Identity(), int(model.stage4_cfg["num_channels"][0])


@cache
def _shapes(name: str) -> Mapping[str, tuple[int, ...]]:
    with torch.device("meta"):
        trunk = HighestBranch(timm.create_model(name, num_classes=0, head=""))
    return {key: tuple(tensor.shape) for key, tensor in trunk.state_dict().items()}


def name_of_trunk(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return timm's name of the HRNet whose trunk has tensors of these names and shapes, or ""."""
    width = shapes.get("stage4.0.branches.0.0.conv1.weight", (0,))[0]
    # most are called by the width of this branch
    names = sorted(timm.list_models(f"{HRNET}*"), key=lambda name: f"w{width}" != name.split("_")[1])
    return next((name for name in names if _shapes(name) == dict(shapes)), "")
