"""The gradient that a step hands to the optimizer: the parts of a run, and what its method makes of them.

    inputs = StepInputs(task, model, Loader(task, data, noise), bound, noise, context, microbatch_size)
    with open_parts(inputs, public) as parts:
        gradient, diagnostics = parts.gradient(params, step)     # the method's `update` of these parts

Which data, which loss and which stream goes where is settled here; how a method puts the parts together stands in
`dpose.training.methods`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.noise import Purpose
from dpose.training.clip import PreClipping
from dpose.training.gradients import Params
from dpose.training.guards import only_gradients
from dpose.training.loader import Copies, Loader
from dpose.training.methods import SubspaceConfig
from dpose.training.plan import BoundPlan
from dpose.training.preclipping import Coefficients, Scales, fit_scales
from dpose.training.public_view import VIEWS_SHOWN, PublicViews, Residual, ResidualViews
from dpose.training.step import StepInputs, global_norm, plain_batches, plain_gradient, private_gradient
from dpose.training.subspace import Subspace, fit_subspace, project_onto, random_subspace
from dpose.units import CanonicalUnits, Task, UnitBatch, UnitDataset

FITTED = "the step"  # that scales were fitted at, beside them; parameters' names have no blank

T = TypeVar("T")


@dataclass(frozen=True)
class StepDiagnostics:
    """What a step may tell besides its gradient: settings, and post-processing of noised sums and public data.

    Attributes:
        shown: For every step's line in the log.
        diagnostics: Of the projection; empty without one.
    """

    shown: dict[str, float] = field(default_factory=dict)
    diagnostics: dict[str, float] = field(default_factory=dict)


@dataclass
class PublicFit:
    """What a run fits on public units, and its age: the subspace of methods that project, or scales.

    The public units that it is fitted on are drawn by a stream of their own, at the step's weights. Neither depends on
    which private units were sampled, so the subspace is a function of public data and of what has been released
    already.

    Attributes:
        config: What to project onto.
        inputs: What steps may not change: where the draws come from.
        public: The same over the public units; None for the kinds that use none.
        subspace: The present one; None before the first step, and always for the kind "identity" and for scales.
        fitted: The step it was fitted at.
    """

    config: SubspaceConfig
    inputs: StepInputs
    public: StepInputs | None
    subspace: Subspace | None = None
    fitted: int = 0

    def __post_init__(self) -> None:
        units = len(self.public.loader.dataset) if self.public else 0
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
        assert self.public is not None  # there are no random scales
        return fit_scales(
            self.inputs.task, self.inputs.model, params, self._batches(self.public, params, step)
        )

    def _fit(self, params: Params, step: int) -> Subspace:
        if self.public is None:
            return random_subspace(params, self.config.rank, self._rng(step))
        batches = self._batches(self.public, params, step)
        return fit_subspace(self.inputs.task, self.inputs.model, params, batches, self.config.rank)

    def _rng(self, step: int) -> np.random.Generator:
        return self.inputs.noise.stream(Purpose.SUBSPACE, step, self.inputs.context).generator()

    def _batches(self, public: StepInputs, params: Params, step: int) -> Iterator[UnitBatch]:
        drawn = self._rng(step).choice(len(public.loader.dataset), self.config.units, replace=False)
        device = next(iter(params.values())).device
        batches = public.loader.micro_batches(sorted(int(i) for i in drawn), step, public.microbatch_size)
        return (batch.to(device) for batch in batches)


class GradientSources:
    """What the method of a run makes its gradients of, and the gradients that it makes.

    A method gets the parts that it says it reads, each once a step; each draws its batch from a stream of its own.

    **Guarantee.** `noised` is a clipped and noised sum, `projected` post-processing of it; `plain` reads public views,
    or public data. So whatever a method computes from them and from `state` is post-processing.

    `facts` are what the parts take for public, `conditions` what a guarantee takes as given because of them.

    Attributes:
        state: Tensors that the method keeps from step to step, by name: saved with every checkpoint.
    """

    def __init__(
        self,
        inputs: StepInputs,
        private: StepInputs | None,
        open_data: StepInputs | None,
        projection: PublicFit | None,
        facts: tuple[str, ...] = (),
        conditions: tuple[str, ...] = (),
    ) -> None:
        self.inputs, self.private, self.open_data, self.projection = inputs, private, open_data, projection
        self.facts, self.conditions = facts, conditions
        self.state: Params = {}
        self._taken: set[str] = set()
        self.resume_at(0)

    @property
    def bound(self) -> BoundPlan:
        """The plan."""
        return self.inputs.bound

    @property
    def waited(self) -> float:
        """Seconds that steps have waited for their units."""
        public = self.projection.public if self.projection else None
        return sum(one.loader.waited for one in (self.private, self.open_data, public) if one)

    def resume_at(
        self, step: int, subspace: Subspace | None = None, fitted: int = 0, state: Params | None = None
    ) -> None:
        """Go on with step `step`: with the subspace fitted at step `fitted`, and what the method kept."""
        if self.projection:
            self.projection.subspace, self.projection.fitted = subspace, fitted
        self.state = state or {}
        self._batches: Iterator[NDArray[np.int64]] = (
            plain_batches(self.open_data, step) if self.open_data else iter(())
        )

    def gradient(self, params: Params, step: int, chain: bytes = b"") -> tuple[Params, StepDiagnostics]:
        """The gradient of step `step` at `params`, and what may be shown of it.

        Returns:
            The gradient, the same in every process; and what the first process found.
        """
        self._params, self._step, self._chain = params, step, chain
        self._found = StepDiagnostics()
        self._taken.clear()
        total = self.bound.plan.kind.update(self)
        return self.inputs.ranks.from_first(total), self._found

    def noised(self, transform: PreClipping | None = None) -> Params:
        """The noised mean gradient of a Poisson sample of the run's units (`private_gradient`).

        Args:
            transform: Of each unit's gradient before it is clipped. **Guarantee**: it may be made of other parts and of
                `state` alone, and maps each unit by itself.
        """
        inputs = replace(self._once("noised gradient", self.private), transform=transform)
        with only_gradients(inputs.model):
            gradient = private_gradient(inputs, self._params, self._step, self._chain)
        self._found.shown["noisy_gradient_norm"] = global_norm(gradient)
        return gradient

    def coefficients(self) -> PreClipping | None:
        """The transform to coefficients in the subspace of public units' gradients; None for no subspace."""
        projection = self._once("projection", self.projection)
        subspace = projection.at(self._params, self._step)  # in every process: all of them clip
        self._found.diagnostics.update(projection.diagnostics(self._step))
        return Coefficients(subspace) if subspace else None

    def scales(self) -> PreClipping | None:
        """The transform by scales of public units' gradients, which are kept in `state`; None for no scales."""
        projection = self._once("projection", self.projection)
        if projection.config.kind == "identity":
            return None
        kept = self.state.pop(FITTED, None)
        if kept is None or self._step - int(kept) >= projection.config.refresh:
            self.state, kept = projection.fit_scales(self._params, self._step), torch.tensor(self._step)
        factors = dict(self.state)
        self.state[FITTED] = kept
        return Scales(factors)

    def projected(self, gradient: Params) -> Params:
        """A noised gradient on the subspace of public units' gradients."""
        projection = self._once("projection", self.projection)
        if not self.inputs.ranks.first:  # which gives the others its update
            return gradient
        projected, found = projection.apply(gradient, self._params, self._step)
        self._found.diagnostics.update(found)
        return projected

    def plain(self) -> Params:
        """The mean gradient of a shuffled batch of public views, or of public data."""
        inputs = self._once("plain gradient", self.open_data)
        gradient, loss = plain_gradient(inputs, self._params, next(self._batches), self._step)
        if self.private:
            self._found.shown.update(public_loss=loss, public_gradient_norm=global_norm(gradient))
        else:
            self._found.shown["loss"] = loss
        return gradient

    def with_public(self, gradient: Params) -> Params:
        """A noised gradient with the plan's `public_weight` of `plain` added."""
        public, weight = self.plain(), self.bound.plan.public_weight
        return {name: value + weight * public[name] for name, value in gradient.items()}

    def _once(self, name: str, part: T | None) -> T:
        """A part that the method reads, the first time that a step takes it."""
        if part is None or name in self._taken:
            why = "does not say that it reads" if part is None else "takes twice in a step"
            raise ValueError(f"{self.bound.plan.method} {why}: the {name}")
        self._taken.add(name)
        return part


