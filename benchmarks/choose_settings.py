"""Every method with its own optimizer and learning rate: short trainings on LSPET's split for choosing.

    python benchmarks/choose_settings.py --data lspet:ROOT --init runs/start --out choices.jsonl --epsilons 8
    python benchmarks/choose_settings.py --out choices.jsonl --table

One cell is a method, a budget, an optimizer, a learning rate and a seed; each has the same passes in the same batches,
and the same number of learning rates in each optimizer (`GRIDS`). A cell that stands in the file is not run again. It
trains on `choosing-train` and is scored on `choosing-test`, by PCKh@0.5 and by the loss, which chance moves less: both
are private, read without noise, and no benchmark reports them. The noise is a seed's, so nothing here is protected.
What is fitted on public gradients is fitted on `public`. Pictures are not augmented, as in the recipe; with `--views`
above 1 they are, mildly, and each has so many views in its gradient. With `--fewer`, of what the strategy trains only
biases and depthwise convolutions do: where the signal is largest beside the noise (`gradient_signal.py`). `--after`
scores the same training in other ways, a row each: what is released then is a function of the same steps (averages, and
ways back to the first weights).

    python benchmarks/choose_settings.py --data synthetic:ward --init blazepose:lite --limit 2000 --noise-of 8000 ...

`--noise-of N` trains on fewer units with the noise a unit that N would have: sigma falls as the number of units does.
`--decay D` lets learning rates rise from layer to layer: the first layer's is D times the last one's.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import itertools
import json
import math
import time
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gradient_signal import kind_of
from rich.console import Console
from rich.progress import track
from rich.table import Table
from shrinkage import noise_in_weights, shrink

from dpose.errors import DposeError
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head, temper
from dpose.pose.model import PoseModel, Strategy, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy import ranges
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.selection import Selection
from dpose.runs.data import regions_for
from dpose.training.arithmetic import exact_arithmetic
from dpose.training.gradients import Params, trainable_params
from dpose.training.loader import Loader
from dpose.training.methods import METHODS, SubspaceConfig
from dpose.training.optim import OptimizerConfig, WeightAverage
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.step import StepInputs, open_parts
from dpose.units import UnitBatch, UnitDataset, View, WrappedUnits
from dpose_lab.papers.pose.ablation import choosing_splits

GRIDS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "sgd": ({"momentum": 0.9}, (0.1, 0.5, 2.5)),
    "adamw": ({"weight_decay": 0.0}, (4e-4, 2e-3, 1e-2)),
}
"""Options and learning rates by optimizer: as many of each."""
AT_ONCE = 32
TEMPERATURES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0)
"""What logits are divided by: the loss falls with it where a model is too sure, and no joint moves."""
SETTINGS = (
    *("strategy", "rank", "units", "refresh", "passes", "batch", "ema"),
    *("views", "fewer", "temperature", "clip", "decay", "noise_of", "limit"),
)
"""Settings of a cell that are options of the command."""
AFTER: dict[str, tuple[float, str]] = {
    "": (0.0, "none"),
    "tail": (0.5, "none"),
    "whole": (0.0, "whole"),
    "tensors": (0.0, "tensors"),
    "tail tensors": (0.5, "tensors"),
    "half": (0.0, "half"),
}
"""By name, the tail that is averaged and the shrinkage; "half" is a control, half the way whatever was released."""


class Kept(WrappedUnits):
    """Units that stay in memory: they are not augmented."""

    def __init__(self, dataset: PoseUnits, what: str) -> None:
        super().__init__(dataset)
        rng = np.random.default_rng(0)
        numbers = track(range(len(dataset)), what, console=Console(stderr=True))
        self.views = [dataset.load(i, rng) for i in numbers]

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """What was read."""
        return self.views[index]

    def canonical(self, index: int) -> list[View]:
        """What was read, which nothing has augmented."""
        return self.views[index]

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """The view as it is."""
        return view


@dataclass(frozen=True)
class Cell:
    """One training."""

    method: str
    epsilon: float
    optimizer: str
    lr: float
    strategy: Strategy
    rank: int
    units: int
    refresh: int
    passes: float
    batch: int
    ema: float
    seed: int
    init: str
    views: int = 1
    after: str = ""
    fewer: bool = False
    temperature: float = 1.0
    clip: float = 1.0
    decay: float = 1.0
    noise_of: int = 0
    limit: int = 0

    def plan(self) -> TrainingPlan:
        """What it is accounted as."""
        private = METHODS[self.method].private
        return TrainingPlan(
            self.method,
            epsilon=self.epsilon if private else None,
            delta=1e-5 if private else None,
            epochs=self.passes,
            expected_batch_size=self.batch,
            ema_decay=self.ema,
            augmentation_multiplicity=self.views,
            subspace=SubspaceConfig(rank=self.rank, units=self.units, refresh=self.refresh),
            clip_norm=self.clip,
        )

    def bind(self, units: int) -> BoundPlan:
        """The plan for so many units, with the noise a unit that `noise_of` units have if that is not 0."""
        plan = self.plan()
        if not (self.noise_of and plan.kind.private):
            return plan.bind(units)
        whole = replace(plan, expected_batch_size=self.batch * self.noise_of // units).bind(self.noise_of)
        assert whole.event is not None
        less = whole.event.sigma * units / self.noise_of
        return replace(plan, epsilon=None, noise_multiplier=less).bind(units)


def released(
    cell: Cell, optimizer: OptimizerConfig, bound: BoundPlan, ended: Params, tail: WeightAverage, first: Params
) -> dict[str, Params]:
    """The weights by name in `AFTER`; without those that shrink where noise is not known in them."""
    found = {}
    for name, (share, shrinkage) in AFTER.items():
        plan = replace(bound.plan, average_last=share, ema_decay=0.0 if share else cell.ema)
        last = tail.values if share else ended
        if shrinkage == "half":
            found[name] = {n: (value + first[n]) / 2 for n, value in last.items()}
            continue
        try:
            tau = noise_in_weights(optimizer, replace(bound, plan=plan)) if shrinkage != "none" else 0.0
        except DposeError:
            continue
        found[name] = shrink(last, first, tau, shrinkage)
    return found


@dataclass
class Bench:
    """The data, read once."""

    train: UnitDataset
    public: Kept
    test: list[UnitBatch]
    task: PoseTask
    init: str

    def model(self, strategy: Strategy, fewer: bool = False, temperature: float = 1.0) -> PoseModel:
        """The public model, to be trained."""
        model = fold_batchnorm(adapt_head(load_model(find_model(self.init)), self.task.skeleton))
        model = model if temperature == 1 else temper(model, temperature)
        apply_strategy(model, strategy)
        if fewer:
            layers = dict(model.named_modules())
            for name, p in model.named_parameters():
                if not kind_of(name, layers[name.rpartition(".")[0]]).endswith(("biases", "depthwise")):
                    p.requires_grad_(False)
        return model.train()

    @torch.no_grad()
    def score(self, model: PoseModel) -> dict[str, float]:
        """PCKh@0.5 in points, the mean loss, and the least one of `TEMPERATURES` and that temperature."""
        # logits of bins alone have a temperature
        temperatures = TEMPERATURES if model.codec.bin_layers else (1.0,)
        metric, losses, units = self.task.metric(), dict.fromkeys(temperatures, 0.0), 0
        model.eval()
        for batch in self.test:
            targets = {name: t[:, 0] for name, t in batch.targets.items()}
            outputs = model(batch.inputs[:, 0])
            metric.update(outputs, targets)
            for t in temperatures:
                tempered = tuple(output / t for output in outputs)
                losses[t] += float(model.codec.loss(tempered, targets["keypoints"], targets["visible"]).sum())
            units += len(batch)
        coolest = min(temperatures, key=losses.__getitem__)
        return {
            "pckh": round(metric.compute().to_dict()["columns"]["Mean"], 3),
            "loss": round(losses[1.0] / units, 5),
            "tempered": round(losses[coolest] / units, 5),
            "best_temperature": coolest,
        }

    def run(self, cell: Cell, after: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """Train it and score its weights; by name in `AFTER`, those that can be had."""
        model = self.model(cell.strategy, cell.fewer, cell.temperature)
        bound, params = cell.bind(len(self.train)), trainable_params(model)
        leaves = [p for p in model.parameters() if p.requires_grad]
        rates = [cell.decay ** (1 - i / max(1, len(leaves) - 1)) for i in range(len(leaves))]
        config = OptimizerConfig(cell.optimizer, cell.lr, options=GRIDS[cell.optimizer][0])
        optimizer, schedule = config.build(leaves, bound.steps)
        average = WeightAverage(params, cell.ema)
        tail = WeightAverage(params, 0.0, math.ceil(AFTER["tail"][0] * bound.steps), bound.steps)
        first = {name: p.detach().clone() for name, p in params.items()}
        noise = AesNoise(Key.from_seed(cell.seed))
        loader = Loader(self.task, self.train, noise)
        inputs = StepInputs(self.task, model, loader, bound, noise, b"choosing", AT_ONCE)
        public = self.public if bound.plan.fits_public else None
        began = time.perf_counter()
        with exact_arithmetic(inputs.device), open_parts(inputs, public) as parts:
            for step in range(bound.steps):
                gradient, _ = parts.gradient(params, step)
                for leaf, name in zip(leaves, params, strict=True):
                    leaf.grad = gradient[name]
                before = [leaf.detach().clone() for leaf in leaves]
                optimizer.step()
                with torch.no_grad():
                    for leaf, old, rate in zip(leaves, before, rates, strict=True):
                        leaf.lerp_(old, 1 - rate)
                schedule.step()
                average.update(params)
                tail.update(params)
        sigma = bound.event.sigma if bound.event else 0.0
        told = {"sigma": sigma, "steps": bound.steps, "seconds": round(time.perf_counter() - began, 1)}
        scores = {}
        for name, weights in released(cell, config, bound, average.values, tail, first).items():
            if name in after:
                with torch.no_grad():
                    for one, value in weights.items():
                        params[one].copy_(value)
                scores[name] = {**self.score(model), **told}
        return scores


def opened(data: str, init: str, views: int, limit: int) -> Bench:
    """Read everything; what is augmented is read again in each step. Of what is trained on, `limit` units if not 0."""
    train, test = choosing_splits(DataSpec.parse(data))
    model = adapt_head(load_model(find_model(init)), train.skeleton.name)
    size, regions = model.config.input_size, regions_for(model.config)

    def units(spec: DataSpec | str, what: str) -> Kept:
        read = open_data(spec, purpose="train", input_size=size, augment=Augment.none(), regions=regions)
        return Kept(read.limit(Selection(limit)) if limit and what == "train" else read, what)

    task, tested = PoseTask(model.config.skeleton, model.codec), units(test, "test")
    batches = [task.collate(tested.views[at : at + 64]) for at in range(0, len(tested), 64)]
    mild = open_data(train, purpose="train", input_size=size, augment=Augment.private(), regions=regions)
    return Bench(units(train, "train") if views == 1 else mild, units(f"{data}:public", "public"), batches, task, init)


def shown(rows: list[dict[str, Any]]) -> None:
    """The best learning rate of each method, budget and optimizer, by the loss, and all that were tried."""
    table = Table("method", "epsilon", "strategy", "optimizer", "best lr", "PCKh@0.5", "loss", "all, by lr")
    settings = ("method", "epsilon", *SETTINGS, "after", "optimizer", "init")
    key = lambda row: tuple(str(row[name]) for name in settings)  # noqa: E731
    for _, group in itertools.groupby(sorted(rows, key=key), key):
        cells = sorted(group, key=lambda row: (row["lr"], row["seed"]))
        best = min(cells, key=lambda row: float(row["loss"]))
        kind = METHODS.get(best["method"])
        fitted = f", k {best['rank']}, m {best['units']}, every {best['refresh']}"
        name = best["method"] + (fitted if kind and kind.fitted else "")
        tried = "; ".join(f"{c['lr']:g}: {c['pckh']:.2f} ({_losses(c)})" for c in cells)
        strategy = f"{best['strategy']}, {best['passes']:g} x {best['batch']}"
        strategy += f", {best['views']} views" if best["views"] > 1 else ""
        strategy += ", fewer" if best["fewer"] else ""
        strategy += f", temperature {best['temperature']:g}" if best["temperature"] != 1 else ""
        strategy += f", ema {best['ema']:g}" if best["ema"] else ""
        strategy += f", C {best['clip']:g}" if best["clip"] != 1 else ""
        strategy += f", first layer's rate {best['decay']:g}" if best["decay"] != 1 else ""
        strategy += f", {best['limit']} units" if best["limit"] else ""
        strategy += f", noise of {best['noise_of']}" if best["noise_of"] else ""
        strategy += f", {best['after']}" if best["after"] else ""
        numbers = (f"{best['lr']:g}", f"{best['pckh']:.2f}", f"{best['loss']:.3f}", tried)
        table.add_row(name, f"{best['epsilon']:g}", strategy, best["optimizer"], *numbers)
    Console(width=200).print(table)


def _losses(row: dict[str, Any]) -> str:
    """The loss, and behind a slash the loss at the best temperature, where that was looked at."""
    return f"{row['loss']:.3f}" + (f" / {row['tempered']:.3f}" if "tempered" in row else "")


def words(kind: type) -> Any:
    """A comma-separated list, for argparse."""
    return lambda text: tuple(kind(word) for word in text.split(","))


def main() -> None:
    """Run the cells that are not there yet, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("choices.jsonl"))
    parser.add_argument("--table", action="store_true", help="show what stands there, and stop")
    parser.add_argument("--data", help="data with a split for choosing, without it; none: as --table")
    parser.add_argument("--init", default="src/dpose/weights/nano", help="a model folder")
    parser.add_argument("--methods", type=words(str), default=("pdp-sgd", "dp-sgd", "subspace-sgd", "scaled-sgd"))
    parser.add_argument("--optimizers", type=words(str), default=tuple(GRIDS))
    parser.add_argument("--lrs", type=words(float), default=(), help="instead of the grid's")
    parser.add_argument("--epsilons", type=words(float), default=(8.0, 0.8))
    parser.add_argument("--seeds", type=words(int), default=(0,))
    parser.add_argument("--strategy", default="light")
    parser.add_argument("--rank", type=int, default=100)
    parser.add_argument("--units", type=int, default=200)
    parser.add_argument("--refresh", type=int, default=4)
    parser.add_argument("--passes", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--ema", type=float, default=0.0)
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--fewer", action="store_true", help="biases and depthwise convolutions alone")
    parser.add_argument("--temperature", type=float, default=1.0, help="the start's logits are divided by it")
    parser.add_argument("--clip", type=float, default=1.0, help="the clipping norm C")
    parser.add_argument("--decay", type=float, default=1.0, help="the first layer's rate over the last's")
    parser.add_argument("--limit", type=int, default=0, help="train on so many units; 0: on all")
    parser.add_argument("--noise-of", type=int, default=0, help="with the noise a unit that so many units have")
    parser.add_argument("--after", action="store_true", help="score all of AFTER, not the last weights alone")
    asked = parser.parse_args()
    if asked.noise_of:
        ranges.MIN_SIGMA = 0.01  # with a part of the units sigma is that part of a budget's, and of no budget

    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    usual = {field.name: field.default for field in fields(Cell) if field.default is not MISSING}
    rows = [{**usual, **json.loads(line)} for line in lines]
    if asked.table or not asked.data:
        return shown(rows)
    bench = opened(asked.data, asked.init, asked.views, asked.limit)
    after = tuple(AFTER) if asked.after else ("",)
    settings = {name: getattr(asked, name) for name in SETTINGS}
    init = Path(asked.init).name

    def keep(what: dict[str, Any], found: dict[str, float]) -> None:
        rows.append({**what, **found})
        with asked.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), flush=True)

    start = {
        "method": "start",
        "epsilon": 0.0,
        "optimizer": "",
        "lr": 0.0,
        "seed": 0,
        "init": init,
        "after": "",
        **settings,
        "temperature": 1.0,  # scored as it is: no joint moves with it, and `tempered` says the rest
    }
    if not any(row["method"] == "start" and row["init"] == init for row in rows):
        keep(start, bench.score(bench.model(asked.strategy)))
    for epsilon, method, name, seed in itertools.product(asked.epsilons, asked.methods, asked.optimizers, asked.seeds):
        # what is not private has no budget: it stands once
        budget = epsilon if METHODS[method].private else 0.0
        for lr in asked.lrs or GRIDS[name][1]:
            cell = Cell(method, budget, name, lr, seed=seed, init=init, **settings)
            there = {row["after"] for row in rows if asdict(replace(cell, after=row["after"])).items() <= row.items()}
            if (there and not asked.after) or len(there) > 1:
                continue
            for way, found in bench.run(cell, after).items():
                if way not in there:
                    keep(asdict(replace(cell, after=way)), found)
    return None


if __name__ == "__main__":
    main()
