"""What the known layers give to the book: each unit's gradient of their weights, without a backward pass a unit.

A layer runs forward as it always does. Backward, it hands on the gradient of its input, computed for all units at
once, and enters each unit's gradient of its parameters in the `Bookkeeping`; autograd itself gets no gradient of a
parameter.
All tensors here have the units in their first dimension, put there by `vmap` and not by a guess at a layout: whatever
stands behind it (views, windows, tokens, pixels) belongs to that one unit and is summed before any norm is taken.
Under autocast x, weights and gradients come in a shorter type. No sum over units is taken here, so whatever is rounded
is rounded within one unit, before its norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dpose.training.bookkeeping import Bookkeeping
from dpose.training.kernels import for_device, get
from dpose.training.kernels.reference import at_once, convolution_slopes


class Layer(Protocol):
    """How one use of some parameters runs, and what it enters in the book.

    `weight` and `bias` are the parameters' names, None for what is not there or does not train.
    """

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The output for x (U, ...), a tensor of its own and no view, and what else `backward` needs."""

    def backward(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor, wanted: bool
    ) -> Tensor | None:
        """Enter the parameters' per-unit gradients; return x's gradient where it is `wanted`."""


class Use(torch.autograd.Function):
    """A use of parameters in the autograd graph. The parameters are inputs, so that the graph reaches it."""

    @staticmethod
    def forward(ctx: Any, layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Run the layer."""
        output, saved = layer.forward(x, weight, bias)
        ctx.layer = layer
        ctx.save_for_backward(x, weight, *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None, None, None]:
        """Enter the parameters' gradients in the book and return the input's."""
        x, weight, *saved = ctx.saved_tensors
        found = ctx.layer.backward(x.detach(), weight.detach(), tuple(saved), gradients[0], ctx.needs_input_grad[1])
        return None, found, None, None


@dataclass(frozen=True)
class Linear:
    """`F.linear`: G_u = sum over places of gradient x input."""

    book: Bookkeeping
    weight: str | None
    bias: str | None

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `Layer`."""
        output = F.linear(x.flatten(0, -2), weight, bias)
        # no view of it: what follows may write into the output in place
        return torch.ops.aten._unsafe_view(output, [*x.shape[:-1], len(weight)]), ()

    def backward(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor, wanted: bool
    ) -> Tensor | None:
        """See `Layer`."""
        outputs = gradient.reshape(len(x), -1, weight.shape[0])
        if self.weight:
            self.book.add_products(self.weight, x.reshape(len(x), -1, weight.shape[1]), outputs)
        if self.bias:
            self.book.add(self.bias, outputs.sum(1))
        return (outputs.flatten(0, 1) @ weight).view(x.shape) if wanted else None


@dataclass(frozen=True)
class Convolution:
    """How a convolution steps: a number for each dimension of space."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def steps(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Stride, padding and dilation."""
        return self.stride, self.padding, self.dilation


@dataclass(frozen=True)
class Conv:
    """A convolution of one to three dimensions over x (U, V, C, *space)."""

    book: Bookkeeping
    weight: str | None
    bias: str | None
    how: Convolution

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `Layer`."""
        output = torch.convolution(x.flatten(0, 1), weight, bias, *self._arguments(self.how.groups))
        # no view of it: what follows may write into the output in place
        return torch.ops.aten._unsafe_view(output, [*x.shape[:2], *output.shape[1:]]), ()

    def backward(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor, wanted: bool
    ) -> Tensor | None:
        """See `Layer`."""
        if self.bias:
            self.book.add(self.bias, gradient.sum((1, *range(3, gradient.ndim))))
        if not self.weight:
            pass  # its bias alone trains
        elif self._is_pointwise(weight):
            inputs, outputs = (t.movedim(2, -1).flatten(1, -2) for t in (x, gradient))
            self.book.add_products(self.weight, inputs, outputs)
        elif self._is_depthwise(weight):
            size = (weight.shape[2], weight.shape[3])
            found = for_device(x.device).depthwise(x, gradient, size, *self.how.steps)
            self.book.add(self.weight, found)
        elif by := at_once(x.device.type, self.how.groups, x.shape[2]):
            self.book.add(self.weight, by(x, gradient, weight.shape, self.how.steps, self.how.groups))
        else:
            self.book.add(self.weight, self.one_by_one(x, weight, gradient))
        if not wanted:
            return None
        given: Tensor = torch.ops.aten.convolution_backward(
            gradient.flatten(0, 1),
            x.flatten(0, 1),
            weight,
            None,
            *self._arguments(self.how.groups),
            [True, False, False],
        )[0]
        return given.view(x.shape)

    def one_by_one(self, x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        """Per-unit gradients by one call a unit: best where a call has much to do."""
        pairs = zip(gradient, x, strict=True)
        how, groups = self.how.steps, self.how.groups
        return torch.stack([convolution_slopes(a, g, weight.shape, how, groups) for g, a in pairs])

    def _is_pointwise(self, weight: Tensor) -> bool:
        ones = all(n == 1 for n in (*weight.shape[2:], *self.how.stride, self.how.groups))
        return ones and not any(self.how.padding)

    def _is_depthwise(self, weight: Tensor) -> bool:
        return weight.ndim == 4 and weight.shape[1] == 1 and self.how.groups == weight.shape[0]

    def _arguments(self, groups: int) -> tuple[Any, ...]:
        how = self.how
        return how.stride, how.padding, how.dilation, False, [0] * len(how.stride), groups


@dataclass(frozen=True)
class LayerNorm:
    """`F.layer_norm` with weights: G_u = sum over places of gradient * normalised input."""

    book: Bookkeeping
    weight: str | None
    bias: str | None
    shape: tuple[int, ...]
    eps: float

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `Layer`."""
        output, mean, rstd = torch.native_layer_norm(x, self.shape, weight, bias, self.eps)
        return output, (mean, rstd)

    def backward(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor, wanted: bool
    ) -> Tensor | None:
        """See `Layer`."""
        mean, rstd = saved
        places, given = (t.reshape(len(x), -1, weight.numel()) for t in (x, gradient))
        of_places = (t.reshape(len(x), -1) for t in saved)
        slopes, shifts = for_device(x.device).norm_slopes(places, given, *of_places)
        if self.weight:
            self.book.add(self.weight, slopes)
        if self.bias:
            self.book.add(self.bias, shifts)
        if not wanted:
            return None
        found: Tensor = torch.ops.aten.native_layer_norm_backward(
            gradient, x, self.shape, mean, rstd, weight, None, [True, False, False]
        )[0]
        return found


@dataclass(frozen=True)
class GroupNorm:
    """`F.group_norm` with weights over x (U, V, C, *space)."""

    book: Bookkeeping
    weight: str | None
    bias: str | None
    groups: int
    eps: float

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `Layer`."""
        flat = x.flatten(0, 1).contiguous()
        output, mean, rstd = torch.native_group_norm(flat, weight, bias, *self._sizes(flat), self.eps)
        return torch.ops.aten._unsafe_view(output, x.shape), (mean, rstd)

    def backward(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor, wanted: bool
    ) -> Tensor | None:
        """See `Layer`."""
        mean, rstd = saved
        flat, slope = (t.flatten(0, 1).contiguous() for t in (x, gradient))
        places = (1, *range(3, x.ndim))
        if self.weight:
            in_groups = flat.view(len(flat), self.groups, -1)
            normalised = (in_groups - mean[..., None]).mul_(rstd[..., None]).view(x.shape)
            self.book.add(self.weight, normalised.mul_(gradient).sum(places))
        if self.bias:
            self.book.add(self.bias, gradient.sum(places))
        if not wanted:
            return None
        found: Tensor = torch.ops.aten.native_group_norm_backward(
            slope, flat, mean, rstd, weight, *self._sizes(flat), [True, False, False]
        )[0]
        return found.view(x.shape)

    def _sizes(self, flat: Tensor) -> tuple[int, int, int, int]:
        return flat.shape[0], flat.shape[1], flat[0, 0].numel(), self.groups


@dataclass(frozen=True)
class LookupTable:
    """`weight.index_select`: entries of a parameter wherever they are read (attention biases, by offset).

    The x of its calls is the index, (U, entries), the same for every unit or not.
    """

    book: Bookkeeping
    weight: str
    bias: None
    dim: int

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The entries, (U, ...). Where all units read the same, without a copy a unit."""
        if x.stride(0):
            each = [weight.index_select(self.dim, index) for index in x]
            return torch.stack(each), ()
        read = weight.index_select(self.dim, x[0])
        return read.expand(len(x), *read.shape), ()

    def backward(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor, wanted: bool
    ) -> Tensor | None:
        """See `Layer`."""
        sums = gradient.new_zeros((len(x), *weight.shape))
        if x.stride(0):
            for total, index, part in zip(sums, x, gradient, strict=True):
                total.index_add_(self.dim, index, part)
        elif x.is_cuda:  # whose additions by index come in any order
            sums = by_product(gradient, x[0], self.dim, weight.shape[self.dim])
        else:
            sums.index_add_(self.dim + 1, x[0], gradient)
        self.book.add(self.weight, sums)
        return None


def by_product(gradient: Tensor, index: Tensor, dim: int, count: int) -> Tensor:
    """`index_add_` of (U, ...) to zeros, `count` places in dimension `dim` of a unit, in an order that stays."""
    read = index[:, None] == torch.arange(count, device=index.device)
    return (gradient.movedim(dim + 1, -1) @ read.to(gradient)).movedim(-1, dim + 1)


class OwnConvolutions(TorchFunctionMode):
    """While it is on, a strided convolution of one point is one without a stride, over the places that it reads.

    oneDNN's gradient of such a convolution's weights writes behind the memory that it has where pictures are in
    channels last and have fewer channels than a vector has places, 8 or 16 (oneDNN's issue 6035; in torch 2.14.1 and
    before): the process crashes, or goes on with whatever was overwritten.

    Args:
        depthwise: Whether depthwise `F.conv2d` has weight gradients by the processor's kernel, which is faster. They
            are the sum over pictures of what a private step clips: for public data.
    """

    def __init__(self, *, depthwise: bool) -> None:
        super().__init__()
        self._depthwise = depthwise

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.conv1d, F.conv2d, F.conv3d):
            return self._convolution(func, *args, **kwargs or {})
        return func(*args, **kwargs or {})

    def _convolution(
        self,
        func: Callable[..., Tensor],
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        *more: Any,
        **named: Any,
    ) -> Tensor:
        strides = (stride,) if isinstance(stride, int) else tuple(stride)
        margins = (padding,) if isinstance(padding, int) else padding
        if (
            max(strides) > 1
            and all(n == 1 for n in weight.shape[2:])
            and (margins == "valid" or not any(margins))
            and input.device.type == "cpu"
        ):
            strides = strides * (weight.ndim - 2) if len(strides) == 1 else strides
            read: tuple[Any, ...] = (..., *(slice(None, None, n) for n in strides))
            input, stride = input[read], 1
        run = _conv2d if self._depthwise and func is F.conv2d else func
        return run(input, weight, bias, stride, padding, *more, **named)


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    ours = (
        groups == weight.shape[0]
        and weight.shape[1] == 1
        and input.ndim == 4
        and weight.requires_grad
        and input.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and input.dtype in (torch.float32, torch.float64)
    )
    if not ours or isinstance(padding, str):
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    found: Tensor = _Depthwise.apply(input, weight, bias, _pair(stride), _pair(padding), _pair(dilation))
    return found


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = stride, padding, dilation
        return F.conv2d(x, weight, bias, stride, padding, dilation, len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), gradient = ctx.saved_tensors, gradients[0]
        first, second, third = ctx.needs_input_grad[:3]
        given = None
        if first:
            how = (*ctx.how, False, [0, 0], len(weight))
            mask = [True, False, False]
            given = torch.ops.aten.convolution_backward(gradient, x, weight, None, *how, mask)[0]
        slopes = None
        if second:
            height, width = weight.shape[2:]
            slopes = get("cpu").depthwise(x[:, None], gradient[:, None], (height, width), *ctx.how).sum(0)
        return given, slopes, gradient.sum((0, 2, 3)) if third else None, None, None, None
