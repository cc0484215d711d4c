"""Many runs of one configuration on random halves of its units, in several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from dpose.audits.faults import planted
from dpose.engines.local import spawning
from dpose.errors import DposeError
from dpose.pose.task import PoseTask
from dpose.privacy.protected import protect
from dpose.privacy.tradeoff import Floats
from dpose.runs.build import build_model, open_units
from dpose.runs.config import RunConfig
from dpose.runs.data import conditions
from dpose.runs.places import learnt_from, places_of, shown_settings
from dpose.training.options import RunOptions
from dpose.training.statement import StatementFacts
from dpose_lab.audits.shadow_run import shadow_run


@dataclass(frozen=True)
class ShadowJob:
    """A run as values that can be passed to another process.

    Attributes:
        config: Result of `RunConfig.to_dict`, with a seed of the run's own.
        included: Flags of the units that are in.
        out: The run folder to make.
        caveats: Caveats for the run's statement.
        state: Folder that also stores the ledger's head; None for the user's state folder.
        fault: A fault to plant.
    """

    config: Mapping[str, Any]
    included: tuple[bool, ...]
    out: str
    caveats: tuple[str, ...] = ()
    state: str | None = None
    fault: str | None = None


def run_jobs(jobs: Sequence[ShadowJob], workers: int | None, console: Console, doing: str) -> Floats:
    """Train every job's run and score every unit by it.

    Args:
        jobs: At least one.
        workers: Number of processes; None for one per core, or a single one with a GPU.
        console: Console of the progress bar.
        doing: Text beside the progress bar.

    Returns:
        (jobs, units) float64, logit-scaled scores.
    """
    count = min(len(jobs), workers or (1 if torch.cuda.is_available() else os.cpu_count() or 1))
    rows: dict[int, list[float]] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task(doing, total=len(jobs))
        if count == 1:
            for index, job in enumerate(jobs):
                rows[index] = run_job(job)
                bar.advance(shown)
        else:
            for index, row in _in_processes(jobs, count):
                rows[index] = row
                bar.advance(shown)
    return np.array([rows[index] for index in range(len(jobs))], np.float64)


def _in_processes(jobs: Sequence[ShadowJob], count: int) -> Iterator[tuple[int, list[float]]]:
    pool = ProcessPoolExecutor(count, spawning(), torch.set_num_threads, (1,))
    try:
        waiting: dict[Future[list[float]], int] = {pool.submit(run_job, job): index for index, job in enumerate(jobs)}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    except BrokenProcessPool as error:
        raise DposeError(
            "worker-killed", "a shadow run was killed, most likely for memory", fix="use fewer --workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def run_job(job: ShadowJob) -> list[float]:
    """Train one run and score every unit by it.

    Raises:
        DposeError: as `train`.
        KeyboardInterrupt: Ctrl-C ended the run early; its folder remains.
    """
    config = RunConfig.from_dict(dict(job.config), "shadow run")
    model, start, caveats = build_model(config)
    # merged before the coins are drawn: each unit that trains has one
    units = protect(open_units(config, model.config), config.plan.relation, threads=1).data
    with planted(job.fault):
        run, scores = shadow_run(
            PoseTask(model.config.skeleton, model.codec),
            model,
            units,
            np.array(job.included, np.bool_),
            config.plan,
            Path(job.out),
            optimizer=config.optimizer,
            options=RunOptions(
                seed=config.seed,
                start=start,
                facts=StatementFacts(conditional_on=conditions(config), caveats=[*caveats, *job.caveats]),
                settings=shown_settings(config),
                places=places_of(config),
                data_name=" and ".join(config.data.sources),
                what="audit",
                state_dir=Path(job.state) if job.state else None,
                learnt_from=None if job.state else learnt_from,
                threads=1,
                console=Console(quiet=True),
            ),
        )
    if run.interrupted:
        raise KeyboardInterrupt
    return [float(score) for score in scores]
