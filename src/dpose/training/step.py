"""One training step's gradient: the noised one of a private run, the plain one of a run without privacy.

    sample = poisson_batch(n, q)                          # `dpose.privacy.sampling`
    sums = clipped_sum(loss, params, units, C)            # `dpose.training.gradients`
    noisy = add_noise(sums, event)                        # here

`private_gradient` is the whole mechanism, in the order that a reader can point at: a Poisson sample, clipped sums,
Gaussian noise, division by a constant. Whatever is done with its result is post-processing. Its parts are public, for
training loops of one's own (`examples/own_training_loop.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.errors import DposeError
from dpose.privacy.events import ROUNDED, SampledGaussian
from dpose.privacy.gaussian_noise import DrawnAhead, add_gaussian
from dpose.privacy.noise import AesNoise, Key, NoiseSource, Purpose, Stream
from dpose.privacy.sampling import poisson_batch, shuffled_batches
from dpose.privacy.shares import is_local
from dpose.training.arithmetic import moved
from dpose.training.clip import Grid, PreClipping
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.gradients import Params, Way, clipped_sum, mean_gradient, unit_loss
from dpose.training.graph import Record, ReplayedSums
from dpose.training.guards import only_gradients
from dpose.training.loader import Copies, Loader
from dpose.training.plan import BoundPlan
from dpose.training.preclipping import Coefficients, PublicFit, Scales
from dpose.training.public_view import VIEWS_SHOWN, PublicViews, Residual, ResidualViews
from dpose.training.subspace import Subspace
from dpose.units import CanonicalUnits, Task, UnitBatch, UnitDataset, is_mixed

FITTED = "the step"  # that scales were fitted at, beside them; parameters' names have no blank
_LOSS = "the loss"  # beside parameters' names, which have no blank

T = TypeVar("T")


@dataclass(frozen=True)
class StepInputs:
    """What a step needs and may not change.

    Attributes:
        task: Gives the loss.
        model: On its device, in training mode; the step reads it and writes nothing into it.
        loader: Gives the units.
        bound: The plan: sampling rate, clipping norm, noise.
        noise: Where sampling and noise come from.
        context: A digest of plan and data; part of every stream's derivation, so that the same key never gives the
            same draws to another plan or another dataset.
        microbatch_size: The micro-batch.
        ranks: Which process of the run this is.
        transform: Of each unit's gradient before it is clipped; None if it is clipped as it is. A function of public
            data and of what was released before.
        numbers: Of each unit, the number that says which process computes it (`dpose.privacy.merged.first_entries`);
            None for its own.
        replayed: What micro-batches are replayed by, on a GPU; None if each is computed call by call.
        purpose: Of the stream that noise is drawn from.
    """

    task: Task
    model: torch.nn.Module
    loader: Loader
    bound: BoundPlan
    noise: NoiseSource
    context: bytes
    microbatch_size: int
    ranks: ProcessGroup = ALONE
    transform: PreClipping | None = None
    numbers: Sequence[int] | None = None
    replayed: ReplayedSums | None = None
    purpose: Purpose = Purpose.NOISE

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return next(self.model.parameters()).device

    @property
    def example(self) -> int:
        """The index of a unit that this process holds; used for shapes alone."""
        numbers = range(len(self.loader.dataset)) if self.numbers is None else self.numbers
        return next((unit for unit, number in enumerate(numbers) if is_local(number, self.ranks)), 0)


@dataclass(frozen=True)
class StepDiagnostics:
    """What a step may tell besides its gradient: settings, and post-processing of noised sums and public data.

    Attributes:
        shown: For every step's line in the log.
        diagnostics: Of the projection; empty without one.
    """

    shown: dict[str, float] = field(default_factory=dict)
    diagnostics: dict[str, float] = field(default_factory=dict)


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
        own = [one.loader for one in (self.private, self.open_data) if one]
        public = self.projection.loader if self.projection else None
        return sum(loader.waited for loader in (*own, public) if loader)

    def resume_at(
        self, step: int, subspace: Subspace | None = None, fitted: int = 0, state: Params | None = None
    ) -> None:
        """Go on with step `step`: with the subspace fitted at step `fitted`, and what the method kept."""
        if self.projection:
            self.projection.subspace, self.projection.fitted = subspace, fitted
        self.state = state or {}
        self._batches: Iterator[NDArray[np.int64]] = plain_batches(self.open_data, step) if self.open_data else iter(())

    def gradient(self, params: Params, step: int, chain: bytes = b"") -> tuple[Params, StepDiagnostics]:
        """The gradient of step `step` at `params`, and what may be shown of it.

        Returns:
            The gradient, the same in every process; and what the first process found.
        """
        self._params, self._step, self._chain = params, step, chain
        self._found = StepDiagnostics()
        self._taken.clear()
        update = self.bound.plan.kind.update
        total = update(self) if update else self._composed()
        return self.inputs.ranks.from_first(total), self._found

    def _composed(self) -> Params:
        """The gradient of a method that has no `update` of its own: what it says that it reads, put together."""
        kind = self.bound.plan.kind
        if not kind.private:
            return self.plain()
        transforms = {"": lambda: None, "subspace": self.coefficients, "scales": self.scales}
        gradient = self.noised(transforms[kind.pre_clipping]())
        if kind.projects:
            gradient = self.projected(gradient)
        return self.with_public(gradient) if kind.public_views else gradient

    def noised(self, transform: PreClipping | None = None, task: Task | None = None) -> Params:
        """The noised mean gradient of a Poisson sample of the run's units (`private_gradient`).

        Args:
            transform: Of each unit's gradient before it is clipped. **Guarantee**: it may be made of other parts and of
                `state` alone, and maps each unit by itself.
            task: Whose loss it is the gradient of, in place of the run's own.
        """
        inputs = replace(self._once("noised gradient", self.private), transform=transform)
        if task is not None:  # what is replayed is the run's own loss
            inputs = replace(inputs, task=task, replayed=None)
        with only_gradients(inputs.model):
            gradient = private_gradient(inputs, self._params, self._step, self._chain)
        self._found.shown["noisy_gradient_norm"] = global_norm(gradient)
        return gradient

    def coefficients(self) -> PreClipping | None:
        """The transform to coefficients in the subspace of public units' gradients; None for no subspace."""
        projection = self._once("projection", self.projection)
        subspace = projection.at(self._params, self._step)  # in every process: all of them clip
        self._found.diagnostics.update(projection.diagnostics(self._step))
        return Coefficients(subspace.filled(projection.config.rank)) if subspace else None

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


