"""`dpose demo`: the main job on data that needs no download, in minutes.

The public weights that come with dpose learnt from `studio`, rendered people. Here they go on to learn
from `ward`, which stands for private pictures: other light, other cameras, beds, blankets, noise. The
table shows what that bought at epsilon 1, on ward pictures of people who are in no training set.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dpose.files import check_free
from dpose.pose.folder import find_model
from dpose.privacy.ranges import as_given
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.train import train_run
from dpose.training.folder import read_statement
from dpose.training.run import Run

EPSILON, DELTA = 1.0, 1e-5
FIRST = "nano"
TEST = "synthetic:ward:test"
NEXT = ("dpose predict PHOTO.jpg", "dpose pixelize PHOTO.jpg --epsilon 1 --out released", "dpose studio")
"""Worth trying after it, each by itself."""


@dataclass(frozen=True)
class DemoRecipe:
    """The demo's settings, chosen on `ward:val`.

    Attributes:
        epochs: Passes over `ward`, in expectation.
        batch_size: In expectation.
        lr: The highest learning rate.
        ema_decay: Of the weights' average.
    """

    epochs: float = 3.0
    batch_size: int = 1024
    lr: float = 3e-3
    ema_decay: float = 0.8


def run_demo(
    out: Path | None, seed: int | None, console: Console, recipe: DemoRecipe | None = None, command: str = ""
) -> Run:
    """Train privately from the public weights; print the scores on `ward:test`, the statement, and what to try next.

    Args:
        out: The run's folder. None picks a free name under `runs`.
        seed: Makes the demo reproducible and takes its guarantee away.
        console: Where all of it is printed.
        recipe: Other settings.
        command: What the user typed, for the report.
    """
    recipe = recipe or DemoRecipe()
    folder = _free("runs/demo") if out is None else out
    check_free(folder)
    times = _Times()
    console.rule(f"1. Private training on the ward, epsilon {as_given(EPSILON)}")
    run = train_run(configure(recipe, seed), folder, console, command=command)
    times.note("private training")
    if run.interrupted:
        return run
    console.rule("2. What it bought")
    before, after = "public weights", f"private, epsilon {as_given(EPSILON)}"
    results = evaluate_run(folder, TEST, beside=[(before, find_model(FIRST))], console=console)
    console.print(_table({name: result.columns() for name, result in zip((after, before), results, strict=True)}))
    times.note("scores and report")
    console.print()
    # after the scores were listed in it
    statement = read_statement(folder)
    assert statement is not None
    console.print(statement.words().printed(), highlight=False)
    console.print(
        f"\nThe run is in {folder}: the model, its card, its statement, its ledger and its report.\n"
        f"Look at the report:  {folder / 'report.html'}\n"
        f"Read the statement:  dpose statement show {folder}\n"
        f"Check the epsilon:   dpose verify {folder}\n"
        f"The whole demo took {times}.\n\n"
        f"Try next:  {'  |  '.join(NEXT)}",
        highlight=False,
        soft_wrap=True,
    )
    return run


def configure(recipe: DemoRecipe, seed: int | None) -> RunConfig:
    """The demo's run."""
    return RunConfig.from_dict(
        {
            "data": {"private": "synthetic:ward:train"},
            "model": {"init": FIRST, "strategy": "light"},
            "plan": {
                "method": "dp-sgd",
                "epsilon": EPSILON,
                "delta": DELTA,
                "epochs": recipe.epochs,
                "expected_batch_size": recipe.batch_size,
                "ema_decay": recipe.ema_decay,
            },
            "optimizer": {"name": "adamw", "lr": recipe.lr, "options": {"weight_decay": 0.0}},
            "augment": "none",
            "seed": seed,
        }
    )


def _table(scores: dict[str, dict[str, float]]) -> Table:
    after, before = scores
    table = Table(title="PCKh@0.5 on ward:test: people who were in no training set")
    table.add_column("joint")
    for name in (before, after, "gained"):
        table.add_column(name, justify="right")
    for joint, value in scores[after].items():
        start = scores[before][joint]
        end = joint == "Ankle"  # the means stand apart
        table.add_row(joint, f"{start:.1f}", f"{value:.1f}", f"{value - start:+.1f}", end_section=end)
    return table


def _free(base: str) -> Path:
    """`base`, or the first of `base-2`, `base-3`, ... that does not exist."""
    count = 1
    while True:
        path = Path(base if count == 1 else f"{base}-{count}")
        if not path.exists():
            return path
        count += 1


class _Times:
    """How long each part took."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, float]] = []
        self.last = time.monotonic()

    def note(self, part: str) -> None:
        now = time.monotonic()
        self.parts.append((part, now - self.last))
        self.last = now

    def __str__(self) -> str:
        each = ", ".join(f"{part} {_minutes(seconds)}" for part, seconds in self.parts)
        return f"{_minutes(sum(seconds for _, seconds in self.parts))} ({each})"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s"
