"""A `dpose` command as a job of a cluster that Slurm runs, handed over by submitit; gone on with before its time is up.

What is submitted is a command line and nothing else. submitit pickles what it submits, into its own folder beside the
run: of ours that is a `CommandJob`, a few strings. Nothing of that folder is read back here but an exit code, as text.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from dpose.engines.one_job import LOCAL, JobNote
from dpose.errors import DposeError
from dpose.files import closed_folder, write_atomic
from dpose.interpreter import safe_path, version_of

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

REQUEUES = 1000
"""How often a job may reach its time limit; each time it goes on from where it was."""
STOPPED = 130
"""What a command that saved and stopped exits with."""
STARTING = 128 + signal.SIGTERM
"""How one ends that was told to stop before it could listen: it goes on from wherever a killed one would."""
_WARNINGS = {signal.SIGUSR1, signal.SIGUSR2}  # what the job is warned with; its command is told by SIGTERM
ACCOUNT = ("DPOSE_ACCOUNT", "XDG_STATE_HOME")
"""What names the account and the state folder that a command charges."""
_POLL = 0.1  # seconds


def account_place() -> str:
    """SHA-256 of where the account and the state folder are here; an address may hold a password."""
    places = (os.environ.get(ACCOUNT[0], ""), str(platformdirs.user_state_path("dpose")))
    return hashlib.sha256("\n".join(places).encode()).hexdigest()


@dataclass(frozen=True)
class CommandJob:
    """A command that can be stopped, and gone on with by another one: what submitit calls, in each of a job's tasks.

    Attributes:
        begin: The command to begin with, program and arguments.
        go_on: The one to go on with, once there is something to go on from.
        begun: A file that is there from then on.
        exit_file: Where the exit code is written in the end, as text.
        version: Of dpose, where the job was submitted.
        account: `account_place` there: a cluster need not pass the environment on.
    """

    begin: tuple[str, ...]
    go_on: tuple[str, ...]
    begun: str
    exit_file: str
    version: str
    account: str = field(default_factory=account_place)

    def __call__(self) -> None:
        """Run the command to its end. Exits as it does."""
        first = self._environment()
        if Path(self.exit_file).exists():  # it ended while the job was being stopped
            sys.exit(exit_code(Path(self.exit_file)))
        if (here := version_of("dpose")) != self.version:
            print(f"dpose: this node has dpose {here}, the job was submitted by {self.version}", file=sys.stderr)
            code = 2
        elif account_place() != self.account:
            said = f"this node has another account than where the job was submitted; export {' and '.join(ACCOUNT)}"
            print(f"dpose: {said} to jobs", file=sys.stderr)
            code = 2
        else:
            command = self.go_on if Path(self.begun).exists() else self.begin
            # a warning that reaches every process of the job must not end the command: it inherits what is blocked
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _WARNINGS)
            child = subprocess.Popen(command)
            object.__setattr__(self, "_child", child.pid)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            while _status(child.pid) is None:
                time.sleep(_POLL)
            code = child.wait()
        if first:
            write_atomic(Path(self.exit_file), f"{code}\n")
        sys.exit(code if code >= 0 else 128 - code)

    def checkpoint(self) -> DelayedSubmission:
        """Stop the command at its next step, saved, and ask for the same job again. submitit calls it when warned."""
        from submitit.helpers import DelayedSubmission

        pid = self.__dict__.get("_child")
        if pid is not None and _status(pid) is None:
            os.kill(pid, signal.SIGTERM)
            while _status(pid) is None:
                time.sleep(_POLL)
        if pid is not None and _status(pid) not in (None, STOPPED, STARTING):
            write_atomic(Path(self.exit_file), f"{_status(pid)}\n")
        return DelayedSubmission(replace(self))

    @staticmethod
    def _environment() -> bool:
        """Introduce a job's tasks to each other, as `torchrun` would; whether this is the first one."""
        import submitit

        place = submitit.JobEnvironment()
        if place.num_tasks > 1:
            submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
        return int(place.global_rank) == 0


def _status(pid: int) -> int | None:
    """How a child ended, as a shell says it; None if it has not.

    Not by `Popen`, whose lock a handler of signals must not wait for: the frame that it interrupts may hold it.
    """
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # it ended and was seen to
        return STOPPED
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status


def submit(job: CommandJob, folder: Path, partition: str, settings: Mapping[str, Any]) -> Any:
    """Submit `job`.

    Args:
        job: The command.
        folder: Where submitit writes the job's log; made, for its owner alone.
        partition: Of the cluster; "local" runs it here.
        settings: Other settings by submitit's names: timeout_min, nodes, tasks_per_node, gpus_per_node, mem_gb,
            slurm_signal_delay_s, slurm_account, ...

    Returns:
        submitit's job.
    """
    (submitted,) = submit_all([job], folder, partition, settings)
    return submitted


def submit_all(jobs: Sequence[CommandJob], folder: Path, partition: str, settings: Mapping[str, Any]) -> list[Any]:
    """Submit several jobs at once: on a cluster as an array, of which so many as `slurm_array_parallelism` run.

    As `submit`; submitit's jobs, in their order.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError as error:
        raise DposeError("package-missing", "needs submitit", "--engine slurm", "pip install submitit") from error
    here = partition == LOCAL
    closed_folder(folder)
    try:
        cluster = LOCAL if here else "slurm"
        # -P: a job begins in the folder that it was submitted from, and need not see this process's variables
        limits = {f"{cluster}_max_num_timeout": REQUEUES, f"{cluster}_python": f"{shlex.quote(sys.executable)} -P"}
        executor = submitit.AutoExecutor(str(folder), cluster=cluster, **limits)
        executor.update_parameters(**({} if here else {"slurm_partition": partition}), **settings)
        with safe_path(), contextlib.nullcontext() if len(jobs) == 1 else executor.batch():
            return [executor.submit(job) for job in jobs]
    except (FailedJobError, RuntimeError, NameError, ValueError, TypeError, AssertionError, OSError) as error:
        raise DposeError("job-refused", f"cannot be submitted: {error}", f"job.partition={partition}") from error


def wait_for(
    note: JobNote,
    exit_file: Path,
    refresh: float = 1.0,
    tell: Callable[[], None] = lambda: None,
    go_on: str = "the same command",
) -> int:
    """Wait for a job's end, however often it is requeued.

    Args:
        note: Of the job.
        exit_file: Its `CommandJob.exit_file`.
        refresh: Seconds between looks.
        tell: Called at each look.
        go_on: What goes on with a job that ended without a word.

    Returns:
        What its command exited with.
    """
    while not is_over(note, exit_file):
        tell()
        time.sleep(refresh)
    if exit_file.exists():
        return exit_code(exit_file)
    raise DposeError("job-ended-early", f"job {note.id} ended before its command did", note.log, f"go on with {go_on}")


def is_over(note: JobNote, exit_file: Path) -> bool:
    """Whether a job is over: it has reported its end, or no longer exists. False where this is unknown."""
    if exit_file.exists():
        return True
    try:
        return not note.going and not exit_file.exists()
    except DposeError:
        return False


def exit_code(exit_file: Path) -> int:
    """The exit code that a job wrote down."""
    try:
        return int(exit_file.read_text())
    except (OSError, ValueError) as error:
        raise DposeError("exit-code-invalid", "is no exit code", str(exit_file)) from error
