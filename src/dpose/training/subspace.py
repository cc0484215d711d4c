"""The public gradient subspace: fitted on gradients of public units, it takes the noise out of private updates.

    subspace = fit_subspace(task, model, params, public_batches, k=50)
    update, share = project(noisy_gradient, subspace)

The second moment of m public per-unit gradients is low-dimensional; noise is not. Keeping only the k directions in
which public gradients are largest removes most of the noise and, where public and private data are alike, little of
the signal (seed 000, section 3.3; Zhou, Wu and Banerjee 2021). The controls are `random_subspace`, and no subspace at
all, which is the identity: nothing is projected and the method is plain DP-SGD.

**Guarantee.** Neighbours, sensitivity and noise are those of the gradient that is projected, which has its noise
already: projection is post-processing (docs/proofs/projection.md). It needs the m units to be public: the same whatever
the private data are, and never taken from them. They get no protection.

**Memory.** With P trainable parameters the m gradients G take 4mP bytes and the basis V takes 4kP: 2.10 GB and 1.05 GB
for `full` on preset `5m` (P = 5.24 M, m = 100, k = 50). So G is held whole only up to `HOLD_BYTES`; V then takes its
place parameter by parameter, and the peak is G. Beyond that the Gram matrix of G is computed group by group: k rows
are held, all later rows are computed, multiplied and dropped. Then V grows from a last pass over slices of G. With
c = ceil(m / k) groups that makes (c + 1) / 2 + 1 passes of gradients instead of one, and the peak is
4kP, which V takes over from the rows, and the gradients and activations of some units: 1.05 GB and 0.33 GB there
(docs/performance.md). V stays, the rest goes.

**Precision.** Nothing is stored in a shorter type than the gradients'. Of many float32 parameters on a CPU, products
are taken in float32 over blocks whose results are added in float64, at half the price of float64. That leaves the Gram
matrix with an error of about 1e-7 of its largest eigenvalue. Where an eigenvalue is so small that this might matter
(`CLEAR`), and where G is not held whole, float64 does it all again. V is measured afterwards, and made orthonormal to
`ORTHONORMAL` whatever the error was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.training.gradients import Params, per_unit_gradients, unit_norms
from dpose.training.kernels import for_device
from dpose.units import Task, UnitBatch

HOLD_BYTES = 1152 * 2**20
"""Gradients that may be held all at once; all but `full` on `5m` and above stay below it with 100 units."""
SLICE_BYTES = {"cpu": 32 * 2**20, "cuda": 2**30}
"""Gradients computed at once, by device; at least one unit's. A GPU takes as long for a few units as for many."""
RANK_TOLERANCE = 1e-4
"""Directions with a singular value below this share of the largest are rounding, not gradient. Where there should be
none, float32 left up to 2e-7 (TF32 convolutions leave more); what is lost below 1e-4 is 1e-8 of the energy."""
ORTHONORMAL = 1e-6
"""How far any entry of V V^T may be from the identity's."""
CLEAR = 1e-6
"""Eigenvalues of a Gram matrix from float32 products are believed where all are above this share of the largest."""

