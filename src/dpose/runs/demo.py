"""`dpose demo`: the main job on data that needs no download, in minutes.

The public weights that come with dpose learnt from `studio`, rendered people who are nobody. Here they go on to learn
from `ward`, which stands for the pictures that nobody may see: other light, other cameras, beds, blankets, noise. Once
privately, and once more with the same schedule and no privacy, for comparison. The table shows what each bought, on
ward pictures of people who are in neither training set.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dpose.files import check_free
from dpose.pose.folder import find_model
from dpose.privacy.rounding import as_given
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.train import train_run
from dpose.training.folder import read_statement
from dpose.training.methods import METHODS
from dpose.training.trainer import Run

EPSILON, DELTA = 8.0, 1e-5
FIRST = "nano"
TEST = "synthetic:ward:test"


@dataclass(frozen=True)
class DemoRecipe:
    """The demo's settings, chosen on `ward:val`.

    Attributes:
        epochs: Passes over `ward`, in expectation.
        batch_size: In expectation.
        lr: The highest learning rate.
        ema_decay: Of the weights' average.
    """

    epochs: float = 1.5
    batch_size: int = 512
    lr: float = 3e-3
    ema_decay: float = 0.9


def run_demo(
    out: Path | None, seed: int | None, console: Console, recipe: DemoRecipe | None = None, command: str = ""
) -> Run:
    """Train privately from the public weights, and without privacy; print the scores on `ward:test` and the statement.

    Args:
        out: The private run's folder; the other one goes to `OUT-non-private`. None picks a free name under `runs`.
        seed: Makes the demo reproducible and takes its guarantee away.
        console: Where all of it is printed.
        recipe: Other settings.
        command: What the user typed, for the report.

    Raises:
        DposeError: `out` exists, or cannot be written to.
    """
    recipe = recipe or DemoRecipe()
    folder = _free("runs/demo") if out is None else out
    plain = folder.with_name(f"{folder.name}-non-private")
    for path in (folder, plain):
        check_free(path)
    times = _Times()
    console.rule(f"1. Private training on the ward, epsilon {as_given(EPSILON)}")
    private = train_run(configure(recipe, seed, "dp-sgd"), folder, console, command=command)
    times.note("private training")
    if private.interrupted:
        return private
    console.rule("2. The same without privacy, for comparison")
    other = train_run(configure(recipe, seed, "non-private"), plain, console, command=command)
    times.note("non-private training")
    if other.interrupted:
        return other
    console.rule("3. What it bought")
    names = ("private", "public weights", "non-private")
    beside = list(zip(names[1:], (find_model(FIRST), plain), strict=True))
    results = evaluate_run(folder, TEST, beside=beside, console=console)
    scores = {name: result.columns() for name, result in zip(names, results, strict=True)}
    console.print(_table(scores))
    times.note("scores and report")
    console.print()
    # after the scores were listed in it
    console.print(_statement(folder), highlight=False)
    console.print(
        f"\nThe run is in {folder}: the model, its card, its statement, its ledger and its report.\n"
        f"Look at the report:  {folder / 'report.html'}\n"
        f"Check the epsilon:   dpose verify {folder}\n"
        f"The whole demo took {times}.",
        highlight=False,
        soft_wrap=True,
    )
    return private


def configure(recipe: DemoRecipe, seed: int | None, method: str) -> RunConfig:
    """One of the demo's two runs: they differ in the method and in nothing else."""
    budget = {"epsilon": EPSILON, "delta": DELTA} if METHODS[method].private else {}
    return RunConfig.from_dict(
        {
            "data": {"private": "synthetic:ward:train"},
            "model": {"init": FIRST, "strategy": "finetune"},
            "plan": {
                "method": method,
                **budget,
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
    order = ("public weights", "private", "non-private")
    table = Table(title="PCKh@0.5 on ward:test: people who were in no training set")
    table.add_column("joint")
    for name in order:
        table.add_column(
            f"private, epsilon {as_given(EPSILON)}" if name == "private" else name, justify="right"
        )
    for joint in scores["private"]:
        end = joint == "Ankle"  # the means stand apart
        table.add_row(joint, *(f"{scores[name][joint]:.1f}" for name in order), end_section=end)
    return table


def _statement(folder: Path) -> str:
    statement = read_statement(folder)
    assert statement is not None
    return statement.paragraph()


def _free(base: str) -> Path:
    """`base`, or the first of `base-2`, `base-3`, ... that does not exist."""
    count = 1
    while True:
        path = Path(base if count == 1 else f"{base}-{count}")
        if not path.exists() and not path.with_name(f"{path.name}-non-private").exists():
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
