"""The `dpose` command: one function a verb. Heavy imports wait until a verb runs: `--help` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpose.cli.data import Annotations, with_annotations
from dpose.cli.data import app as data_commands
from dpose.cli.export import export
from dpose.cli.predict import predict
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.training.trainer import Run

app = typer.Typer(
    name="dpose",
    help="Differentially private human vision: train pose models privately, and prove it.",
    epilog="Start with: dpose demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

app.add_typer(data_commands, name="data")

Epsilon = Annotated[
    float | None,
    typer.Option(help="Privacy budget of the whole run. 1 is strong, 8 is common; smaller means more noise."),
]
Delta = Annotated[
    float | None, typer.Option(help="Probability that the epsilon bound may fail. Well below 1 / units.")
]
BatchSize = Annotated[
    int, typer.Option(help="Units in a batch on average. Large batches suffer less from noise.")
]
ClipNorm = Annotated[float, typer.Option(help="Clipping norm C: the bound on one unit's gradient.")]
Relation = Annotated[
    str,
    typer.Option(help="Neighbours: zero-out (the number of units is public), replace or add-or-remove."),
]
Accountant = Annotated[str, typer.Option(help="pld (tight) or rdp (as in the papers).")]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Use only so many units: a fixed choice by name, always the same.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Makes the run reproducible and takes its guarantee away.")
]
MethodOption = Annotated[str, typer.Option(help="dp-sgd or non-private.")]


def _console() -> Console:
    return Console()


def _stop_if_interrupted(run: Run, console: Console) -> None:
    if run.interrupted:
        how = (
            f"To go on: dpose train --resume {run.folder}"
            if run.statement.kind == "none"
            else f"To go on from these weights as a new, separately counted run: --init {run.folder}"
        )
        console.print(
            f"Stopped after step {run.steps}; what is saved is complete and its statement true. {how}",
            highlight=False,
        )
        raise typer.Exit(130)


def _told(run: Run, console: Console) -> None:
    console.print()
    console.print(run.statement.paragraph(), highlight=False)
    console.print(f"\nModel, statement and ledger are in {run.folder}", highlight=False)
    _stop_if_interrupted(run, console)


@app.command(
    epilog="Example: dpose plan --units 22146 --epochs 25 --batch-size 1024 --epsilon 0.8 --delta 4e-5",
)
def plan(
    units: Annotated[int, typer.Option(min=1, help="How many units (pictures) there are.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    epochs: Annotated[float, typer.Option(help="Passes over the data.")] = 10,
    batch_size: BatchSize = 256,
    clip_norm: ClipNorm = 1.0,
    method: MethodOption = "dp-sgd",
    relation: Relation = "zero-out",
) -> None:
    """What noise a budget asks for, what it costs, what is protected and what is not. Reads no data."""
    from dpose.experiments.planning import explain
    from dpose.training.plan import TrainingPlan

    console = _console()
    chosen = TrainingPlan(
        method=method,
        epsilon=epsilon,
        delta=delta,
        epochs=epochs,
        expected_batch_size=batch_size,
        clip_norm=clip_norm,
        relation=relation,  # type: ignore[arg-type]
        nominal_units=units if relation == "add-or-remove" else None,
    )
    with console.status("calibrating"):
        text = explain(chosen, units)
    console.print(text, highlight=False, soft_wrap=False)


@app.command(
    epilog="Example: dpose train --data lspet:/data/lspet:private --epsilon 8 --delta 1e-5 --out runs/a",
)
def train(
    data: Annotated[
        str | None, typer.Option(help="The data: NAME[:ROOT][:SPLIT], e.g. lspet:/data/lspet:private.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; must not exist.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="A stopped non-private run to go on with, by itself: its settings are its own."),
    ] = None,
    method: MethodOption = "dp-sgd",
    epsilon: Epsilon = None,
    delta: Delta = None,
    epochs: Annotated[float, typer.Option(help="Passes over the data.")] = 10,
    batch_size: BatchSize = 256,
    clip_norm: ClipNorm = 1.0,
    normalise: Annotated[
        bool, typer.Option(help="Divide clipped gradients by C, so that C does not scale the step.")
    ] = True,
    preset: Annotated[str, typer.Option(help="nano (CPU), 5m, 11m or 21m.")] = "nano",
    init: Annotated[
        Path | None, typer.Option(help="A model folder to start from; public or private.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="finetune, full or scratch. Default: finetune with --init, else scratch."),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="Any optimizer of torch.optim.")] = "adamw",
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
    schedule: Annotated[
        str, typer.Option(help="constant, cosine, linear, or a class of torch.optim.lr_scheduler.")
    ] = "cosine",
    ema: Annotated[float, typer.Option(help="Weight averaging, in [0, 1); 0 turns it off.")] = 0.0,
    unit: Annotated[
        str, typer.Option(help="What is protected: image (all its people) or crop (one person).")
    ] = "image",
    relation: Relation = "zero-out",
    accountant: Accountant = "pld",
    nominal_units: Annotated[
        int | None, typer.Option(min=1, help="With add-or-remove: a number of units fixed beforehand.")
    ] = None,
    augment: Annotated[str | None, typer.Option(help="none, private (mild) or public (strong).")] = None,
    annotations: Annotations = None,
    limit: Limit = None,
    seed: Seed = None,
    views_at_once: Annotated[
        int | None, typer.Option(min=1, help="Views in memory at once; by default as many as fit.")
    ] = None,
) -> None:
    """Train a pose model; with dp-sgd, under a guarantee that its statement carries."""
    from dpose.experiments.config import RunConfig
    from dpose.experiments.runs import resume_pose, train_pose

    console = _console()
    if resume is not None:
        _told(resume_pose(resume, console), console)
        return
    if data is None or out is None:
        raise DposeError("training needs --data and --out", fix="see dpose train --help")
    config = RunConfig.from_dict(
        {
            "data": {"private": with_annotations(data, annotations), "limit": limit},
            "model": {"preset": preset, "init": str(init) if init else None, "strategy": strategy},
            "plan": {
                "method": method,
                "epsilon": epsilon,
                "delta": delta,
                "epochs": epochs,
                "expected_batch_size": batch_size,
                "clip_norm": clip_norm,
                "normalise": normalise,
                "relation": relation,
                "accountant": accountant,
                "nominal_units": nominal_units,
                "unit": unit,
                "ema_decay": ema,
            },
            "optimizer": {"name": optimizer, "lr": lr, "schedule": schedule},
            "augment": augment,
            "seed": seed,
        },
        "options",
    )
    _told(train_pose(config, out, console, views_at_once), console)


@app.command(epilog="Example: dpose evaluate runs/a --data lspet:/data/lspet:validation --limit 500")
def evaluate(
    data: Annotated[str, typer.Option(help="NAME[:ROOT][:SPLIT]; the split defaults to validation.")],
    run: Annotated[Path | None, typer.Argument(help="A run or model folder.")] = None,
    annotations: Annotations = None,
    detections: Annotated[
        str | None,
        typer.Option(
            help="For AP: a detector's boxes (COCO results JSON), relative to ROOT. Default: the labels' own."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Score this file instead of a model: COCO results JSON, or MPII's .mat or JSON."),
    ] = None,
    limit: Limit = None,
) -> None:
    """Score a model: PCKh, or OKS AP on COCO and Human-Art. Its statement lists scores on held-out private data."""
    from dpose.experiments.runs import evaluate_run
    from dpose.experiments.scoring import score_file

    console = _console()
    spec = with_annotations(data, annotations)
    if (run is None) == (predictions is None):
        raise DposeError("give a run folder, or --predictions FILE", fix="see dpose evaluate --help")
    if predictions is not None:
        console.print(score_file(predictions, spec, console))
    elif run is not None:
        console.print(evaluate_run(run, spec, limit=limit, detections=detections, console=console))


app.command(epilog="Example: dpose predict runs/a photo.jpg --out photo-pose.png")(predict)


app.command(epilog="Example: dpose export runs/a pose.onnx")(export)


@app.command(epilog="Example: dpose verify runs/a")
def verify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
) -> None:
    """Recompute epsilon from the ledger; refuse a ledger that was altered, reordered or shortened."""
    from dpose.privacy.ledger import verify_run

    console = _console()
    for line in verify_run(run).lines:
        console.print(line, highlight=False)


@app.command(epilog="Example: dpose demo --out runs/demo")
def demo(
    out: Annotated[
        Path | None, typer.Option(help="The run folder; default: runs/demo, runs/demo-2, ...")
    ] = None,
    seed: Seed = None,
) -> None:
    """Train a public model on rendered people, then privately on a ward nobody may see; print both scores."""
    from dpose.experiments.demo import run_demo

    console = _console()
    _stop_if_interrupted(run_demo(out, seed, console), console)
