"""`dpose reproduce`: the papers' tables and figures, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpose.cli.options import METHODS
from dpose.errors import DposeError

TRAINING = "Private training: 000, 003, lspet-dp, ward-dp and their ablations"
SHOWING = "Released pictures and videos: 002, 004"


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="As in 000/table2 or 002/figure1; without one, all are listed.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="For 000, 003 and benchmarks one NAME[:ROOT][:SPLIT] to train on, as in dpose train. For 002 "
            "synthetic:LOOK[:SPLIT], mot:ROOT, ppm100:ROOT or celeba:ROOT; may be given again. For 004 "
            "synthetic-clips[:LOOK], ucf101:ROOT, hmdb51:ROOT or pahmdb:ROOT. Default: rendered people."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="At most so many pictures of each, evenly spaced; units to train and to test on."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The results' folder; one with part of the results is gone on with."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of everything: makes results repeatable. Trainings with a seed protect nobody; without one they draw "
            "fresh keys. Of released pictures the default is 0.",
        ),
    ] = None,
    core: Annotated[
        bool,
        typer.Option(
            "--core",
            help="A named subset that a small machine can do; the results say which.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(help=f"Comma-separated: {METHODS}. Default: the table's.", rich_help_panel=TRAINING),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: finetune, full, scratch. Default: the table's.", rich_help_panel=TRAINING
        ),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated rows of an ablation, beside the recipe as it is. Default: all.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    epsilons: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated budgets, as in 0.2,0.8; also ones that the paper has not. Default: the table's.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    clip_norms: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated clipping norms C, as in 0.1,1.0. Default: the table's.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            min=1,
            help="Trainings of each setting: tables then show mean and standard deviation, curves error bars.",
            rich_help_panel=TRAINING,
        ),
    ] = 1,
    preset: Annotated[
        str | None,
        typer.Option(
            help="nano, 5m, 11m or 21m. Default: nano for rendered people and lspet, else 5m as in the papers.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="A public model folder that finetune and full start from. Default: what comes with dpose; for "
            "lspet-dp a public model that is trained first.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            help="Data nobody needs protected, for the subspaces of pdp-sgd and fpdp-sgd. Default: the data's own "
            "public split, where it has one.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            help="What models are tested on. Default: the data's test split, or its validation split.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            help="Passes over the data. Default: 25, as in the papers; fewer with --core.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Units in a batch on average. Default: 1024; smaller with --core.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="Any of torch.optim. Default: adamw.", rich_help_panel=TRAINING)
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Highest learning rate. Default: 0.001; 0.003 with --core.", rich_help_panel=TRAINING
        ),
    ] = None,
    show_pictures: Annotated[
        bool,
        typer.Option(
            "--show-pictures",
            help="Show pictures of the test data with predictions even if they are not declared public.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            min=1, help="Cells to run at once; threads are divided, GPUs dealt out.", rich_help_panel=TRAINING
        ),
    ] = 1,
    segmenter: Annotated[
        str,
        typer.Option(
            help='Finds people for IoU and Dice: an ONNX file, with ",imagenet" behind it where its input is '
            "normalised so (as rembg's are). Default: a classical one.",
            rich_help_panel=SHOWING,
        ),
    ] = "",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Of the video tables: a named subset of the rows, one run each.",
            rich_help_panel=SHOWING,
        ),
    ] = False,
    external: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:DIR, videos that another method made, for the video tables' row NAME; may be given again.",
            rich_help_panel=SHOWING,
        ),
    ] = None,
) -> None:
    """Run a paper's table or figure again, the paper's numbers or way and dpose's side by side.

    Stopped or killed, the same command goes on: cells that are done are kept. Exit code 1: some cells failed; the same
    command tries them again.
    """
    from dpose.papers.experiment import GridRequest, Request
    from dpose.papers.registry import EXPERIMENTS
    from dpose.papers.reproduce import reproduce as run

    console = Console()
    if name is None:
        for experiment in EXPERIMENTS.values():
            console.print(f"{experiment.name:18} {experiment.title}", highlight=False)
        return
    grid = GridRequest(
        core=core,
        methods=_words(methods),
        strategies=_words(strategies),
        variants=_words(variants),
        epsilons=_numbers(epsilons, "--epsilons"),
        clip_norms=_numbers(clip_norms, "--clip-norms"),
        repeat=repeat,
        preset=preset,
        init=init,
        public=public,
        evaluate=evaluate,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        show_pictures=show_pictures,
    )
    request = Request(
        data=tuple(data or ()),
        limit=limit,
        segmenter=segmenter,
        seed=seed,
        quick=quick,
        external=tuple(external or ()),
        grid=grid,
        processes=processes,
    )
    outcomes = run(name, request, out, console)
    if any(outcome.status == "failed" for outcome in outcomes):
        raise typer.Exit(1)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _numbers(text: str | None, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _words(text))
    except ValueError as error:
        raise DposeError(
            f"cannot be {text!r}", option, "write numbers with commas between them: 0.2,0.8"
        ) from error
