"""The kernels in torch's own operations: on every device, and what the others are compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dpose.training.kernels import MOST, TOO_LARGE, Ints, Kernels

_BLOCK = 2048
_AT_ONCE = 1 << 20


def at_least_float32(tensor: Tensor) -> Tensor:
    """The same numbers, in float32 where they came in a shorter type."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def in_groups(x: Tensor, gradient: Tensor, shape: torch.Size, how: tuple[tuple[int, ...], ...], groups: int) -> Tensor:
    """Each unit's gradient of a convolution's weights, (U, *shape), by one convolution with its groups a unit.

    x (U, V, C, *space), gradient of the output (U, V, O, *space), shape of the weights (O, C / groups, *size); how:
    stride, padding and dilation, a number for each dimension of space.
    """
    units = len(x)
    # channels last, where depthwise convolutions are fastest, but on a CPU only up to 3x3: what runs larger ones in
    # that layout takes gigabytes of fresh memory (7,000 page faults a picture for 5x5 over 1,152 channels)
    plain = max(shape[2:]) > 3

    def side_by_side(t: Tensor) -> Tensor:
        # (U, V, C, *space) to (V, U * C, *space)
        if plain:
            return t.transpose(0, 1).contiguous().flatten(1, 2)
        return t.movedim((0, 2), (-2, -1)).flatten(-2).movedim(-1, 1)

    wide = torch.Size((units * shape[0], *shape[1:]))
    found = convolution_slopes(side_by_side(x), side_by_side(gradient), wide, how, units * groups)
    return found.view(units, *shape)


def unfolded(x: Tensor, gradient: Tensor, shape: torch.Size, how: tuple[tuple[int, ...], ...], groups: int) -> Tensor:
    """As `in_groups`, by a product of unfolded pictures: best where a call costs more than the copy."""
    padding = [n for margin in reversed(how[1]) for n in (margin, margin)]
    windows = torch.nn.functional.pad(x, padding)
    for axis, (size, stride, apart) in enumerate(zip(shape[2:], how[0], how[2], strict=True)):
        windows = windows.unfold(3 + axis, apart * (size - 1) + 1, stride)[..., ::apart]
    units, views, channels = windows.shape[:3]
    space = range(4, 2 + len(shape))
    # (U, V, C, *out, *size) and (U, V, O, *out), both with their groups and then with a unit's places together
    cut = windows.reshape(units, views, groups, channels // groups, *windows.shape[3:])
    cut = cut.permute(0, 2, 1, *space, 3, *range(space.stop, cut.ndim)).flatten(2, len(shape)).flatten(3)
    slopes = gradient.reshape(units, views, groups, shape[0] // groups, *gradient.shape[3:])
    found: Tensor = slopes.permute(0, 2, 3, 1, *space).flatten(3) @ cut
    return found.view(units, *shape)


def at_once(device: str, groups: int, channels: int) -> Callable[..., Tensor] | None:
    """How a convolution's weight gradients are best taken of all units in one call; None for a call a unit.

    A GPU took 44 of 128 ms for convolutions with a group a unit; a processor is best at few channels a group.
    """
    if device == "cuda":
        return unfolded
    return in_groups if groups == channels else None


def convolution_slopes(
    x: Tensor, gradient: Tensor, shape: torch.Size, how: tuple[tuple[int, ...], ...], groups: int
) -> Tensor:
    """The gradient of weights of this shape, summed over pictures, contiguous whatever the layout of the weights."""
    # of the weights the shape alone is read
    weight, mask = x.new_empty(shape), [False, True, False]
    arguments = (*how, False, [0] * len(how[0]), groups, mask)
    value: Tensor = torch.ops.aten.convolution_backward(gradient, x, weight, None, *arguments)[1]
    return value


class Reference:
    """`Kernels` for every device."""

    def depthwise(self, x: Tensor, gradient: Tensor, size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
        """As in `Kernels`."""
        shape, groups = torch.Size((gradient.shape[2], 1, *size)), x.shape[2]
        by = at_once(x.device.type, groups, groups)
        assert by is not None, "as many groups as channels"
        return by(x, gradient, shape, (stride, padding, dilation), groups)

    def norm_slopes(self, x: Tensor, gradient: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
        """As in `Kernels`, with the normalised input made again."""
        normalised = (x - mean[..., None]).mul_(rstd[..., None])
        return normalised.mul_(gradient).sum(1), gradient.sum(1)

    def square_norms(self, rows: Tensor) -> Tensor:
        """As in `Kernels`, in blocks.

        `vector_norm` over a whole row adds a million squares one after the other: in float32 an error of 2e-5, more
        than the clip leaves room for. Over blocks it is below 1e-6, in one pass and without the copy that squaring
        makes.
        """
        whole = rows.shape[1] - rows.shape[1] % _BLOCK
        squares: Tensor = torch.linalg.vector_norm(rows[:, whole:], dim=1).square()
        if whole:
            blocks: Tensor = rows[:, :whole].reshape(len(rows), -1, _BLOCK)
            squares = squares + torch.linalg.vector_norm(blocks, dim=2).square().sum(1)
        return squares

    def truncate_sum(self, rows: Tensor, factors: Tensor, totals: Tensor, squares: Tensor) -> None:
        """As in `Kernels`, some columns at a time."""
        width = max(1, _AT_ONCE // max(1, len(rows)))
        for at in range(0, rows.shape[1], width):
            part = rows[:, at : at + width] * factors[:, None]
            part = torch.where(part.abs() <= MOST, part, TOO_LARGE)  # a comparison with nan is false
            part = torch.where(factors[:, None] == 0, 0.0, part).trunc_()
            totals[at : at + width] += part.long().sum(0)
            exact = part.double() if part.device.type != "mps" else part.cpu().double()
            squares += exact.square_().sum(1).to(squares.device)

    def take_back(self, rows: Tensor, factors: Tensor, totals: Tensor, within: Tensor) -> None:
        """As in `Kernels`: the same sum again, of those units alone."""
        over = ~within
        if bool(over.any()):
            added, squares = torch.zeros_like(totals), factors.new_zeros(int(over.sum()), dtype=torch.float64)
            self.truncate_sum(rows[over], factors[over], added, squares)
            totals -= added


KERNELS: Kernels = Reference()
