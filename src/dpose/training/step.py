"""One training step's gradient: the noised one of a private run, the plain one of a run without privacy.

    sample = poisson_batch(n, q)                          # `dpose.privacy.sampling`
    sums = clipped_sum(loss, params, units, C)            # `dpose.training.gradients`
    noisy = add_noise(sums, event)                        # here

`private_gradient` is the whole mechanism, in the order that a reader can point at: a Poisson sample, clipped sums,
Gaussian noise, division by a constant. Whatever is done with its result is post-processing. Its parts are public, for
training loops of one's own (`examples/own_training_loop.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.privacy.events import ROUNDED, SampledGaussian
from dpose.privacy.gaussian_noise import add_gaussian
from dpose.privacy.noise import AesNoise, Key, NoiseSource, Purpose, Stream
from dpose.privacy.sampling import poisson_batch, shuffled_batches
from dpose.privacy.shares import is_local
from dpose.training.clip import Grid, PreClipping
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.gradients import Params, clipped_sum, mean_gradient, unit_loss
from dpose.training.loader import Loader
from dpose.training.plan import BoundPlan
from dpose.units import Task, UnitBatch, is_mixed

_LOSS = "the loss"  # beside parameters' names, which have no blank


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

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return next(self.model.parameters()).device

    @property
    def example(self) -> int:
        """The index of a unit that this process holds; used for shapes alone."""
        numbers = range(len(self.loader.dataset)) if self.numbers is None else self.numbers
        return next((unit for unit, number in enumerate(numbers) if is_local(number, self.ranks)), 0)


def private_gradient(
    inputs: StepInputs,
    params: Params,
    step: int,
    chain: bytes = b"",
    on_micro_batch: Callable[[], None] | None = None,
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
        len(inputs.loader.dataset),
        bound.sampling_rate,
        inputs.noise.stream(Purpose.PRIVATE_SAMPLER, step, context),
    )
    device = next(iter(params.values())).device
    grid = bound.plan.clip.grid
    like = inputs.transform.like(params) if inputs.transform else params
    totals = {name: torch.zeros_like(p, dtype=torch.int64) for name, p in like.items()}
    # padded: a unit is computed in one and the same shape, whatever else was sampled
    for batch in inputs.loader.micro_batches(
        _share(sample, ranks, inputs.numbers), step, inputs.microbatch_size, padded=True
    ):
        part = clipped_part(inputs, params, batch.to(device))
        for name, value in part.items():
            totals[name] += grid.steps(value).to(device)
        if on_micro_batch:
            on_micro_batch()
    if ranks.count > 1:
        totals = ranks.sum_to_first(totals)
        if not ranks.first:  # nothing: the update comes from the first process, with its noise
            return {name: torch.zeros_like(p) for name, p in params.items()}
    sums = {name: grid.values(total) for name, total in totals.items()}
    if bound.event is None:
        raise ValueError(f"{bound.plan.method} adds no noise")
    noisy = add_noise(sums, bound.event, inputs.noise.stream(Purpose.NOISE, step, context))
    mean = {name: (value / bound.divisor).to(like[name]) for name, value in noisy.items()}
    return inputs.transform.back(mean) if inputs.transform else mean


def clipped_part(inputs: StepInputs, params: Params, batch: UnitBatch) -> Params:
    """The clipped sum over a micro-batch, as the plan clips: private until it is noised."""
    return clipped_sum(
        unit_loss(inputs.task, inputs.model),
        params,
        batch.parts,
        inputs.bound.plan.clip,
        microbatch_size=None,  # the loader fills it up
        transform=inputs.transform,
        mixed=is_mixed(inputs.task),
    )


def add_noise(sums: Params, event: SampledGaussian, stream: Stream | None = None) -> Params:
    """The noised sum of one step: Gaussian noise of the event's scale on every coordinate of a clipped sum.

    **Guarantee.** Unit and neighbours: those of `clipped_sum`. Sensitivity: `event.sensitivity`, the bound of one
    unit's contribution; under replacement the sum moves by twice that, which the accountant doubles itself. Noise:
    Gaussian of standard deviation `event.sigma * event.sensitivity` on each coordinate, once. With `event.rounded`, as
    `calibrate` has it, sums are whole multiples of the step of `Clip`'s grid and the noise is rounded to it, exactly
    (docs/proofs/exact-noise.md); sums off the grid are refused. Public: the result. Over all steps, on sums of Poisson
    samples at rate `event.q`, it costs the epsilon that `calibrate` returned with the event. Whatever is computed from
    the results alone is post-processing.

    Args:
        sums: The clipped sum by parameter, float64.
        event: The event that is accounted for.
        stream: A stream that nothing else draws from; None for one under a fresh key of the operating system.

    Raises:
        ValueError: a sum is off the grid: it was not made by `clipped_sum` with this clip.
    """
    stream = stream or AesNoise(Key.fresh()).stream(Purpose.NOISE)
    grid_step = Grid.of(event.sensitivity).step if event.type == ROUNDED else None
    return add_gaussian(sums, event.sigma * event.sensitivity, stream, grid_step)


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


def plain_gradient(
    inputs: StepInputs, params: Params, sample: NDArray[np.int64], step: int
) -> tuple[Params, float]:
    """The mean gradient over `sample` and the mean loss, without any bound or noise."""
    device = next(iter(params.values())).device
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    loss = torch.zeros((), device=device)
    for batch in inputs.loader.micro_batches(
        _share(sample, inputs.ranks, inputs.numbers), step, inputs.microbatch_size
    ):
        share = len(batch) / len(sample)
        part, part_loss = mean_gradient(inputs.task, inputs.model, params, batch.to(device))
        for name, value in part.items():
            sums[name].add_(value, alpha=share)
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
