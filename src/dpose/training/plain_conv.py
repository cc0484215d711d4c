"""Depthwise convolutions of a plain backward pass by the sums of the private one: torch takes longer for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dpose.training.unit_sums import depthwise_gradients


class OwnDepthwise(TorchFunctionMode):
    """While it is on, depthwise `F.conv2d` on a processor has weight gradients by `depthwise_gradients`.

    They are the sum over pictures of what a private step clips: for data that nobody needs protected.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return (_conv2d if func is F.conv2d else func)(*args, **kwargs or {})


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
