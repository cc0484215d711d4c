"""What privacy costs a correction by the number of people: PCKh, cost and kept share by n and epsilon, and a law.

    python benchmarks/dp_head.py --cache FOLDER                   # synthetic:ward, BlazePose full, n = 500 to 64,000
    python benchmarks/dp_head.py --cache FOLDER --most 2000 --out docs/benchmarks/dp-head
    python benchmarks/dp_head.py --cache FOLDER --data lspet:ROOT --private private --choose public --score validation
    python benchmarks/dp_head.py --cache FOLDER --init blazepose:lite --joints ward --of same   # joints it has not

Joints are found once and kept in FOLDER (resumable: 500 people a file). Each cell then solves the correction from the
same clipped statistics with fresh noise, as a run would (the run itself: `dpose train --method dp-head`), with the
rule's number of directions. Cost = non-private less private at the same n, where the non-private number of directions
is the best of 4, 8, 16 and 32 on the split --choose. Kept share = (private - start) / (ceiling - start), the ceiling
being the non-private correction at the largest n; none is given where ceiling - start is under three standard errors
(paired, over the people that are scored). Nothing is chosen on the split that is scored.

With --joints ward, palms and footing alone are scored: joints that the base starts at the nearest that it knows.

The law, share = 1 - exp(-(n / sigma / c)^b), is fitted by least squares on all n but one, for each n in turn. What is
printed is the law of all of them, then the largest error on the n left out: `dpose plan --expect` holds it
(`dpose.runs.expect`). With --of same a share is of what the correction brings without noise at the same n: where more
people bring more without noise, too. Where they do not, the largest n says best what it brings.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import least_squares
from torch import Tensor

from dpose.pose.correction import FAR, CorrectedCodec
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head, fit_directions
from dpose.pose.metrics import SCORED
from dpose.pose.model import PoseModel
from dpose.pose.outputs import Outputs
from dpose.pose.skeletons import MPII, SKELETONS
from dpose.privacy.accounting import noise_multiplier
from dpose.runs.data import regions_for
from dpose.training.closed_form import directions_for

PART = 500
DIRECTIONS = (4, 8, 16, 32)
EPSILONS = (0.5, 1.0, 2.0, 8.0)
NUMBERS = (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
People = dict[str, Tensor]


def opened(spec: str, model: PoseModel) -> PoseUnits:
    """People as `dp-head` sees them: canonical crops."""
    return open_data(
        DataSpec.parse(spec).for_purpose("train"),
        purpose="train",
        input_size=model.config.input_size,
        augment=Augment.none(),
        regions=regions_for(model.config),
    )


def batches(units: PoseUnits, first: int, last: int) -> Iterator[People]:
    """Crops and targets of sixteen units at a time."""
    rng = np.random.default_rng(0)
    for start in range(first, last, 16):
        views = [view for unit in range(start, min(start + 16, last)) for view in units.load(unit, rng)]
        found = {"crops": torch.from_numpy(np.stack([view.image for view in views])).permute(0, 3, 1, 2)}
        for name in ("keypoints", "visible", "labelled", "head_length"):
            found[name] = torch.from_numpy(np.stack([np.asarray(view.target[name]) for view in views]))
        yield found


def found_joints(spec: str, model: PoseModel, most: int, cache: Path) -> People:
    """The base's joints of the first people of a split, at least `most` if there are, and targets; kept in FOLDER."""
    units = opened(spec, model)
    parts = []
    for first in track(range(0, min(len(units), most), PART), description=spec):
        last = min(first + PART, len(units))
        file = cache / f"{re.sub('[^a-z0-9]+', '-', spec)}-{model.config.preset.replace(':', '-')}-{first}-{last}.npz"
        if not file.exists():
            kept: dict[str, list[Tensor]] = {}
            with torch.inference_mode():
                for batch in batches(units, first, last):
                    places, _ = model.codec.decode(model(batch.pop("crops")))
                    for key, value in {"places": places, **batch}.items():
                        kept.setdefault(key, []).append(value)
            beside = file.with_suffix(".part.npz")
            np.savez(beside, **cast(Any, {key: torch.cat(values).numpy() for key, values in kept.items()}))
            beside.replace(file)
        with np.load(file, allow_pickle=False) as values:
            parts.append({key: torch.from_numpy(values[key]) for key in values.files})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


