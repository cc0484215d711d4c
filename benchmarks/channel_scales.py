"""Adam on BlazePose with and without the scales of its channels, on public rendered pictures: loss and PCKh.

    OMP_NUM_THREADS=1 python benchmarks/channel_scales.py          # 400 pictures, five runs, some five minutes
    python benchmarks/channel_scales.py --pictures 800 --kind full

BatchNorm was folded into the published convolutions, which left channels of very different size. "scaled" trains what
comes with dpose, each channel divided by a power of two (`dpose.pose.blazepose.ScaledConv`); "raw" trains the weights
as published. Both compute the same at first; Adam's steps are equal in the numbers that it is given, and so is the
noise of a private run.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch
from torch import Tensor

from dpose.pose.blazepose import ScaledConv
from dpose.pose.data import Augment, open_data
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head
from dpose.pose.model import PoseModel
from dpose.pose.skeletons import MPII
from dpose.pose.task import PoseTask
from dpose.runs.data import regions_for

RUNS = (("scaled", 3e-4), ("scaled", 1e-3), ("raw", 1e-5), ("raw", 1e-4), ("raw", 1e-3))
BATCH = 8


def views(spec: str, count: int, model: PoseModel) -> tuple[Tensor, dict[str, Tensor]]:
    regions = regions_for(model.config)
    units = open_data(
        spec, purpose="evaluate", input_size=(256, 256), augment=Augment.none(), limit=count, regions=regions
    )
    units = units.with_skeleton(MPII)
    found = [view for i in range(len(units)) for view in units.load(i, np.random.default_rng(0))]
    targets = {name: torch.from_numpy(np.stack([v.target[name] for v in found])) for name in found[0].target}
    return torch.from_numpy(np.stack([v.image for v in found])).permute(0, 3, 1, 2), targets


def raw(model: PoseModel) -> PoseModel:
    """The same model with the published weights: scales of one."""
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, ScaledConv):
                layer.conv.weight.mul_(layer.scale.view(-1, 1, 1, 1))
                assert layer.conv.bias is not None
                layer.conv.bias.mul_(layer.scale)
                layer.scale.fill_(1)
    return model


def score(model: PoseModel, pictures: Tensor, targets: dict[str, Tensor]) -> str:
    metric = PoseTask("mpii", model.codec).metric()
    with torch.inference_mode():
        for start in range(0, len(pictures), 16):
            part = slice(start, start + 16)
            metric.update(model.eval()(pictures[part]), {name: t[part] for name, t in targets.items()})
    columns = metric.compute().to_dict()["columns"]
    return f"{columns['Mean']:.1f} / {columns['Mean@0.1']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", default="lite", choices=("lite", "full"))
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    first = adapt_head(load_model(find_model(f"blazepose:{options.kind}")), "mpii")
    pictures, targets = views("synthetic:ward:train", options.pictures, first)
    held = views("synthetic:ward:val", 150, first)
    print(f"start: PCKh@0.5 / @0.1 {score(first, *held)}", flush=True)
    for which, rate in RUNS:
        torch.manual_seed(0)
        model = adapt_head(load_model(find_model(f"blazepose:{options.kind}")), "mpii")
        model = (raw(model) if which == "raw" else model).to(memory_format=torch.channels_last)
        adam = torch.optim.Adam(model.parameters(), lr=rate)
        steps, began = options.epochs * (len(pictures) // BATCH), time.perf_counter()
        losses: list[float] = []
        for _ in range(options.epochs):
            order = torch.randperm(len(pictures))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                pick = order[start : start + BATCH]
                step = len(losses)
                adam.param_groups[0]["lr"] = rate * min(1, (step + 1) / 10) * (1 + math.cos(math.pi * step / steps)) / 2
                adam.zero_grad()
                loss = model.codec.loss(
                    model(pictures[pick]), targets["keypoints"][pick], targets["visible"][pick]
                ).mean()
                loss.backward()
                adam.step()
                losses.append(loss.item())
        took = time.perf_counter() - began
        print(
            f"{which}, rate {rate:g}: loss {np.mean(losses[-20:]):.4f}, {score(model, *held)}, {took:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
