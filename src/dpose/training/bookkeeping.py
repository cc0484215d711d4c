"""The book of one backward pass: what is needed to know every unit's norm, and then the sum of clipped gradients.

A parameter's per-unit gradients are kept in one of two ways, whichever is cheaper for that parameter (`ghost_pays`):

* whole, (U, *shape): the norm is read off, and the sum is one product with the factors;
* as the two factors of a product: the gradient of a matrix of weights is G_u = B_u^T A_u, with one row of A and B for
  each place (token, pixel, view) at which unit u met the weights. Then ||G_u||^2 is the sum over all pairs of places
  of <a_t, a_s> <b_t, b_s>, which never needs G_u (Goodfellow 2015, "Efficient per-example gradient computations"; Li et
  al. 2022, "Large language models can be strong differentially private learners", section 4), and the weighted sum over
  units is one product of what was kept, with no second backward pass (Bu et al. 2023, "Differentially private
  optimization on large model at small cost", book-keeping). All places of a unit are in one pair of matrices, so cross
  terms between its views, windows and pixels are in the norm.

What is summed is each unit's gradient on an integer grid (`dpose.training.clip.Grid`). So products are multiplied out
after all, a few units at a time: the norm from them saves the memory in which they would have waited for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from dpose.training.clip import Grid
from dpose.training.kernels import for_device
from dpose.training.kernels.reference import at_least_float32

SLACK = 4.0
"""A norm from products is raised by SLACK * eps * sum_t ||a_t|| ||b_t||, eps of the type of the product. That product
rounds by about eps times that, which where terms cancel may be more than `CLIP_MARGIN` of the norm: without this the
grid would drop such a unit. Where nothing cancels it adds 1e-6."""

_SMALL = 4096
"""Below so many numbers a parameter is measured and summed side by side with others: a call costs more than those."""
_PRODUCTS = 16 * 2**20
"""Bytes of products that are multiplied out at once; at least one unit's."""