class Given:
    """A codec whose output is the joints themselves: what a base has found before."""

    export_names, sigma, fresh, untaught = ("places",), 1.0, 1.0, ()

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> torch.nn.Module:
        """Return the identity."""
        return Same()

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return the joints, with scores of 1."""
        return outputs[0], torch.ones(outputs[0].shape[:2])


class Same(torch.nn.Module):
    """Joints to a head's outputs."""

    def forward(self, places: Tensor) -> Outputs:
        """Return them as the only output."""
        return (places,)


class Corrected(torch.nn.Module):
    """The correction of joints that were found before."""

    def __init__(self, joints: int, directions: int, side: int) -> None:
        super().__init__()
        self.codec = CorrectedCodec(cast(Any, Given()), joints, directions, side)
        self.head = self.codec.head(0, joints, (1, 1))

    def forward(self, places: Tensor) -> Outputs:
        """Joints to the joints and their moves."""
        return cast(Outputs, self.head(places))


def clipped_means(model: Corrected, people: People) -> tuple[Tensor, Tensor]:
    """Means over people of -r z^T / J and of their second moments, each clipped to a norm of 1: what a run noises."""
    head, codec = model.head, model.codec
    outputs = model(people["places"])
    z = head.directed(outputs[:-1])
    r = codec.residuals(outputs, people["keypoints"].float(), people["visible"])
    r = (r * (FAR / r.norm(dim=-1, keepdim=True).clamp_min(FAR))).flatten(1) / codec.joints
    share = 1 / (z.norm(dim=1) * r.norm(dim=1)).clamp_min(1)
    mean: Tensor = -(r * share[:, None]).T @ z / len(z)
    unit = head.facts[0] ** 2 / z.shape[1]
    own = unit / (unit * z.square().sum(1)).clamp_min(1)
    moment = torch.zeros(max(len(mean), z.shape[1]), z.shape[1])
    moment[: z.shape[1]] = (z * own[:, None]).T @ z / len(z)
    return mean, moment


class Benchmark:
    """Corrections of one base by number of directions, and the people they are solved from and scored on."""

    def __init__(self, base: PoseModel, people: dict[str, People]) -> None:
        self.joints, self.side = base.config.joints, max(base.config.input_size)
        new = range(len(MPII), self.joints)
        self.scored = list(SCORED if SKELETONS[base.config.skeleton] == MPII else new)
        self.people = people
        self._made: dict[int, Corrected] = {}
        self._means: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def corrected(self, directions: int) -> Corrected:
        """A correction that is fitted on public people."""
        if directions not in self._made:
            made = Corrected(self.joints, directions, self.side)
            own = self.people["public"]
            fit_directions(cast(Any, made), [(own["places"], own["keypoints"].float(), own["visible"])])
            self._made[directions] = made
        return self._made[directions]

    def weights(self, directions: int, n: int, sigma: float, moment: bool = False) -> Tensor:
        """One draw of the weights that n people give: with the public second moment, or with a noised one."""
        model = self.corrected(directions)
        if (directions, n) not in self._means:
            first = {name: value[:n] for name, value in self.people["private"].items()}
            self._means[directions, n] = clipped_means(model, first)
        statistic, square = (mean + sigma / n * torch.randn_like(mean) for mean in self._means[directions, n])
        weights: Tensor = model.head.solve(statistic, sigma / n, n, square if moment else None)
        return weights

    def scores(self, directions: int, weights: Tensor | None, split: str) -> Scores:
        """PCKh with those weights, or without a correction."""
        model, people = self.corrected(directions), self.people[split]
        with torch.no_grad():
            model.head.moves.weight.copy_(torch.tensor(0.0) if weights is None else weights)
            outputs = model(people["places"])
            model.head.moves.weight.zero_()
        length = people["head_length"].double()
        off = (model.codec.decode(outputs)[0] - people["keypoints"]).norm(dim=-1) / length[:, None]
        scored = ((people["labelled"] > 0) & (length > 0)[:, None])[:, self.scored]
        near = [(off[:, self.scored] <= limit) & scored for limit in (0.5, 0.1)]
        half, tenth = (float(100 * found.sum() / scored.sum()) for found in near)
        return Scores(half, tenth, near[0], scored)

    def chosen(self, n: int) -> tuple[int, Scores]:
        """The non-private correction of n people: the directions that the split for choices likes best, and scores."""
        plain = {k: self.weights(k, n, 0.0) for k in DIRECTIONS}
        best = max(DIRECTIONS, key=lambda k: self.scores(k, plain[k], "choose").half)
        return best, self.scores(best, plain[best], "score")


