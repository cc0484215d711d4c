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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.training.grad_sample import Params
from dpose.training.loader import Loader
from dpose.training.methods import SubspaceConfig
from dpose.training.subspace import Subspace, finite_gradients, fit_subspace, project_onto, random_subspace, slices_of
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
        return {name: torch.mv(v.flatten(1).t(), c.to(v)).view(v.shape[1:]) for name, v in self.subspace.basis.items()}

    def tensors(self) -> Params:
        """The basis: see `dpose.training.graph`."""
        return self.subspace.basis

    def with_tensors(self, tensors: Params) -> Coefficients:
        """The same in another basis."""
        return replace(self, subspace=replace(self.subspace, basis=tensors))


@dataclass(frozen=True)
class Scales:
    """D g: each coordinate multiplied by a factor of its own, and D^-1 y back.

    Attributes:
        factors: The diagonal of D, by parameter, in its shape; positive and finite.
    """

    factors: Params

    def __post_init__(self) -> None:
        good = [((f > 0) & f.isfinite()).all() for f in self.factors.values()]
        if good and not bool(torch.stack(good).all()):  # one question to the device, and not one a parameter
            raise DposeError("scales-not-positive", "scales must be positive and finite", fix="check the public data")

    def each(self, gradients: Params) -> Params:
        """See `PreClipping`."""
        return {name: g * self.factors[name] for name, g in gradients.items()}

    def like(self, params: Params) -> Params:
        """See `PreClipping`."""
        return params

    def back(self, noised: Params) -> Params:
        """See `PreClipping`."""
        return {name: y / self.factors[name] for name, y in noised.items()}

    def tensors(self) -> Params:
        """The factors: see `dpose.training.graph`."""
        return self.factors

    def with_tensors(self, tensors: Params) -> Scales:
        """The same with other factors."""
        return replace(self, factors=tensors)


def fit_scales(
    task: Task, model: torch.nn.Module, params: Params, batches: Iterable[UnitBatch], room: int | None = None
) -> dict[str, Tensor]:
    """The factors s_j^-1/2 of public second moments s_j^2 = mean g_j^2, for `Scales`.

    Of all diagonal maps this one leaves the least noise beside what is left of a gradient whose coordinates have those
    moments: by Cauchy and Schwarz the noise's energy falls by (sum s)^2 / (d sum s^2), the spread of the scales. They
    have a common factor that keeps a gradient's mean squared norm, so that a clipping norm means what it meant. `room`
    as in `slices_of`.
    """
    squares = {name: torch.zeros_like(p) for name, p in params.items()}
    units = 0
    for _, gradients, bad in finite_gradients(task, model, params, room, slices_of(batches, params, room)):
        for name, value in gradients.items():
            squares[name] += value.square().sum(0)
        units += len(value) - bad
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


@dataclass
class PublicFit:
    """What a run fits on public units, and its age: the subspace of methods that project, or scales.

    The public units that it is fitted on are drawn by a stream of their own, at the step's weights. Neither depends on
    which private units were sampled, so the subspace is a function of public data and of what has been released
    already.

    Attributes:
        config: What is fitted.
        task: Gives the loss.
        model: The run's.
        noise: Where the public units are drawn from, with `context` as in `StepInputs`.
        loader: Gives the public units; None for the kinds that use none.
        microbatch_size: The micro-batch.
        subspace: The present one; None before the first step, and always for the kind "identity" and for scales.
        fitted: The step it was fitted at.
    """

    config: SubspaceConfig
    task: Task
    model: torch.nn.Module
    noise: NoiseSource
    context: bytes
    microbatch_size: int
    loader: Loader | None
    subspace: Subspace | None = None
    fitted: int = 0

    def __post_init__(self) -> None:
        units = len(self.loader.dataset) if self.loader else 0
        if self.config.kind == "public" and units < self.config.units:
            raise DposeError(
                "public-units-too-few",
                f"subspace or scales are to be fitted on {self.config.units} public units, there are {units}",
                "--public",
                "give more public data, or lower subspace.units",
            )

    def apply(self, gradient: Params, params: Params, step: int) -> tuple[Params, Mapping[str, float]]:
        """The noised `gradient` of step `step`, projected, and the diagnostics of that.

        **Guarantee.** Post-processing of `gradient`: the subspace is made from public units and from `params`, which
        the releases before this step determine.
        """
        subspace = self.at(params, step)
        if subspace is None:
            return gradient, {}
        projected, survives = project_onto(gradient, subspace)
        return projected, {"surviving_norm": survives, **self.diagnostics(step)}

    def at(self, params: Params, step: int) -> Subspace | None:
        """The subspace of step `step`, fitted anew where it is due; None for the kind "identity".

        **Guarantee.** A function of public units and of `params`.
        """
        if self.config.kind == "identity":
            return None
        if self.subspace is None or step - self.fitted >= self.config.refresh:
            # the old directions go before the new ones come: each set may take a gigabyte
            self.subspace = None
            self.subspace, self.fitted = self._fit(params, step), step
        return self.subspace

    def diagnostics(self, step: int) -> dict[str, float]:
        """What may be shown of the subspace at step `step`."""
        subspace = self.subspace
        if subspace is None:
            return {}
        found = {
            "subspace_directions": float(subspace.directions),
            "subspace_rank": float(subspace.rank),
            "subspace_age": float(step - self.fitted),
        }
        if subspace.energy is not None:
            found["subspace_energy"] = subspace.energy
            found["public_gradients_not_finite"] = float(subspace.dropped)
        return found

    def fit_scales(self, params: Params, step: int) -> Params:
        """Scales of gradients of public units at `params`. As `at`, a function of those."""
        assert self.loader is not None  # there are no random scales
        batches = self._batches(self.loader, params, step)
        return fit_scales(self.task, self.model, params, batches, self._room(params))

    def _room(self, params: Params) -> int | None:
        """On a GPU fits compute in the shape of steps: for any other each convolution is planned anew."""
        on_gpu = next(iter(params.values())).device.type == "cuda"
        return self.microbatch_size if on_gpu else None

    def _fit(self, params: Params, step: int) -> Subspace:
        if self.loader is None:
            return random_subspace(params, self.config.rank, self._rng(step))
        batches = self._batches(self.loader, params, step)
        rank, room = self.config.rank, self._room(params)
        return fit_subspace(self.task, self.model, params, batches, rank, room=room)

    def _rng(self, step: int) -> np.random.Generator:
        return self.noise.stream(Purpose.SUBSPACE, step, self.context).generator()

    def _batches(self, loader: Loader, params: Params, step: int) -> Iterator[UnitBatch]:
        drawn = self._rng(step).choice(len(loader.dataset), self.config.units, replace=False)
        device = next(iter(params.values())).device
        batches = loader.micro_batches(sorted(int(i) for i in drawn), step, self.microbatch_size)
        return (batch.to(device) for batch in batches)
