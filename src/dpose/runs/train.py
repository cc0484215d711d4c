"""Training, of whatever task: from a configuration to a run folder with its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from dpose.files import check_free
from dpose.privacy.ranges import few_units
from dpose.runs.config import RunConfig
from dpose.runs.data import public_licence, published_count, shows_nobody
from dpose.runs.places import learnt_from, places_of, shown_settings, typed_command, whole_config
from dpose.runs.reporting import make_report, show_report
from dpose.runs.tasks import task_entry
from dpose.training.distributed import process_group
from dpose.training.options import RunOptions
from dpose.training.run import Run
from dpose.training.statement import StatementFacts
from dpose.training.trainer import train


def train_task(
    config: RunConfig,
    out: Path,
    console: Console,
    microbatch_size: int | None = None,
    resume: bool = False,
    command: str = "",
) -> Run:
    """Train as `config` says, as `train_run` does. A recipe may begin with a run on public data."""
    stage = task_entry(config.task).stage
    staged = stage(config, out, console, command, microbatch_size) if stage and not resume else config
    if isinstance(staged, Run):
        return staged
    return train_run(staged, out, console, microbatch_size, resume, command)


def train_run(
    config: RunConfig,
    out: Path,
    console: Console,
    microbatch_size: int | None = None,
    resume: bool = False,
    command: str = "",
    *,
    data_is_public: bool = False,
) -> Run:
    """Train one model as `config` says and write the run folder `out`.

    Args:
        config: The run.
        out: Must not exist, unless `resume`.
        console: Where progress goes.
        microbatch_size: The micro-batch in views; fitted to memory when None.
        resume: Go on from the last checkpoint in `out`, which `config` began.
        command: What the user typed, for the report.
        data_is_public: Whether the data count as public whatever they are called, as those of `--public` do.
    """
    place = process_group()
    console = console if place.first else Console(quiet=True)
    if not resume:
        check_free(out, may_be_empty=True, may_be_locked=True)  # one killed before its first step
    place.highest(0)  # all processes look before one makes the folder
    found = task_entry(config.task).prepare(config, console)
    config = found.config
    if config.plan.kind.reads_private_data:
        # of private data the number of units is enough
        count = published_count(config, len(found.units))
        show_report([f"{found.title}: {count:,} units"], console)
        if warning := few_units(count):
            console.print(warning, highlight=False)
    else:
        show_report(found.report, console)
    task, units, opening = found.task, found.own or found.units, None
    if config.canaries:
        from dpose.runs.canaries import plant

        planted = plant(found, config.canaries, out, resume=resume, console=console)
        task, units, opening = planted.task, planted.units, planted.opening
    run = train(
        task,
        found.model,
        private=units,
        plan=config.plan,
        out=out,
        public=found.public,
        optimizer=config.optimizer,
        options=RunOptions(
            seed=config.seed,
            resume=resume,
            start=replace(found.start, stated=config.model.init_licence or ""),
            validation_data=found.validation_data,
            facts=found.facts + StatementFacts(about=config.about),
            settings=shown_settings(config, command),
            places=places_of(config, command),
            data_name=found.data_name,
            microbatch_size=microbatch_size,
            console=console,
            canaries=opening,
            public_licence=public_licence(config),
            data_is_public=data_is_public or shows_nobody(config),
            learnt_from=learnt_from,
        ),
    )
    if place.first:
        make_report(out, console=console)
    return run


def resume_task(folder: Path, console: Console, given: Mapping[str, Any] | None = None) -> Run:
    """Go on with the run in `folder` from its last checkpoint, with the settings it began with.

    Args:
        folder: The run folder.
        console: Where progress goes.
        given: Where data and first weights are now, as `RunConfig` takes them; for a folder from another machine.

    Raises:
        DposeError: there is no run to go on with, or it is not known where its data are.
    """
    config = whole_config(folder, given)
    return train_task(config, folder, console, resume=True, command=typed_command(folder))


def explain_task(config: RunConfig) -> RenderableType:
    """What a run would do, protect and cost."""
    return task_entry(config.task).explain(config)
