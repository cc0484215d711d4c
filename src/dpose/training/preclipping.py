"""Pre-clipping transforms: a public linear map of each unit's gradient, before it is clipped.

    transform = Coefficients(subspace)                       # g -> V g, of k numbers
    transform = Scales(fit_scales(task, model, params, public_batches))     # g -> D g, D diagonal
    sums = clipped_sum(loss, params, units, clip, transform=transform)
    gradient = transform.back(noised)                        # V^T c, or D^-1 y

What is clipped, summed on the integer grid and noised is the transformed gradient; the map back is post-processing. So
the noise has as many numbers as the transformed gradient, and lies as its coordinates lie. (jax_privacy calls it
`pre_clipping_transform`.) Projecting before the clip: Yu et al. 2021, "Do not let privacy overbill utility: gradient
embedding perturbation for private learning" (GEP), without its residual. Scaling before the clip: Li et al. 2022,
"Private adaptive optimization with side information" (AdaDPS), with other powers of the scales.

**Guarantee.** That of the clipped sum, whatever the map is, as long as it is applied to each unit alone and is a
function of public data and of what was released before (docs/proofs/pre-clipping.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.training.grad_sample import Params
from dpose.training.gradients import per_unit_gradients, unit_norms
from dpose.training.subspace import Subspace
from dpose.units import Task, UnitBatch

COEFFICIENTS = "the coefficients"  # beside parameters' names, which have no blank
SCALE_FLOOR = 0.1
"""This share of all scales' root mean square is added in squares: private units may have gradients where public ones
have hardly any."""


@dataclass(frozen=True)
class Coefficients:
    """V g: a gradient's coefficients in an orthonormal basis, and V^T c back.

    Attributes:
        subspace: The basis V.
    """

    subspace: Subspace

    def each(self, gradients: Params) -> Params:
        """See `PreClipping`: one tensor (U, k)."""
        basis = self.subspace.basis
        parts = [g.flatten(1) @ basis[name].flatten(1).T for name, g in gradients.items()]
        # one after the other: a sum over all of them at once may add up otherwise for the last units of a batch
        return {COEFFICIENTS: functools.reduce(torch.add, parts)}

    def like(self, params: Params) -> Params:
        """See `PreClipping`: (k,)."""
        return {COEFFICIENTS: next(iter(params.values())).new_empty(self.subspace.directions)}

    def back(self, noised: Params) -> Params:
        """See `PreClipping`."""
        c = noised[COEFFICIENTS]
        return {
            name: torch.mv(v.flatten(1).t(), c.to(v)).view(v.shape[1:])
            for name, v in self.subspace.basis.items()
        }


@dataclass(frozen=True)
class Scales:
    """D g: each coordinate multiplied by a factor of its own, and D^-1 y back.

    Attributes:
        factors: The diagonal of D, by parameter, in its shape; positive and finite.

    Raises:
        DposeError: a factor is not positive and finite.
    """

    factors: Params

    def __post_init__(self) -> None:
        if not all(bool(((f > 0) & f.isfinite()).all()) for f in self.factors.values()):
            raise DposeError(
                "scales-not-positive", "scales must be positive and finite", fix="check the public data"
            )

    def each(self, gradients: Params) -> Params:
        """See `PreClipping`."""
        return {name: g * self.factors[name] for name, g in gradients.items()}

    def like(self, params: Params) -> Params:
        """See `PreClipping`."""
        return params

    def back(self, noised: Params) -> Params:
        """See `PreClipping`."""
        return {name: y / self.factors[name] for name, y in noised.items()}


def fit_scales(
    task: Task, model: torch.nn.Module, params: Params, batches: Iterable[UnitBatch]
) -> dict[str, Tensor]:
    """The factors s_j^-1/2 of public second moments s_j^2 = mean g_j^2, for `Scales`.

    Of all diagonal maps this one leaves the least noise beside what is left of a gradient whose coordinates have those
    moments: by Cauchy and Schwarz the noise's energy falls by (sum s)^2 / (d sum s^2), the spread of the scales. They
    have a common factor that keeps a gradient's mean squared norm, so that a clipping norm means what it meant.

    Raises:
        DposeError: no unit has a gradient that is finite and not zero.
    """
    squares = {name: torch.zeros_like(p) for name, p in params.items()}
    units = 0
    for batch in batches:
        gradients = per_unit_gradients(task, model, params, batch)
        finite = unit_norms(gradients).isfinite()  # the rule of the private side
        for name, value in gradients.items():
            squares[name] += value[finite].square().sum(0)
        units += int(finite.sum())
    count = sum(p.numel() for p in params.values())
    energy = sum(float(s.double().sum()) for s in squares.values()) / max(1, units)
    if not energy > 0:
        raise DposeError(
            "public-gradients-missing",
            "no public unit has a gradient that is finite and not zero",
            fix="check the public data",
        )
    floor = SCALE_FLOOR**2 * energy / count
    scales = {name: (s / units + floor).sqrt() for name, s in squares.items()}
    common = (energy / sum(float(s.double().sum()) for s in scales.values())) ** 0.5
    return {name: common * s.rsqrt() for name, s in scales.items()}


def stand_in(like: Mapping[str, Tensor], directions: int) -> Coefficients:
    """A transform of the shape that `directions` make, of random numbers: to try how a machine computes with it."""
    numbers = torch.Generator().manual_seed(0)
    basis = {
        name: torch.randn((directions, *p.shape), generator=numbers, dtype=p.dtype).to(p.device)
        for name, p in like.items()
    }
    return Coefficients(Subspace(basis, directions))
