"""Convolutions whose gradients torch does not take right, or not fast, on a processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dpose.training.unit_sums import depthwise_gradients


class OwnConvolutions(TorchFunctionMode):
    """While it is on, a strided convolution of one point is one without a stride, over the places that it reads.

    oneDNN's gradient of such a convolution's weights writes behind the memory that it has where pictures are in
    channels last and have fewer channels than a vector has places, 8 or 16 (oneDNN's issue 6035; in torch 2.14.1 and
    before): the process crashes, or goes on with whatever was overwritten.

    Args:
        depthwise: Whether depthwise `F.conv2d` has weight gradients by `depthwise_gradients`, which is faster. They are
            the sum over pictures of what a private step clips: for data that nobody needs protected.
    """

    def __init__(self, *, depthwise: bool) -> None:
        super().__init__()
        self._depthwise = depthwise

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
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
            slopes = depthwise_gradients(x[:, None], gradient[:, None], (height, width), *ctx.how).sum(0)
        return given, slopes, gradient.sum((0, 2, 3)) if third else None, None, None, None
