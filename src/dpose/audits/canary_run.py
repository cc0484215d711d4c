"""A training run with canaries in it, and the scores that its adversaries give them.

What an adversary sees of training when every update is shown, and the best score it can make of that.

parameter = add_parameter(model, canaries)
with observed(parameter) as updates:
    dpose.train(...)
seen = in_noise_units(updates, bound)         # (steps, coordinates): canary's presence plus noise
scores = likelihood_ratio(seen, bound.event)  # Neyman and Pearson's test for the claimed mechanism

A task without pictures: canaries through the real engine in milliseconds a step, for statistics and tests.

The model has one parameter that nothing depends on, a unit is one black pixel, and its loss is zero. What remains is
the mechanism: sampling, per-unit gradients, clip, sum, noise, divisor.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpose.audits.findings import Adversary
from dpose.errors import DposeError
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.tradeoff import Floats
from dpose.training.canaries import CanaryTask, CanaryUnits, GradientCanaries, InputCanaries, add_parameter, view_losses
from dpose.training.methods import METHODS
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.run import Run
from dpose.training.trainer import train
from dpose.units import Metric, Task, Tensors, Unit, UnitBatch, View, pad_views

PIXEL = View(np.zeros((1, 1, 3), np.uint8), {})


class ToyTask:
    """A task whose loss is zero (`dpose.units.Task`)."""

    name = "stand-in"

    def build_model(self, config: Any = None) -> torch.nn.Module:
        """A model with a single weight."""
        return ToyModel()

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: Tensor, targets: Tensors) -> Tensor:
        """(V,), zero whatever the weight."""
        return 0.0 * params["weight"].expand(len(inputs))

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units into a batch."""
        return pad_views(units)

    def metric(self) -> Metric:
        """Counts nothing."""
        raise NotImplementedError("the stand-in task has nothing to measure")


class ToyModel(torch.nn.Module):
    """One weight, which the output is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(to_dict=dict)

    def forward(self, inputs: Tensor) -> Tensor:
        """(N,), the weight."""
        return self.weight.expand(len(inputs))


class ToyUnits:
    """n units of one black pixel (`dpose.units.UnitDataset`).

    Args:
        count: n.
    """

    unit = Unit.IMAGE

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def unit_id(self, index: int) -> str:
        """A number."""
        return f"unit-{index}"

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Hash of the unit's number."""
        return (hashlib.sha256(str(index).encode()).hexdigest(),)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The pixel."""
        return [PIXEL]


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


WHITE_BOX = (
    "white box: sees every noisy update, knows all settings, the number of units and the canaries, and chose the "
    "canaries' gradients (each at the clipping norm, in a direction of its own)"
)
BLACK_BOX = "black box: sees the final weights alone, knows the canaries' pictures and labels and chose them"


def canary_run(
    task: Task,
    model: torch.nn.Module,
    units: CanaryUnits,
    plan: TrainingPlan,
    out: Path,
    *,
    outsiders: Sequence[View] = (),
    optimizer: OptimizerConfig | None = None,
    options: RunOptions | None = None,
) -> tuple[Run, list[Adversary]]:
    """Train on units with canaries among them and score the canaries.

    The released weights do not keep the parameter that gradient canaries push.

    Args:
        task: The task itself, without canaries.
        model: Trained in place.
        units: Real units and canaries.
        plan: As audited.
        out: The run folder to make.
        outsiders: For input canaries: further pictures of the same kind that are not trained on.
        optimizer: As `train` takes it.
        options: As `train` takes them.
    """
    check_auditable(plan, "cannot be audited by these canaries")
    marked = CanaryTask(task)
    canaries = units.canaries

    def trained() -> Run:
        return train(marked, model, private=units, plan=plan, out=out, optimizer=optimizer, options=options)

    if isinstance(canaries, GradientCanaries):
        parameter = add_parameter(model, len(canaries))
        with observed(parameter) as updates:
            run = trained()
        limit = units.selection.count if units.selection else None
        return run, _white_box(updates, canaries, plan.bind(len(units), limit))  # whatever the run did
    views = [*canaries.views, *outsiders]
    before = view_losses(task, model, views)
    run = trained()
    return run, _black_box(before - view_losses(task, model, views), canaries)


def check_auditable(plan: TrainingPlan, why_not: str) -> None:
    """Refuse a plan whose method hands the noised sum on in another form than the audits look at.

    Raises:
        DposeError: it does; `why_not` says it of the method.
    """
    if not plan.kind.auditable:
        known = ", ".join(name for name, method in METHODS.items() if method.auditable)
        raise DposeError("method-without-canaries", f"{plan.method} {why_not}", "--method", f"choose {known}")


def _white_box(updates: Sequence[Floats], canaries: GradientCanaries, bound: BoundPlan) -> list[Adversary]:
    assert bound.event is not None
    seen = in_noise_units(updates, bound)
    m = len(canaries)
    scored = {
        "supposes that units are sampled": likelihood_ratio(seen, bound.event, bound.plan.relation),
        "supposes that batches go through the units in order": in_turn(seen, m, bound),
    }
    # under replacement a canary that is not in pushes the other way, so a coordinate without a push is no such canary
    comparable = bound.plan.relation is not Relation.REPLACE
    return [
        Adversary(
            name,
            scores[:m],
            calibration=scores[m::2],
            absent=scores[m + 1 :: 2] if comparable else None,
            independent=True,
        )
        for name, scores in scored.items()
    ]


def _black_box(fallen: Floats, canaries: InputCanaries) -> list[Adversary]:
    m = len(canaries)
    calibration, absent = fallen[m::2], fallen[m + 1 :: 2]
    return [
        Adversary(
            "supposes that the loss of a canary that is in fell further",
            fallen[:m],
            calibration=calibration if len(calibration) else None,
            absent=absent if len(absent) else None,
        )
    ]
