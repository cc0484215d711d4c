"""The private step beside the fastest non-private one, in one run: time, as a ratio, and peak memory.

    python benchmarks/private_step.py                       # nano and 5m, finetune and full, one and four views
    python benchmarks/private_step.py --preset nano --strategy full --views 4 --no-compile
    python benchmarks/private_step.py --backbone lite0 timm:resnet18 --no-opacus
    python benchmarks/private_step.py --device cuda --batch 64

All steps do the same work on the same pictures: forward, backward, and (private) per-unit clipping. The private one
also pays its share of the one draw of noise that a step of `--logical-batch` units has. With several views a unit has
so many pictures, and the reference is a plain step over all of them.
The non-private step is tried eager, in channels-last layout and compiled, in float32 and in bfloat16. Two ratios are
printed: to the fastest of them in float32, and to the fastest of all, which is the honest one for a private step in
bfloat16: who trades exactness for speed can do so without privacy as well. A run in bfloat16 also fills its last
micro-batches with empty units, half a micro-batch a step on average; that is in no row.
Rounds alternate between the steps, so that a machine that slows down slows all; the ratio is of the medians, and the
span is of the rounds' own ratios. Memory is measured in fresh processes, one a step, as the peak resident size above
the size before the first step.

A second table prices the projection: one product with the basis a step, and one fit on 100 public units every 20
steps, over the time of a private step of `--logical-batch` units, and which part of that the public gradients would be
if each took as long as a unit of the private step. A third stands beside Opacus, where it is installed, on a model that
Opacus accepts (benchmarks/opacus_step.py, CPU only).
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from dpose.pose.codec import codec_of
from dpose.pose.model import PoseConfig, Strategy, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.gaussian_noise import add_gaussian
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training.arithmetic import keep_freed_memory
from dpose.training.clip import Clip
from dpose.training.gradients import clipped_sum, mean_gradient, trainable_params, unit_loss
from dpose.training.methods import SubspaceConfig
from dpose.training.subspace import Subspace, fit_subspace, project_onto
from dpose.units import Precision, UnitBatch

BATCH = {"nano": 32, "lite0": 32, "5m": 8, "11m": 8, "21m": 4}
"""Pictures in the micro-batch; 16 of any other backbone."""


@dataclass(frozen=True)
class Case:
    """What is measured: a model, what of it trains, and the pictures of a unit."""

    preset: str
    strategy: Strategy
    views: int
    batch: int
    device: str

    def __str__(self) -> str:
        return f"{self.preset}, {self.strategy}, {self.batch // self.views} units x {self.views} views"


def setup(case: Case, channels_last: bool, precision: Precision = "float32"):
    preset, strategy, views = case.preset, case.strategy, case.views
    batch = max(1, case.batch // views)
    torch.manual_seed(0)
    config = PoseConfig(preset=preset)
    task = PoseTask(codec=codec_of(config), precision=precision)
    model = fold_batchnorm(task.build_model(config))
    apply_strategy(model, strategy)
    model.train()
    device = torch.device(case.device)
    model.to(device).to(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    height, width = model.config.input_size
    units = UnitBatch(
        torch.randint(0, 256, (batch, views, 3, height, width), dtype=torch.uint8),
        {
            "keypoints": torch.rand(batch, views, model.config.joints, 2) * torch.tensor([width, height]),
            "visible": torch.ones(batch, views, model.config.joints),
        },
        torch.ones(batch, views),
    ).to(device)
    return task, model, trainable_params(model), units


def plain_step(
    case: Case, channels_last: bool, compiled: bool = False, precision: Precision = "float32"
) -> Callable[[], object]:
    task, model, params, units = setup(case, channels_last, precision)
    if not compiled:
        return lambda: mean_gradient(task, model, params, units)
    inputs = units.inputs.flatten(0, 1)
    targets = {name: t.flatten(0, 1) for name, t in units.targets.items()}
    loss = torch.compile(lambda p: task.loss(model, p, inputs, targets).mean())

    def step():
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        return torch.autograd.grad(loss(leaves), list(leaves.values()))

    return step


def private_step(case: Case, precision: Precision = "float32") -> Callable[[], object]:
    task, model, params, units = setup(case, True, precision)
    loss, mixed = unit_loss(task, model), precision != "float32"
    return lambda: clipped_sum(loss, params, units.parts, Clip(1.0, True), microbatch_size=None, mixed=mixed)


def noise_draw(case: Case) -> Callable[[], object]:
    _, _, params, _ = setup(case, True)
    sums = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in params.items()}
    noise, grid = AesNoise(Key.from_seed(0)), Clip(1.0, True).grid
    count = iter(range(10**9))
    return lambda: add_gaussian(sums, 1.0, noise.stream(Purpose.NOISE, next(count)), grid.step)


def projection(case: Case, subspace: SubspaceConfig, clock: str) -> tuple[float, float]:
    """Seconds of one projection and of one fit."""
    task, model, params, units = setup(replace(case, views=1), True)
    repeats = math.ceil(subspace.units / len(units))
    torch.manual_seed(1)  # other pictures in each batch, or the gradients would have the rank of one

    def public():
        for at in range(repeats):
            count = min(len(units), subspace.units - at * len(units))  # m in all, and not whole batches
            inputs = torch.randint_like(units.inputs[:count], 0, 256)
            targets = {name: t[:count] for name, t in units.targets.items()}
            yield UnitBatch(inputs, targets, units.weights[:count])

    bases: list[Subspace] = []

    def fit():
        # on a GPU in the shape of steps, as trainings have it
        room = len(units) if case.device == "cuda" else None
        bases[:] = [fit_subspace(task, model, params, public(), subspace.rank, room=room)]

    fitted = timed(fit, clock)
    basis = bases[0]
    gradient = {name: torch.randn_like(p) for name, p in params.items()}
    project_onto(gradient, basis)
    return statistics.median(timed(lambda: project_onto(gradient, basis), clock) for _ in range(7)), fitted


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def timed(step: Callable[[], object], clock: str) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = CLOCKS[clock]()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return CLOCKS[clock]() - started


def peak_memory(case: Case, which: str) -> float:
    """MiB above the start, of three steps in a process of their own."""
    command = [sys.executable, __file__, "--memory-of", which]
    for name, value in asdict(case).items():
        command += [f"--{name}", str(value)]
    return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def measure_memory(case: Case, which: str) -> None:
    private: dict[str, Precision] = {"private": "float32", "private, bf16": "bf16"}
    step = private_step(case, private[which]) if which in private else plain_step(case, True)
    if case.device == "cuda":
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


def measure(case: Case, logical_batch: int, rounds: int, compiled: bool, clock: str, console: Console) -> float:
    """Print the case's table; the seconds of a private micro-batch with its share of the noise."""
    exact = {"eager": plain_step(case, False), "eager, channels last": plain_step(case, True)}
    if compiled:
        exact["compiled, channels last"] = plain_step(case, True, compiled=True)
    references = {
        **exact,
        "eager, bf16": plain_step(case, False, precision="bf16"),
        "eager, channels last, bf16": plain_step(case, True, precision="bf16"),
    }
    if compiled:
        references["compiled, channels last, bf16"] = plain_step(case, True, compiled=True, precision="bf16")
    steps = {**references, "private": private_step(case), "private, bf16": private_step(case, "bf16")}
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    draw = noise_draw(case)
    draw()
    share = max(1, case.batch // case.views) / logical_batch
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(timed(step, clock) + (share * timed(draw, clock) if name.startswith("private") else 0))
    medians = {name: statistics.median(found) for name, found in times.items()}
    fastest, of_all = (min(those, key=lambda name: medians[name]) for those in (exact, references))
    peaks = {which: peak_memory(case, which) for which in ("plain", "private", "private, bf16")}

    table = Table(title=str(case))
    for column in ("step", "seconds", "to the fastest float32", "span", "to the fastest of all", "peak, MiB"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, found in times.items():
        ratios = [a / b for a, b in zip(found, times[fastest], strict=True)]
        mib = {**peaks, "eager, channels last": peaks["plain"]}.get(name)
        table.add_row(
            name,
            f"{medians[name]:.3f}",
            f"{medians[name] / medians[fastest]:.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"{medians[name] / medians[of_all]:.2f}",
            "" if mib is None else f"{mib:.0f}",
        )
    console.print(table)
    return medians["private"]


def beside_opacus(rounds: int, console: Console) -> None:
    try:
        import opacus_step
    except ImportError as error:
        console.print(f"not beside Opacus: {error} (pip install opacus)")
        return
    opacus_step.compare(16, rounds, console)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--preset", "--backbone", nargs="+", default=["nano", "5m"], help="also lite0, 11m, 21m or timm:NAME"
    )
    parser.add_argument("--strategy", nargs="+", default=["finetune", "full"])
    parser.add_argument("--views", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--batch", type=int, help="pictures in the micro-batch (nano 32, 5m 8)")
    parser.add_argument("--logical-batch", type=int, default=256, help="units in a step, for noise and projection")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--clock",
        choices=list(CLOCKS),
        default="wall",
        help="cpu: the processor time of all threads, for a machine that is shared, with OMP_NUM_THREADS=1",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-opacus", action="store_true", help="leave the comparison with Opacus out")
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled reference out (it takes minutes)")
    parser.add_argument("--memory-of", choices=("plain", "private", "private, bf16"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    keep_freed_memory()  # for the plain steps as well, or they would be measured with it only after a private one
    cases = [
        Case(preset, strategy, views, arguments.batch or BATCH.get(preset, 16), arguments.device)
        for preset in arguments.preset
        for strategy in arguments.strategy
        for views in arguments.views
    ]
    if arguments.memory_of:
        return measure_memory(cases[0], arguments.memory_of)

    console = Console(width=100)
    subspace = SubspaceConfig()
    prices = Table(
        title=f"projection, k = {subspace.rank}, m = {subspace.units}, "
        f"fitted every {subspace.refresh} steps of {arguments.logical_batch} units"
    )
    for column in (
        "model",
        "private step, s",
        "one projection, s",
        "one fit, s",
        "on top of the step",
        "gradients alone",
    ):
        prices.add_column(column, justify="left" if column == "model" else "right")
    for case in cases:
        seconds = measure(
            case, arguments.logical_batch, arguments.rounds, not arguments.no_compile, arguments.clock, console
        )
        if case.views == 1:
            step = seconds / case.batch * arguments.logical_batch
            once, fit = projection(case, subspace, arguments.clock)
            share = (once + fit / subspace.refresh) / step
            name = f"{case.preset}, {case.strategy}"
            least = subspace.units / subspace.refresh / arguments.logical_batch
            prices.add_row(
                name, f"{step:.2f}", f"{once:.4f}", f"{fit:.2f}", f"{100 * share:.1f} %", f"{100 * least:.2f} %"
            )
    if prices.row_count:
        console.print(prices)
    if arguments.device == "cpu" and not arguments.no_opacus:
        beside_opacus(arguments.rounds, console)
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    console.print(
        f"{device}, torch {torch.__version__}, Python {platform.python_version()}, seed 0, {arguments.rounds} rounds, "
        f"{arguments.clock} clock",
        highlight=False,
    )


if __name__ == "__main__":
    main()
