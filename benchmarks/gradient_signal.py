"""Where a step's signal is: the mean clipped gradient of public units, by kind of parameter, beside the noise.

    python benchmarks/gradient_signal.py --data lspet:ROOT:public --init runs/lspet-dp/runs/start

Noise is the same for every number that trains, signal is not. The units are split in halves; the product of the
halves' mean gradients estimates the squared length of the expected one without the bias that a mean's own length has.
The noise is that of one full pass at the budget, per number: the whole schedule's signal and noise grow alike, so that
their ratio does not depend on the number of steps (as long as the noise multiplier is well above 1).
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from dpose.pose.data import Augment, PoseUnits, open_data
from dpose.pose.folder import load_model
from dpose.pose.model import Strategy, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.ranges import as_given
from dpose.training.clip import Clip
from dpose.training.gradients import clipped_sum, trainable_params, unit_loss
from dpose.training.plan import TrainingPlan

AT_ONCE = 32


def kind_of(name: str, layer: nn.Module) -> str:
    """Where a parameter is, and what it is."""
    place = "stage four" if ".stages.3." in name else "before" if name.startswith("backbone.") else "head"
    if name.endswith("bias"):
        return f"{place}: biases"
    if isinstance(layer, nn.Conv2d):
        return f"{place}: convolutions, depthwise" if layer.groups > 1 else f"{place}: convolutions"
    if isinstance(layer, nn.Linear):
        return f"{place}: matrices"
    return f"{place}: LayerNorms, position biases"


def mean_clipped(
    task: PoseTask, model: nn.Module, params: Mapping[str, Tensor], units: PoseUnits, chosen: Sequence[int]
) -> dict[str, Tensor]:
    """The mean over the chosen units of their gradients, each scaled to norm 1 at most."""
    rng = np.random.default_rng(0)
    total = {name: torch.zeros_like(p) for name, p in params.items()}
    for start in range(0, len(chosen), AT_ONCE):
        batch = task.collate([units.load(int(i), rng) for i in chosen[start : start + AT_ONCE]])
        for name, value in clipped_sum(unit_loss(task, model), dict(params), batch.parts, Clip(1.0)).items():
            total[name] += value
    return {name: value / len(chosen) for name, value in total.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic:ward:public", help="public units")
    parser.add_argument("--init", default="src/dpose/weights/nano", help="a model folder")
    parser.add_argument("--strategy", default="full", help="what trains, and is clipped together")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--units", type=int, default=7000, help="of the private data, for the noise")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    asked = parser.parse_args()

    model = fold_batchnorm(load_model(asked.init))
    strategy: Strategy = asked.strategy
    apply_strategy(model, strategy)
    model.train()
    size = model.config.input_size
    units = open_data(asked.data, purpose="train", input_size=size, augment=Augment.none(), limit=asked.limit)
    task, params = PoseTask(), trainable_params(model)
    order = np.random.default_rng(0).permutation(len(units))
    one, other = (mean_clipped(task, model, params, units, half.tolist()) for half in np.array_split(order, 2))

    plan = TrainingPlan(
        method="dp-sgd", epsilon=asked.epsilon, delta=asked.delta, steps=1, expected_batch_size=asked.units
    )
    event = plan.bind(asked.units).event
    assert event is not None
    noise = (event.sigma / asked.units) ** 2

    layers = dict(model.named_modules())
    kinds: dict[str, tuple[int, float]] = {}
    for name, p in params.items():
        kind = kind_of(name, layers[name.rpartition(".")[0]])
        numbers, signal = kinds.get(kind, (0, 0.0))
        kinds[kind] = (numbers + p.numel(), signal + float((one[name] * other[name]).sum()))
    whole = sum(signal for _, signal in kinds.values())
    title = f"{len(units)} units, {asked.strategy}; noise of epsilon {as_given(asked.epsilon)} on {asked.units} units"
    table = Table("parameters", "numbers", "share of signal", "signal to noise, a number", title=title)
    for kind, (numbers, signal) in sorted(kinds.items(), key=lambda item: -item[1][1] / item[1][0]):
        table.add_row(kind, f"{numbers:,}", f"{signal / whole:.1%}", f"{signal / numbers / noise:.3g}")
    total = sum(numbers for numbers, _ in kinds.values())
    table.add_row("all", f"{total:,}", "100.0%", f"{whole / total / noise:.3g}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
