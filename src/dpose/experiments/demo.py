"""`dpose demo`: the main job on data that needs no download, in minutes.

A public model learns from `studio`, rendered people who are nobody. Then it learns privately from `ward`, which stands
for the pictures that nobody may see: other light, other cameras, beds, blankets, noise. The table shows what that
bought, on ward pictures of people who are in neither training set.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dpose.errors import DposeError
from dpose.experiments.config import RunConfig
from dpose.experiments.runs import evaluate_run, train_pose
from dpose.training.trainer import Run

EPSILON, DELTA = 8.0, 1e-5


@dataclass(frozen=True)
class Recipe:
    """The demo's settings, chosen on `ward:val`.

    Attributes:
        public_epochs: Passes over `studio`.
        private_epochs: Passes over `ward`, in expectation.
        batch_size: Of the private run, in expectation.
        lr: Of the private run.
    """

    public_epochs: float = 2.0
    private_epochs: float = 2.0
    batch_size: int = 512
    lr: float = 3e-3


def run_demo(out: Path | None, seed: int | None, console: Console, recipe: Recipe | None = None) -> Run:
    """Train a public model, then a private one from it; print both scores on `ward:test` and the statement.

    Args:
        out: The private run's folder; the public model goes to `OUT-public`. None picks a free name under `runs`.
        seed: Makes the demo reproducible and takes its guarantee away.
        console: Where all of it is printed.
        recipe: Other settings.

    Raises:
        DposeError: `out` exists, or cannot be written to.
    """
    recipe = recipe or Recipe()
    folder = _free("runs/demo") if out is None else out
    public = folder.with_name(f"{folder.name}-public")
    for path in (folder, public):
        if path.exists():
            raise DposeError("already exists", str(path), "choose another --out, or remove it first")
    started = time.monotonic()
    console.rule("1. A public model, from rendered people in a studio")
    first = train_pose(_public(recipe, seed), public, console)
    if first.interrupted:
        return first
    console.rule("2. Private training on the ward")
    second = train_pose(_private(recipe, seed, public), folder, console)
    if second.interrupted:
        return second
    console.rule("3. What it bought")
    scores = {
        name: evaluate_run(run, "synthetic:ward:test", console=console).columns()
        for name, run in (("public model", public), (f"private, epsilon {EPSILON:g}", folder))
    }
    table = Table(title="PCKh@0.5 on ward:test: people who were in no training set")
    table.add_column("joint")
    for name in scores:
        table.add_column(name, justify="right")
    for joint in next(iter(scores.values())):
        end = joint == "Ankle"  # the means stand apart
        table.add_row(joint, *(f"{columns[joint]:.1f}" for columns in scores.values()), end_section=end)
    console.print(table)
    console.print()
    console.print(second.statement.paragraph(), highlight=False)
    console.print(
        f"\nThe run is in {folder}: the model, its card, its statement and its ledger. "
        f"Check it with: dpose verify {folder}\nThe whole demo took {_minutes(started)}.",
        highlight=False,
    )
    return second


def _public(recipe: Recipe, seed: int | None) -> RunConfig:
    return RunConfig.from_dict(
        {
            "data": {"private": "synthetic:studio:train"},
            "model": {"preset": "nano", "strategy": "scratch"},
            "plan": {
                "method": "non-private",
                "epochs": recipe.public_epochs,
                "expected_batch_size": 32,
                "ema_decay": 0.99,
            },
            "optimizer": {"name": "adamw", "lr": 2e-3, "options": {"weight_decay": 0.01}},
            "augment": "private",
            "seed": seed,
        }
    )


def _private(recipe: Recipe, seed: int | None, init: Path) -> RunConfig:
    return RunConfig.from_dict(
        {
            "data": {"private": "synthetic:ward:train"},
            "model": {"init": str(init), "strategy": "finetune"},
            "plan": {
                "method": "dp-sgd",
                "epsilon": EPSILON,
                "delta": DELTA,
                "epochs": recipe.private_epochs,
                "expected_batch_size": recipe.batch_size,
                "ema_decay": 0.9,
            },
            "optimizer": {"name": "adamw", "lr": recipe.lr, "options": {"weight_decay": 0.0}},
            "augment": "none",
            "seed": seed,
        }
    )


def _free(base: str) -> Path:
    """`base`, or the first of `base-2`, `base-3`, ... that does not exist."""
    count = 1
    while True:
        path = Path(base if count == 1 else f"{base}-{count}")
        if not path.exists() and not path.with_name(f"{path.name}-public").exists():
            return path
        count += 1


def _minutes(started: float) -> str:
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60} min {seconds % 60:02d} s"
