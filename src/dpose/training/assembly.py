"""From a plan to the parts that its method is made of: which data, which loss, which stream goes where."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from dpose.errors import DposeError
from dpose.privacy.noise import NoiseSource
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.gradient import Updates
from dpose.training.loader import Loader
from dpose.training.multiplicity import Copies
from dpose.training.plan import BoundPlan
from dpose.training.projection import Projection
from dpose.training.public_view import PublicViews, Residual, ResidualViews
from dpose.training.step import Engine
from dpose.training.subspace import Subspace
from dpose.units import CanonicalUnits, Task, UnitDataset


@dataclass(frozen=True)
class Assembly:
    """A method's parts, ready to run.

    Attributes:
        task: The task whose metric scores the model.
        bound: The plan.
        noise: Where randomness comes from.
        private: The engine that clips and noises; None for a method without.
        plain: The engine of gradients that need no noise; None for a method without.
        context: A digest of plan and data; part of every stream's derivation.
        public: The engine over public units, for the projection; None where none are used.
        views_at_once: The micro-batch.
        ranks: Which process of the run this is.
        facts: What the parts take for public, for the statement.
        conditions: What a guarantee takes as given because of them.
    """

    task: Task
    bound: BoundPlan
    noise: NoiseSource
    context: bytes
    private: Engine | None
    plain: Engine | None
    public: Engine | None
    views_at_once: int
    ranks: ProcessGroup = ALONE
    facts: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    def updates(self, first: int, subspace: Subspace | None = None, fitted: int = 0) -> Updates:
        """The run's gradients from step `first` on.

        Args:
            first: The step to begin with.
            subspace: Of a run that goes on, the one it had.
            fitted: The step that was fitted at.
        """
        plan = self.bound.plan
        projection = (
            Projection(plan.subspace, self.noise, self.context, self.public, subspace, fitted)
            if plan.kind.projects
            else None
        )
        return Updates(self.private, self.plain, plan.public_weight, projection, first, self.ranks)


@contextlib.contextmanager
def assembled(
    task: Task,
    model: torch.nn.Module,
    data: UnitDataset,
    public: UnitDataset | None,
    bound: BoundPlan,
    noise: NoiseSource,
    context: bytes,
    *,
    views_at_once: int,
    threads: int,
    ranks: ProcessGroup = ALONE,
) -> Iterator[Assembly]:
    """The parts of `bound.plan.method`, for as long as the block lasts.

    Args:
        task: The task.
        model: On its device, in training mode.
        data: The units of the run.
        public: Public units, for the methods that project.
        bound: The plan.
        noise: Where randomness comes from.
        context: A digest of plan and data; part of every stream's derivation.
        views_at_once: The micro-batch in views.
        threads: Threads that decode, for each part.
        ranks: Which process of the run this is.
    """
    plan, kind = bound.plan, bound.plan.kind
    with contextlib.ExitStack() as open_loaders:

        def copied(units: UnitDataset) -> UnitDataset:
            return Copies(units, plan.copies) if plan.copies > 1 else units

        def engine(of: Task, units: UnitDataset, label: bytes) -> Engine:
            loader = open_loaders.enter_context(contextlib.closing(Loader(of, units, noise, threads, label)))
            return Engine(of, model, loader, bound, noise, context, views_at_once, ranks)

        views = PublicViews(canonical_units(data), plan.public_view) if kind.public_views else None
        private = plain = None
        if kind.private:
            residual = views is not None and plan.private_loss == "residual"
            own: UnitDataset = ResidualViews(views) if views and residual else data
            private = engine(Residual(task) if residual else task, copied(own), b"private")
        if not kind.private or views:
            plain = engine(task, copied(views or data), b"plain")
        projected = engine(task, public, b"public") if public else None
        facts = (f"{len(public):,} units that the subspace is fitted on",) if public else ()
        conditions = () if views is None else (_shown(views),)
        yield Assembly(
            task, bound, noise, context, private, plain, projected, views_at_once, ranks, facts, conditions
        )


def canonical_units(data: UnitDataset) -> CanonicalUnits:
    """`data`, which must be able to tell its content from its augmentation.

    Raises:
        DposeError: it is not.
    """
    if not isinstance(data, CanonicalUnits):
        raise DposeError(
            "these data have no canonical views, which public views are made from",
            type(data).__name__,
            "give units with `canonical` and `augmented` (dpose.units.CanonicalUnits)",
        )
    return data


def _shown(views: PublicViews) -> str:
    shape = views.canonical(0)[0].image.shape
    return f"the public view and the labels of every unit: {views.view.describe(shape[-3:-1])}"
