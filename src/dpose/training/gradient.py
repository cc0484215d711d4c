"""The gradient that a step hands to the optimizer: the parts of a run, and what its method makes of them.

    inputs = RunInputs(task, model, data, public, bound)
    with open_parts(inputs, noise, context, microbatch_size) as parts:
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
from dpose.privacy.merged import first_entries
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.shares import is_local
from dpose.training.clip import PreClipping
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.gradients import Params
from dpose.training.guards import only_gradients
from dpose.training.loader import Copies, Loader
from dpose.training.methods import SubspaceConfig
from dpose.training.plan import BoundPlan
from dpose.training.preclipping import Coefficients, Scales, fit_scales
from dpose.training.public_view import VIEWS_SHOWN, PublicViews, Residual, ResidualViews
from dpose.training.step import Engine, global_norm, plain_batches, plain_gradient, private_gradient
from dpose.training.subspace import Subspace, fit_subspace, project_onto, random_subspace
from dpose.units import CanonicalUnits, Task, UnitBatch, UnitDataset

FITTED = "the step"  # that scales were fitted at, beside them; parameters' names have no blank

T = TypeVar("T")


@dataclass(frozen=True)
class RunInputs:
    """What a run computes its gradients of.

    Attributes:
        task: Gives the loss.
        model: On its device, in training mode.
        data: The units of the run.
        public: Public units, for the methods that project; None where none are used.
        bound: The plan.
        threads: Threads that decode, for each part.
        ranks: Which process of the run this is.
    """

    task: Task
    model: torch.nn.Module
    data: UnitDataset
    public: UnitDataset | None
    bound: BoundPlan
    threads: int = 2
    ranks: ProcessGroup = ALONE

    @property
    def device(self) -> torch.device:
        """The model's."""
        return next(self.model.parameters()).device

    @property
    def example(self) -> int:
        """A unit for shapes alone: the first one that is this process's, for it need not hold another."""
        numbers = enumerate(first_entries(self.data))
        return next((unit for unit, number in numbers if is_local(number, self.ranks)), 0)


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
class Projection:
    """What a run fits on public units, and its age: the subspace of methods that project, or scales.

    The public units that it is fitted on are drawn by a stream of their own, at the step's weights. Neither depends on
    which private units were sampled, so the subspace is a function of public data and of what has been released
    already.

    Attributes:
        config: What to project onto.
        noise: Where the draws come from.
        context: A digest of plan and data; part of every stream's derivation.
        engine: Over the public units; None for the kinds that use none.
        subspace: The present one; None before the first step, and always for the kind "identity" and for scales.
        fitted: The step it was fitted at.
    """

    config: SubspaceConfig
    noise: NoiseSource
    context: bytes
    engine: Engine | None
    subspace: Subspace | None = None
    fitted: int = 0

    def __post_init__(self) -> None:
        units = len(self.engine.loader.dataset) if self.engine else 0
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
        """What may be told of the subspace at step `step`."""
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
        engine = self.engine
        assert engine is not None  # there are no random scales
        rng = self.noise.stream(Purpose.SUBSPACE, step, self.context).generator()
        return fit_scales(engine.task, engine.model, params, self._public(engine, params, step, rng))

    def _fit(self, params: Params, step: int) -> Subspace:
        engine, rank = self.engine, self.config.rank
        rng = self.noise.stream(Purpose.SUBSPACE, step, self.context).generator()
        if engine is None:
            return random_subspace(params, rank, rng)
        return fit_subspace(engine.task, engine.model, params, self._public(engine, params, step, rng), rank)

    def _public(
        self, engine: Engine, params: Params, step: int, rng: np.random.Generator
    ) -> Iterator[UnitBatch]:
        drawn = rng.choice(len(engine.loader.dataset), self.config.units, replace=False)
        device = next(iter(params.values())).device
        batches = engine.loader.micro_batches(sorted(int(i) for i in drawn), step, engine.microbatch_size)
        return (batch.to(device) for batch in batches)


class GradientSources:
    """What the method of a run makes its gradients of, and the gradients that it makes.

    A method gets the parts that it says it reads, each once a step; each draws its batch from a stream of its own.

    **Guarantee.** `noised` is a clipped and noised sum, `projected` post-processing of it; `plain` reads public views,
    or data that nobody needs protected. So whatever a method computes from them and from `state` is post-processing.

    Args:
        inputs: What the run computes its gradients of.
        private: Clips and noises; None for a method that does not.
        open_data: The engine of gradients that need no noise; None for a method without.
        projection: What is fitted on public units; None for a method without.
        facts: What the parts take for public, for the statement.
        conditions: What a guarantee takes as given because of them.

    Attributes:
        state: Tensors that the method keeps from step to step, by name: saved with every checkpoint.
    """

    def __init__(
        self,
        inputs: RunInputs,
        private: Engine | None,
        open_data: Engine | None,
        projection: Projection | None,
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
        over = self.projection.engine if self.projection else None
        return sum(engine.loader.waited for engine in (self.private, self.open_data, over) if engine)

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
        """The gradient of step `step` at `params`, and what may be told of it.

        Args:
            params: The weights.
            step: Its number.
            chain: A digest of all that was released before.

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
        engine = replace(self._once("noised gradient", self.private), transform=transform)
        with only_gradients(engine.model):
            gradient = private_gradient(engine, self._params, self._step, self._chain)
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
        """The mean gradient of a shuffled batch of public views, or of data that nobody needs protected."""
        engine = self._once("plain gradient", self.open_data)
        gradient, loss = plain_gradient(engine, self._params, next(self._batches), self._step)
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
def open_parts(
    inputs: RunInputs, noise: NoiseSource, context: bytes, microbatch_size: int
) -> Iterator[GradientSources]:
    """The parts that the plan's method reads, for as long as the block lasts.

    Args:
        inputs: What the run computes its gradients of.
        noise: Where randomness comes from.
        context: A digest of plan and data; part of every stream's derivation.
        microbatch_size: The micro-batch in views.

    Raises:
        DposeError: the data have no canonical views, which public views are made from, or there are too few public
            units.
    """
    plan, kind, task = inputs.bound.plan, inputs.bound.plan.kind, inputs.task
    with contextlib.ExitStack() as open_loaders:

        def copied(units: UnitDataset) -> UnitDataset:
            return (
                Copies(units, plan.augmentation_multiplicity) if plan.augmentation_multiplicity > 1 else units
            )

        def engine(of: Task, units: UnitDataset, label: bytes) -> Engine:
            loader = open_loaders.enter_context(
                contextlib.closing(Loader(of, units, noise, inputs.threads, label))
            )
            settled = (inputs.model, loader, inputs.bound, noise, context, microbatch_size, inputs.ranks)
            return Engine(of, *settled, numbers=first_entries(inputs.data))

        views = PublicViews(canonical_units(inputs.data), plan.public_view) if kind.public_views else None
        private = plain = projection = None
        if kind.private:
            residual = views is not None and plan.private_loss == "residual"
            own: UnitDataset = ResidualViews(views) if views and residual else inputs.data
            private = engine(Residual(task) if residual else task, copied(own), b"private")
        if not kind.private or views:
            plain = engine(task, copied(views or inputs.data), b"plain")
        if kind.fitted:
            over = engine(task, inputs.public, b"public") if inputs.public else None
            projection = Projection(plan.subspace, noise, context, over)
        facts = (f"{len(inputs.public):,} {kind.fitted_on}",) if inputs.public else ()
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
