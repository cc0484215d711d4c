"""`--engine slurm`: a command as a job of a cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpose.cli.options import Settings, option
from dpose.cli.settings import checked
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console

    from dpose.runs.config import RunConfig

Engine = Annotated[
    str | None, option("slurm: as a job on --set job.partition=NAME, requeued before its time is up until it is done.")
]


@dataclass(frozen=True)
class ClusterJob:
    """How a job of a cluster is submitted.

    Attributes:
        partition: The cluster's partition; "local" for this machine, by submitit alone.
        wait: Wait until the job ends; false submits it, says how to follow it, and returns.
        slurm: Other settings by submitit's names: timeout_min, nodes, tasks_per_node, gpus_per_node, mem_gb,
            slurm_signal_delay_s, slurm_account, ..., each as in job.slurm.timeout_min=240.
    """

    partition: str | None = None
    wait: bool = True
    slurm: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Carrying:
    """How a command is carried out, which changes nothing of what it makes.

    Attributes:
        microbatch_size: Views in memory at once: the gradient of a larger batch is accumulated over several passes. By
            default as many as fit.
        job: How its job is submitted, with `--engine slurm`.
    """

    microbatch_size: int | None = None
    job: ClusterJob = ClusterJob()

    def __post_init__(self) -> None:
        if self.microbatch_size is not None and self.microbatch_size < 1:
            raise DposeError("setting-invalid", "must be at least 1", "--set microbatch_size")

    @classmethod
    def taken_from(cls, settings: dict[str, Any], engine: str | None) -> Carrying:
        """Take what is said of it out of a command's settings."""
        mine = {f.name: settings.pop(f.name) for f in fields(cls) if f.name in settings}
        found = checked(cls, mine)
        if engine != "slurm" and found.job != ClusterJob():
            raise DposeError("option-needs-slurm", "is a job's", "--set job. ...", "say --engine slurm with it")
        return found


CARRYING = Settings((("", "dpose.cli.cluster:Carrying"),))
"""The settings of a command that has no others."""


