"""`dpose train`: a configuration from a file, from options, or from a file that options override."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpose.cli.cluster import Carrying, Cluster, Engine, places_in
from dpose.cli.options import command_line, expand_groups, option, plain_console
from dpose.cli.remote import reads_stores, stored_run
from dpose.cli.run_options import TRAIN, check_given
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.remote import url_of

if TYPE_CHECKING:
    from dpose.training.run import Run


@reads_stores
@expand_groups
def train(
    settings: Annotated[dict[str, Any], TRAIN],
    *,
    out: Annotated[Path | None, option("The run folder to make; must not exist.")] = None,
    config: Annotated[
        Path | None, option("A YAML file with the run's settings; what is typed overrides it.")
    ] = None,
    explain: Annotated[
        bool, option("Say what the run would do, protect and cost, and stop.", "--explain")
    ] = False,
    resume: Annotated[
        Path | None,
        option("A stopped run to go on with, with its own settings; on another machine give its data again."),
    ] = None,
    engine: Engine = None,
) -> None:
    """Train a pose or action model; with a private method, under a guarantee that its statement carries."""
    console = plain_console()
    carrying = Carrying.taken_from(settings, engine)
    if resume is None:
        if out is None and not explain and engine is None:
            raise DposeError(
                "out-missing", "training needs a folder for the run", fix="give --out, or --explain alone"
            )
        if out is not None and not explain and not url_of(out):
            check_free(out, may_be_empty=True, may_be_locked=True)
        if config is None:
            check_given(settings)
    if engine is not None and not explain:
        if url_of(resume or out or ""):
            raise DposeError(
                "out-in-store", "a job trains into a folder", "--out", "copy it into the store when done"
            )
        cluster = Cluster(engine, carrying.job)
        raise typer.Exit(cluster.train(settings, config, out, resume, carrying.microbatch_size, console))
    from dpose.runs.config import RunConfig
    from dpose.runs.train import explain_task, resume_task, train_task

    run = None if resume is not None else RunConfig.from_options(settings, config)
    if explain and run is not None:
        with console.status("calibrating"):
            text = explain_task(run)
        console.print(text, highlight=False)
        return
    with stored_run(out, resume, console) as (here, stopped):
        if stopped is not None:
            print_result(resume_task(stopped, console, places_in(settings)), console)
            return
        assert here is not None
        assert run is not None
        print_result(
            train_task(run, here, console, carrying.microbatch_size, command=command_line()), console
        )


def print_result(run: Run, console: Console) -> None:
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
