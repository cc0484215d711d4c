"""How strong the audits are: true mechanisms must stand, visible faults must be flagged; familywise error 0.05.

python benchmarks/audit.py                            # about an hour of one core; go on where it stopped
python benchmarks/audit.py --file FILE --seeds 20 --fault-seeds 10
python benchmarks/audit.py --only "dp-sgd, gradient canaries" --half-seeds 59

Every run is tested at 0.05 divided by the number of all runs (Bonferroni), so that the probability that any true claim
is refuted is at most 0.05 over the whole table. Of half the noise there are as many runs as `--half-seeds` says: if
all of 59 are flagged, the power is at least 0.95, with confidence 95 %. Seeds are fixed: 0, 1, 2, ... (but for the
commands that release files, whose keys are the operating system's). Each cell is one line of the file; a cell that
stands there with the same source code, level and sizes is not run again.

Training runs use the real engine on a task without pictures (`dpose.audits.canary_run`): what is audited is sampling,
clip, sum, noise and divisor, and gradient canaries depend on nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from dpose.audits.canary_run import PIXEL, ToyTask, ToyUnits, canary_run
from dpose.audits.faults import FAULTS, UNSEEN, planted
from dpose.audits.findings import code_version, weigh
from dpose.audits.noise_family import Family
from dpose.audits.trials import Trials
from dpose.cli import main as run_command
from dpose.privacy.ranges import as_given, lower
from dpose.training.canaries import CanaryUnits, GradientCanaries, toss_coins
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose_lab.audits.mechanism_audit import MechanismAudit, audit_named_mechanism, audit_release_command
from dpose_lab.audits.mechanisms import MECHANISMS
from dpose_lab.audits.release_files import FAULTS as FILE_FAULTS

ERROR = 0.05
CANARIES, REAL = 500, 500
EPSILON = 4
PLAN = TrainingPlan(epsilon=EPSILON, delta=1e-5, epochs=4, expected_batch_size=125)
TRAINING = "dp-sgd, gradient canaries"
MECHANISM_EPSILON, MECHANISM_DELTA = 1.0, 1e-5
BUDGETS = {"pixelize": ("1", "0"), "release-video": ("4", "1e-5")}
"""Of the commands that release files: epsilon and delta of a file."""

Cell = tuple[str, str, int]
"""What is audited, the planted fault ("" for none), the seed."""


def cells(seeds: int, fault_seeds: int, half_seeds: int, only: str | None = None) -> list[Cell]:
    """Every run, the true ones first."""
    faults: dict[str, tuple[str, ...]] = {
        TRAINING: tuple(FAULTS),
        **{name: faults for name, (_, faults) in MECHANISMS.items()},
        **dict.fromkeys(BUDGETS, tuple(FILE_FAULTS)),
    }
    faults = {name: known for name, known in faults.items() if only in (None, name)}
    true = [(name, "", seed) for name in faults for seed in range(seeds)]
    planted_ = [
        (name, fault, seed)
        for name, known in faults.items()
        for fault in known
        for seed in range(half_seeds if fault == "half-noise" else fault_seeds)
    ]
    return true + planted_


class Runner:
    """Runs cells; what they share is made once."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.bound = PLAN.bind(REAL + CANARIES)
        assert self.bound.event is not None
        self.family = Family(self.bound.event, PLAN.delta or 0.0, PLAN.relation)

    def run(self, cell: Cell) -> dict[str, Any]:
        """Audit one cell: whether it was flagged, the lower bound on epsilon, and what refuted it."""
        name, fault, seed = cell
        if name == TRAINING:
            return self._training(fault or None, seed)
        if name in BUDGETS:
            epsilon, delta = BUDGETS[name]
            found = audit_release_command(name, run_command, epsilon, delta, plant=fault or None, alpha=self.alpha)
            return _told(found)
        engine = "gaussian" in name
        found = audit_named_mechanism(
            name,
            MECHANISM_EPSILON,
            MECHANISM_DELTA if engine else 0.0,
            plant=fault or None,
            seed=seed,
            alpha=self.alpha,
        )
        return _told(found)

    def _training(self, fault: str | None, seed: int) -> dict[str, Any]:
        included = toss_coins(CANARIES, np.random.default_rng(seed))
        task = ToyTask()
        units = CanaryUnits(ToyUnits(REAL), GradientCanaries(included, PIXEL, PLAN.clip))
        with tempfile.TemporaryDirectory(prefix="dpose-bench-") as folder, planted(fault):
            _, adversaries = canary_run(
                task,
                task.build_model(),
                units,
                PLAN,
                Path(folder) / "run",
                options=RunOptions(seed=seed, state_dir=Path(folder), console=Console(quiet=True)),
            )
        found = weigh(adversaries, included, self.family, float(self.bound.epsilon or 0.0), self.alpha)
        return {"flagged": found.flagged, "bound": found.bound, "by": list(found.refuted)}


