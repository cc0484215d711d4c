"""`dpose reproduce`: the papers' tables and figures, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="As in 002/figure1; without one, all are listed.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="synthetic:LOOK[:SPLIT], mot:ROOT, ppm100:ROOT or celeba:ROOT; may be given again. For the video "
            "tables synthetic-clips[:LOOK], ucf101:ROOT, hmdb51:ROOT or pahmdb:ROOT. Default: rendered people."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many pictures of each, evenly spaced.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The results' folder; one with part of the results is gone on with."),
    ] = None,
    segmenter: Annotated[
        str,
        typer.Option(
            help='Finds people for IoU and Dice: an ONNX file, with ",imagenet" behind it where its input is '
            "normalised so (as rembg's are). Default: a classical one."
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the noise.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of the video tables: a named subset of the rows, one run each.")
    ] = False,
    external: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:DIR, videos that another method made, for the video tables' row NAME; may be given again."
        ),
    ] = None,
) -> None:
    """Run a paper's table or figure again, the paper's way and dpose's side by side.

    Exit code 1: some cells failed; the same command tries them again.
    """
    from dpose.experiments.papers.experiment import Request
    from dpose.experiments.papers.registry import EXPERIMENTS
    from dpose.experiments.papers.reproduce import reproduce as run

    console = Console()
    if name is None:
        for experiment in EXPERIMENTS.values():
            console.print(f"{experiment.name:14} {experiment.title}", highlight=False)
        return
    outcomes = run(
        name, Request(tuple(data or ()), limit, segmenter, seed, quick, tuple(external or ())), out, console
    )
    if any(outcome.status != "done" for outcome in outcomes):
        raise typer.Exit(1)
