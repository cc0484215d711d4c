"""Two gates of what a public linear map before the clip may gain, of public units alone: directions, and scales.

    python benchmarks/gradient_gates.py --data lspet:ROOT:public --init runs/lspet-dp/runs/start --strategy light

Half of the units give the directions and the scales, the other half is what they are tried on. The directions are the
leading right singular vectors of that half's gradients: of each unit once as it is and, where more rows are asked
for, of bent views of it. What a direction captures of the mean of held-out gradients is the product of their halves'
own means along it, which has no bias from either's length. The gain is that of signal over noise, as norms, beside
dp-sgd's in all coordinates, each unit's gradient scaled to norm 1 after the map: sqrt(s_k / k) over sqrt(s_d / d), s
being that product over all directions. A map by scales D has noise of energy sum 1 / D^2 behind its inverse.

Where the loss bends, noise does harm, and hardly elsewhere. The last column weighs noise so, with the second moments of
held-out gradients for the curvature (the empirical Fisher matrix F): <m, B c> over the root of tr(F B B^T), m the mean
gradient, c the mean of what is clipped and B the way back, beside the same without a map. It is what one gradient step
of the best length gains, to second order, where noise is most of what moves.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from dpose.pose.data import Augment, PoseUnits, open_data
from dpose.pose.folder import load_model
from dpose.pose.model import Strategy, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.training.gradients import per_unit_gradients, trainable_params

AT_ONCE = 16
COLUMNS = 1 << 14
FLOOR = 0.1
"""Of the root mean square of all scales: where public units have no gradient, others may."""


def rows(model: nn.Module, units: PoseUnits, chosen: NDArray[np.int64], seed: int) -> Iterator[Tensor]:
    """Gradients of the chosen units, each row all trainable parameters, some units at a time."""
    task, params, rng = PoseTask(), trainable_params(model), np.random.default_rng(seed)
    for at in range(0, len(chosen), AT_ONCE):
        batch = task.collate([units.load(int(i), rng) for i in chosen[at : at + AT_ONCE]])
        gradients = per_unit_gradients(task, model, params, batch)
        yield torch.cat([value.flatten(1) for value in gradients.values()], 1)


def filled(total: int, width: int, parts: Iterator[Tensor], what: str) -> Tensor:
    """All rows in one matrix."""
    whole, at = torch.empty(total, width), 0
    for part in track(parts, what, total=math.ceil(total / AT_ONCE), console=Console(stderr=True)):
        whole[at : at + len(part)] = part
        at += len(part)
    return whole


def products(a: Tensor, b: Tensor) -> Tensor:
    """A b^T, float64."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    for at in range(0, a.shape[1], COLUMNS):
        total += (a[:, at : at + COLUMNS] @ b[:, at : at + COLUMNS].T).double()
    return total


def signal(held: Tensor) -> Tensor:
    """The squared mean of each column, without bias: the product of two halves' means."""
    half = len(held) // 2
    return held[:half].mean(0).double() * held[half:].mean(0).double()


def crossed(one: Tensor, other: Tensor) -> Tensor:
    """The product of the columns' means of two matrices of the same units, without bias: of different halves."""
    half = len(one) // 2
    parts = (slice(half), slice(half, None))
    return (
        sum((one[a].mean(0).double() * other[b].mean(0).double() for a, b in (parts, parts[::-1])), torch.zeros(())) / 2
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic:ward:public", help="public units")
    parser.add_argument("--init", default="src/dpose/weights/nano", help="a model folder")
    parser.add_argument("--strategy", default="light")
    parser.add_argument("--rows", type=int, default=2000, help="gradients that give directions and scales")
    parser.add_argument("--directions", default="50,100,250,500,1000,2000")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()

    model = fold_batchnorm(load_model(asked.init))
    strategy: Strategy = asked.strategy
    apply_strategy(model, strategy)
    model.train()
    plain, bent = (
        open_data(asked.data, purpose="train", input_size=model.config.input_size, augment=augment)
        for augment in (Augment.none(), Augment.private())
    )
    basis, tried = np.array_split(np.random.default_rng(asked.seed).permutation(len(plain)), 2)
    width = sum(p.numel() for p in trainable_params(model).values())
    more = np.resize(basis, max(0, asked.rows - len(basis)))
    total = max(asked.rows, len(basis))
    given = torch.empty(total, width)
    given[: len(basis)] = filled(len(basis), width, rows(model, plain, basis, 0), "the basis")
    if len(more):
        given[len(basis) :] = filled(len(more), width, rows(model, bent, more, asked.seed + 1), "bent views")
    held = filled(len(tried), width, rows(model, plain, tried, 0), "held out")
    held /= held.norm(dim=1, keepdim=True)
    whole = float(signal(held).sum())
    name = asked.data.partition(":")[0]
    title = f"{name}, {strategy}, d = {width:,}; {total:,} rows, {len(held):,} units held out"
    console = Console(width=110)
    console.print(f"norm of the mean of held-out gradients, each of norm 1: {math.sqrt(max(0, whole)):.4f}")

    table = Table("map", "share of mean", "share of each", "gain", "gain, noise weighed by curvature", title=title)
    values, vectors = torch.linalg.eigh(products(given, given))
    values, vectors = values.flip(0).clamp_min(1e-30), vectors.flip(1)
    along = (vectors / values.sqrt()).T @ products(given, held)  # (directions, held-out units)
    rank = int((values.sqrt() > 1e-4 * values[0].sqrt()).sum())
    for k in (int(word) for word in asked.directions.split(",")):
        if k <= rank:
            kept = along[:k].T
            share = float(signal(kept).sum()) / whole
            each = float(kept.square().sum(1).mean())
            clipped = float(signal(kept / kept.norm(dim=1, keepdim=True)).sum())
            gain = math.sqrt(max(0.0, clipped) / k / (whole / width))
            along_mean = float(crossed(kept, kept / kept.norm(dim=1, keepdim=True)).sum())
            weighed = along_mean / math.sqrt(each) / whole
            table.add_row(f"k = {k:,}", f"{share:.1%}", f"{each:.1%}", f"{gain:.2f}", f"{weighed:.2f}")
    scale = torch.zeros(width, dtype=torch.float64)
    for part in given.split(64):
        scale += part.double().square().sum(0)
    scale = (scale / total).sqrt()
    spread = float(scale.sum() ** 2 / (width * scale.square().sum()))
    console.print(f"spread of scales, (sum s)^2 / (d sum s^2): {spread:.4f}")
    scale = (scale.square() + (FLOOR**2) * scale.square().mean()).sqrt()
    for power in (0.5, 1.0):
        factor = scale.pow(-power)
        noise = float(factor.pow(-2).sum())
        scaled = torch.cat([part.double() * factor for part in held.split(64)])
        scaled /= scaled.norm(dim=1, keepdim=True)
        gain = math.sqrt(max(0.0, float((signal(scaled) / factor.square()).sum())) / noise / (whole / width))
        fisher = sum(part.double().square().sum(0) for part in held.split(64)) / len(held)
        weighed = math.sqrt(float((fisher / factor.square()).sum()))
        weighed = float((crossed(held, scaled) / factor).sum()) / weighed / whole
        table.add_row(f"g / s^{power:g}", "100%", "100%", f"{gain:.2f}", f"{weighed:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