def _told(found: MechanismAudit) -> dict[str, Any]:
    return {"flagged": found.flagged, "bound": found.findings.epsilon_bound, "by": list(found.findings.refuted_by)}


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """The cells that the file holds; a torn last line is passed over."""
    if file.exists():
        for text in file.read_text().splitlines():
            try:
                yield json.loads(text)
            except ValueError:
                continue


def show(results: Mapping[Cell, Mapping[str, Any]], alpha: float, console: Console) -> bool:
    """Print the table; whether every true mechanism stood and every visible fault was flagged each time."""
    table = Table(title=f"{len(results)} audits, each at level {alpha:.2g}: familywise error {ERROR:g}")
    for column in (
        "audited",
        "planted",
        "should be",
        "flagged",
        "power at least (95 %)",
        "epsilon at least, median",
        "claimed",
    ):
        table.add_column(column, justify="left" if column in ("audited", "planted", "should be") else "right")
    good = True
    for name, fault in dict.fromkeys((name, fault) for name, fault, _ in results):
        found = [r for (n, f, _), r in results.items() if (n, f) == (name, fault)]
        flagged = Trials(sum(r["flagged"] for r in found), len(found))
        should = "stand" if not fault else "not seen" if fault in UNSEEN else "flagged"
        good &= {"stand": flagged.hits == 0, "flagged": flagged.rate == 1}.get(should, True)
        table.add_row(
            name,
            fault or "nothing",
            should,
            f"{flagged.hits} of {flagged.total}",
            lower(flagged.at_least(0.05), places=2) if should == "flagged" else "",
            lower(median(r["bound"] for r in found), places=2),
            BUDGETS[name][0] if name in BUDGETS else as_given(EPSILON if name == TRAINING else MECHANISM_EPSILON),
        )
    console.print(table)
    console.print(
        "Not seen by any audit here, and rejected by a test of the code's structure instead:", highlight=False
    )
    for name, unseen in UNSEEN.items():
        console.print(f"* {name}: {unseen.why}. {unseen.check}", highlight=False, markup=False)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=Path("runs/audit-benchmark.jsonl"), help="cells that are done")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each true mechanism")
    parser.add_argument("--fault-seeds", type=int, default=3, help="runs of each fault")
    parser.add_argument("--half-seeds", type=int, default=59, help="runs of half the noise")
    parser.add_argument("--only", help="one row of the table's first column")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    todo = cells(chosen.seeds, chosen.fault_seeds, chosen.half_seeds, chosen.only)
    alpha = ERROR / len(todo)
    made_by = {"source": code_version()["source"], "alpha": alpha, "canaries": CANARIES, "epsilon": PLAN.epsilon}
    done = {tuple(line["cell"]): line for line in lines(chosen.file) if line.get("made_by") == made_by}
    console, runner = Console(width=140), Runner(alpha)
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    with chosen.file.open("a") as file:
        file.write("\n" if chosen.file.stat().st_size else "")  # a torn last line stays by itself
        for number, cell in enumerate(todo):
            if cell not in done:
                print(f"\r{number + 1} of {len(todo)}: {' '.join(map(str, cell)):<70}", end="", file=sys.stderr)
                done[cell] = {"cell": list(cell), "made_by": made_by, **runner.run(cell)}
                file.write(json.dumps(done[cell]) + "\n")
                file.flush()
    print(file=sys.stderr)
    good = show({cell: done[cell] for cell in todo}, alpha, console)
    console.print("every true mechanism stood, every visible fault was flagged" if good else "NOT as it should be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
