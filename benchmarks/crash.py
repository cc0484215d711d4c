"""Kill runs at random moments, go on with them, and compare: the weights, the ledger, the statement.

    python benchmarks/crash.py --kills 200

Short private runs (a linear model of 20 numbers on rendered moving dots, 40 steps, every method in turn) are started in
processes of their own and killed with SIGKILL after a random time, again and again, each time taken up by `resume`,
until they finish. Every other run loses its key on the way, as if it went on on another machine.

With its key a run must end with the weights of the same run unbroken, to the last bit, and with the plan's epsilon.
Without, its ledger must count at least the steps that were ever begun, each process's apart, and its statement must be
borne out by `dpose verify`. No run may be lost. Exit code 1 where one of this does not hold.

`--share` measures instead what ledger, log and checkpoints take of a step of `nano`.
"""

from __future__ import annotations

import dpose  # noqa: F401  # isort: skip  (before torch: it settles how torch's threads wait)

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from safetensors.torch import load_file

from dpose.privacy.ledger import read_ledger, spent
from dpose.privacy.noise import Key
from dpose.privacy.verify import verify_run
from dpose.training import loop as loops
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView
from dpose.training.trainer import train

METHODS = ("dp-sgd", "pdp-sgd", "fdp-sgd", "fpdp-sgd")
STEPS = 40


