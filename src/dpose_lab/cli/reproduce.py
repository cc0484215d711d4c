"""`dpose reproduce`: the papers' tables and figures, run again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpose.cli.cluster import JobOptions
from dpose.cli.options import expand_groups, option, unset
from dpose.cli.run_options import METHODS
from dpose.errors import DposeError

TRAINING = "Private training: 000, 003, lspet-dp, ward-dp and their ablations"
SHOWING = "Released pictures and videos: 002, 004, release-quality, -utility and -actions"


@dataclass(frozen=True)
class GridOptions:
    """Of `dpose_lab.papers.experiment.GridRequest`, by its names."""

    core: Annotated[
        bool, option("A named subset that a small machine can do; the results say which.", TRAINING, "--core")
    ] = False
    methods: Annotated[str | None, option(f"Comma-separated: {METHODS}.", TRAINING)] = unset("the table's")
    strategies: Annotated[
        str | None,
        option("Comma-separated: own (each method's own settings), finetune, full, scratch.", TRAINING),
    ] = unset("the table's")
    variants: Annotated[
        str | None,
        option("Comma-separated rows of an ablation, beside the recipe as it is.", TRAINING),
    ] = unset("all")
    epsilons: Annotated[
        str | None,
        option("Comma-separated budgets, as in 0.2,0.8; also ones that the paper has not.", TRAINING),
    ] = unset("the table's")
    clip_norms: Annotated[
        str | None, option("Comma-separated clipping norms C, as in 0.1,1.0.", TRAINING)
    ] = unset("the table's")
    repeat: Annotated[
        int,
        option(
            "Trainings of each setting: tables then show mean and standard deviation, curves error bars.",
            TRAINING,
            min=1,
        ),
    ] = 1
    preset: Annotated[str | None, option("nano, lite0, 5m, 11m or 21m.", TRAINING)] = unset(
        "nano for rendered people and lspet, else 5m as in the papers"
    )
    init: Annotated[
        str | None, option("A public model folder that finetune and full start from.", TRAINING)
    ] = unset("what comes with dpose; for lspet-dp a public model that is trained first")
    public: Annotated[
        str | None,
        option("Data nobody needs protected, for the subspaces of pdp-sgd and fpdp-sgd.", TRAINING),
    ] = unset("the data's own public split, where it has one")
    evaluate: Annotated[str | None, option("What models are tested on.", TRAINING)] = unset(
        "the data's test split, or its validation split"
    )
    epochs: Annotated[float | None, option("Passes over the data.", TRAINING)] = unset(
        "25, as in the papers; fewer with --core"
    )
    batch_size: Annotated[int | None, option("Units in a batch on average.", TRAINING, min=1)] = unset(
        "1024; smaller with --core"
    )
    optimizer: Annotated[str | None, option("Any of torch.optim; not of own.", TRAINING)] = unset("adamw")
    lr: Annotated[float | None, option("Highest learning rate; not of own.", TRAINING)] = unset(
        "0.001; 0.003 with --core"
    )
    show_pictures: Annotated[
        bool,
        option(
            "Show pictures of the test data with predictions even if they are not declared public; the account "
            "counts them.",
            TRAINING,
            "--show-pictures",
        ),
    ] = False


@expand_groups
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="As in 000/table2 or 002/figure1; without one, all are listed.")
    ] = None,
    *,
    data: Annotated[
        list[str] | None,
        option(
            "For 000, 003 and benchmarks one NAME[:ROOT][:SPLIT] to train on, as in dpose train. For 002 "
            "and release-quality synthetic:LOOK[:SPLIT], skimage[:NAME], mot:ROOT, ppm100:ROOT or celeba:ROOT; may be "
            "given again. For 004 synthetic-clips[:LOOK], ucf101:ROOT, hmdb51:ROOT or pahmdb:ROOT. Default: "
            "rendered people."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        option("At most so many pictures of each, evenly spaced; units to train and to test on.", min=1),
    ] = None,
    out: Annotated[
        Path | None, option("The results' folder; one with part of the results is gone on with.")
    ] = None,
    seed: Annotated[
        int | None,
        option(
            "Of everything: makes results repeatable. Trainings with a seed protect nobody; without one they draw "
            "fresh keys. Of released pictures the default is 0.",
            min=0,
        ),
    ] = None,
    grid: GridOptions,
    processes: Annotated[
        int, option("Cells to run at once; threads are divided, GPUs dealt out.", TRAINING, min=1)
    ] = 1,
    engine: Annotated[
        str,
        option(
            "Who runs the cells: local, ray (a Ray cluster started here for this command) or ray://HOST:PORT, with "
            "--processes workers that share --out and the state folder; or slurm, each cell a job. Default: this "
            "machine.",
            TRAINING,
        ),
    ] = "",
    job: JobOptions,
    segmenter: Annotated[
        str,
        option(
            'Finds people for IoU and Dice: an ONNX file, with ",imagenet" behind it where its input is normalised '
            "so (as rembg's are). Default: a classical one.",
            SHOWING,
        ),
    ] = "",
    quick: Annotated[
        bool,
        option("Of 004, release-utility and release-actions: a few of the rows, once.", SHOWING, "--quick"),
    ] = False,
    data_public: Annotated[
        bool,
        option(
            "Nobody in the data needs protection: the account does not count them.", SHOWING, "--data-public"
        ),
    ] = False,
    external: Annotated[
        list[str] | None,
        option(
            "NAME:DIR, videos that another method made, for the video tables' row NAME; may be given again.",
            SHOWING,
        ),
    ] = None,
) -> None:
    """Run a paper's table or figure again, the paper's numbers or way and dpose's side by side.

    The account counts what it reads of private data: each training as dpose train does; 002, 004 and release-quality,
    which show numbers without noise and pictures with noise from a seed, as what nothing bounds, which a budget
    refuses.

    Stopped or killed, the same command goes on: cells that are done are kept. Exit code 1: some cells failed; the same
    command tries them again.
    """
    from dpose_lab.papers.experiment import GridRequest, Request
    from dpose_lab.papers.registry import EXPERIMENTS
    from dpose_lab.papers.reproduce import reproduce as run

    console = Console()
    if name is None:
        for experiment in EXPERIMENTS.values():
            console.print(f"{experiment.name:18} {experiment.title}", highlight=False)
        return
    words = {key: _words(getattr(grid, key)) for key in ("methods", "strategies", "variants")}
    numbers = {
        "epsilons": _numbers(grid.epsilons, "--epsilons"),
        "clip_norms": _numbers(grid.clip_norms, "--clip-norms"),
    }
    if engine != "slurm" and job != JobOptions():
        raise DposeError(
            "option-needs-slurm", "is a job's", "--partition, --slurm", "say --engine slurm with it"
        )
    request = Request(
        data=tuple(data or ()),
        limit=limit,
        segmenter=segmenter,
        seed=seed,
        quick=quick,
        external=tuple(external or ()),
        grid=GridRequest(**{**asdict(grid), **words, **numbers}),
        processes=processes,
        engine=engine,
        partition=job.partition or "",
        slurm=tuple(job.slurm or ()),
        data_public=data_public,
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
            "values-malformed",
            f"cannot be {text!r}",
            option,
            "write numbers with commas between them: 0.2,0.8",
        ) from error