_BLOCK = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Columns of a product at once, by device: on a GPU fewer calls, for 200 MB of float64."""
_ROUNDS = 4
_LARGE = 1 << 16
"""Parameters from which on float32 products are worth it."""
_NEAR = 0.1
_TOGETHER = 1 / 12
"""Rows that a basis is updated with at once, over its own, where gradients come in slices: each update reads and writes
the whole basis."""


@dataclass(frozen=True)
class Subspace:
    """An orthonormal basis of some directions in parameter space.

    Attributes:
        basis: For each trainable parameter (k, *its shape), contiguous; the k rows are orthonormal over the
            concatenation of all parameters. k is less than was asked for where the rank is.
        rank: The numerical rank of the gradients it was fitted on (of the basis, where it was not fitted).
        energy: The share of the gradients' squared norms that lies in the subspace; None if it was not fitted.
        units: How many gradients it was fitted on; 0 where it was not.
        dropped: How many of them were not finite and counted as zero.
    """

    basis: Params
    rank: int
    energy: float | None = None
    units: int = 0
    dropped: int = 0

    @property
    def directions(self) -> int:
        """k, the dimension."""
        return len(next(iter(self.basis.values())))

    def filled(self, directions: int) -> Subspace:
        """The same with rows of zeros up to so many: products have the shape that was tried, whatever the rank is."""
        missing = max(0, directions - self.directions)
        basis = {name: torch.cat([v, v.new_zeros(missing, *v.shape[1:])]) for name, v in self.basis.items()}
        return replace(self, basis=basis) if missing else self

    def to(self, device: torch.device) -> Subspace:
        """The same on `device`."""
        return replace(self, basis={name: value.to(device) for name, value in self.basis.items()})


def fit_subspace(
    task: Task,
    model: torch.nn.Module,
    params: Params,
    batches: Iterable[UnitBatch],
    k: int,
    *,
    hold_bytes: int = HOLD_BYTES,
    slice_bytes: int | None = None,
    room: int | None = None,
) -> Subspace:
    """The top k right singular vectors of the gradients of public units, at `params`.

    A row of G is one unit's gradient, the mean over its views, as on the private side; never a batch's, which
    would leave a rank of a few. G G^T = U S^2 U^T in float64 (m x m), V = G^T U S^-1, and V is orthonormalised again
    where the division by small singular values has cost precision. Which units share a batch changes nothing.

    Args:
        task: Gives the loss.
        model: In the mode that it trains in; nothing is written into it.
        params: The trainable parameters by name.
        batches: The public units, on the device of `params`; kept until the fit is done.
        k: Directions wanted. Where the numerical rank is smaller, the rank's are returned and no others.
        hold_bytes: See `HOLD_BYTES`.
        slice_bytes: See `SLICE_BYTES`, which is taken for None.
        room: As in `slices_of`.
    """
    slices = list(slices_of(batches, params, room, slice_bytes))
    units = sum(len(batch) for batch in slices)
    _check_size(k, params)
    if units < k:
        raise DposeError(
            "public-units-too-few",
            f"a subspace of {k} directions needs at least {k} public units, there are {units}",
            fix="give more public data, or fewer directions",
        )
    whole = units * _row_bytes(params) <= hold_bytes
    rows = units if whole else k
    held = {name: p.new_empty((rows, *p.shape)) for name, p in params.items()}
    quick = whole and _quick(params, 1)
    gradients_of = partial(finite_gradients, task, model, params, room)
    gram, dropped = _gram(gradients_of, _groups(slices, rows), held, quick)
    if quick and not _is_clear(gram):
        gram = _products(held, held)
    weights, rank, energy = _right_factors(gram, k)
    basis: Params = {}
    weights = weights.to(next(iter(params.values())).device)  # once, and not once a parameter
    if whole:
        for name in params:
            rows_held = held.pop(name)
            basis[name] = (weights.to(rows_held) @ rows_held.flatten(1)).view(-1, *rows_held.shape[1:])
    else:
        for name in params:  # in the place of the rows: memory that is freed and taken again has holes
            place = held.pop(name)
            basis[name] = (place if len(place) == len(weights) else place[: len(weights)].clone()).zero_()
        for at, gradients in _together(gradients_of(slices), int(k * _TOGETHER)):
            for name, value in gradients.items():
                share = weights[:, at : at + len(value)].to(value)
                basis[name].view(len(weights), -1).addmm_(share, value.flatten(1))
    _orthonormalise(basis)
    return Subspace(basis, rank, energy, units, dropped)


def random_subspace(params: Params, k: int, rng: np.random.Generator) -> Subspace:
    """K uniformly random directions: the control that tells what the public gradients are worth.

    On average it keeps the share k/P of any squared norm, noise and signal alike.
    """
    _check_size(k, params)
    basis = {
        name: torch.from_numpy(rng.standard_normal((k, *p.shape), dtype=np.float32)).to(p) for name, p in params.items()
    }
    _orthonormalise(basis)
    return Subspace(basis, k)


def project_onto(gradient: Params, subspace: Subspace) -> tuple[Params, float]:
    """V V^T g, and the share ||V V^T g|| / ||g|| of the norm that survives (0 where g is zero).

    **Guarantee.** Post-processing of `gradient`: that of whatever made it, if the subspace is public. The share may be
    logged where the gradient may. Noise alone keeps sqrt(k / P); a share near that says that the subspace
    catches no more of the update than a random one would.
    """
    basis = subspace.basis
    shapes = {name: tuple(v.shape[1:]) for name, v in basis.items()}
    if {name: tuple(g.shape) for name, g in gradient.items()} != shapes:
        raise DposeError("subspace-of-other-model", "the subspace does not fit this model's trainable parameters")
    k = subspace.directions
    # two products with V, read once each: rows of one parameter at a time, as they lie in memory
    parts = [torch.mv(basis[name].view(k, -1), g.reshape(-1)) for name, g in gradient.items()]
    coefficients = _wide(torch.stack(parts)).sum(0)
    projected = {
        name: torch.mv(basis[name].view(k, -1).t(), coefficients.to(g)).view(g.shape) for name, g in gradient.items()
    }
    norm = (
        float(torch.stack([for_device(g.device).square_norms(g.reshape(1, -1)) for g in gradient.values()]).sum())
        ** 0.5
    )
    return projected, float(coefficients.norm()) / norm if norm else 0.0


def _check_size(k: int, params: Params) -> None:
    count = sum(p.numel() for p in params.values())
    if not 1 <= k <= count:
        raise DposeError(
            "subspace-size-out-of-range", f"a subspace of {count} parameters has 1 to {count} directions, not {k}"
        )


def _row_bytes(params: Params) -> int:
    return sum(p.numel() * p.element_size() for p in params.values())


def slices_of(
    batches: Iterable[UnitBatch], params: Params, room: int | None = None, slice_bytes: int | None = None
) -> Iterator[UnitBatch]:
    """The same units in the same order, as many at a time as gradients of them may be held.

    With `room`, the views in a micro-batch of the run, gradients are computed in the shape of steps: so many as there,
    which steps hold as well. Otherwise as many as go into `slice_bytes`, or `SLICE_BYTES`.
    """
    if slice_bytes is None:
        slice_bytes = SLICE_BYTES.get(next(iter(params.values())).device.type, SLICE_BYTES["cpu"])
    units = room or max(1, slice_bytes // max(1, _row_bytes(params)))
    for batch in batches:
        for at in range(0, len(batch), units):
            part = slice(at, at + units)
            yield UnitBatch(batch.inputs[part], {n: t[part] for n, t in batch.targets.items()}, batch.weights[part])


def _groups(slices: Sequence[UnitBatch], units: int) -> list[list[UnitBatch]]:
    """Runs of slices with at most `units` units each (or one slice)."""
    groups: list[list[UnitBatch]] = []
    room = 0
    for batch in slices:
        if not groups or len(batch) > room:
            groups.append([])
            room = units
        groups[-1].append(batch)
        room -= len(batch)
    return groups


def finite_gradients(
    task: Task, model: torch.nn.Module, params: Params, room: int | None, slices: Iterable[UnitBatch]
) -> Iterator[tuple[int, Params, int]]:
    """The first row, the per-unit gradients and how many were not finite, slice by slice; one at a time is held."""
    at = 0
    for batch in slices:
        gradients = per_unit_gradients(task, model, params, batch, room=room)
        # the rule of the private side: a norm that is not finite counts as no gradient
        bad = ~unit_norms(gradients).isfinite()
        for value in gradients.values():
            value.masked_fill_(bad.view(-1, *[1] * (value.ndim - 1)), 0)  # by a mask, the host would be asked
        yield at, gradients, int(bad.sum())
        gradients.clear()  # a batch of steps' shape may take gigabytes: not two at once
        at += len(batch)


def _together(slices: Iterable[tuple[int, Params, int]], rows: int) -> Iterator[tuple[int, Params]]:
    """The first row and the gradients of `rows` or more rows at a time."""
    waiting: list[Params] = []
    start = at = 0
    for at, gradients, _ in slices:
        waiting.append(dict(gradients))
        end = at + len(next(iter(gradients.values())))
        if end - start >= rows:
            yield start, _stacked(waiting)
            waiting, start = [], end
    if waiting:
        yield start, _stacked(waiting)


def _stacked(parts: list[Params]) -> Params:
    """All rows of `parts`, which is emptied: no more than one parameter's stand twice in memory."""
    if len(parts) == 1:
        return parts.pop()
    names = list(parts[0])
    stacked = {name: torch.cat([part.pop(name) for part in parts]) for name in names}
    parts.clear()
    return stacked


