"""What exact training noise costs: beside floating-point noise, beside discrete Gaussian noise, and in a step.

    python benchmarks/noise.py

Times are of the processor, medians of rounds in which all take turns. The step is the clipped sum of `--logical-batch`
units, scaled up from one micro-batch, and one draw of noise on each number that trains.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import torch
from private_step import Case, private_step, setup
from rich.console import Console
from rich.table import Table

from dpose.pose.model import Strategy
from dpose.privacy.discrete import discrete_gaussian
from dpose.privacy.gaussian_noise import add_gaussian
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training.clip import Clip

SIGMA = 1.4
STRATEGIES: tuple[Strategy, ...] = ("light", "finetune", "full")
NOISE, COUNT = AesNoise(Key.from_seed(0)), itertools.count()


def stream():
    return NOISE.stream(Purpose.NOISE, next(COUNT))


def seconds(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    for way in ways.values():
        way()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.process_time()
            way()
            found[name].append(time.process_time() - began)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=1_000_000)
    parser.add_argument("--logical-batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--presets", nargs="+", default=["nano"])
    options = parser.parse_args()
    console, grid = Console(), Clip(1.0, True).grid
    zero = {"w": torch.zeros(options.numbers, dtype=torch.float64)}
    ways = {
        "exact: a rounded Gaussian": lambda: add_gaussian(zero, SIGMA, stream(), grid.step),
        "float: Box-Muller in 64 bits": lambda: add_gaussian(zero, SIGMA, stream()),
        "discrete Gaussian, exact": lambda: discrete_gaussian(
            Fraction(round(SIGMA / grid.step)) ** 2, options.numbers, stream()
        ),
        "the random bits of exact noise alone": lambda: stream().uint64(2 * options.numbers),
    }
    table = Table("noise", "ns a number", "beside float", title=f"{options.numbers:,} numbers, one thread")
    found = seconds(ways, options.rounds)
    for name, each in found.items():
        table.add_row(
            name, f"{each / options.numbers * 1e9:.1f}", f"{each / found['float: Box-Muller in 64 bits']:.2f}"
        )
    console.print(table)
    table = Table("model, strategy", "numbers", "step, s", "exact noise", "float noise", title="Share of a step")
    for preset in options.presets:
        for strategy in STRATEGIES:
            case = Case(preset, strategy, 1, 32, "cpu")
            params = setup(case, True)[2]
            sums = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in params.items()}
            ways = {
                "step": private_step(case),
                "exact": lambda: add_gaussian(sums, SIGMA, stream(), grid.step),  # noqa: B023
                "float": lambda: add_gaussian(sums, SIGMA, stream()),  # noqa: B023
            }
            found = seconds(ways, options.rounds)
            step = found["step"] * options.logical_batch / case.batch
            numbers = sum(p.numel() for p in params.values())
            table.add_row(
                f"{preset}, {strategy}",
                f"{numbers:,}",
                f"{step:.2f}",
                *(f"{found[name] / (step + found[name]):.2%}" for name in ("exact", "float")),
            )
    console.print(table)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