class Bookkeeping:
    """Per-unit gradients of one batch, parameter by parameter.

    Args:
        shapes: The parameters' shapes, by name.
        units: U.
        products: Whether gradients may be kept as products; whole ones are always right.

    Whatever comes in a type shorter than float32 is measured and truncated in float32, where it is the same number:
    both see one gradient.

    Attributes:
        mixed: Whether the loss ran under autocast.
    """

    def __init__(self, shapes: Mapping[str, torch.Size], units: int, *, products: bool) -> None:
        self._shapes, self._units, self._products = shapes, units, products
        self.mixed = False
        self._whole: dict[str, Tensor] = {}
        self._pairs: dict[str, tuple[Tensor, Tensor]] = {}
        self._joined: list[tuple[list[str], Tensor]] | None = None

    def add(self, name: str, gradients: Tensor) -> None:
        """A use's per-unit gradients (U, *shape), added to those of the parameter's other uses before any norm."""
        value = at_least_float32(gradients.reshape(self._units, *self._shapes[name]))
        self._joined = None
        if name in self._pairs:
            a, b = self._pairs.pop(name)
            value = value + at_least_float32(b.mT @ a).view_as(value)
        self._whole[name] = self._whole[name] + value if name in self._whole else value

    def add_products(self, name: str, inputs: Tensor, outputs: Tensor) -> None:
        """A use's per-unit gradients as products, outputs_u^T inputs_u.

        Args:
            name: Of a parameter whose shape, flattened after its first dimension, is (b, a).
            inputs: (U, T, a), what met the weights at each of the unit's T places.
            outputs: (U, T, b), the loss's gradient there.
        """
        first = name not in self._whole and name not in self._pairs
        if self._products and first and ghost_pays(inputs.shape[1], inputs.shape[2], outputs.shape[2]):
            self._pairs[name] = (inputs, outputs)
        else:
            self.add(name, outputs.mT @ inputs)

    def gradients(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every parameter's per-unit gradients (U, *shape), of a book without products; zeros where none came."""
        return {
            name: self._whole[name] if name in self._whole else p.new_zeros((self._units, *p.shape))
            for name, p in like.items()
        }

    def norms(self) -> Tensor:
        """Each unit's L2 norm over all parameters together, (U,), and not below the true one but by rounding."""
        squares = [for_device(rows.device).square_norms(rows) for _, rows in self._side_by_side()]
        squares += [_ghost_squares(a, b) for a, b in self._pairs.values()]
        if not squares:  # the loss reaches no parameter
            return torch.zeros(self._units)
        return total_norms(squares)

    def each(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every parameter's per-unit gradients (U, *shape) as `sums` takes them; zeros where none came."""
        found = self.gradients(like)
        for name in self._pairs:
            for units, rows in self._multiplied(name):
                found[name][units] = rows.view(-1, *found[name].shape[1:])
        return found

    def sums(self, scales: Tensor, grid: Grid, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """For each parameter the sum over units of `scales` (U,) times the unit's gradient, on the grid.

        A unit with scale 0 is left out, whatever its gradient holds. So is one that, truncated, is not within the
        grid's bound over all parameters together: the scales are to see to that, but it does not rest on them.

        Returns:
            Exact multiples of the grid's step, in float64.
        """
        squares = torch.zeros(self._units, dtype=torch.float64, device=scales.device)
        sums: dict[tuple[str, ...], Tensor] = {}
        for names, units, rows in self._all_rows():
            sums.setdefault(names, torch.zeros(rows.shape[1], dtype=torch.int64, device=rows.device))
            grid.add(rows, scales[units].to(rows.dtype), sums[names], squares[units])
        within = grid.within(squares)
        # on a GPU, where nothing is kept as products, the host is asked nothing
        if not self._pairs or not bool(within.all()):
            for names, units, rows in self._all_rows():
                grid.take_back(rows, scales[units].to(rows.dtype), sums[names], within[units])
        totals: dict[str, Tensor] = {}
        for names, total in sums.items():
            parts = torch.split(grid.values(total), [like[n].numel() for n in names])
            totals.update(zip(names, parts, strict=True))
        for name, p in like.items():
            if name not in totals:  # the loss does not reach it
                totals[name] = grid.values(torch.zeros(p.numel(), dtype=torch.int64, device=p.device))
        return {name: totals[name].view(p.shape) for name, p in like.items()}

    def _all_rows(self) -> Iterator[tuple[tuple[str, ...], slice, Tensor]]:
        """Names of parameters, units, and what they have of them side by side, (units, numbers)."""
        for names, rows in self._side_by_side():
            yield tuple(names), slice(None), rows
        for name in self._pairs:
            for units, rows in self._multiplied(name):
                yield (name,), units, rows

    def _side_by_side(self) -> list[tuple[list[str], Tensor]]:
        """What is kept whole, (U, numbers): each large parameter by itself, small ones of one type side by side."""
        if self._joined is None:
            small: dict[tuple[torch.dtype, torch.device], list[str]] = {}
            self._joined = []
            for name, value in self._whole.items():
                if value[0].numel() < _SMALL:
                    small.setdefault((value.dtype, value.device), []).append(name)
                else:
                    self._joined.append(([name], value.flatten(1)))
            for names in small.values():
                self._joined.append((names, torch.cat([self._whole[name].flatten(1) for name in names], 1)))
        return self._joined

    def _multiplied(self, name: str) -> Iterator[tuple[slice, Tensor]]:
        """Per-unit gradients, (units, numbers), of a parameter that is kept as products, some units at a time."""
        a, b = self._pairs[name]
        at_once = max(1, _PRODUCTS // (4 * a.shape[2] * b.shape[2]))
        for at in range(0, self._units, at_once):
            units = slice(at, min(at + at_once, self._units))
            yield units, (at_least_float32(b[units]).mT @ at_least_float32(a[units])).flatten(1)


def ghost_pays(places: int, inputs: int, outputs: int) -> bool:
    """Whether products are cheaper than a whole gradient of inputs * outputs numbers a unit.

    The norm from products takes places^2 (inputs + outputs) multiplications in float64, twice the price of float32;
    the whole gradient takes places * inputs * outputs, and the products keep places (inputs + outputs) numbers. Both
    comparisons are this one. Written, read for the norm and read for the sum, a whole gradient also costs bandwidth.
    """
    return 2 * places * (inputs + outputs) <= inputs * outputs


def total_norms(squares: Sequence[Tensor]) -> Tensor:
    """Each unit's L2 norm (U,) from its squared norms, (U,) a parameter.

    One parameter after the other. A sum over the first dimension of all of them at once takes several units side by
    side and the last few by themselves, which adds up in another order: the norm would know the unit's place.
    """
    total = squares[0].double()
    for more in squares[1:]:
        total = total + more
    return total.sqrt().to(squares[0].dtype)


def _ghost_squares(inputs: Tensor, outputs: Tensor) -> Tensor:
    """An upper bound, tight up to `SLACK`, of ||outputs_u^T inputs_u||^2, (U,), in the type of the sum."""
    summed_in = torch.promote_types(inputs.dtype, torch.float32)
    a, b = inputs.double(), outputs.double()
    gram_a, gram_b = a @ a.mT, b @ b.mT
    size = (gram_a.diagonal(dim1=1, dim2=2) * gram_b.diagonal(dim1=1, dim2=2)).sqrt().sum(1)
    # in float64 the squares of numbers that are large in float32 do not overflow: the cast makes them infinite again
    norms = gram_a.mul_(gram_b).sum((1, 2)).clamp_min(0).sqrt()
    return (norms + SLACK * torch.finfo(summed_in).eps * size).square().to(summed_in)
