"""The private step beside the fastest non-private one, in one run: time, as a ratio, and peak memory.

    python benchmarks/private_step.py                       # 5m at 256x192, finetune
    python benchmarks/private_step.py --preset nano --strategy full --batch 32

Both steps do the same work on the same units: forward, backward, and (private) per-unit clipping and one draw of noise.
The non-private step is tried eager, in channels-last layout and compiled, and the fastest of them is the reference.
Rounds alternate between the steps, so that a machine that slows down slows all; the ratio is of the medians, and the
span is of the rounds' own ratios. Memory is measured in fresh processes, one a step, as the peak resident size above
the size before the first step.
"""

from __future__ import annotations

import dpose  # noqa: F401  # isort: skip  (before torch: it settles how torch's threads wait)

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from dpose.pose.model import PoseConfig, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.noise import AesNoise, Key, Purpose, add_gaussian
from dpose.training.gradients import clipped_sum, mean_gradient, trainable_params
from dpose.units import UnitBatch


def setup(preset: str, strategy: str, batch: int, views: int, channels_last: bool):
    torch.manual_seed(0)
    task = PoseTask()
    model = fold_batchnorm(task.build_model(PoseConfig(preset=preset)))
    apply_strategy(model, strategy)
    model.train()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device=device, memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    height, width = model.config.input_size
    units = UnitBatch(
        torch.randint(0, 256, (batch, views, 3, height, width), dtype=torch.uint8),
        {
            "keypoints": torch.rand(batch, views, 16, 2) * torch.tensor([width, height]),
            "visible": torch.ones(batch, views, 16),
        },
        torch.ones(batch, views),
    ).to(device)
    return task, model, trainable_params(model), units


def plain_step(arguments, channels_last: bool, compiled: bool = False) -> Callable[[], object]:
    task, model, params, units = setup(
        arguments.preset, arguments.strategy, arguments.batch, arguments.views, channels_last
    )
    if not compiled:
        return lambda: mean_gradient(task, model, params, units)
    inputs = units.inputs.flatten(0, 1)
    targets = {name: t.flatten(0, 1) for name, t in units.targets.items()}
    loss = torch.compile(lambda p: task.loss(model, p, inputs, targets).mean())

    def step():
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        return torch.autograd.grad(loss(leaves), list(leaves.values()))

    return step


def private_step(arguments) -> Callable[[], object]:
    task, model, params, units = setup(
        arguments.preset, arguments.strategy, arguments.batch, arguments.views, True
    )
    noise = AesNoise(Key.from_seed(0))
    count = iter(range(10**9))

    def step():
        sums = clipped_sum(task, model, params, units, 1.0, normalise=True)
        return add_gaussian(sums, 1.0, noise.stream(Purpose.NOISE, next(count)))

    return step


def timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_memory(arguments, which: str) -> float:
    """MiB above the start, of three steps in a process of their own."""
    command = [sys.executable, __file__, "--memory-of", which]
    for name in ("preset", "strategy", "batch", "views"):
        command += [f"--{name}", str(getattr(arguments, name))]
    return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def measure_memory(arguments) -> None:
    step = private_step(arguments) if arguments.memory_of == "private" else plain_step(arguments, True)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            step()
        print((torch.cuda.max_memory_allocated() - before) / 2**20)
        return
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak that importing made
    for _ in range(3):
        step()
    print((memory("VmHWM") - before) / 2**10)


def memory(field: str) -> int:
    """KiB: the resident size now (VmRSS) or at its highest (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="5m")
    parser.add_argument("--strategy", default="finetune")
    parser.add_argument("--batch", type=int, default=8, help="units in the micro-batch")
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--no-compile", action="store_true", help="leave the compiled reference out (it takes minutes)"
    )
    parser.add_argument("--memory-of", choices=("plain", "private"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        return measure_memory(arguments)

    references = {
        "eager": plain_step(arguments, False),
        "eager, channels last": plain_step(arguments, True),
    }
    if not arguments.no_compile:
        references["compiled, channels last"] = plain_step(arguments, True, compiled=True)
    steps = {**references, "private": private_step(arguments)}
    for step in steps.values():
        step()
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            rounds[name].append(timed(step))
    medians = {name: statistics.median(times) for name, times in rounds.items()}
    fastest = min(references, key=lambda name: medians[name])
    memory = {which: peak_memory(arguments, which) for which in ("plain", "private")}

    table = Table(
        title=f"{arguments.preset}, {arguments.strategy}, {arguments.batch} units x {arguments.views} views"
    )
    for column in ("step", "seconds", "to the fastest non-private", "span", "peak memory, MiB"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, times in rounds.items():
        ratios = [a / b for a, b in zip(times, rounds[fastest], strict=True)]
        mib = {"private": memory["private"], "eager, channels last": memory["plain"]}.get(name)
        table.add_row(
            name,
            f"{medians[name]:.3f}",
            f"{medians[name] / medians[fastest]:.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            "" if mib is None else f"{mib:.0f}",
        )
    console = Console(width=100)
    console.print(table)
    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"{torch.get_num_threads()} CPU threads"
    )
    console.print(
        f"{device}, torch {torch.__version__}, Python {platform.python_version()}, seed 0, {arguments.rounds} rounds",
        highlight=False,
    )


if __name__ == "__main__":
    main()