def private_gradient(
    inputs: StepInputs, params: Params, step: int, chain: bytes = b"", on_micro_batch: Callable[[], None] | None = None
) -> Params:
    """The noised mean gradient of step `step`.

    **Guarantee.** Neighbours: as in the plan (zero-out, add-or-remove or replacement of one unit). Sensitivity of the
    sum: `bound.event.sensitivity` (twice that for replacement, which the accountant doubles itself). Sampling: Poisson
    with rate `bound.sampling_rate`, from its own stream. Noise: Gaussian, `bound.noise_stddev` on every coordinate of
    the *sum*, once; the sum is one of integers (`dpose.training.clip.Grid`), and so is the noise, which is rounded to
    the same grid, exactly; with `noise="float"` it is drawn and added in float64. Post-processing: the division by the
    constant q*n, behind it the rounding to the weights' type and, with `inputs.transform`, the way back from
    transformed gradients, which are what is clipped, summed and noised then. An empty sample is noise only. Without a
    transform this is line for line seed 000, Algorithm 1, with the noise on the sum and a Poisson sample in place of
    its batch of size B.

    `chain` is a digest of all that was released before and part of the derivation of sample and noise: a step that is
    taken again after another past gets draws of its own.
    """
    bound, ranks = inputs.bound, inputs.ranks
    context = inputs.context + chain
    # over the units there are; rate and divisor stay the plan's constants even where n is nominal
    sample = poisson_batch(
        len(inputs.loader.dataset), bound.sampling_rate, inputs.noise.stream(Purpose.PRIVATE_SAMPLER, step, context)
    )
    if bound.event is None:
        raise ValueError(f"{bound.plan.method} adds no noise")
    grid = bound.plan.clip.grid
    like = inputs.transform.like(params) if inputs.transform else params
    noise: Stream | DrawnAhead | None = None
    if ranks.first:
        noise = inputs.noise.stream(inputs.purpose, step, context)
        # on a GPU a thread draws this step's noise while its sums are computed, and no other step's
        noise = noise_ahead(like, bound.event, noise) if inputs.replayed else noise
    # padded: a unit is computed in one and the same shape, whatever else was sampled
    batches = inputs.loader.micro_batches(
        _share(sample, ranks, inputs.numbers), step, inputs.microbatch_size, padded=True
    )
    totals = _totals(inputs, params, batches, on_micro_batch)
    if ranks.count > 1:
        totals = ranks.sum_to_first(totals)
        if not ranks.first:  # nothing: the update comes from the first process, with its noise
            return {name: torch.zeros_like(p) for name, p in params.items()}
    # on the processor, where noise is drawn
    sums = {name: grid.values(total) for name, total in moved(totals, torch.device("cpu")).items()}
    noisy = add_noise(sums, bound.event, noise)
    mean = {name: (value / bound.divisor).to(like[name].dtype) for name, value in noisy.items()}
    mean = moved(mean, next(iter(params.values())).device)
    return inputs.transform.back(mean) if inputs.transform else mean


