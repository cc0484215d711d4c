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

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from dpose.training.bookkeeping import Bookkeeping, at_least_float32
from dpose.training.unit_sums import depthwise_gradients, norm_gradients


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
        found = ctx.layer.backward(
            x.detach(), weight.detach(), tuple(saved), gradients[0], ctx.needs_input_grad[1]
        )
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
        elif self._is_depthwise(weight) and x.device.type == "cpu":
            self.book.add(self.weight, self.by_unit(x, weight, gradient))
        elif self.how.groups == x.shape[2] or x.is_cuda:
            self.book.add(self.weight, self.in_groups(x, weight, gradient))
        else:
            self.book.add(self.weight, self.one_by_one(x, weight, gradient))
        if not wanted:
            return None
        found: Tensor = torch.ops.aten.convolution_backward(
            gradient.flatten(0, 1),
            x.flatten(0, 1),
            weight,
            None,
            *self._arguments(self.how.groups),
            [True, False, False],
        )[0]
        return found.view(x.shape)

    def by_unit(self, x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        """Per-unit gradients of a depthwise convolution by sums of our own: best on a processor."""
        height, width = weight.shape[2:]
        how = self.how.stride, self.how.padding, self.how.dilation
        return depthwise_gradients(at_least_float32(x), at_least_float32(gradient), (height, width), *how)

    def in_groups(self, x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        """Per-unit gradients by one convolution with a group of channels a unit: best for few channels a group."""
        units = len(x)

        # channels last, where depthwise convolutions are fastest, but on a CPU only up to 3x3: what runs larger ones in
        # that layout takes gigabytes of fresh memory (7,000 page faults a picture for 5x5 over 1,152 channels)
        plain = not x.is_cuda and max(weight.shape[2:]) > 3

        def side_by_side(t: Tensor) -> Tensor:
            # (U, V, C, *space) to (V, U * C, *space)
            if plain:
                return t.transpose(0, 1).contiguous().flatten(1, 2)
            return t.movedim((0, 2), (-2, -1)).flatten(-2).movedim(-1, 1)

        wide = torch.Size((units * len(weight), *weight.shape[1:]))
        found = self._slopes(side_by_side(gradient), side_by_side(x), wide, units * self.how.groups)
        return found.view(units, *weight.shape)

    def one_by_one(self, x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        """Per-unit gradients by one call a unit: best where a call has much to do."""
        pairs = zip(gradient, x, strict=True)
        return torch.stack([self._slopes(g, a, weight.shape, self.how.groups) for g, a in pairs])

    def _is_pointwise(self, weight: Tensor) -> bool:
        ones = all(n == 1 for n in (*weight.shape[2:], *self.how.stride, self.how.groups))
        return ones and not any(self.how.padding)

    def _is_depthwise(self, weight: Tensor) -> bool:
        return weight.ndim == 4 and weight.shape[1] == 1 and self.how.groups == weight.shape[0]

    def _arguments(self, groups: int) -> tuple[Any, ...]:
        how = self.how
        return how.stride, how.padding, how.dilation, False, [0] * len(how.stride), groups

    def _slopes(self, gradient: Tensor, x: Tensor, shape: torch.Size, groups: int) -> Tensor:
        """The gradient of weights of this shape, contiguous whatever the layout of the weights themselves."""
        # of the weights the shape alone is read
        weight, mask = x.new_empty(shape), [False, True, False]
        found = torch.ops.aten.convolution_backward(gradient, x, weight, None, *self._arguments(groups), mask)
        value: Tensor = found[1]
        return value


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
        way = self.by_unit if x.device.type == "cpu" else self.at_once
        slopes, shifts = way(x, weight, saved, gradient)
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

    def by_unit(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Per-unit gradients of weight and bias by sums of our own, which read everything once: best on a processor."""
        places, given = (at_least_float32(t).reshape(len(x), -1, weight.numel()) for t in (x, gradient))
        mean, rstd = (at_least_float32(t).reshape(len(x), -1) for t in saved)
        slopes, shifts = norm_gradients(places, given, mean, rstd)
        return slopes.view(len(x), *weight.shape), shifts.view(len(x), *weight.shape)

    def at_once(
        self, x: Tensor, weight: Tensor, saved: tuple[Tensor, ...], gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same for all units at once, with the normalised input made again: best where a call costs much."""
        kept = [len(x), -1, *self.shape]
        normalised = torch.native_layer_norm(x, self.shape, None, None, self.eps)[0]
        return normalised.mul_(gradient).reshape(kept).sum(1), gradient.reshape(kept).sum(1)


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
        else:
            sums.index_add_(self.dim + 1, x[0], gradient)
        self.book.add(self.weight, sums)
        return None
