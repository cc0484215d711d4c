"""The private step beside Opacus' on a model that Opacus accepts, and what Opacus says of TinyViT.

    pip install opacus
    python benchmarks/opacus_step.py        # also the last table of benchmarks/private_step.py

The model is eight convolutions with GroupNorm (1.2 M parameters), the task a regression, one view a unit. Both steps do
a forward, a backward, per-unit clipping and one draw of noise over the same batch.
Opacus draws its noise from torch's generator, dpose from AES in 64-bit floats; that difference is part of the figures.
Rounds alternate, the ratio is of the medians.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import platform
import statistics
import time
import warnings
from collections.abc import Callable

import opacus
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from rich.console import Console
from rich.table import Table
from torch.func import functional_call

from dpose.pose.model import PoseConfig, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.gaussian_noise import add_gaussian
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training.clip import Clip
from dpose.training.gradients import clipped_sum, mean_gradient, trainable_params, unit_loss
from dpose.units import UnitBatch


class Regression:
    """A task of the least kind: sixteen points from a picture."""

    name = "regression"

    def loss(self, model, params, inputs, targets):  # noqa: D102
        out = functional_call(model, dict(params), (inputs.float() / 255,))
        return (out - targets["points"]).square().mean(1)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    channels = 3
    for width in (32, 64, 128, 256):
        for stride in (2, 1):
            layers += [
                torch.nn.Conv2d(channels, width, 3, stride, 1, bias=False),
                torch.nn.GroupNorm(8, width),
                torch.nn.ReLU(),
            ]
            channels = width
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 32)]
    return torch.nn.Sequential(*layers).train()


def compare(batch: int, rounds: int, console: Console, device: str = "cpu") -> None:
    """Print the table, and what Opacus says of TinyViT."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _compare(batch, rounds, console, device)


def _compare(batch: int, rounds: int, console: Console, device: str) -> None:
    inputs = torch.randint(0, 256, (batch, 1, 3, 128, 96), dtype=torch.uint8, device=device)
    points = torch.rand(batch, 1, 32, device=device)
    units = UnitBatch(inputs, {"points": points}, torch.ones(batch, 1, device=device))

    plain = network().to(device)
    plain_params = trainable_params(plain)

    ours = network().to(device)
    params, loss = trainable_params(ours), unit_loss(Regression(), ours)  # type: ignore[arg-type]
    noise, count = AesNoise(Key.from_seed(0)), iter(range(10**9))

    def dpose_step() -> object:
        sums = clipped_sum(loss, params, units.parts, Clip(1.0), microbatch_size=None)
        return add_gaussian(sums, 1.0, noise.stream(Purpose.NOISE, next(count)))

    theirs = GradSampleModule(network().to(device))
    optimizer = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=0.0), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch
    )

    def opacus_step() -> object:
        optimizer.zero_grad()
        out = theirs(inputs[:, 0].float() / 255)
        (out - points[:, 0]).square().mean(1).mean().backward()
        return optimizer.step()

    steps: dict[str, Callable[[], object]] = {
        "non-private": lambda: mean_gradient(Regression(), plain, plain_params, units),  # type: ignore[arg-type]
        "dpose": dpose_step,
        f"Opacus {opacus.__version__}": opacus_step,
    }
    found: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            if device == "cuda":
                torch.cuda.synchronize()
            started = time.perf_counter()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            found[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(times) for name, times in found.items()}
    table = Table(title=f"eight convolutions with GroupNorm, 128x96, {batch} units")
    for column in ("step", "seconds", "to non-private"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, seconds in medians.items():
        table.add_row(name, f"{seconds:.3f}", f"{seconds / medians['non-private']:.2f}")
    console.print(table)

    tiny = fold_batchnorm(PoseTask().build_model(PoseConfig(preset="nano")))
    console.print("\nOpacus on dpose's TinyViT (nano, BatchNorm folded):")
    for error in ModuleValidator.validate(tiny, strict=False):
        console.print(f"  {type(error).__name__}: {error}", highlight=False)
    try:
        GradSampleModule(tiny)
    except Exception as error:
        console.print(
            f"  GradSampleModule: {type(error).__name__}: {' '.join(str(error).split())[:300]}", highlight=False
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    console = Console(width=100)
    compare(arguments.batch, arguments.rounds, console, arguments.device)
    console.print(
        f"\n{torch.get_num_threads()} CPU threads, torch {torch.__version__}, Python {platform.python_version()}, "
        f"seed 0, {arguments.rounds} rounds",
        highlight=False,
    )


if __name__ == "__main__":
    main()
