"""A queue of releases, one after the other: each in a process of its own, that can be followed and stopped.

What a job has finished stays whatever happens to the rest of it. A page that was closed, or a machine that slept, finds
the job where it is.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.studio.children import Child

LINES = 200
"""Largest number of a job's lines that are stored; older ones are dropped."""
ENDED = ("done", "failed", "stopped")


@dataclass
class ReleaseJob:
    """A release of one or several files.

    Attributes:
        id: Names it in requests.
        name: For readers.
        task: The worker's input.
        state: "waiting", "running", or one of `ENDED`.
        at: Progress, of `of`.
        of: Amount of work; 0 if it is not known yet.
        message: What the job is doing, in words.
        lines: Further messages for the user.
        files: Files written so far.
        statement: Paragraph of the last statement.
        cwd: The worker's folder; names of dropped files are shown without it.
        after: Called when the job has ended.
        child: The worker, once it has started.
        unwanted: True if the user stopped the job.
    """

    id: str
    name: str
    task: dict[str, Any]
    state: str = "waiting"
    at: int = 0
    of: int = 0
    message: str = "waiting for the one before"
    lines: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    statement: str = ""
    cwd: Path | None = None
    after: Callable[[], None] | None = None
    child: Child | None = None
    unwanted: bool = False

    def as_json(self) -> dict[str, Any]:
        """The job as JSON for the page."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "at": self.at,
            "of": self.of,
            "said": self.message,
            "lines": self.lines,
            "files": [path.name for path in self.files],
            "folder": str(self.files[0].parent) if self.files else "",
            "statement": self.statement,
        }

    def hear(self, line: dict[str, Any]) -> None:
        """Update the job from a line of the worker."""
        self.at, self.of = line.get("at", self.at), line.get("of", self.of)
        self.message = line.get("say", self.message)
        self.lines = [*self.lines, *([line["line"]] if "line" in line else [])][-LINES:]
        self.files += [Path(name) for name in line.get("files", ())]
        self.statement = line.get("statement", self.statement)
        count = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
        if "done" in line:
            self.state, self.message = (
                "done",
                f"finished: {count} written" if self.files else "nothing was left to do",
            )
        elif "error" in line:
            self.state, self.message = "failed", line["error"]
        elif "stopped" in line:
            self.state, self.message = (
                "stopped",
                f"stopped; {count} finished before that stay, and what was begun is counted",
            )


class Jobs:
    """The jobs of a studio, run in order by a thread."""

    def __init__(self) -> None:
        self._jobs: dict[str, ReleaseJob] = {}
        self._queue: queue.Queue[ReleaseJob | None] = queue.Queue()
        self._lock = threading.Lock()  # guards the jobs' states and children
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def add(
        self, name: str, task: dict[str, Any], cwd: Path | None, after: Callable[[], None] | None = None
    ) -> ReleaseJob:
        """Queue a release."""
        job = ReleaseJob(secrets.token_hex(8), name, task, cwd=cwd, after=after)
        self._jobs[job.id] = job
        self._queue.put(job)
        return job

    def get(self, name: Any) -> ReleaseJob:
        """The job with this id.

        Raises:
            DposeError: there is no such job.
        """
        if str(name) not in self._jobs:
            raise DposeError("job-unknown", "there is no such job in this studio")
        return self._jobs[str(name)]

    def all(self) -> list[ReleaseJob]:
        """All jobs, the newest first."""
        return list(self._jobs.values())[::-1]

    def stop(self, name: Any) -> ReleaseJob:
        """Stop a job, or remove it from the queue."""
        job = self.get(name)
        with self._lock:
            job.unwanted = True  # a job that is just starting is stopped as soon as it has a process
            child = job.child if job.state == "running" else None
            if job.state == "waiting":
                job.hear({"stopped": True})
        if child is not None:
            child.stop()
        return job

    def close(self) -> None:
        """Stop all jobs and wait until they have ended."""
        for job in self._jobs.values():
            if job.state not in ENDED:
                self.stop(job.id)
        self._queue.put(None)
        self._thread.join(15)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                begins = job.state == "waiting"
                if begins:
                    job.state, job.message = "running", "starting"
            if begins:
                self._run(job)
            if job.after is not None:
                job.after()

    def _run(self, job: ReleaseJob) -> None:
        try:
            child = Child("release", job.task, cwd=job.cwd)
            with self._lock:
                job.child = child
            if job.unwanted:
                child.stop()
            for line in child.lines():
                job.hear(line)
        except OSError as error:
            job.hear({"error": f"no process could be started for it ({error.strerror})"})
