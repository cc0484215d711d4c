"""`dpose train`: a configuration from a file, from options, or from a file that options override."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpose.cli.data import with_annotations
from dpose.cli.options import (
    DATA,
    GUARANTEE,
    LEARNING,
    METHOD,
    METHODS,
    MODEL,
    RUNNING,
    Delta,
    Epsilon,
    Limit,
    Seed,
    plain_console,
    typed,
)
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.training.trainer import Run


def train(
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME[:ROOT][:SPLIT], e.g. lspet:/data/lspet:private. May be repeated: the data are then one, with "
            "the first's joints.",
            rich_help_panel=DATA,
        ),
    ] = None,
    annotations: Annotated[
        str | None,
        typer.Option(
            help="The label file, relative to ROOT, where it has another name. With several --data write it behind "
            "its own: NAME:ROOT,annotations=FILE.",
            rich_help_panel=DATA,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; must not exist.", rich_help_panel=RUNNING)
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="pose or action. Default: pose.", rich_help_panel=DATA)
    ] = None,
    views: Annotated[
        int | None,
        typer.Option(
            help="Clips of a video in its gradient, for actions: more than one is MultiClip-DP. Default: 1.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file with the run's settings; options override it.", rich_help_panel=RUNNING
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="recommended: settings chosen beforehand, where nothing else is said. Before it trains privately, the "
            "weights learn from --public, or from the dataset's own public split, into OUT-public.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Say what the run would do, protect and cost, and stop.",
            rich_help_panel=RUNNING,
        ),
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="A stopped or killed run to go on with: its settings are its own. Only a folder from another machine "
            "needs --data again, and --public, --watch and --init where it had them.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help=f"{METHODS}. Default: dp-sgd.", rich_help_panel=METHOD)
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Instead of epsilon: the noise relative to C.", rich_help_panel=GUARANTEE),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="What is protected: image (all its people), crop (one person in one image) or subject (all "
            "images of a person, where the data know who is who); of actions a video. Default: image.",
            rich_help_panel=GUARANTEE,
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            help="Neighbours: zero-out (the number of units is public), replace or add-or-remove. "
            "Default: zero-out.",
            rich_help_panel=GUARANTEE,
        ),
    ] = None,
    nominal_units: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With add-or-remove: a number of units fixed beforehand.",
            rich_help_panel=GUARANTEE,
        ),
    ] = None,
    accountant: Annotated[
        str | None,
        typer.Option(help="pld (tight) or rdp (as in the papers). Default: pld.", rich_help_panel=GUARANTEE),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the data. Default: 10.", rich_help_panel=LEARNING)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Units in a batch on average. Large batches suffer less from noise. Default: 256.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option(
            help="Clipping norm C: the bound on one unit's gradient. Default: 1.", rich_help_panel=METHOD
        ),
    ] = None,
    normalise: Annotated[
        bool | None,
        typer.Option(
            help="Divide clipped gradients by C, so that C does not scale the step. Default: normalise.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            help="Augmented copies of each unit in one gradient: time, no noise. Default: 1.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            help="Data nobody needs protected, for the subspace of projecting methods.", rich_help_panel=DATA
        ),
    ] = None,
    subspace: Annotated[
        str | None,
        typer.Option(
            help="public, or the controls random and identity. Default: public.", rich_help_panel=METHOD
        ),
    ] = None,
    subspace_rank: Annotated[
        int | None, typer.Option(help="Directions, k. Default: 50.", rich_help_panel=METHOD)
    ] = None,
    subspace_units: Annotated[
        int | None, typer.Option(help="Public units to fit on, m. Default: 100.", rich_help_panel=METHOD)
    ] = None,
    refresh: Annotated[
        int | None, typer.Option(help="Steps between fits. Default: 20.", rich_help_panel=METHOD)
    ] = None,
    public_view: Annotated[
        str | None,
        typer.Option(
            help="What feature methods take for public: blur or pixelize. Default: blur.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    private_loss: Annotated[
        str | None,
        typer.Option(
            help="With public views: plain, or residual (less the public view's). Default: plain.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    public_weight: Annotated[
        float | None,
        typer.Option(help="Weight of the public views' gradient. Default: 1.", rich_help_panel=METHOD),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="nano (CPU), 5m, 11m or 21m; for actions nano or mvit-b. Default: nano.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="A model folder to start from, or the name of public weights that come with dpose, or imagenet "
            "(timm's, fetched once). Default: those of the preset that come with dpose, where there are some.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="light (convolutions, norms and biases: what bears noise best), finetune (the last stage and the "
            "head), full, or scratch (from nothing). Default: finetune, if there are first weights.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="Any of torch.optim. Default: adamw.", rich_help_panel=LEARNING)
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Highest learning rate. Default: 0.001.", rich_help_panel=LEARNING)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="constant, cosine, linear, or a class of torch.optim.lr_scheduler. Default: cosine.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    ema: Annotated[
        float | None,
        typer.Option(
            help="Weight averaging, in [0, 1); 0 turns it off. Default: 0.", rich_help_panel=LEARNING
        ),
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            help="none, private (mild) or public (strong). Default: by the method.", rich_help_panel=DATA
        ),
    ] = None,
    limit: Limit = None,
    watch: Annotated[
        str | None,
        typer.Option(
            help="Public or held-out data to score while training; none for none. "
            "Default: the dataset's public split.",
            rich_help_panel=DATA,
        ),
    ] = None,
    seed: Seed = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32 or bf16: bfloat16 passes, faster on a GPU or a processor with AMX or AVX512-BF16, slower on "
            "others, and less exact; clipping and noise stay in float32. Default: bf16 for non-private on a GPU, else "
            "float32.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    views_at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Views in memory at once: the gradient of a larger batch is accumulated over several passes. "
            "Default: as many as fit.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
) -> None:
    """Train a pose or action model; with a private method, under a guarantee that its statement carries."""
    from dpose.runs.config import RunConfig
    from dpose.runs.train import explain_task, resume_task, train_task

    console = plain_console()
    if annotations:
        data = [with_annotations(_only(data, annotations), annotations)]
    if resume is not None:
        places = {
            "data": {"private": data or None, "public": public, "watch": watch},
            "model": {"init": init},
        }
        told(resume_task(resume, console, places), console)
        return
    given: dict[str, Any] = {
        "task": task,
        "data": {
            "private": data or None,
            "public": public,
            "watch": watch,
            "limit": limit,
            "views": views,
        },
        "model": {"preset": preset, "init": init, "strategy": strategy},
        "plan": {
            "method": method,
            "epsilon": epsilon,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "epochs": epochs,
            "expected_batch_size": batch_size,
            "clip_norm": clip_norm,
            "normalise": normalise,
            "copies": copies,
            "relation": relation,
            "accountant": accountant,
            "nominal_units": nominal_units,
            "unit": unit,
            "ema_decay": ema,
            "subspace": {
                "kind": subspace,
                "rank": subspace_rank,
                "units": subspace_units,
                "refresh": refresh,
            },
            "public_view": {"kind": public_view},
            "private_loss": private_loss,
            "public_weight": public_weight,
        },
        "optimizer": {"name": optimizer, "lr": lr, "schedule": schedule},
        "augment": augment,
        "seed": seed,
        "precision": precision,
        "recipe": recipe,
    }
    settings = RunConfig.from_options(given, config)
    if explain:
        with console.status("calibrating"):
            text = explain_task(settings)
        console.print(text, highlight=False)
        return
    if out is None:
        raise DposeError(
            "training needs a folder for the run", fix="give --out, or --explain to train nothing"
        )
    told(train_task(settings, out, console, views_at_once, command=typed()), console)


def _only(data: list[str] | None, annotations: str) -> str:
    """The one --data that --annotations belongs to."""
    if not data or len(data) > 1:
        raise DposeError(
            "it is not clear whose labels these are",
            f"--annotations {annotations}",
            "give one --data with it, or write NAME:ROOT,annotations=FILE for each",
        )
    return data[0]


def told(run: Run, console: Console) -> None:
    """Print what came of a run, in its first process; exit with 130 if it was stopped."""
    from dpose.training.distributed import process_group

    if not process_group().first:
        console = Console(quiet=True)
    console.print()
    console.print(run.statement.paragraph(), highlight=False)
    console.print(
        f"\nModel, statement and ledger are in {run.folder}\nThe report: {run.folder / 'report.html'}",
        highlight=False,
        soft_wrap=True,
    )
    stop_if_interrupted(run, console)


def stop_if_interrupted(run: Run, console: Console) -> None:
    """Exit with 130 if the run was stopped, after saying how to go on."""
    if run.interrupted:
        console.print(
            f"Stopped after step {run.steps}; what is saved is complete and its statement true. "
            f"To go on: dpose train --resume {run.folder}"
            + (
                f". To give it up and delete its key: dpose keys {run.folder} --discard"
                if run.statement.kind == "private"
                else ""
            ),
            highlight=False,
        )
        raise typer.Exit(130)
