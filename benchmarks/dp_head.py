"""What privacy costs `dp-head` by the number of people: PCKh and kept share by n and epsilon, and a law of the share.

    python benchmarks/dp_head.py --cache FOLDER                   # synthetic:ward, BlazePose full, n = 500 to 8,000
    python benchmarks/dp_head.py --cache FOLDER --most 2000       # a quarter of the time

Joints are found once and kept in FOLDER (resumable: 500 people a file). Each cell then solves the correction from the
same clipped statistics with fresh noise, as a run would (the run itself: `dpose train --method dp-head`), with the
rule's number of directions. Kept share = (private - start) / (ceiling - start); the ceiling is the best correction of
4, 8, 16 or 32 directions without noise at the largest n. Nothing is chosen on the split that is scored.

The law, share = a + b log10(n / sigma) within 0 and 1, is fitted by least squares on all n but one, for each n in turn.
What is printed is the largest error on the n left out, then the law of all of them: `dpose plan --expect` holds it
(`dpose.runs.expect`).
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from dpose.pose.correction import FAR, CorrectedCodec
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head, fit_directions
from dpose.pose.metrics import PCKhResult
from dpose.pose.model import PoseModel
from dpose.pose.outputs import Outputs
from dpose.pose.task import PoseMetric
from dpose.privacy.accounting import noise_multiplier
from dpose.runs.data import regions_for
from dpose.training.closed_form import directions_for

PART = 500
EPSILONS = (0.5, 1.0, 2.0, 8.0)
NUMBERS = (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
People = dict[str, Tensor]


def opened(spec: str, model: PoseModel, limit: int | None) -> PoseUnits:
    """People as `dp-head` sees them: canonical crops."""
    return open_data(
        DataSpec.parse(spec).for_purpose("train"),
        purpose="train",
        input_size=model.config.input_size,
        augment=Augment.none(),
        limit=limit,
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


def found_joints(spec: str, model: PoseModel, limit: int | None, cache: Path) -> People:
    """The base's joints of each person, and the targets; kept in the folder."""
    units = opened(spec, model, limit)
    parts = []
    for first in track(range(0, len(units), PART), description=spec):
        last = min(first + PART, len(units))
        file = (
            cache
            / f"{spec.replace(':', '-').replace('/', '-')}-{model.config.preset.replace(':', '-')}-{first}-{last}.npz"
        )
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


def clipped_mean(model: Corrected, people: People) -> Tensor:
    """The mean over people of -r z^T / J, each clipped to a norm of 1: what a run noises, over n."""
    head, codec = model.head, model.codec
    z = head.directed((people["places"],))
    r = codec.residuals(model(people["places"]), people["keypoints"].float(), people["visible"])
    r = (r * (FAR / r.norm(dim=-1, keepdim=True).clamp_min(FAR))).flatten(1) / codec.joints
    share = 1 / (z.norm(dim=1) * r.norm(dim=1)).clamp_min(1)
    mean: Tensor = -(r * share[:, None]).T @ z / len(z)
    return mean


def score(model: Corrected, skeleton: str, people: People, weight: Tensor) -> tuple[float, float]:
    """Mean PCKh@0.5 and @0.1 with those weights."""
    metric = PoseMetric(cast(Any, model.codec), skeleton, skeleton)
    with torch.no_grad():
        model.head.moves.weight.copy_(weight)
        metric.update(model(people["places"]), people)
        model.head.moves.weight.zero_()
    result = cast(PCKhResult, metric.compute())
    return result.mean(0.5), result.mean(0.1)