def _gram(
    gradients_of: Callable[[Sequence[UnitBatch]], Iterator[tuple[int, Params, int]]],
    groups: Sequence[Sequence[UnitBatch]],
    held: Params,
    quick: bool,
) -> tuple[Tensor, int]:
    """G G^T (m, m) float64, and how many rows were not finite; `held` begins with the rows of a lone group then."""
    places = len(next(iter(held.values())))
    sizes = [sum(len(batch) for batch in group) for group in groups]
    gram = torch.zeros(sum(sizes), sum(sizes), dtype=torch.float64)
    dropped = start = 0
    for g, group in enumerate(groups):
        rows: Params = {name: value[: sizes[g]] for name, value in held.items()}
        for at, gradients, bad in gradients_of(group):
            dropped += bad
            if sizes[g] > places:  # one slice, which need not stand in memory twice
                rows = gradients
                break
            for name, value in gradients.items():
                rows[name][at : at + len(value)] = value
        own = slice(start, start + sizes[g])
        start = own.stop
        gram[own, own] = _products(rows, rows, quick=quick)
        later = [batch for other in groups[g + 1 :] for batch in other]
        for at, gradients, _ in gradients_of(later):
            products = _products(rows, gradients)
            columns = slice(start + at, start + at + products.shape[1])
            gram[own, columns], gram[columns, own] = products, products.T
    return gram, dropped


