"""What exact sums and repeatable products cost, side by side in one run.

    OMP_NUM_THREADS=1 python benchmarks/bits.py --clock cpu
    python benchmarks/bits.py --preset 5m --strategy full --rounds 9

The first table is of one private micro-batch without noise: each unit's clipped gradient truncated on the integer grid
and summed in integers, beside the same step with its sum taken in float32, as it was before. Rounds alternate; the
ratio is of the medians, and the span is of the rounds' own ratios.

The second is of the same step and of a projection's two products, in processes of their own with another `MKL_CBWR`
each, which alternate as well; dpose asks for AUTO unless the environment says otherwise. Its last column says whether
products there have the same bits wherever in memory their numbers begin.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from unittest.mock import patch

import torch
from private_step import BATCH, CLOCKS, Case, private_step, timed
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dpose.training.arithmetic import keep_freed_memory, products_repeat
from dpose.training.bookkeeping import Bookkeeping
from dpose.training.clip import Grid
from dpose.training.kernels.reference import at_least_float32

MODES = ("OFF", "AUTO", "AVX2", "COMPATIBLE")
DIRECTIONS, NUMBERS = 50, 1 << 20


def float32_sums(self: Bookkeeping, scales: Tensor, grid: Grid, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`Bookkeeping.sums` as it was before there was a grid."""
    sums = {}
    for name, parameter in like.items():
        if name in self._whole:
            total = scales @ self._whole.pop(name).flatten(1)
        elif name in self._pairs:
            a, b = (at_least_float32(side) for side in self._pairs.pop(name))
            total = (b * scales[:, None, None]).flatten(0, 1).T @ a.flatten(0, 1)
        else:
            total = torch.zeros_like(parameter)
        sums[name] = total.view(parameter.shape)
    return sums


def in_float32(step: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        with patch.object(Bookkeeping, "sums", float32_sums):
            return step()

    return run


def projection() -> Callable[[], object]:
    basis, gradient = torch.randn(DIRECTIONS, NUMBERS), torch.randn(NUMBERS)
    return lambda: torch.mv(basis.t(), torch.mv(basis, gradient))


def grids(case: Case, rounds: int, clock: str, table: Table) -> None:
    step = private_step(case)
    steps = {"float32": in_float32(step), "grid": step}
    for run in steps.values():
        run()
    times = [{name: timed(run, clock) for name, run in steps.items()} for _ in range(rounds)]
    before, after = (statistics.median(t[name] for t in times) for name in steps)
    ratios = [t["grid"] / t["float32"] for t in times]
    table.add_row(
        str(case), f"{before:.3f}", f"{after:.3f}", f"{after / before:.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"
    )


def measure_mode(case: Case, clock: str) -> None:
    """Print the seconds of a step and of a projection, the fastest of some, and whether products repeat."""
    found = [min(timed(run, clock) for _ in range(4)) for run in (private_step(case), projection())]
    print(json.dumps([*found, products_repeat()]))


def modes(case: Case, rounds: int, arguments: list[str], console: Console) -> None:
    times: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode, found in times.items():
            # an empty value is off: dpose leaves it as it is
            environment = {**os.environ, "MKL_CBWR": "" if mode == "OFF" else mode}
            command = [sys.executable, __file__, *arguments, "--one-mode"]
            result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            found.append(json.loads(result.stdout))
    table = Table(title=f"MKL_CBWR: {case}; {DIRECTIONS} directions of {NUMBERS:,} numbers")
    for column in ("mode", "private step, s", "to off", "projection, s", "to off", "repeats"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    medians = {mode: [statistics.median(f[i] for f in found) for i in (0, 1)] for mode, found in times.items()}
    for mode, (step, projected) in medians.items():
        off = medians["OFF"]
        table.add_row(
            mode,
            f"{step:.3f}",
            f"{step / off[0]:.2f}",
            f"{projected:.3f}",
            f"{projected / off[1]:.2f}",
            "yes" if all(f[2] for f in times[mode]) else "no",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", nargs="+", default=["nano"], choices=list(BATCH))
    parser.add_argument("--strategy", nargs="+", default=["light", "finetune", "full"])
    parser.add_argument("--views", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--no-modes", action="store_true", help="leave the second table out")
    parser.add_argument("--one-mode", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    keep_freed_memory()
    cases = [
        Case(preset, strategy, views, BATCH[preset], "cpu")
        for preset in arguments.preset
        for strategy in arguments.strategy
        for views in arguments.views
    ]
    if arguments.one_mode:
        return measure_mode(cases[0], arguments.clock)
    console = Console(width=110)
    table = Table(title="a private micro-batch, summed")
    for column in ("case", "in float32, s", "on the grid, s", "ratio", "span"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case in cases:
        grids(case, arguments.rounds, arguments.clock, table)
    console.print(table)
    if not arguments.no_modes:
        rest = ["--preset", cases[0].preset, "--strategy", cases[0].strategy, "--clock", arguments.clock]
        modes(cases[0], max(1, arguments.rounds // 2), rest, console)
    console.print(
        f"{torch.get_num_threads()} CPU threads, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{arguments.rounds} rounds, {arguments.clock} clock",
        highlight=False,
    )


if __name__ == "__main__":
    main()
