"""Training of a pose model on released pictures, and on the originals with and without DP-SGD."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from dpose.pose.folder import find_model
from dpose.pose.model import apply_strategy
from dpose.pose.task import PoseTask
from dpose.runs.config import RECOMMENDED
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
"""Plan without privacy, the same for originals and releases."""


def private_settings(epsilon: float, count: int) -> dict[str, Any]:
    """Plan of DP-SGD on `count` units: the recipe for this budget, with half of the units per step and `EPOCHS`."""
    recipe = RECOMMENDED.at(epsilon)
    budget = {"epsilon": epsilon, "delta": DELTA, "epochs": EPOCHS, "expected_batch_size": max(1, count // 2)}
    return {**recipe["model"], "plan": {**recipe["plan"], **budget}, "optimizer": recipe["optimizer"]}


def score(settings: Values, units: UnitDataset, tested: UnitDataset, seed: int) -> Values:
    """Train the public model further as `settings` say, and test it on originals.

    Args:
        settings: `on`, one of "raw", "releases" (with `restore`) or "dp-sgd"; the latter two with `epsilon`.
        units: Originals to learn from, not augmented.
        tested: Other originals, to test on.
        seed: Seed of all noise and of the training, so that nothing is protected.

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
        # the run is not stored, and the experiment's own charge covers the private units
        run = train(
            task,
            model,
            private=units,
            plan=TrainingPlan(**how["plan"]),
            out=Path(place) / "run",
            optimizer=OptimizerConfig(**how["optimizer"]),
            options=RunOptions(
                seed=seed, start=find_model(MODEL), state_dir=Path(place) / "state", console=Console(quiet=True)
            ),
        )
    if run.interrupted:
        raise KeyboardInterrupt  # a shorter training is not a cell's result
    return {**pckh_by_group(model, tested, seed), "steps": run.steps}