def _is_clear(gram: Tensor) -> bool:
    """Whether rounding in float32 products can have changed nothing that matters."""
    if not gram.isfinite().all():  # overflow of products, not of gradients
        return False
    values = torch.linalg.eigvalsh(gram)
    return bool(values[0] > CLEAR * values[-1])


def _right_factors(gram: Tensor, k: int) -> tuple[Tensor, int, float]:
    """S^-1 U^T of the top directions (kept, m) float64, the numerical rank, and the share of energy they hold."""
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    singular = values.sqrt()
    rank = int((singular > RANK_TOLERANCE * singular[0]).sum())
    if not rank:
        raise DposeError(
            "public-gradients-missing",
            "no public unit has a gradient that is finite and not zero",
            fix="check the public data",
        )
    kept = min(k, rank)
    weights = (vectors[:, :kept] / singular[:kept]).T
    return weights, rank, float(values[:kept].sum() / values.sum())


def _orthonormalise(basis: Params) -> None:
    """Make the rows orthonormal over all tensors together, in place, one block of columns at a time.

    V <- L^-1 V with V V^T = L L^T (Cholesky QR), again where one round was not enough. Row j stays in the
    span of the rows up to j. Near the identity, rounding of L^-1 V to float32 is all that float32 costs.
    """
    k = len(next(iter(basis.values())))
    identity = torch.eye(k, dtype=torch.float64)
    quick = _quick(basis, k)
    for _ in range(_ROUNDS):
        gram = _products(basis, basis, quick=quick)
        away = float((gram - identity).abs().max())
        if away <= ORTHONORMAL:
            return
        near = quick and away <= _NEAR
        if quick and not near:
            gram = _products(basis, basis)
        lower = torch.linalg.cholesky(gram)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
        inverse = inverse.to(_wide(next(iter(basis.values()))[:0]).device)
        for value in basis.values():
            for block in _blocks(value.view(k, -1)):
                wide = block if near else _wide(block)
                block.copy_(inverse.to(wide) @ wide)
    raise RuntimeError("the basis of a subspace cannot be made orthonormal")


def _quick(tensors: Params, rows: int) -> bool:
    """Whether products of rows like these may be taken in float32: long ones, on a CPU, and exact to rounding."""
    return (
        all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors.values())
        and torch.get_float32_matmul_precision() == "highest"
        and sum(t.numel() for t in tensors.values()) >= rows * _LARGE
    )


def _products(a: Params, b: Params, *, quick: bool = False) -> Tensor:
    """A b^T over all tensors together, (rows of a, rows of b) float64 on the CPU.

    Without a float64 copy of either; `quick`: see **Precision** above.
    """
    first = next(iter(a.values()))
    # added up where the products are made: one question to the host in all
    place = torch.device("cpu") if quick else _wide(first[:0]).device
    total = torch.zeros(len(first), len(b[next(iter(a))]), dtype=torch.float64, device=place)
    for name, left in a.items():
        for one, other in zip(_blocks(left.flatten(1)), _blocks(b[name].flatten(1)), strict=True):
            wide = one if quick else _wide(one)
            total += wide @ (wide if b is a else other if quick else _wide(other)).T
    return total.cpu()


def _blocks(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, _BLOCK.get(rows.device.type, _BLOCK["cpu"]), dim=1)


def _wide(value: Tensor) -> Tensor:
    """In float64, on the CPU where the device has none."""
    return (value.cpu() if value.device.type == "mps" else value).double()