def one_run(folder: Path, method: str, secret: str, begun: Path) -> None:
    """Start or take up the run in `folder`; a line in `begun` for every step that is begun."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import dpose.training.gradient as updates
    from dots import Dots, DotsTask

    torch.set_num_threads(1)
    loops.CHECKPOINT_UNITS = 0
    key = Key(bytes.fromhex(secret))
    first = not (folder / "ledger.jsonl").exists()
    Key.fresh = classmethod(lambda cls: key if first else Key(os.urandom(32)))  # type: ignore[method-assign]
    real = updates.private_gradient

    def noted(engine, params, step, chain=b""):
        with begun.open("a") as file:
            file.write(f"{engine.noise.key_id} {step}\n")
        return real(engine, params, step, chain)

    updates.private_gradient = noted
    task = DotsTask()
    plan = TrainingPlan(
        method,
        epsilon=8.0,
        delta=1e-4,
        steps=STEPS,
        expected_batch_size=60,
        accountant="rdp",
        ema_decay=0.9,
        subspace=SubspaceConfig(rank=4, units=10, refresh=9),
        public_view=PublicView("pixelize", width=86.0),
    )
    train(
        task,
        task.build_model(),
        private=Dots(240),
        public=Dots(30, seed=3),
        plan=plan,
        out=folder,
        optimizer=OptimizerConfig("adam", lr=0.3),
        resume=(folder / "config.json").exists(),
        options=RunOptions(
            state_dir=folder.parent / f"{folder.name}-state",
            views_at_once=16,
            threads=1,
            console=Console(quiet=True),
        ),
    )


@dataclass
class Story:
    """What became of one run."""

    kills: int
    keyless: bool
    same_weights: bool
    counted: int
    begun: int
    verified: bool

    @property
    def holds(self) -> bool:
        """Whether what is promised of it is true."""
        true = self.verified and self.counted >= self.begun
        return true and ((self.same_weights and self.counted == STEPS) or self.keyless)


def story(root: Path, number: int, rng: random.Random, most: int) -> Story:
    """One run from its start to its end, killed up to `most` times."""
    method, secret = METHODS[number % len(METHODS)], rng.randbytes(32).hex()
    folder, begun = root / f"run-{number}", root / f"begun-{number}"
    whole = root / f"whole-{number}"
    command = [sys.executable, __file__, "--run", method, secret]
    started = time.monotonic()
    subprocess.run([*command, str(whole), str(root / "unused")], check=True)
    length = time.monotonic() - started
    kills, loses = 0, number % 2 == 1
    keyless = False
    while True:
        process = subprocess.Popen([*command, str(folder), str(begun)], stderr=subprocess.PIPE, text=True)
        try:
            # most of a run's life is spent importing torch; the moments that matter come after
            process.wait(length * rng.uniform(0.35, 1.0) if kills < most else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            if loses and kills == 2 and (root / f"{folder.name}-state" / "keys").exists():
                shutil.rmtree(root / f"{folder.name}-state" / "keys")
                keyless = True
            continue
        said = process.communicate()[1]
        if (
            process.returncode and "this run is finished" not in said
        ):  # killed after its end: nothing is left to do
            raise SystemExit(f"run {number} was lost:\n{said}")
        break
    weights = [load_file(f / "model.safetensors") for f in (folder, whole)]
    same = all(torch.equal(weights[0][n], t) for n, t in weights[1].items())
    lines = begun.read_text().split("\n")[:-1]
    entries = read_ledger(folder / "ledger.jsonl")
    verify_run(folder, root / f"{folder.name}-state")
    counted = sum(event.steps for event in spent(entries))
    return Story(kills, keyless, same, counted, len(set(lines)), True)


def crash(kills: int, seed: int, console: Console) -> bool:
    rng, stories = random.Random(seed), []
    with tempfile.TemporaryDirectory() as folder, Progress(console=console) as bar:
        task = bar.add_task("kills", total=kills)
        while (done := sum(s.kills for s in stories)) < kills:
            bar.update(task, completed=done)
            stories.append(story(Path(folder), len(stories), rng, min(5, kills - done)))
    table = Table(title=f"{sum(s.kills for s in stories)} kills in {len(stories)} runs of {STEPS} steps")
    for column in ("runs", "kills", "same weights", "steps counted", "steps begun", "verified", "holds"):
        table.add_column(column, justify="left" if column == "runs" else "right")
    for name, keyless in (("with their key", False), ("that lost their key", True)):
        found = [s for s in stories if s.keyless is keyless]
        table.add_row(
            f"{len(found)} {name}",
            str(sum(s.kills for s in found)),
            str(sum(s.same_weights for s in found)),
            span([s.counted for s in found]),
            span([s.begun for s in found]),
            str(sum(s.verified for s in found)),
            f"{sum(s.holds for s in found)} of {len(found)}",
        )
    console.print(table)
    return all(s.holds for s in stories)


def span(values: list[int]) -> str:
    return f"{min(values)} to {max(values)}" if values else "-"


def share(console: Console) -> None:
    """How much of a step of `nano`, 256 units, ledger, log and checkpoints take."""
    from dpose.privacy.ledger import Ledger
    from dpose.runs.config import RunConfig
    from dpose.runs.train import train_run
    from dpose.training.folder import RunLog
    from dpose.training.reproducibility import digest_of

    took: dict[str, float] = {}

    def timed(owner, name, label):
        real = getattr(owner, name)

        def wrapped(*given, **named):
            started = time.perf_counter()
            try:
                return real(*given, **named)
            finally:
                took[label] = took.get(label, 0.0) + time.perf_counter() - started

        setattr(owner, name, wrapped)

    timed(Ledger, "_append", "ledger")
    timed(RunLog, "write", "log")
    timed(loops, "save_checkpoint", "checkpoints")
    timed(loops, "digest_of", "digests of updates")
    timed(loops.Loop, "_step", "steps")
    assert digest_of is not loops.digest_of
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "data": {"private": "synthetic:ward", "limit": 2000, "watch": "none"},
            "plan": {"method": "dp-sgd", "epsilon": 8.0, "delta": 1e-5, "epochs": 4},
            "seed": 0,
        }
        train_run(RunConfig.from_dict(values, "benchmark"), Path(folder) / "run", Console(quiet=True))
    table = Table(title="nano, 32 steps of 256 units on average, a checkpoint a minute")
    table.add_column("part")
    table.add_column("seconds", justify="right")
    table.add_column("of the steps", justify="right")
    for label, seconds in took.items():
        table.add_row(label, f"{seconds:.3f}", f"{100 * seconds / took['steps']:.2f} %")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        method, secret, folder, begun = arguments.run
        return one_run(Path(folder), method, secret, Path(begun))
    console = Console(width=110)
    if arguments.share:
        share(console)
        good = True
    else:
        good = crash(arguments.kills, arguments.seed, console)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, seed {arguments.seed}"
    console.print(json.dumps({"holds": good}), versions, highlight=False)
    if not good:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
