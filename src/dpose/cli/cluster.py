"""`--engine slurm`: a command as a job of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from dpose.cli.options import option
from dpose.cli.run_options import RunOptions
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.runs.config import RunConfig

CLUSTER = "The cluster"


@dataclass(frozen=True)
class JobOptions:
    """How jobs are submitted."""

    partition: Annotated[
        str | None, option("The cluster's partition; local: this machine, by submitit alone.", CLUSTER)
    ] = None
    slurm: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE, by submitit's names: timeout_min, nodes, tasks_per_node, gpus_per_node, mem_gb, "
            "slurm_signal_delay_s, slurm_account, ... As often as needed.",
            CLUSTER,
        ),
    ] = None

    def checked(self) -> tuple[str, dict[str, Any]]:
        """The partition and the settings.

        Raises:
            DposeError: there is no partition, or a setting is none.
        """
        from dpose.engines.slurm import parsed_settings

        if self.partition is None:
            raise DposeError(
                "partition-missing",
                "needs a partition",
                "--engine slurm",
                "give --partition NAME; local is this machine",
            )
        return self.partition, parsed_settings(self.slurm or [])


@dataclass(frozen=True)
class ClusterOptions:
    """Where a command runs."""

    engine: Annotated[
        str | None, option("slurm: as a job, requeued before its time is up until it is done.", CLUSTER)
    ] = None
    job: JobOptions = field(default_factory=JobOptions)
    no_wait: Annotated[
        bool, option("Submit the job, say how to follow it, and return.", CLUSTER, "--no-wait")
    ] = False

    def check(self) -> None:
        """Refuse what nothing would read.

        Raises:
            DposeError: there is something of a job without `--engine slurm`.
        """
        if self.engine is None and (self.no_wait or self.job != JobOptions()):
            raise DposeError(
                "option-needs-slurm",
                "is a job's",
                "--partition, --slurm, --no-wait",
                "say --engine slurm with it",
            )

    def train(
        self,
        run: RunOptions,
        file: Path | None,
        out: Path | None,
        resume: Path | None,
        microbatch_size: int | None,
        console: Console,
    ) -> int:
        """Submit a training and wait for it.

        Returns:
            What it exited with.

        Raises:
            DposeError: it is not possible, or the cluster refuses; nothing is submitted then.
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
                data = {
                    "private": run.data.private or None,
                    "public": run.data.public,
                    "validation_data": run.data.validation_data,
                }
                config = whole_config(folder, {"data": data, "model": {"init": run.model.init}})
            else:
                config = RunConfig.from_options(asdict(run), file)
                check_free(folder, may_be_empty=True, may_be_locked=True)
            write_private(log / "config.yaml", yaml.safe_dump(config.to_dict()))
            views = () if microbatch_size is None else ("--microbatch-size", str(microbatch_size))
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

        Raises:
            DposeError: it is not possible, or the cluster refuses; nothing is submitted then.
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
        from dpose.files import locked_folder, private_folder
        from dpose.interpreter import python, version_of

        if self.engine != "slurm":
            raise DposeError(
                "engine-unsupported", "runs on slurm, or here without it", f"--engine {self.engine}"
            )
        partition, settings = self.job.checked()
        private_folder(log)
        told = log / "exit"

        def send(begin: Sequence[str], go_on: Sequence[str], begun: Path) -> None:
            told.unlink(missing_ok=True)
            job = CommandJob(
                begin=python("dpose", *begin),
                go_on=python("dpose", *go_on),
                begun=str(begun),
                told=str(told),
                version=version_of("dpose"),
            )
            JobNote.of(submit(job, log, partition, settings), partition).write(log)

        with locked_folder(log):
            check_no_job(log, told)
            yield send

    def _followed(
        self, folder: Path, go_on: str, console: Console, progress: Callable[[], str] | None = None
    ) -> int:
        """Say which job was submitted and, unless nobody waits, what it does until it ends: its exit code."""
        from dpose.engines.one_job import JobNote
        from dpose.engines.slurm import wait_for
        from dpose.runs.progress import progress_line

        progress = progress or (lambda: progress_line(folder) or "the job has taken no step yet")
        log = _log_folder(folder)
        note = JobNote.read(log)
        assert note is not None  # as it was written
        console.print(f"Job {note.id}, its log: {note.log}", highlight=False, soft_wrap=True)
        if self.no_wait:
            console.print(
                f"To follow it: tail -f {note.log}; to end it: {note.ending}. Its exit code will be in {log / 'exit'}; "
                f"a run that stands still goes on with {go_on}",
                highlight=False,
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
            console.print(f"Left running; a run that stands still goes on with {go_on}", highlight=False)
            return 130
        failed = f"The job failed ({code}): {note.log.removesuffix('.out')}.err"
        console.print(
            f"The job is done: {folder}" if code == 0 else failed,
            highlight=False,
            soft_wrap=True,
        )
        return code


def _log_folder(folder: Path) -> Path:
    """Where a run's jobs are kept: beside it."""
    return folder.with_name(f"{folder.name}.slurm")


def _places(config: RunConfig) -> tuple[str, ...]:
    """Where data and first weights are, as `--resume` takes them: a node may not know."""
    data = config.data
    named: list[tuple[str, str | None]] = [("--data", spec) for spec in data.sources]
    named += [
        ("--public", data.public),
        ("--validation-data", data.validation_data),
        ("--init", config.model.init),
    ]
    return tuple(word for name, spec in named if spec for word in (name, spec))