@dataclass(frozen=True)
class Scores:
    """Mean PCKh at two thresholds, in percent; and of each person which joints are scored and found at 0.5."""

    half: float
    tenth: float
    found: Tensor
    scored: Tensor

    def error_of_gain(self, before: Scores) -> float:
        """Standard error of what is gained on another's scores, in points: paired, a person at a time."""
        gain = (self.found.double() - before.found.double()).sum(1)
        return float(100 * gain.std() * math.sqrt(len(gain)) / self.scored.sum())


def law(cells: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """C and b of share = 1 - exp(-(n / sigma / c)^b), by least squares over (n / sigma, share)."""
    ratio, share = (np.array(values) for values in zip(*cells, strict=True))
    found = least_squares(lambda p: 1 - np.exp(-((ratio / 10 ** p[0]) ** p[1])) - share, (2.0, 0.5)).x
    return float(10 ** found[0]), float(found[1])


def off(fitted: tuple[float, float], cell: tuple[float, float]) -> float:
    """How far the law is from a cell's share."""
    ratio, share = cell
    return abs(1 - math.exp(-((ratio / fitted[0]) ** fitted[1])) - share)


def said_of_law(cells: dict[int, list[tuple[float, float]]]) -> str:
    """The law, its largest error, and that on an n left out."""
    worst = {}
    for left in cells:
        fitted = law([each for n, own in cells.items() if n != left for each in own])
        worst[left] = max(off(fitted, each) for each in cells[left])
    every = [each for own in cells.values() for each in own]
    a, b = law(every)
    spread = max(off((a, b), each) for each in every)
    left_out = ", ".join(f"{n:,} {error:.3f}" for n, error in worst.items())
    low, high = (f(ratio for ratio, _ in every) for f in (min, max))
    return (
        f"share = 1 - exp(-(n / sigma / {a:.1f})^{b:.3f}), n / sigma from {low:.0f} to {high:.0f}\n"
        f"largest error {spread:.3f}; on an n left out: {left_out}"
    )


def figure(rows: Sequence[dict[str, Any]], file: Path, title: str) -> None:
    """Draw the cost by n, a line an epsilon."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 4.2), dpi=110, layout="constrained")
    axes = drawn.subplots()
    for epsilon in EPSILONS:
        own = [row for row in rows if row["epsilon"] == epsilon]
        axes.plot([r["n"] for r in own], [r["cost"] for r in own], "o-", label=f"epsilon {epsilon:g}")
    axes.axhline(1, color="grey", linestyle="--", linewidth=1)
    axes.text(rows[-1]["n"], 1, "one point", ha="right", va="bottom", color="grey")
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row["n"] for row in rows}), [f"{n:,}" for n in sorted({row["n"] for row in rows})])
    axes.set_xlabel("private pictures of people")
    axes.set_ylabel("PCKh@0.5 that privacy costs, points")
    axes.set_title(title, fontsize=10)
    axes.legend()
    drawn.savefig(file)


@torch.no_grad()
def main() -> None:
    """Print the table and the law."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--init", default="blazepose:full")
    parser.add_argument("--data", default="synthetic:ward")
    parser.add_argument("--private", default="train,large,larger", help="splits, one after the other")
    parser.add_argument("--public", help="data that directions are fitted on; else the data's public split")
    parser.add_argument("--choose", default="val", help="split that the ceiling's directions are chosen on")
    parser.add_argument("--score", default="test", help="split that is scored")
    parser.add_argument("--joints", choices=["mpii", "ward"], help="of rendered people")
    parser.add_argument("--of", choices=["largest", "same"], default="largest", help="the n that shares are of")
    parser.add_argument("--most", type=int, default=NUMBERS[-1])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--draws", type=int, default=5, help="noise draws a cell")
    parser.add_argument("--out", type=Path, help="where to write .json and .png, without the ending")
    chosen = parser.parse_args()
    chosen.cache.mkdir(parents=True, exist_ok=True)
    more = f",joints={chosen.joints}" if chosen.joints else ""
    spec = DataSpec.parse(f"{chosen.data}:{chosen.score}{more}").for_purpose("train")
    base = adapt_head(load_model(find_model(chosen.init)), spec.skeleton.name).eval()

    def people(*specs: str, most: int = 10**9) -> People:
        parts: list[People] = []
        for each in specs:
            left = most - sum(len(part["places"]) for part in parts)
            parts += [found_joints(each + more, base, left, chosen.cache)] if left > 0 else []
        return {name: torch.cat([part[name] for part in parts])[:most] for name in parts[0]}

    torch.manual_seed(0)
    bench = Benchmark(
        base,
        {
            "public": people(chosen.public or f"{chosen.data}:public"),
            "choose": people(f"{chosen.data}:{chosen.choose}"),
            "score": people(f"{chosen.data}:{chosen.score}"),
            "private": people(*(f"{chosen.data}:{one}" for one in chosen.private.split(",")), most=chosen.most),
        },
    )
    there = len(bench.people["private"]["places"])
    numbers = [n for n in NUMBERS if n < there] + [there]
    start = bench.scores(4, None, "score")
    plain = {n: bench.chosen(n) for n in numbers}
    gain = plain[there][1].half - start.half
    error = plain[there][1].error_of_gain(start)
    console = Console(width=160)
    console.print(f"start {start.half:.1f} / {start.tenth:.1f}, ceiling + {gain:.2f}, standard error {error:.2f}")
    table = Table("n", "non-private", *(f"epsilon {e:g}" for e in EPSILONS), title=f"{chosen.init}, {spec}")
    rows: list[dict[str, Any]] = []
    cells: dict[int, list[tuple[float, float]]] = {}
    for n, (best, without) in plain.items():
        line = [f"{n:,}", f"{without.half:.1f} / {without.tenth:.1f} (k {best})"]
        for epsilon in EPSILONS:
            row: dict[str, Any] = {"n": n, "epsilon": epsilon, "non_private": without.half}
            for name, steps in (("dp-head", 1), ("adassp-head", 2)):
                sigma = noise_multiplier(epsilon, chosen.delta, 1.0, steps)
                known = None if steps > 1 else len(bench.people["public"]["places"])
                k = directions_for(n, sigma, 2 * bench.joints - (steps > 1), known)
                draws = [bench.scores(k, bench.weights(k, n, sigma, steps > 1), "score") for _ in range(chosen.draws)]
                half, tenth = (float(np.mean([getattr(d, of) for d in draws])) for of in ("half", "tenth"))
                row[name] = {"half": half, "tenth": tenth, "directions": k, "sigma": sigma}
            own = row["dp-head"]
            row["cost"] = without.half - own["half"]
            whole = without.half - start.half if chosen.of == "same" else gain
            share = (own["half"] - start.half) / whole if gain > 3 * error else None
            if share is not None:
                cells.setdefault(n, []).append((n / own["sigma"], min(1.0, max(0.0, share))))
            kept = "" if share is None else f", {share:.0%}"
            second = row["adassp-head"]
            line.append(
                f"{own['half']:.1f} / {own['tenth']:.1f}{kept}, cost {row['cost']:.2f} (k {own['directions']}); "
                f"adassp {second['half']:.1f} / {second['tenth']:.1f}"
            )
            rows.append(row)
        table.add_row(*line)
    console.print(table)
    if len(cells) > 2:
        console.print(said_of_law(cells))
    if chosen.out is not None:
        ceiling = {"half": plain[there][1].half, "tenth": plain[there][1].tenth, "standard_error_of_gain": error}
        report = {"start": {"half": start.half, "tenth": start.tenth}, "ceiling": ceiling, "cells": rows}
        chosen.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        figure(rows, chosen.out.with_suffix(".png"), f"dp-head from {chosen.init}, {spec}, delta {chosen.delta:g}")


if __name__ == "__main__":
    main()
