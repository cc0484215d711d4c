"""A pose model trained on released pictures, beside training on the originals, with DP-SGD and without."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from dpose.pose.folder import find_model
from dpose.pose.model import apply_strategy
from dpose.pose.task import PoseTask
from dpose.runs.recipes import RECOMMENDED
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.trainer import train
from dpose.units import UnitDataset
from dpose_lab.papers.experiment import Values
from dpose_lab.papers.utility.evaluated import MODEL, ReleasedCrops, crops_config, pckh_by_group, public_model

LEARNERS, EPOCHS = 200, 8.0
DELTA = 1e-4
M = 16
PLAIN: Mapping[str, Any] = {
    "strategy": "full",
    "plan": {"method": "non-private", "epochs": EPOCHS, "expected_batch_size": 32},
    "optimizer": {"lr": 5e-4},
}
"""Without privacy, on originals and on releases alike."""


def private_settings(epsilon: float, count: int) -> dict[str, Any]:
    """DP-SGD on `count` units: dpose's recipe for this budget, but half of them a step and `EPOCHS`."""
    recipe = RECOMMENDED.at(epsilon)
    budget = {"epsilon": epsilon, "delta": DELTA, "epochs": EPOCHS, "expected_batch_size": max(1, count // 2)}
    return {**recipe["model"], "plan": {**recipe["plan"], **budget}, "optimizer": recipe["optimizer"]}


def score(settings: Values, units: UnitDataset, tested: UnitDataset, seed: int) -> Values:
    """Train the public model further as `settings` say, and test it on originals.

    Args:
        settings: `on`: "raw", "releases" (with `restore`) or "dp-sgd"; the latter two with `epsilon`.
        units: The originals to learn from, not augmented.
        tested: Other originals.
        seed: Of all noise and of the training: nothing here is protected.

    Raises:
        DposeError: a picture cannot be read or released.
        KeyboardInterrupt: the training was stopped.
    """
    on = settings["on"]
    how = private_settings(settings["epsilon"], len(units)) if on == "dp-sgd" else PLAIN
    if on == "releases":
        config = crops_config(settings["epsilon"], M, settings["restore"])
        units = ReleasedCrops(units, config, seed)
    model = public_model()
    apply_strategy(model, how["strategy"])
    task = PoseTask(model.config.skeleton, model.codec)
    with tempfile.TemporaryDirectory(prefix="dpose-utility-") as place:
        # nobody keeps the run, and what is learnt of private units is in the experiment's own charge
        run = train(
            task,
            model,
            private=units,
            plan=TrainingPlan(**how["plan"]),
            out=Path(place) / "run",
            optimizer=OptimizerConfig(**how["optimizer"]),
            seed=seed,
            options=RunOptions(
                start=find_model(MODEL), state_dir=Path(place) / "state", console=Console(quiet=True)
            ),
        )
    if run.interrupted:
        raise KeyboardInterrupt  # a shorter training is no cell's
    return {**pckh_by_group(model, tested, seed), "steps": run.steps}
