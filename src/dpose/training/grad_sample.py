"""Which parameter is used where: a forward pass over units in which every use of a parameter is seen.

The loss runs under `vmap` over the units, as in the plain way, so which rows belong to which unit is known by
construction, in windows, tokens and whatever else a model reshapes to. Meanwhile each call of a torch function is
looked at. A known layer's call runs as a `dpose.training.layers.Use`. In any other call a parameter is replaced by U
copies of itself, one a unit, whose ordinary gradients are the per-unit ones: right for every function that `vmap`
knows, at the price of the plain way for that parameter. A use that neither finds (a compiled function, a custom
one) leaves a gradient at the parameter itself; `track` then says so, and nothing of that pass may be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dpose.training import layers
from dpose.training.bookkeeping import Bookkeeping
from dpose.training.clip import Params as Params
from dpose.training.layers import Layer, Use

try:  # private to torch: a version that names them otherwise has the plain way
    from torch._C._functorch import (
        _add_batch_dim,
        _unwrap_batched,
        is_batchedtensor,
        maybe_current_level,
        maybe_get_level,
        pop_dynamic_layer_stack,
        push_dynamic_layer_stack,
    )
except ImportError:
    _BENEATH = False
else:
    _BENEATH = True

UnitLoss = Callable[..., Tensor]
"""The loss of one unit, a number: it takes parameters by name, then an entry of each of some `Units`."""
Units = Sequence[Tensor | Mapping[str, Tensor]]
"""What a loss takes besides parameters, each with the units in its first dimension."""


def track(loss: UnitLoss, params: Params, units: Units, *, products: bool) -> Bookkeeping | None:
    """The book of one forward and one backward pass over a batch, at `params`.

    Returns:
        The book with every unit's gradient, or None: a use of a parameter escaped.

    Raises:
        RuntimeError: Not of a user's making: the plain way is to be taken.
    """
    if not _BENEATH:
        raise RuntimeError(f"torch {torch.__version__} does not give access to what is beneath vmap")
    count = len(tree_leaves(units)[0])
    book = Bookkeeping({name: p.shape for name, p in params.items()}, count, products=products)
    with torch.enable_grad():
        own = {name: p.detach().requires_grad_() for name, p in params.items()}
        copies = {name: p.detach().expand(count, *p.shape).requires_grad_() for name, p in params.items()}

        def watched(copies: Params, *unit: Tensor | Mapping[str, Tensor]) -> Tensor:
            with _Uses(book, count, own, copies, tree_leaves(unit)[0]):
                return loss(own, *unit)

        losses = vmap(watched)(copies, *units)
        if not losses.requires_grad:
            return book
        found = torch.autograd.grad(losses.sum(), [*own.values(), *copies.values()], allow_unused=True)
    if any(gradient is not None for gradient in found[: len(own)]):
        return None
    for name, gradient in zip(copies, found[len(own) :], strict=True):
        if gradient is not None:
            book.add(name, gradient.contiguous())
    return book


class _Uses(TorchFunctionMode):
    """Sees every torch function called, and what parameters it is called with."""

    def __init__(self, book: Bookkeeping, units: int, own: Params, copies: Params, any_batched: Tensor) -> None:
        super().__init__()
        self._book, self._units, self._copies = book, units, copies
        self._names = {id(p): name for name, p in own.items()}
        self._level = maybe_get_level(any_batched)
        self._device = any_batched.device.type

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._book.mixed |= torch.is_autocast_enabled(self._device)
        # inside a transform of the loss's own (vmap, grad) the units are not the innermost level
        known = func in _KNOWN and maybe_current_level() == self._level
        call = _KNOWN[func](*args, **kwargs) if known else None
        if not (self._touched(args) or self._touched(kwargs.values())):
            if call is not None and self._is_frozen(call):
                return self._beneath(call, call.layer(self._book, None, None).forward)
            return func(*args, **kwargs)
        if call is not None and self._is_tracked(call):
            layer = call.layer(self._book, self._names.get(id(call.weight)), self._names.get(id(call.bias)))
            return self._beneath(call, partial(Use.apply, layer))
        args, kwargs = tree_map_only(Tensor, self._copy_of, (args, kwargs))
        return func(*args, **kwargs)

    def _touched(self, values: Iterable[Any]) -> bool:
        for value in values:  # for every function called: no generator, it took twice the time
            if id(value) in self._names:
                return True
            if isinstance(value, (tuple, list)) and self._touched(value):
                return True
            if isinstance(value, dict) and self._touched(value.values()):
                return True
        return False

    def _copy_of(self, tensor: Tensor) -> Tensor:
        name = self._names.get(id(tensor))
        return tensor if name is None else self._copies[name]

    def _is_tracked(self, call: _Call) -> bool:
        """Whether the parameters stand where weights do, and nowhere else; what stands beside them must be frozen."""
        return id(call.x) not in self._names and all(
            id(w) in self._names or not (w.requires_grad or is_batchedtensor(w)) for w in call.weights
        )

    def _is_frozen(self, call: _Call) -> bool:
        """Whether the weights are the same for every unit: `vmap` would take the call apart for nothing."""
        return is_batchedtensor(call.x) and not any(map(is_batchedtensor, call.weights))

    def _beneath(self, call: _Call, run: Callable[..., Any]) -> Tensor:
        """A layer on the tensors beneath `vmap`, where the units are a dimension like any other."""
        rows, place = _unwrap_batched(call.x, self._level)
        if place is None:
            rows = rows.expand(self._units, *rows.shape)
        elif place:
            rows = rows.movedim(place, 0)
        level = pop_dynamic_layer_stack()
        try:
            output = run(*self._typed(call, rows))
            output = output if isinstance(output, Tensor) else output[0]
            if call.matrix and torch.is_autocast_enabled(self._device):
                output = _shortened(output, torch.get_autocast_dtype(self._device))
        finally:
            push_dynamic_layer_stack(level)
        return _add_batch_dim(output, 0, self._level)

    def _typed(self, call: _Call, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the layer is given, `rows` standing for x: in the types of autocast where that is on.

        Autocast knows the functions that were called and not those that the layers call in their place. It also keeps
        the copies that it makes of weights; one made here, where no graph is, would lose the gradient elsewhere.
        """
        device = rows.device.type
        if not torch.is_autocast_enabled(device):
            return rows, call.weight, call.bias
        if call.matrix:
            # strided and in groups, a convolution's backward pass takes 30 times as long in bfloat16 as in float32
            slow = call.sparse and device == "cpu"
            wanted = torch.float32 if slow else torch.get_autocast_dtype(device)
            bias = None if call.bias is None else _shortened(call.bias, wanted)
            return _shortened(rows, wanted), _shortened(call.weight, wanted), bias
        # autocast on a CPU leaves norms as they are: they take any x, with weights in float32
        return rows if device == "cpu" else _shortened(rows, torch.float32), call.weight, call.bias


