"""A run's parts put together once, and one gradient of random pictures: refused here, a run has cost nothing.

The account is charged before the first step and steps are reserved before they sample, as they must be. So whatever
would be refused in the first step, whatever the data are, has to be refused before.
"""

from __future__ import annotations

import warnings

import torch

from dpose.errors import DposeError
from dpose.privacy.noise import AesNoise, Key
from dpose.training.batch_invariance import random_units
from dpose.training.gradient import RunInputs, open_parts
from dpose.training.gradients import trainable_params
from dpose.training.guards import only_gradients
from dpose.training.optim import OptimizerConfig
from dpose.training.step import clipped_part
from dpose.units import is_mixed


def dry_run(inputs: RunInputs, optimizer: OptimizerConfig) -> None:
    """Refuse what the first step would refuse. Nothing is written; the model and torch's generators stay as they are.

    Args:
        inputs: What the run computes its gradients of; one unit is read, for its shapes only.
        optimizer: As configured.

    Raises:
        DposeError: the method's parts do not fit the data, the loss or the model.
    """
    model, bound, plan = inputs.model, inputs.bound, inputs.bound.plan
    kind = plan.kind
    if is_mixed(inputs.task) and kind.private and kind.public_views and plan.private_loss == "residual":
        raise DposeError(
            "precision-unsupported",
            "the residual loss has no passes in bfloat16",
            f"{plan.method}, private_loss residual",
            "leave precision out, or take the private loss plain",
        )
    optimizer.build([p for p in model.parameters() if p.requires_grad], bound.steps)
    with open_parts(inputs, AesNoise(Key.from_seed(0)), b"dry run", 1) as parts:
        engine = parts.private
        if engine is None:
            return
        params = trainable_params(model)
        like = engine.task.collate([engine.loader.unit(inputs.example, 0)])
        batch = random_units(like, 1, 1).to(next(iter(params.values())).device)
        with torch.random.fork_rng(), warnings.catch_warnings(), only_gradients(model):
            warnings.simplefilter("ignore")  # the first step tells
            clipped_part(engine, params, batch)
