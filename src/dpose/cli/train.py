"""`dpose train`: a configuration from a file, from options, or from a file that options override."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpose.cli.cluster import ClusterOptions
from dpose.cli.data import with_annotations
from dpose.cli.options import command_line, expand_groups, option, plain_console
from dpose.cli.remote import reads_stores, stored_run
from dpose.cli.run_options import DATA, RUNNING, RunOptions, check_typed
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.remote import url_of

if TYPE_CHECKING:
    from dpose.training.trainer import Run


@reads_stores
@expand_groups
def train(
    run: RunOptions,
    *,
    annotations: Annotated[
        str | None,
        option(
            "The label file, relative to ROOT, where it has another name. With several --data write it behind its "
            "own: NAME:ROOT,annotations=FILE.",
            DATA,
        ),
    ] = None,
    out: Annotated[Path | None, option("The run folder to make; must not exist.", RUNNING)] = None,
    config: Annotated[
        Path | None, option("A YAML file with the run's settings; options override it.", RUNNING)
    ] = None,
    explain: Annotated[
        bool, option("Say what the run would do, protect and cost, and stop.", RUNNING, "--explain")
    ] = False,
    resume: Annotated[
        Path | None,
        option(
            "A stopped or killed run to go on with: its settings are its own. Only a folder from another machine "
            "needs --data again, and --public, --validation-data and --init where it had them.",
            RUNNING,
        ),
    ] = None,
    microbatch_size: Annotated[
        int | None,
        option(
            "Views in memory at once: the gradient of a larger batch is accumulated over several passes. "
            "Default: as many as fit.",
            RUNNING,
            min=1,
        ),
    ] = None,
    cluster: ClusterOptions,
) -> None:
    """Train a pose or action model; with a private method, under a guarantee that its statement carries."""
    console = plain_console()
    if resume is None:
        if out is None and not explain and cluster.engine is None:
            raise DposeError(
                "out-missing", "training needs a folder for the run", fix="give --out, or --explain alone"
            )
        if out is not None and not explain and not url_of(out):
            check_free(out, may_be_empty=True, may_be_locked=True)
        if config is None:
            check_typed(run)
    if annotations:
        labelled = with_annotations(_only(run.data.private, annotations), annotations)
        run = replace(run, data=replace(run.data, private=[labelled]))
    cluster.check()
    if cluster.engine is not None and not explain:
        if url_of(resume or out or ""):
            raise DposeError(
                "out-in-store", "a job trains into a folder", "--out", "copy it into the store when done"
            )
        raise typer.Exit(cluster.train(run, config, out, resume, microbatch_size, console))
    from dpose.runs.config import RunConfig
    from dpose.runs.train import explain_task, resume_task, train_task

    settings = None if resume is not None else RunConfig.from_options(asdict(run), config)
    if explain and settings is not None:
        with console.status("calibrating"):
            text = explain_task(settings)
        console.print(text, highlight=False)
        return
    with stored_run(out, resume, console) as (here, stopped):
        if stopped is not None:
            data = run.data
            places = {
                "data": {
                    "private": data.private or None,
                    "public": data.public,
                    "validation_data": data.validation_data,
                },
                "model": {"init": run.model.init},
            }
            told(resume_task(stopped, console, places), console)
            return
        assert here is not None
        assert settings is not None
        told(train_task(settings, here, console, microbatch_size, command=command_line()), console)


def _only(data: list[str] | None, annotations: str) -> str:
    """The one --data that --annotations belongs to."""
    if not data or len(data) > 1:
        raise DposeError(
            "annotations-ambiguous",
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
    console.print(run.statement.words().printed(), highlight=False)
    console.print(
        f"\nModel, statement and ledger are in {run.folder}\n"
        f"The whole statement: dpose statement show {run.folder}\n"
        f"The report: {run.folder / 'report.html'}",
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