@dataclass(frozen=True)
class _Call:
    """A call of a known function, its arguments in their places.

    `matrix` where autocast would shorten them; `sparse` where processors have no kernel for the short backward pass.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    layer: Callable[[Bookkeeping, str | None, str | None], Layer]
    matrix: bool = False
    sparse: bool = False

    @property
    def weights(self) -> list[Tensor]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]


def _shortened(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In `dtype`, but for what autocast leaves alone: float64, and numbers without a fraction."""
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Call:
    return _Call(input, weight, bias, layers.Linear, matrix=True)


def _conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> _Call | None:
    if isinstance(padding, str) or input.ndim != weight.ndim:
        return None

    def each(value: int | Sequence[int]) -> tuple[int, ...]:
        values = (value,) if isinstance(value, int) else tuple(value)
        return values * (weight.ndim - 2) if len(values) == 1 else values

    how = layers.Convolution(each(stride), each(padding), each(dilation), groups)
    return _Call(
        input,
        weight,
        bias,
        partial(layers.Conv, how=how),
        matrix=True,
        sparse=groups > 1 and how.stride != (1,) * len(how.stride),
    )


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> _Call | None:
    layer = partial(layers.LayerNorm, shape=tuple(normalized_shape), eps=eps)
    return None if weight is None else _Call(input, weight, bias, layer)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> _Call | None:
    layer = partial(layers.GroupNorm, groups=num_groups, eps=eps)
    return None if weight is None else _Call(input, weight, bias, layer)


def _index_select(input: Tensor, dim: int, index: Tensor) -> _Call | None:
    return _Call(index, input, None, partial(layers.LookupTable, dim=dim % input.ndim))


_KNOWN: dict[Any, Callable[..., _Call | None]] = {
    F.linear: _linear,
    F.conv1d: _conv,
    F.conv2d: _conv,
    F.conv3d: _conv,
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    Tensor.index_select: _index_select,
    torch.index_select: _index_select,
}
