"""What an adversary sees of training when every update is shown, and the best score it can make of that.

parameter = add_parameter(model, canaries)
with observed(parameter) as updates:
    dpose.train(...)
seen = in_noise_units(updates, bound)         # (steps, coordinates): canary's presence plus noise
scores = likelihood_ratio(seen, bound.event)  # Neyman and Pearson's test for the claimed mechanism
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.tradeoff import Floats
from dpose.training.plan import BoundPlan


@contextlib.contextmanager
def observed(parameter: torch.nn.Parameter) -> Iterator[list[Floats]]:
    """The gradient of `parameter` at every step of whatever optimizer holds it, as the optimizer is given it.

    It is read where the engine hands it over, after everything that the engine does to it: a fault anywhere before
    that point is in what is seen.
    """
    seen: list[Floats] = []

    def note(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        held = (p for group in optimizer.param_groups for p in group["params"])
        if parameter.grad is not None and any(p is parameter for p in held):
            seen.append(parameter.grad.detach().to("cpu", torch.float64, copy=True).numpy())

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


def in_noise_units(updates: Sequence[Floats], bound: BoundPlan) -> Floats:
    """Updates as the mechanism's own numbers: one unit's full contribution is 1, the noise's deviation is sigma.

    Args:
        updates: One (coordinates,) array a step, as `observed` gives them.
        bound: The plan that ran.

    Returns:
        (steps, coordinates) float64.
    """
    if bound.event is None:
        raise ValueError("a plan without a guarantee has no noise to measure by")
    return np.asarray(np.stack(updates) * (bound.divisor / bound.event.sensitivity), np.float64)


def likelihood_ratio(seen: Floats, event: SampledGaussian, relation: Relation = Relation.ZERO_OUT) -> Floats:
    """The log-likelihood ratio of "in" against "not in", (coordinates,), under the claimed sampling and noise.

    A canary that is in adds 1 to a step with probability q: each step's density is a mixture of two Gaussians, and the
    sum over steps of the log ratio is the most powerful score there is.

    Args:
        seen: (steps, coordinates), as `in_noise_units` gives it.
        event: The claimed event.
        relation: Under replacement a canary that is not in adds -1 instead.
    """
    if event.q == 1:
        return np.asarray(seen.sum(axis=0))
    score = _in_against_nothing(seen, event)
    if relation is Relation.REPLACE:
        score = score - _in_against_nothing(-seen, event)
    return np.asarray(score)


def _in_against_nothing(seen: Floats, event: SampledGaussian) -> Floats:
    drawn = math.log(event.q) + (2 * seen - 1) / (2 * event.sigma**2)
    return np.asarray(np.logaddexp(math.log1p(-event.q), drawn).sum(axis=0))


def in_turn(seen: Floats, canaries: int, bound: BoundPlan) -> Floats:
    """The score of an adversary who supposes that batches go through the units in order, (coordinates,).

    Where that is so, a unit's steps are known, and the sum over them is all there is to know. Where units are sampled
    it is a poor score.

    Args:
        seen: (steps, coordinates), as `in_noise_units` gives it; the first `canaries` of them are the last units of the
            dataset, and the others, which no unit pushes, are read as if they took the canaries' turns.
        canaries: How many canaries there are.
        bound: The plan that ran.
    """
    steps, coordinates = seen.shape
    turns = order_of_turns(bound.n, round(bound.divisor))
    own = turns[bound.n - canaries + np.arange(coordinates) % canaries]
    scheduled = np.arange(steps)[:, None] % (turns.max() + 1) == own[None]
    return np.asarray((seen * scheduled).sum(axis=0))


def order_of_turns(n: int, batch_size: int) -> np.typing.NDArray[np.int64]:
    """The batch of an epoch that each of n units is in when batches are cut in order."""
    return np.asarray(np.arange(n) // min(batch_size, n), np.int64)
