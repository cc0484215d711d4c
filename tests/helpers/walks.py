"""What one act walks through: `python tests/helpers/walks.py NAME FOLDER` prints how many files and functions, as JSON.

A process of its own for each, so that nothing is imported or cached before. Only what runs while `sys.setprofile` is
set counts; "train command" sets it before dpose is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = str(Path(importlib.util.find_spec("dpose").submodule_search_locations[0])) + os.sep  # type: ignore[union-attr,index]
"""With its separator, so that dpose_lab and dpose_scene, which stand beside it, are not counted."""


PLAN: dict[str, Any] = {
    "method": "dp-sgd",
    "noise_multiplier": 1.5,
    "delta": 1e-4,
    "steps": 4,
    "expected_batch_size": 16,
    "accountant": "rdp",
    "clip_norm": 0.25,
}


class Walk:
    """Notes every function of dpose that is called."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            self.functions.add((code.co_filename, code.co_qualname))

    def of(self, act: Callable[[], object]) -> dict[str, int]:
        """What `act` walks through."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            act()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        return {"files": len({file for file, _ in self.functions}), "functions": len(self.functions)}


def pixelize() -> Callable[[], object]:
    import numpy as np

    import dpose

    picture = np.arange(64 * 48 * 3, dtype=np.uint8).reshape(64, 48, 3)

    def act() -> object:
        return dpose.pixelize(picture, epsilon=2, neighbours="pixels:16", block=16, restore="none", again=True)

    act()  # kernels are compiled, and what is imported late is there
    return act


def private_step() -> Callable[[], object]:
    from dots import Dots, DotsTask
    from dpose.privacy.noise import AesNoise, Key
    from dpose.training.gradients import trainable_params
    from dpose.training.loader import Loader
    from dpose.training.plan import TrainingPlan
    from dpose.training.step import StepInputs, private_gradient

    plan = TrainingPlan(**PLAN)
    task, noise = DotsTask(), AesNoise(Key.from_seed(1))
    model = task.build_model()
    engine = StepInputs(task, model, Loader(task, Dots(60), noise), plan.bind(60), noise, b"here", 8)
    params = trainable_params(model)
    private_gradient(engine, params, 0)
    return lambda: private_gradient(engine, params, 1)


def train() -> Callable[[], object]:
    from rich.console import Console

    from dots import Dots, DotsTask
    from dots import train as dots_train
    from dpose.training.plan import TrainingPlan

    plan = TrainingPlan(**PLAN)
    task = DotsTask()
    model = task.build_model()
    out = Path(sys.argv[2]) / "dots"
    quiet: dict[str, Any] = {"console": Console(quiet=True)}
    return lambda: dots_train(task, model, private=Dots(60), plan=plan, out=out, **quiet)


def train_command() -> Callable[[], object]:
    command = "train --data synthetic:ward --limit 8 --method dp-sgd --epsilon 8 --delta 1e-3 --epochs 1 --batch-size 4"
    words = [
        *command.split(),
        "--preset",
        "nano",
        "--set",
        "data.validation_data=none",
        "--out",
        str(Path(sys.argv[2]) / "run"),
    ]

    def act() -> None:
        from dpose.cli import main

        if main(words):
            raise SystemExit("the training failed")

    return act


def verify() -> Callable[[], object]:
    from dpose.runs.verify import verify_run

    return lambda: verify_run(Path(sys.argv[2]) / "run")


WALKS = {
    "pixelize": pixelize,
    "private step": private_step,
    "dpose.train": train,
    "train command": train_command,
    "verify": verify,
}

if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = sys.argv[2]
    prepared = WALKS[sys.argv[1]]()
    print("\n" + json.dumps(Walk().of(prepared)))
