"""One folder, one job: a note of the job that works for a folder, and whether that job is still going."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import write_private

NOTE = "job.json"
LOCAL = "local"
"""The partition that is this machine: submitit's own executor, for trying a job out."""
PATIENCE_S = 30
"""How long `squeue` may take."""
FRESH_S = 20
"""Seconds for which an answer of the cluster's queue is reused, so that it is not queried every second."""


@dataclass(frozen=True)
class JobNote:
    """A job that was submitted.

    Attributes:
        id: As Slurm has it; of a job on this machine its process.
        partition: Where it was submitted; "local" is a machine.
        host: Which one.
        started: When that process began, as the machine counts: another process may get its number.
        log: The file of what the job says.
    """

    id: str
    partition: str
    host: str
    started: str = ""
    log: str = ""

    @classmethod
    def of(cls, job: Any, partition: str) -> JobNote:
        """The note of a job that was just submitted, as submitit has it."""
        started = (began(int(job.job_id)) or "gone") if partition == LOCAL else ""
        return cls(str(job.job_id), partition, socket.gethostname(), started, str(job.paths.stdout))

    @classmethod
    def read(cls, folder: Path) -> JobNote | None:
        """The note in `folder`; None if there is none."""
        file = folder / NOTE
        if not file.exists():
            return None
        try:
            note = cls(**json.loads(file.read_text(encoding="utf-8")))
            int(note.id.partition("_")[0])
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DposeError(
                "job-note-invalid", "is no note of a job", str(file), "delete it if no job is at work"
            ) from error
        return note

    def write(self, folder: Path) -> None:
        """Leave it in `folder`."""
        write_private(folder / NOTE, json.dumps(asdict(self)) + "\n")

    @property
    def ending(self) -> str:
        """The command that ends the job."""
        return f"kill {self.id}" if self.partition == LOCAL else f"scancel {self.id}"

    @property
    def going(self) -> bool:
        """Whether the job waits or works."""
        if self.partition != LOCAL:
            return _queued(self.id, int(time.monotonic() / FRESH_S))
        if self.host != socket.gethostname():
            raise DposeError(
                "job-maybe-running", f"job {self.id} may still be at work on {self.host}", fix="look there"
            )
        return began(int(self.id)) == self.started


def check_no_job(folder: Path, exit_file: Path) -> None:
    """Refuse to submit a second job for a folder.

    Args:
        folder: Where `JobNote.write` left the note; may be missing.
        exit_file: The file that a job leaves when it is done: from then on it is over.

    Raises:
        DposeError: a job of this folder is running, or may be; the error names it.
    """
    note = None if exit_file.exists() else JobNote.read(folder)
    if note is None:
        return
    try:
        going = note.going
    except DposeError as error:
        fix = f"{error.fix}; if the job is gone, delete this file"
        raise DposeError(error.code, error.what, str(folder / NOTE), fix) from error
    if going:
        raise DposeError(
            "job-running",
            f"job {note.id} is still at work for this folder",
            str(folder),
            f"wait for it, or end it: {note.ending}",
        )


def began(pid: int) -> str | None:
    """When a process of this machine began, in the machine's own count; None if there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _listed_by_ps(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _listed_by_ps(pid: int) -> str | None:
    """The same where there is no /proc."""
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


@lru_cache(maxsize=4096)
def _queued(job_id: str, _when: int) -> bool:
    command = ["squeue", "--noheader", "--format=%T", f"--jobs={job_id}"]
    plain = {**os.environ, "LC_ALL": "C"}
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=plain)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DposeError(
            "job-state-unknown", f"whether job {job_id} is still at work squeue does not say", fix="try again"
        ) from error
    if answer.returncode:
        if "invalid job id" in answer.stderr.lower():  # long gone
            return False
        raise DposeError(
            "job-state-unknown", f"whether job {job_id} is still at work squeue does not say", fix="try again"
        )
    return bool(answer.stdout.strip())
