"""One training step's gradient: the noised one of a private run, the plain one of a run that protects nobody.

`private_gradient` is the whole mechanism, in the order that a reader can point at: a Poisson sample, clipped sums,
Gaussian noise, division by a constant. Whatever is done with its result is post-processing.
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

from dpose.privacy.gaussian_noise import add_gaussian
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.sampling import poisson_batch, shuffled_batches
from dpose.privacy.shares import is_local
from dpose.training.clip import PreClipping
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.gradients import Params, clipped_sum, mean_gradient
from dpose.training.loader import Loader
from dpose.training.plan import BoundPlan
from dpose.units import Task, UnitBatch

_LOSS = "the loss"  # beside parameters' names, which have no blank


@dataclass(frozen=True)
class Engine:
    """What a step needs and may not change.

    Attributes:
        task: Gives the loss.
        model: On its device, in training mode; the step reads it and writes nothing into it.
        loader: Gives the units.
        bound: Sampling rate, clipping norm, noise.
        noise: Where sampling and noise come from.
        context: A digest of plan and data; part of every stream's derivation, so that the same key never gives the
            same draws to another plan or another dataset.
        microbatch_size: The micro-batch.
        ranks: Which process of the run this is.
        transform: Of each unit's gradient before it is clipped; None where it is clipped as it is. A function of public
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


def private_gradient(
    engine: Engine,
    params: Params,
    step: int,
    chain: bytes = b"",
    on_micro_batch: Callable[[], None] | None = None,
) -> Params:
    """The noised mean gradient of step `step`.

    **Guarantee.** Neighbours: as in the plan (zero-out, add-or-remove or replacement of one unit). Sensitivity of the
    sum: `bound.event.sensitivity` (twice that for replacement, which the accountant doubles itself). Sampling: Poisson
    with rate `bound.sampling_rate`, from its own stream. Noise: Gaussian, `bound.noise_stddev` on every coordinate
    of the *sum*, once; the sum is one of integers (`dpose.training.grid`), and so is the noise, which is rounded to the
    same grid, exactly; with `noise="float"` it is drawn and added in float64. Post-processing: the division by the
    constant q*n, behind it the rounding to the weights' type and, with `engine.transform`, the way back from
    transformed gradients, which are what is clipped, summed and noised then. An empty sample is noise only. Without a
    transform this is line for line seed 000, Algorithm 1, with the noise on the sum and a Poisson sample in place of
    its batch of size B.

    Args:
        engine: What the step may not change.
        params: The weights.
        step: Its number.
        chain: A digest of all that was released before; part of the derivation of sample and noise, so that a step
            taken again after another past gets draws of its own.
        on_micro_batch: Called after each micro-batch.
    """
    bound, ranks = engine.bound, engine.ranks
    context = engine.context + chain
    # over the units there are; rate and divisor stay the plan's constants even where n is nominal
    sample = poisson_batch(
        len(engine.loader.dataset),
        bound.sampling_rate,
        engine.noise.stream(Purpose.PRIVATE_SAMPLER, step, context),
    )
    device = next(iter(params.values())).device
    grid = bound.plan.clip.grid
    like = engine.transform.like(params) if engine.transform else params
    totals = {name: torch.zeros_like(p, dtype=torch.int64) for name, p in like.items()}
    # padded: a unit is computed in one and the same shape, whatever else was sampled
    for batch in engine.loader.micro_batches(
        _share(sample, ranks, engine.numbers), step, engine.microbatch_size, padded=True
    ):
        part = clipped_part(engine, params, batch.to(device))
        for name, value in part.items():
            totals[name] += grid.steps(value).to(device)
        if on_micro_batch:
            on_micro_batch()
    totals = ranks.sum_to_first(totals)
    if not ranks.first:  # nothing: the update comes from the first process, with its noise
        return {name: torch.zeros_like(p) for name, p in params.items()}
    sums = {name: grid.values(total) for name, total in totals.items()}
    stream = engine.noise.stream(Purpose.NOISE, step, context)
    grid_step = grid.step if bound.event is not None and bound.event.rounded else None
    noisy = add_gaussian(sums, bound.noise_stddev, stream, grid_step)
    mean = {name: (value / bound.divisor).to(like[name]) for name, value in noisy.items()}
    return engine.transform.back(mean) if engine.transform else mean


def clipped_part(engine: Engine, params: Params, batch: UnitBatch) -> Params:
    """The clipped sum over a micro-batch, as the plan clips: private until it is noised."""
    clip = engine.bound.plan.clip
    return clipped_sum(engine.task, engine.model, params, batch, clip, transform=engine.transform)


def plain_batches(engine: Engine, first: int = 0) -> Iterator[NDArray[np.int64]]:
    """Shuffled batches for ever, each epoch in a new order; for data that nobody needs protected.

    Args:
        engine: The run's.
        first: The step to begin with; the same key gives it the same batch as a run from the start.
    """
    size = engine.bound.plan.expected_batch_size
    epoch, skipped = divmod(first, math.ceil(engine.bound.n / size))
    while True:
        stream = engine.noise.stream(Purpose.PUBLIC_SAMPLER, epoch, engine.context)
        yield from itertools.islice(shuffled_batches(engine.bound.n, size, stream), skipped, None)
        epoch, skipped = epoch + 1, 0


def plain_gradient(
    engine: Engine, params: Params, sample: NDArray[np.int64], step: int
) -> tuple[Params, float]:
    """The mean gradient over `sample` and the mean loss, without any bound or noise."""
    device = next(iter(params.values())).device
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    loss = torch.zeros((), device=device)
    for batch in engine.loader.micro_batches(
        _share(sample, engine.ranks, engine.numbers), step, engine.microbatch_size
    ):
        share = len(batch) / len(sample)
        part, part_loss = mean_gradient(engine.task, engine.model, params, batch.to(device))
        for name, value in part.items():
            sums[name].add_(value, alpha=share)
        loss += share * part_loss
    total = engine.ranks.sum_to_first({**sums, _LOSS: loss})
    return total, float(total.pop(_LOSS))


def _share(sample: NDArray[np.int64], ranks: ProcessGroup, numbers: Sequence[int] | None = None) -> list[int]:
    """Those of a sample that this process computes: of the units that are its own for the whole run, by their numbers.

    A process needs the pictures of its own units only, whatever is drawn. Sampling stays Poisson: the sample is drawn
    whole, in every process alike, each unit with probability q by itself, before anybody asks whose a unit is; which
    process computes a unit is a function of the unit's number, and of no draw. The processes' units are disjoint and
    together all of them, so the sum over processes has each sampled unit's clipped gradient once: the same sum as in
    one process, with the same sensitivity, and noise is added to it once.
    """
    return [int(i) for i in sample if is_local(i if numbers is None else numbers[i], ranks)]


def global_norm(gradient: dict[str, Tensor]) -> float:
    """The L2 norm over all tensors together."""
    return float(torch.stack([g.double().square().sum() for g in gradient.values()]).sum().sqrt())
