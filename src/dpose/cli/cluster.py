"""`--engine slurm`: a command as a job of a cluster."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from dpose.cli.options import option
from dpose.cli.run_options import RunOptions
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.runs.config import RunConfig

CLUSTER = "The cluster"


@dataclass(frozen=True)
class ClusterOptions:
    """Where a training runs."""

    engine: Annotated[
        str | None, option("slurm: as a job, requeued before its time is up until it is done.", CLUSTER)
    ] = None
    partition: Annotated[
        str | None, option("The cluster's partition; local: this machine, by submitit alone.", CLUSTER)
    ] = None
    slurm: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE, by submitit's names: timeout_min, nodes, tasks_per_node, gpus_per_node, mem_gb, "
            "signal_delay_s, slurm_account, ... As often as needed.",
            CLUSTER,
        ),
    ] = None

    def train(
        self,
        run: RunOptions,
        file: Path | None,
        out: Path | None,
        resume: Path | None,
        views_at_once: int | None,
        console: Console,
    ) -> int:
        """Submit a training and wait for it.

        Returns:
            What it exited with.

        Raises:
            DposeError: it is not possible, or the cluster refuses; nothing is submitted then.
        """
        import yaml

        from dpose.engines.slurm import CommandJob, parsed_settings, submit, wait_for
        from dpose.files import check_free, private_folder, write_private
        from dpose.runs.config import RunConfig
        from dpose.runs.places import whole_config

        if self.engine != "slurm":
            raise DposeError("trains on slurm, or here without it", f"--engine {self.engine}")
        if self.partition is None:
            raise DposeError(
                "needs a partition", "--engine slurm", "give --partition NAME; local is this machine"
            )
        settings = parsed_settings(self.slurm or [])
        folder = resume or out
        if folder is None:
            raise DposeError("training needs a folder for the run", fix="give --out")
        folder = folder.resolve()
        if resume is not None:
            data = {"private": run.data.private or None, "public": run.data.public, "watch": run.data.watch}
            config = whole_config(folder, {"data": data, "model": {"init": run.model.init}})
        else:
            config = RunConfig.from_options(asdict(run), file)
            check_free(folder, may_be_empty=True)
        log = folder.with_name(f"{folder.name}.slurm")
        private_folder(log)
        write_private(log / "config.yaml", yaml.safe_dump(config.to_dict()))
        (log / "exit").unlink(missing_ok=True)
        dpose = (sys.executable, "-m", "dpose")
        views = () if views_at_once is None else ("--views-at-once", str(views_at_once))
        job = submit(
            CommandJob(
                begin=(*dpose, "train", "--config", str(log / "config.yaml"), "--out", str(folder), *views),
                go_on=(*dpose, "train", "--resume", str(folder), *_places(config)),
                begun=str(folder / "config.json"),
                told=str(log / "exit"),
                version=metadata.version("dpose"),
            ),
            log,
            self.partition,
            settings,
        )
        console.print(f"Job {job.job_id}, its log: {job.paths.stdout}", highlight=False, soft_wrap=True)
        try:
            with console.status("the job runs; Ctrl-C leaves it running"):
                code = wait_for(job, log / "exit")
        except KeyboardInterrupt:
            console.print(
                "Left running; a run that stands still goes on with dpose train --resume", highlight=False
            )
            return 130
        console.print(
            f"The job is done: {folder}" if code == 0 else f"The job failed ({code}): {job.paths.stderr}",
            highlight=False,
            soft_wrap=True,
        )
        return code


def _places(config: RunConfig) -> tuple[str, ...]:
    """Where data and first weights are, as `--resume` takes them: a node may not know."""
    data = config.data
    named: list[tuple[str, str | None]] = [("--data", spec) for spec in data.sources]
    named += [("--public", data.public), ("--watch", data.watch), ("--init", config.model.init)]
    return tuple(word for name, spec in named if spec for word in (name, spec))