@dataclass(frozen=True)
class Cluster:
    """Commands as jobs.

    Attributes:
        engine: Which kind of cluster; "slurm".
        job: How they are submitted.
    """

    engine: str
    job: ClusterJob

    def train(
        self,
        settings: dict[str, Any],
        file: Path | None,
        out: Path | None,
        resume: Path | None,
        microbatch_size: int | None,
        console: Console,
    ) -> int:
        """Submit a training and wait for it.

        Args:
            settings: As `RunConfig` takes them.
            file: What they override.
            out: The run folder to make.
            resume: The run folder to go on with, instead.
            microbatch_size: The micro-batch; None to fit it on the node.
            console: Where it is said what happens.

        Returns:
            What it exited with.
        """
        import yaml

        from dpose.files import check_free, write_private
        from dpose.runs.config import RunConfig
        from dpose.runs.places import whole_config

        folder = resume or out
        if folder is None:
            raise DposeError("out-missing", "training needs a folder for the run", fix="give --out")
        folder = folder.resolve()
        log = _log_folder(folder)
        with self._submitting(log) as send:
            if resume is not None:
                config = whole_config(folder, places_in(settings))
            else:
                config = RunConfig.from_options(settings, file)
                check_free(folder, may_be_empty=True, may_be_locked=True)
            write_private(log / "config.yaml", yaml.safe_dump(config.to_dict()))
            views = () if microbatch_size is None else ("--set", f"microbatch_size={microbatch_size}")
            send(
                ("train", "--config", str(log / "config.yaml"), "--out", str(folder), *views),
                ("train", "--resume", str(folder), *_places(config)),
                folder / "config.json",
            )
        resumed = f"dpose train --resume {folder} --engine slurm"
        return self._followed(folder, resumed, console)

    def tune(self, config: Path, out: Path, arguments: Sequence[str], console: Console) -> int:
        """Submit a choice among settings, as one job, and wait for it: how many trials there are, no queue may show.

        Args:
            config: Its YAML file.
            out: The run folder of the best trial.
            arguments: The command's other arguments.
            console: Where it is said what happens.

        Returns:
            What it exited with.
        """
        from dpose.files import write_private

        folder = out.resolve()
        log = _log_folder(folder)
        with self._submitting(log) as send:
            write_private(log / "config.yaml", config.read_bytes())
            command = ("tune", "--config", str(log / "config.yaml"), "--out", str(folder), *arguments)
            send(command, command, log / "config.yaml")
        return self._followed(folder, "the same command", console, lambda: "the job chooses")

    @contextlib.contextmanager
    def _submitting(self, log: Path) -> Iterator[Callable[[Sequence[str], Sequence[str], Path], None]]:
        """Submit one command for the folder `log`, whose job is over.

        Yields:
            What submits it, with the command to go on with, and a file that is there once there is something to go
            on from.
        """
        from dpose.engines.one_job import JobNote, check_no_job
        from dpose.engines.slurm import CommandJob, submit
        from dpose.files import closed_folder, locked_folder
        from dpose.interpreter import python, version_of

        if self.engine != "slurm":
            raise DposeError("engine-unsupported", "runs on slurm, or here without it", f"--engine {self.engine}")
        partition = self.job.partition
        if partition is None:
            fix = "give --set job.partition=NAME; local is this machine"
            raise DposeError("partition-missing", "needs a partition", "--engine slurm", fix)
        closed_folder(log)
        exit_file = log / "exit"

        def send(begin: Sequence[str], go_on: Sequence[str], begun: Path) -> None:
            exit_file.unlink(missing_ok=True)
            job = CommandJob(
                begin=python("dpose", *begin),
                go_on=python("dpose", *go_on),
                begun=str(begun),
                exit_file=str(exit_file),
                version=version_of("dpose"),
            )
            JobNote.of(submit(job, log, partition, self.job.slurm), partition).write(log)

        with locked_folder(log):
            check_no_job(log, exit_file)
            yield send

    def _followed(self, folder: Path, go_on: str, console: Console, progress: Callable[[], str] | None = None) -> int:
        """Print which job was submitted and, if the command waits, its progress; return its exit code."""
        from dpose.engines.one_job import JobNote
        from dpose.engines.slurm import wait_for

        progress = progress or (lambda: progress_line(folder) or "the job has taken no step yet")
        log = _log_folder(folder)
        note = JobNote.read(log)
        assert note is not None  # as it was written
        console.print(f"ClusterJob {note.id}, its log: {note.log}", soft_wrap=True)
        if not self.job.wait:
            console.print(
                f"To follow it: tail -f {note.log}; to end it: {note.ending}. Its exit code will be in {log / 'exit'}; "
                f"a run that stands still goes on with {go_on}",
                soft_wrap=True,
            )
            return 0
        try:
            with console.status("the job waits; Ctrl-C leaves it alone") as shown:
                code = wait_for(
                    note,
                    log / "exit",
                    tell=lambda: shown.update(f"{progress()}; Ctrl-C leaves it running"),
                    go_on=go_on,
                )
        except KeyboardInterrupt:
            console.print(f"Left running; a run that stands still goes on with {go_on}")
            return 130
        failed = f"The job failed ({code}): {note.log.removesuffix('.out')}.err"
        console.print(f"The job is done: {folder}" if code == 0 else failed, soft_wrap=True)
        return code


def _log_folder(folder: Path) -> Path:
    """Where a run's jobs are kept: beside it."""
    return folder.with_name(f"{folder.name}.slurm")


def _places(config: RunConfig) -> tuple[str, ...]:
    """Where data and first weights are, as `--resume` takes them: a node may not know."""
    data = config.data
    named: list[tuple[str, str | None]] = [("--data", spec) for spec in data.sources]
    named += [("--public", data.public), ("--init", config.model.init)]
    words = [word for name, spec in named if spec for word in (name, spec)]
    return (*words, *(("--set", f"data.validation_data={data.validation_data}") if data.validation_data else ()))


def places_in(settings: dict[str, Any]) -> dict[str, Any]:
    """Where data and first weights are, of a command's settings: what may be given again for a stopped run."""
    data, model = settings.get("data", {}), settings.get("model", {})
    return {
        "data": {name: data.get(name) for name in ("private", "public", "validation_data")},
        "model": {"init": model.get("init")},
    }


END_BYTES = 1 << 16
"""So much of a log's end is read: many lines."""


def progress_line(folder: Path) -> str:
    """How far the run in `folder` is, "step 12 of 600"; "" if it has taken none, or its log cannot be read."""
    file = folder / "log.jsonl"
    try:
        with file.open("rb") as log:
            first = log.readline()
            log.seek(max(0, file.stat().st_size - END_BYTES))
            last = log.read().splitlines()
    except OSError:
        return ""
    steps = _line(first).get("steps")
    done = next((found for text in reversed(last) if (found := _line(text)).get("type") == "step"), None)
    if done is None or not isinstance(steps, int):
        return ""
    return f"step {done['step']:,} of {steps:,}"


def _line(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
