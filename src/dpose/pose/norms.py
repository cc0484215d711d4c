"""Replacements of BatchNorm, which mixes the pictures of a batch and stores their statistics.

* Folded: a BatchNorm that alone reads a convolution's output becomes part of that convolution. Any other becomes a
  depthwise 1x1 convolution, one factor and one offset a channel, which trains as a folded convolution does. Both equal
  BatchNorm as it is in evaluation, and nothing of them is a buffer.
* GroupNorm, for models that start from random weights.

The convolution that a BatchNorm reads is found by tracing one forward pass, not by names.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from dpose.errors import DposeError

Norm = Literal["batch", "folded", "group"]

GROUP_CHANNELS = 8
"""Least number of channels in a group of GroupNorm."""


def fold(conv: nn.Conv2d, bn: nn.Module) -> nn.Conv2d:
    """Return one convolution with a bias that equals a convolution and its BatchNorm in evaluation mode.

    BatchNorm maps y to (y - mean) * s + b with s = weight / sqrt(var + eps), so the weights of output channel
    c are multiplied by s_c and its bias is (bias_c - mean_c) * s_c + b_c. Computed in float64, stored in the
    convolution's dtype.
    """
    mean, variance = cast(Tensor, bn.running_mean).double(), cast(Tensor, bn.running_var).double()
    scale = (variance + cast(float, bn.eps)).rsqrt()
    if bn.weight is not None:
        scale = cast(Tensor, bn.weight).detach().double() * scale
    shift = -mean if conv.bias is None else conv.bias.detach().double() - mean
    shift = shift * scale
    if bn.bias is not None:
        shift = shift + cast(Tensor, bn.bias).detach().double()
    folded = copy.deepcopy(conv)
    folded.bias = nn.Parameter(shift.to(conv.weight.dtype))
    with torch.no_grad():
        folded.weight.copy_(conv.weight.double() * scale[:, None, None, None])
    return folded.train(bn.training)


def group_norm(bn: nn.Module) -> nn.GroupNorm:
    """Return GroupNorm with BatchNorm's weight and bias, zeros included (timm's last norm of a residual branch)."""
    channels = cast(int, bn.num_features)
    groups = next(n for n in range(max(1, channels // GROUP_CHANNELS), 0, -1) if channels % n == 0)
    norm = nn.GroupNorm(groups, channels)
    if bn.weight is not None:
        norm.load_state_dict({"weight": cast(Tensor, bn.weight).detach(), "bias": cast(Tensor, bn.bias).detach()})
    return norm


def batch_norms(module: nn.Module) -> dict[str, nn.Module]:
    """Return every BatchNorm within `module`, by name."""
    kind = nn.modules.batchnorm._BatchNorm
    return {name: child for name, child in module.named_modules() if isinstance(child, kind)}


def replace_batch_norms(module: nn.Module, norm: Norm, run: Callable[[], object]) -> None:
    """Replace every BatchNorm of `module` as `norm` says; an activation inside one stays.

    Args:
        module: Changed in place.
        norm: "folded" or "group"; with "batch" all stays.
        run: A forward pass, for tracing. Called without gradients, in evaluation mode.
    """
    layers = batch_norms(module)
    if norm == "batch" or not layers:
        return
    for name, bn in layers.items():
        if not isinstance(bn, nn.BatchNorm2d) or bn.running_mean is None:
            raise DposeError(
                "norm-not-replaceable",
                "a batch normalisation that nothing can stand for",
                name,
                "choose another backbone",
            )
    convs = foldable(module, run) if norm == "folded" else {}
    for name, bn in layers.items():
        act = getattr(bn, "act", nn.Identity())
        if norm == "group":
            _put(module, name, _before(act, "gn", group_norm(bn)))
        elif name in convs:
            place = convs[name]
            _put(module, place, fold(cast(nn.Conv2d, module.get_submodule(place)), bn))
            _put(module, name, act)
        else:
            _put(module, name, _before(act, "affine", fold(_identity(bn), bn)))


def foldable(module: nn.Module, run: Callable[[], object]) -> dict[str, str]:
    """Return the convolution of each BatchNorm that is the only reader of its output: names of both."""
    modules = dict(module.named_modules())
    # a convolution that computes its weights from its parameter (a standardised one) is called with others: not listed
    convs = {id(m.weight): name for name, m in modules.items() if isinstance(m, nn.Conv2d)}
    norms = {id(bn.running_mean): name for name, bn in batch_norms(module).items()}
    training = module.training
    module.eval()
    with torch.no_grad(), _Reads(convs, norms) as seen:
        run()
    module.train(training)
    used = Counter(seen.made.values())
    alone = {
        bn: seen.made[read]
        for read, bn in seen.normed
        if read in seen.made and seen.reads[read] == 1 and used[seen.made[read]] == 1
    }
    times = Counter(bn for _, bn in seen.normed)
    return {bn: conv for bn, conv in alone.items() if times[bn] == 1}


class _Reads(TorchFunctionMode):
    """Records the tensors that convolutions made, how often each tensor was read, and the input of each BatchNorm."""

    def __init__(self, convs: dict[int, str], norms: dict[int, str]) -> None:
        super().__init__()
        self._convs, self._norms = convs, norms
        self._alive: list[Any] = []  # the id of a deleted tensor could be reused
        self.made: dict[int, str] = {}
        self.reads: Counter[int] = Counter()
        self.normed: list[tuple[int, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if any(isinstance(value, Tensor) for value in tree_leaves(output)):  # and not a shape
            self._alive.append(output)
            self.reads.update({id(v) for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)})
        if func is F.conv2d and id(args[1]) in self._convs:
            self.made[id(output)] = self._convs[id(args[1])]
        elif func is F.batch_norm and id(args[1]) in self._norms:
            self.normed.append((id(args[0]), self._norms[id(args[1])]))
        return output


def _identity(bn: nn.Module) -> nn.Conv2d:
    channels = cast(int, bn.num_features)
    like = cast(Tensor, bn.running_mean)
    conv = nn.Conv2d(channels, channels, 1, groups=channels, bias=False, device=like.device, dtype=like.dtype)
    nn.init.ones_(conv.weight)
    return conv


def _before(act: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    return layer if isinstance(act, nn.Identity) else nn.Sequential(OrderedDict({name: layer, "act": act}))


def _put(module: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, layer)