@contextlib.contextmanager
def open_parts(inputs: StepInputs, public: UnitDataset | None) -> Iterator[GradientSources]:
    """The parts that the plan's method reads, for as long as the block lasts.

    Args:
        inputs: What steps may not change; `loader` gives the units of the run.
        public: Public units, for the methods that are fitted on some; None for the others.

    Raises:
        DposeError: the data have no canonical views, which public views are made from, or there are too few public
            units.
    """
    plan, kind, task, data = inputs.bound.plan, inputs.bound.plan.kind, inputs.task, inputs.loader.dataset
    with contextlib.ExitStack() as open_loaders:

        def copied(units: UnitDataset) -> UnitDataset:
            return (
                Copies(units, plan.augmentation_multiplicity) if plan.augmentation_multiplicity > 1 else units
            )

        def over(of: Task, units: UnitDataset, label: bytes) -> StepInputs:
            loader = Loader(of, units, inputs.noise, inputs.loader.threads, label)
            open_loaders.enter_context(contextlib.closing(loader))
            return replace(inputs, task=of, loader=loader)

        views = PublicViews(canonical_units(data), plan.public_view) if kind.public_views else None
        private = plain = projection = None
        if kind.private:
            residual = views is not None and plan.private_loss == "residual"
            own: UnitDataset = ResidualViews(views) if views and residual else data
            private = over(Residual(task) if residual else task, copied(own), b"private")
        if not kind.private or views:
            plain = over(task, copied(views or data), b"plain")
        if kind.fitted:
            projection = PublicFit(plan.subspace, inputs, over(task, public, b"public") if public else None)
        facts = (f"{len(public):,} {kind.fitted_on}",) if public else ()
        conditions = () if views is None else (_shown(views, inputs.example),)
        yield GradientSources(inputs, private, plain, projection, facts, conditions)


def canonical_units(data: UnitDataset) -> CanonicalUnits:
    """`data`, which must be able to tell its content from its augmentation.

    Raises:
        DposeError: it is not.
    """
    if not isinstance(data, CanonicalUnits):
        raise DposeError(
            "canonical-views-missing",
            "these data have no canonical views, which public views are made from",
            type(data).__name__,
            "give units with `canonical` and `augmented` (dpose.units.CanonicalUnits)",
        )
    return data


def _shown(views: PublicViews, example: int) -> str:
    shape = views.canonical(example)[0].image.shape
    return f"{VIEWS_SHOWN}{views.view.describe(shape[-3:-1])}"
