"""How the public weights that dpose ships were made: one command, which goes on where it was stopped.

    python tools/train_public_weights.py --out src/dpose/weights/nano

They learn from `studio` alone, rendered people who are nobody, so that a run that starts from them needs no guarantee
for anyone they have seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

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
from dpose.scene import SPLITS

COMMAND = "python tools/train_public_weights.py"
SCORED = ("synthetic:studio:test", "synthetic:ward:test")


def recipe(seed: int = 0) -> RunConfig:
    """What `nano` learns from, and how; chosen on `studio:val`."""
    return RunConfig.from_dict(
        {
            "data": {"private": "synthetic:studio:large"},
            "model": {"preset": "nano", "strategy": "scratch"},
            "plan": {"method": "non-private", "epochs": 10, "expected_batch_size": 64, "ema_decay": 0.998},
            "optimizer": {"name": "adamw", "lr": 2e-3, "options": {"weight_decay": 0.02}},
            "augment": "private",
            "seed": seed,
        }
    )


def make(run: Path, out: Path, console: Console) -> None:
    """Train in `run`, or go on there, and write the weights in half precision to `out`.

    Raises:
        DposeError: training was stopped (call again to go on), or a folder cannot be written to.
    """
    if not (run / "model.safetensors").exists() or _stopped(run):
        finished = resume_task(run, console) if run.exists() else train_run(recipe(), run, console)
        if finished.interrupted:
            raise DposeError("stopped", str(run), "the same command goes on")
    halve(run, out)
    scores = {data: evaluate_run(out, data, console=console)[0].columns()["Mean"] for data in SCORED}
    write_atomic(out / "README.md", card(run, scores))


def _stopped(run: Path) -> bool:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps = next(line["steps"] for line in lines if line["type"] == "start")
    taken = max((line["step"] for line in lines if line["type"] == "step"), default=0)
    return bool(taken < steps)


def halve(run: Path, out: Path) -> None:
    """Fold batch normalisation away and write the model in `run` to `out` in half precision, with its statement."""
    model = fold_batchnorm(load_model(run))
    tensors = {
        n: t.half().contiguous() if t.is_floating_point() else t for n, t in model.state_dict().items()
    }
    values = json.loads((run / "config.json").read_text())
    write_atomic(out / "privacy.json", (run / "privacy.json").read_text())
    write_atomic(
        out / "config.json",
        json.dumps({"task": "pose", "model": model.config.to_dict(), "run": values["run"]}, indent=2) + "\n",
    )
    write_atomic(out / "model.safetensors", safetensors.torch.save(tensors, {"format": "pt"}))


def card(run: Path, scores: dict[str, float]) -> str:
    """The model card of the shipped weights."""
    settings = json.loads((run / "config.json").read_text())["run"]
    plan = settings["plan"]
    scored = "\n".join(f"| `{data}` | {value:.1f} |" for data, value in scores.items())
    return f"""# nano: public weights

A 2D pose model for one person in a picture of 128x96: TinyViT `nano` (1.2 M parameters) with a coordinate
classification head, 16 joints in MPII's order. It is where private training starts, not a product: it has never seen
a photograph.

## What it learnt from

`synthetic:studio:large`: {SPLITS["large"]:,} pictures that dpose renders itself, people who do not exist in a bright
room. No photograph of anyone went into it, so it owes nobody a guarantee, and its statement (`privacy.json`) claims
none. Everything about it is public.

## How well it does

| data | mean PCKh@0.5 |
|---|---|
{scored}

The rendered people are of every colour of skin and of several builds and ages, but they move, dress and sit as a
program thinks people do. On photographs it is far worse than these numbers: evaluate it on yours.

## How it was made

    {COMMAND}

{plan["epochs"]:g} epochs in batches of {plan["expected_batch_size"]}, seed {settings["seed"]}: all settings are in
`config.json`. Batch normalisation is folded into the convolutions, and the numbers are rounded to half precision.
The command goes on where it was stopped. Two machines do not get the same last digits.
"""


def main(
    out: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("src/dpose/weights/nano"),
    run: Annotated[Path, typer.Option(help="The run folder; the command goes on with what it holds.")] = Path(
        "runs/public-nano"
    ),
) -> None:
    """Train the public weights that dpose ships, or go on where that was stopped."""
    try:
        make(run, out, Console())
    except DposeError as error:
        print(f"dpose: {error.line()}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    typer.run(main)
