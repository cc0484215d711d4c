"""`dpose reproduce`: the papers' tables and figures, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dpose.cli.cluster import Carrying
from dpose.cli.options import Settings, hanging, option
from dpose.cli.settings import checked
from dpose.errors import DposeError

GRID = Settings(
    (("", "dpose_lab.papers.experiment:GridRequest"), ("job.", "dpose.cli.cluster:ClusterJob")),
    {"core": (), "methods": (), "epsilons": (), "clip_norms": (), "repeat": (), "preset": (), "init": (), "public": ()},
)
"""Options of trainings and of jobs."""


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="As in 000/table2 or 002/figure1; without one, all are listed.")
    ] = None,
    *,
    data: Annotated[
        list[str] | None, option("The data, as docs/guide/papers.md has them; repeatable. Default: rendered people.")
    ] = None,
    limit: Annotated[int | None, option("At most so many pictures of each, evenly spaced.", min=1)] = None,
    out: Annotated[Path | None, option("The results' folder; one with part of the results is completed.")] = None,
    seed: Annotated[
        int | None, option("Makes results repeatable; trainings with a seed protect no one.", min=0)
    ] = None,
    settings: Annotated[dict[str, Any], GRID],
    processes: Annotated[int, option("Cells to run at once.", min=1)] = 1,
    engine: Annotated[str, option("Who runs the cells: local, ray, ray://HOST:PORT or slurm.")] = "",
    segmenter: Annotated[
        str, option('For IoU and Dice: an ONNX file that finds people, with ",imagenet" if normalised so.')
    ] = "",
    quick: Annotated[
        bool, option("A few of the rows, once, where an experiment has such a subset.", "--quick")
    ] = False,
    data_public: Annotated[
        bool, option("The data need no protection: the account does not count them.", "--data-public")
    ] = False,
    external: Annotated[
        list[str] | None, option("NAME:DIR: videos of another method, for the row NAME of the video tables.")
    ] = None,
) -> None:
    """Run a paper's table or figure again and show the result beside the paper's.

    000 and 003 are papers on training, 002 on pixelized pictures, 004 on video. The account counts
    trainings as ever, 002, 004 and release-quality as unbounded. Run it again to go on.
    """
    from dpose_lab.papers.experiment import GridRequest, Request
    from dpose_lab.papers.registry import EXPERIMENTS
    from dpose_lab.papers.reproduce import reproduce as run

    console = Console()
    if name is None:
        listed = [f"{experiment.name:18} {experiment.title}" for experiment in EXPERIMENTS.values()]
        console.print(hanging(listed, console, 19), highlight=False)
        return
    job = Carrying.taken_from(settings, engine).job
    words = {key: _words(settings.get(key)) for key in ("methods", "strategies", "variants")}
    numbers = {
        "epsilons": _numbers(settings.get("epsilons"), "--epsilons"),
        "clip_norms": _numbers(settings.get("clip_norms"), "--clip-norms"),
    }
    request = Request(
        data=tuple(data or ()),
        limit=limit,
        segmenter=segmenter,
        seed=seed,
        quick=quick,
        external=tuple(external or ()),
        grid=checked(GridRequest, {**settings, **words, **numbers}),
        processes=processes,
        engine=engine,
        partition=job.partition or "",
        slurm=tuple(f"{key}={value}" for key, value in job.slurm.items()),
        data_public=data_public,
    )
    outcomes = run(name, request, out, console)
    if any(outcome.status == "failed" for outcome in outcomes):
        raise typer.Exit(1)


def _words(given: Any) -> tuple[str, ...]:
    """Split texts at commas into their parts."""
    texts = given if isinstance(given, list) else [] if given is None else [given]
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def _numbers(given: Any, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _words(given))
    except ValueError as error:
        raise DposeError(
            "values-malformed",
            f"cannot be {', '.join(_words(given))!r}",
            option,
            "write numbers with commas between them: 0.2,0.8",
        ) from error
