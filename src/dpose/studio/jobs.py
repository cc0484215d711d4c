"""Releases that were asked for, one after the other: each in a process of its own, that can be followed and stopped.

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
"""Of what a job said, the last so many are kept."""
ENDED = ("done", "failed", "stopped")


@dataclass
class ReleaseJob:
    """One release of one or several files.

    Attributes:
        id: Names it in requests.
        name: For readers.
        task: What the worker is given.
        state: "waiting", "running", or one of `ENDED`.
        at: How far it is, of `of`.
        of: How much there is to do; 0 where nobody knows yet.
        said: What it is at.
        lines: What else its owner must know.
        files: What it has written so far.
        statement: The last one.
        cwd: Where the worker is: names that are dropped are told without the folder that the copy lies in.
        after: Called when it has ended.
        child: The worker, once it has one.
        unwanted: Whether it was stopped.
    """

    id: str
    name: str
    task: dict[str, Any]
    state: str = "waiting"
    at: int = 0
    of: int = 0
    said: str = "waiting for the one before"
    lines: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    statement: str = ""
    cwd: Path | None = None
    after: Callable[[], None] | None = None
    child: Child | None = None
    unwanted: bool = False

    def told(self) -> dict[str, Any]:
        """What a page is told."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "at": self.at,
            "of": self.of,
            "said": self.said,
            "lines": self.lines,
            "files": [path.name for path in self.files],
            "folder": str(self.files[0].parent) if self.files else "",
            "statement": self.statement,
        }

    def hear(self, line: dict[str, Any]) -> None:
        """Take up what the worker says."""
        self.at, self.of = line.get("at", self.at), line.get("of", self.of)
        self.said = line.get("say", self.said)
        self.lines = [*self.lines, *([line["line"]] if "line" in line else [])][-LINES:]
        self.files += [Path(name) for name in line.get("files", ())]
        self.statement = line.get("statement", self.statement)
        count = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
        if "done" in line:
            self.state, self.said = (
                "done",
                f"finished: {count} written" if self.files else "nothing was left to do",
            )
        elif "error" in line:
            self.state, self.said = "failed", line["error"]
        elif "stopped" in line:
            self.state, self.said = (
                "stopped",
                f"stopped; {count} finished before that stay, and what was begun is counted",
            )


class Jobs:
    """The jobs of a studio; a thread does them in order."""

    def __init__(self) -> None:
        self._jobs: dict[str, ReleaseJob] = {}
        self._queue: queue.Queue[ReleaseJob | None] = queue.Queue()
        self._lock = threading.Lock()  # of what a job's states and child are
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
        """The job of this id.

        Raises:
            DposeError: there is none.
        """
        if str(name) not in self._jobs:
            raise DposeError("job-unknown", "there is no such job in this studio")
        return self._jobs[str(name)]

    def all(self) -> list[ReleaseJob]:
        """All of them, the newest first."""
        return list(self._jobs.values())[::-1]

    def stop(self, name: Any) -> ReleaseJob:
        """Stop a job, or take it out of the queue."""
        job = self.get(name)
        with self._lock:
            job.unwanted = True  # one that begins just now is stopped as soon as it has a process
            child = job.child if job.state == "running" else None
            if job.state == "waiting":
                job.hear({"stopped": True})
        if child is not None:
            child.stop()
        return job

    def close(self) -> None:
        """Stop all of them, and wait for that."""
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
                    job.state, job.said = "running", "starting"
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