def _totals(
    inputs: StepInputs, params: Params, batches: Iterable[UnitBatch], on_micro_batch: Callable[[], None] | None
) -> Params:
    """The clipped sum over all micro-batches, int64 in steps of the grid: private until it is noised."""
    replayed, transform = inputs.replayed, inputs.transform
    if replayed and not replayed.takes(transform):
        replayed = None
    device = next(iter(params.values())).device
    totals: Params = {}
    if replayed:
        replayed.begin(params, transform)
    else:
        like = transform.like(params) if transform else params
        totals = {name: torch.zeros_like(p, dtype=torch.int64) for name, p in like.items()}
    for batch in batches:
        if replayed:
            replayed.add(batch)
        else:
            part = clipped_part(inputs, params, batch.to(device))
            for name, value in part.items():
                totals[name] += inputs.bound.plan.clip.grid.steps(value).to(device)
        if on_micro_batch:
            on_micro_batch()
    return replayed.totals() if replayed else totals


def replayed_sums(inputs: StepInputs, record: Record) -> ReplayedSums:
    """What replays micro-batches of these inputs, whatever their transform is."""

    def compute(params: Params, batch: UnitBatch, transform: PreClipping | None, *, only_fast: bool) -> Params:
        way: Way = "only fast" if only_fast else "fast"
        return clipped_part(replace(inputs, transform=transform), params, batch, way)

    return ReplayedSums(compute, inputs.model, record, inputs.bound.plan.clip.grid.steps)


def clipped_part(inputs: StepInputs, params: Params, batch: UnitBatch, way: Way = "fast") -> Params:
    """The clipped sum over a micro-batch, as the plan clips: private until it is noised."""
    return clipped_sum(
        unit_loss(inputs.task, inputs.model),
        params,
        batch.parts,
        inputs.bound.plan.clip,
        microbatch_size=None,  # the loader fills it up
        way=way,
        transform=inputs.transform,
        mixed=is_mixed(inputs.task),
    )


def add_noise(sums: Params, event: SampledGaussian, stream: Stream | DrawnAhead | None = None) -> Params:
    """The noised sum of one step: Gaussian noise of the event's scale on every coordinate of a clipped sum.

    **Guarantee.** Unit and neighbours: those of `clipped_sum`. Sensitivity: `event.sensitivity`, the bound of one
    unit's contribution; under replacement the sum moves by twice that, which the accountant doubles itself. Noise:
    Gaussian of standard deviation `event.sigma * event.sensitivity` on each coordinate, once. With `event.rounded`, as
    `calibrate` has it, sums are whole multiples of the step of `Clip`'s grid and the noise is rounded to it, exactly
    (docs/proofs/exact-noise.md); sums off the grid are refused. That sums are of the event's own clip, and of no larger
    one, is the caller's to see to. Public: the result. Over all steps, on sums of Poisson
    samples at rate `event.q`, it costs the epsilon that `calibrate` returned with the event. Whatever is computed from
    the results alone is post-processing.

    Args:
        sums: The clipped sum by parameter, float64.
        event: The event that is accounted for.
        stream: A stream that nothing else draws from; None for one under a fresh key of the operating system.

    Raises:
        ValueError: a sum is off the grid: it was not made by `clipped_sum` with this clip, or a larger one.
        DposeError: the event is none, such as the pair that `calibrate` returns.
    """
    if not isinstance(event, SampledGaussian):
        what = f"the event is a {type(event).__name__}, not a SampledGaussian"
        raise DposeError("event-of-no-kind", what, fix="give the first of the two values that calibrate returns")
    stream = stream or AesNoise(Key.fresh()).stream(Purpose.NOISE)
    stddev, grid_step = _law(event)
    return add_gaussian(sums, stddev, stream, grid_step)


def noise_ahead(like: Params, event: SampledGaussian, stream: Stream) -> DrawnAhead:
    """The noise that `add_noise` would draw from `stream` for sums of these shapes, drawn in a thread from now on."""
    stddev, grid_step = _law(event)
    return DrawnAhead(like, stddev, stream, grid_step)


def _law(event: SampledGaussian) -> tuple[float, float | None]:
    """The standard deviation of an event's noise, and the step of the grid that it is rounded to."""
    grid_step = Grid.of(event.sensitivity).step if event.type == ROUNDED else None
    return event.sigma * event.sensitivity, grid_step


