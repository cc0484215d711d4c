"""Any of timm's models as a backbone, made fit for pictures of any size and for per-unit gradients.

What is changed, by rules that look at one forward pass and never at a list of names:

* what the map does not come from (classifiers, what follows pooling) is taken out;
* the last layers that step make no step, until a cell of the map has the stride asked for (as in Luo et al. 2019, "Bag
  of tricks and a strong baseline for deep person re-identification"). No kernel is dilated: what a picture of 128x96
  shows is as large for the last stage's kernels as what one of 256x192 shows for the model as it was;
* BatchNorm is replaced as the norm asked for says (`dpose.pose.norms`);
* nothing draws random numbers and nothing is computed in place or kept from one pass to another.
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
"""The height and width that a model is looked at with where it takes any."""


@dataclass(frozen=True)
class Described:
    """What a model of timm is.

    Attributes:
        strides: Pixels of the picture to a cell of the map, as timm has it, and what it can be brought to.
        frozen: Beginnings of the names of parameters that belong to what stands before its last stage.
        mean: Of the three colours, 0 to 1, that its pictures are to be normalised with.
        std: See `mean`.
    """

    strides: tuple[int, ...]
    frozen: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@cache
def described(name: str) -> Described:
    """What timm's model `name` is, as one forward pass shows.

    Raises:
        DposeError: timm has no such model, or it gives no map.
    """
    with torch.random.fork_rng(
        devices=[]
    ):  # whether it was asked for before must not change what is drawn next
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
    """The model that timm calls `name`, what makes a map of its features, and that map's channels.

    Args:
        name: As timm has it.
        input_size: (H, W), multiples of the stride.
        norm: What stands for BatchNorm.
        pretrained: Whether it starts from ImageNet's weights, or the file that it starts from.
        stride: One of `Described.strides`.

    Raises:
        DposeError: it does not take pictures of this size; its weights cannot be had; or it mixes pictures or stores
            what it sees in a way that nothing is known to stand for.
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
        model.head = nn.Identity()  # but where it is part of what makes the features
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
    """What a model gives, tokens (N, T, C) or a map of either layout, to a map (N, C, h, w), normalised as in its head.

    Args:
        size: (h, w).
        prefix: Tokens before those of the map.
        channels_last: Whether maps come as (N, h, w, C).
        norm: Of maps; Identity where the model's head begins with none.
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
    """Refuse a name that timm does not know.

    Raises:
        DposeError: timm has no such model; names the nearest.
    """
    if not timm.is_model(name.partition(".")[0]):
        near = ", ".join(f"timm:{one}" for one in difflib.get_close_matches(name, timm.list_models(), 3, 0.5))
        hint = f"did you mean {near}?" if near else "timm.list_models() names those there are"
        raise DposeError("timm-model-unknown", "timm has no such model", f"timm:{name}", hint)


def refuse_group(norm: Norm) -> None:
    """Refuse GroupNorm in the place of a trained network's BatchNorm, where its weights would mean nothing.

    Raises:
        DposeError: it is asked for.
    """
    if norm == "group":
        raise DposeError(
            "pretrained-needs-batchnorm",
            "pretrained weights need BatchNorm",
            "norm: group",
            "use norm: batch, then fold_batchnorm",
        )


def create(name: str, pretrained: bool | Path = False, **options: Any) -> Any:
    """The model that timm calls `name`, without a classifier.

    Args:
        name: As timm has it, with or without a tag.
        pretrained: Whether it starts from ImageNet's weights, or the file that it starts from.
        options: Others of the model's.

    Raises:
        DposeError: timm has no such model, cannot make it, or its weights cannot be had.
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
        said = f"({type(error).__name__}: {' '.join(str(error).split())[:160]})"
        if not pretrained:
            raise DposeError("timm-model-refused", f"timm cannot make it {said}", f"timm:{name}") from error
        raise DposeError(
            "pretrained-weights-unavailable",
            f"cannot get the pretrained weights {said}",
            f"timm's {name}",
            "fetch them once where there is a network and copy the Hugging Face cache (HF_HOME) here, or start from a "
            "model folder or a file with --init",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the client's line for each attempt to fetch weights; one line says that all failed."""
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
    except Exception as error:  # whatever a model's own code raises for a size that it was not made for
        said = " ".join(str(error).split())[:160] or type(error).__name__
        raise DposeError(
            "input-size-unsupported",
            f"cannot take pictures of {size[0]}x{size[1]} ({said})",
            f"timm:{name}",
            "choose another input size or stride",
        ) from error
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise _no_map(name)
    return features


def _no_map(name: str) -> DposeError:
    return DposeError(
        "feature-map-missing", "gives no map of features", f"timm:{name}", "choose a backbone that does"
    )


def _look(name: str, model: Any, size: tuple[int, int]) -> tuple[list[tuple[str, int, int]], Tensor]:
    """The layers that step, each with the stride before it and behind it, and the features that come out."""
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
        # without a step each window is a place; even ones would make the map smaller by one
        model.set_submodule(place, nn.Identity())
    elif isinstance(layer, nn.Conv2d) and not isinstance(layer, Conv2dSame) and layer.kernel_size[0] % 2 == 0:
        # an even kernel has no middle: one row and column more, behind, keep the map's size
        same = Conv2dSame(
            layer.in_channels,
            layer.out_channels,
            cast(Any, layer.kernel_size),
            groups=layer.groups,
            bias=False,
        )
        same.weight, same.bias = layer.weight, layer.bias
        model.set_submodule(place, same)
    else:
        layer.stride = (1, 1) if isinstance(layer.stride, tuple) else 1


class _Reads(TorchFunctionMode):
    """Which parameters any function was called with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._all = {id(p) for p in model.parameters()}
        self.used: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.used |= self._all & set(map(id, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


def _take_out_unused(model: nn.Module, used: set[int]) -> None:
    """Identity in the place of every layer none of whose parameters were used, but for the head's norm."""
    keep = {id(p) for p in _head_norm(model).parameters()} | used
    for name, child in list(model.named_children()):
        own = {id(p) for p in child.parameters()}
        if own and not own & keep:
            setattr(model, name, nn.Identity())
        else:
            _take_out_unused(child, keep)


def _head_norm(model: nn.Module) -> nn.Module:
    """The norm of maps that a model's head begins with, behind its pooling; Identity where there is none."""
    norm = getattr(getattr(model, "head", None), "norm", None)
    return norm if isinstance(norm, LayerNorm2d | LayerNorm2dFp32) else nn.Identity()


def _before_last_stage(model: Any) -> tuple[str, ...]:
    """The beginnings of names of parameters up to the last but one stage that timm tells of.

    A stage is where the map shrinks; of a model whose map never does, the last quarter of the blocks is the last stage.
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
    """Turn off what draws random numbers or writes in place; refuse what keeps something from pass to pass."""
    for place, module in model.named_modules():
        layer = cast(Any, module)
        if hasattr(layer, "attention_bias_cache"):
            raise DposeError(
                "attention-cache-kept",
                "keeps attention biases from one pass to the next",
                f"timm:{name}, {place}",
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
    """Refuse a model that, as it trains, takes something from other pictures, stores what it sees or draws numbers."""
    pictures = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(0))
    buffers = {place: (b, b._version) for place, b in model.named_buffers()}
    model.train()
    with torch.no_grad():
        first, second = (model.forward_features(pictures[pair])[0] for pair in ([0, 1], [0, 2]))
    for place, buffer in model.named_buffers():
        if buffers.get(place) != (buffer, buffer._version):
            raise DposeError(
                "model-stores-state",
                "stores what it sees",
                f"timm:{name}, {place}",
                "choose another backbone",
            )
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-3 * float(first.abs().max())):
        raise DposeError(
            "model-mixes-units",
            "mixes pictures, or draws random numbers",
            f"timm:{name}",
            "choose another backbone",
        )
