"""A training run with canaries in it, and the scores that its adversaries give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from dpose.audits.findings import Adversary
from dpose.audits.whitebox import in_noise_units, in_turn, likelihood_ratio, observed
from dpose.errors import DposeError
from dpose.privacy.neighbours import Relation
from dpose.privacy.tradeoff import Floats
from dpose.training.canaries import (
    CanaryTask,
    CanaryUnits,
    GradientCanaries,
    InputCanaries,
    add_parameter,
    view_losses,
)
from dpose.training.methods import METHODS
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.run import Run
from dpose.training.trainer import train
from dpose.units import Task, View

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

    Raises:
        DposeError: the method cannot be audited this way, or as `train`.
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
        return run, _white_box(updates, canaries, plan, len(units))
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


def _white_box(
    updates: Sequence[Floats], canaries: GradientCanaries, plan: TrainingPlan, n: int
) -> list[Adversary]:
    bound = plan.bind(n)
    assert bound.event is not None
    seen = in_noise_units(updates, bound)
    m = len(canaries)
    scored = {
        "supposes that units are sampled": likelihood_ratio(seen, bound.event, plan.relation),
        "supposes that batches go through the units in order": in_turn(seen, m, bound),
    }
    # under replacement a canary that is not in pushes the other way, so a coordinate without a push is no such canary
    comparable = plan.relation is not Relation.REPLACE
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