def plain_batches(inputs: StepInputs, first: int = 0) -> Iterator[NDArray[np.int64]]:
    """Shuffled batches for ever, each epoch in a new order; for public data.

    The same key gives step `first` the same batch as a run from the start.
    """
    size = inputs.bound.plan.expected_batch_size
    epoch, skipped = divmod(first, math.ceil(inputs.bound.n / size))
    while True:
        stream = inputs.noise.stream(Purpose.PUBLIC_SAMPLER, epoch, inputs.context)
        yield from itertools.islice(shuffled_batches(inputs.bound.n, size, stream), skipped, None)
        epoch, skipped = epoch + 1, 0


def plain_gradient(inputs: StepInputs, params: Params, sample: NDArray[np.int64], step: int) -> tuple[Params, float]:
    """The mean gradient over `sample` and the mean loss, without any bound or noise."""
    device = next(iter(params.values())).device
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    loss = torch.zeros((), device=device)
    # where no statistics of a batch are kept, a GPU has one shape to plan for
    padded = device.type == "cuda" and inputs.bound.plan.kind.private
    own = _share(sample, inputs.ranks, inputs.numbers)
    for batch in inputs.loader.micro_batches(own, step, inputs.microbatch_size, padded=padded):
        there = batch.to(device)
        share = there.present.sum() / len(sample)
        part, part_loss = mean_gradient(inputs.task, inputs.model, params, there)
        for name, value in part.items():
            sums[name].add_(value * share)
        loss += share * part_loss
    total = inputs.ranks.sum_to_first({**sums, _LOSS: loss})
    return total, float(total.pop(_LOSS))


def _share(sample: NDArray[np.int64], ranks: ProcessGroup, numbers: Sequence[int] | None = None) -> list[int]:
    """Those of a sample that this process computes: of the units that are its own for the whole run, by their numbers.

    A process needs the pictures of its own units only, whatever is drawn. Sampling stays Poisson: the sample is drawn
    whole, in every process alike, each unit with probability q by itself, before anybody asks whose a unit is; which
    process computes a unit is a function of the unit's number, and of no draw. The processes' units are disjoint and
    together all of them, so the sum over processes has each sampled unit's clipped gradient once: the same sum as in
    one process, with the same sensitivity, and noise is added to it once.
    """
    if ranks.count == 1:
        return [int(i) for i in sample]
    return [int(i) for i in sample if is_local(i if numbers is None else numbers[i], ranks)]


def global_norm(gradient: dict[str, Tensor]) -> float:
    """The L2 norm over all tensors together."""
    return float(torch.stack([g.double().square().sum() for g in gradient.values()]).sum().sqrt())


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
            return Copies(units, plan.augmentation_multiplicity) if plan.augmentation_multiplicity > 1 else units

        def over(of: Task, units: UnitDataset, label: bytes, *, kept: bool = False) -> StepInputs:
            pictures = inputs.loader.kept if kept else None
            loader = Loader(of, units, inputs.noise, inputs.loader.threads, label, pictures)
            open_loaders.enter_context(contextlib.closing(loader))
            # what is replayed is the loss that was recorded
            return replace(inputs, task=of, loader=loader, replayed=inputs.replayed if of is noised else None)

        noised = private_task(inputs)
        views = PublicViews(canonical_units(data), plan.public_view) if kind.public_views else None
        private = plain = projection = None
        if kind.private:
            own: UnitDataset = ResidualViews(views) if views and noised is not task else data
            private = over(noised, copied(own), b"private", kept=own is data)
            if kind.solves:
                private = replace(private, purpose=Purpose.STATISTIC)
        if not kind.private or views:
            plain = over(task, copied(views or data), b"plain", kept=views is None)
        if kind.projects or kind.pre_clipping:
            fitted_on = over(task, public, b"public").loader if public else None
            drawn = (inputs.noise, inputs.context, inputs.microbatch_size)
            projection = PublicFit(plan.subspace, task, inputs.model, *drawn, fitted_on)
        facts = (f"{len(public):,} {kind.fitted_on}",) if public else ()
        conditions = () if views is None else (_shown(views, inputs.example),)
        yield GradientSources(inputs, private, plain, projection, facts, conditions)


def private_task(inputs: StepInputs) -> Task:
    """The task whose loss private units have: the run's, or its residual loss."""
    plan = inputs.bound.plan
    residual = plan.kind.private and plan.kind.public_views and plan.private_loss == "residual"
    return Residual(inputs.task) if residual else inputs.task


def canonical_units(data: UnitDataset) -> CanonicalUnits:
    """`data`, which must be able to tell its content from its augmentation."""
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