def law(cells: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A and b of share = a + b log10(n / sigma), by least squares over (n / sigma, share)."""
    x = np.log10([ratio for ratio, _ in cells])
    b, a = np.polyfit(x, [share for _, share in cells], 1)
    return float(a), float(b)


def off(fitted: tuple[float, float], cell: tuple[float, float]) -> float:
    """How far the law is from a cell's share."""
    ratio, share = cell
    return abs(min(1.0, max(0.0, fitted[0] + fitted[1] * math.log10(ratio))) - share)


@torch.no_grad()
def main() -> None:
    """Print the table and the law."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--init", default="blazepose:full")
    parser.add_argument("--data", default="synthetic:ward")
    parser.add_argument("--score", default="test", help="split that is scored")
    parser.add_argument("--most", type=int, default=8000)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--draws", type=int, default=5, help="noise draws a cell")
    chosen = parser.parse_args()
    chosen.cache.mkdir(parents=True, exist_ok=True)
    spec = DataSpec.parse(f"{chosen.data}:train").for_purpose("train")
    base = adapt_head(load_model(find_model(chosen.init)), spec.skeleton.name).eval()
    skeleton, side = base.config.skeleton, max(base.config.input_size)
    people = {
        split: found_joints(f"{chosen.data}:{split}", base, limit, chosen.cache)
        for split, limit in (("public", None), (chosen.score, None), ("train", chosen.most))
    }
    torch.manual_seed(0)
    made = {}

    def corrected(directions: int) -> Corrected:
        if directions not in made:
            made[directions] = Corrected(base.config.joints, directions, side)
            own = people["public"]
            fit_directions(
                cast(Any, made[directions]), [(own["places"], own["keypoints"].float(), own["visible"])]
            )
        return made[directions]

    def cell(directions: int, n: int, sigma: float) -> tuple[float, float]:
        model = corrected(directions)
        mean = clipped_mean(model, {name: value[:n] for name, value in people["train"].items()})
        draws = []
        for _ in range(chosen.draws if sigma else 1):
            noised = mean + sigma / n * torch.randn_like(mean)
            weight = model.head.solve(noised, sigma / n, n)
            draws.append(score(model, skeleton, people[chosen.score], weight))
        half, tenth = (float(np.mean(values)) for values in zip(*draws, strict=True))
        return half, tenth

    most = min(chosen.most, len(people["train"]["places"]))
    numbers = [n for n in NUMBERS if n <= most]
    zero = torch.zeros_like(corrected(4).head.moves.weight)
    start = score(corrected(4), skeleton, people[chosen.score], zero)
    ceilings = {k: cell(k, numbers[-1], 0.0) for k in (4, 8, 16, 32)}
    top = max(ceilings.values())
    table = Table(
        "n",
        *(f"epsilon {epsilon:g}" for epsilon in EPSILONS),
        title=f"{chosen.init}, {chosen.data}:{chosen.score}",
    )
    cells: dict[int, list[tuple[float, float]]] = {}
    for n in numbers:
        row = [f"{n:,}"]
        for epsilon in EPSILONS:
            sigma = noise_multiplier(epsilon, chosen.delta, 1.0, 1)
            directions = directions_for(n, sigma, 2 * base.config.joints)
            half, tenth = cell(directions, n, sigma)
            share = (half - start[0]) / (top[0] - start[0])
            cells.setdefault(n, []).append((n / sigma, min(1.0, max(0.0, share))))
            row.append(f"{half:.1f} / {tenth:.1f}, {share:.0%} (k {directions})")
        table.add_row(*row)
    console = Console(width=140)
    console.print(f"start {start[0]:.1f} / {start[1]:.1f}; without noise, n = {numbers[-1]:,}:")
    console.print(", ".join(f"k {k} {half:.1f} / {tenth:.1f}" for k, (half, tenth) in ceilings.items()))
    console.print(table)
    worst = 0.0
    for left in numbers:
        fitted = law([each for n in numbers if n != left for each in cells[n]])
        worst = max(worst, *(off(fitted, each) for each in cells[left]))
    every = [each for own in cells.values() for each in own]
    a, b = law(every)
    spread = max(off((a, b), each) for each in every)
    console.print(f"share = {a:.3f} + {b:.3f} log10(n / sigma)")
    console.print(f"largest error {spread:.3f}, on an n left out {worst:.3f}")


if __name__ == "__main__":
    main()
