"""A queue of releases, one after the other: each in a process of its own, that can be followed and stopped.

What a job has finished stays whatever happens to the rest of it. A page that was closed, or a machine that slept, finds
the job where it is.

Processes that the studio starts: `dpose.studio.worker`, with limits, read line by line.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.interpreter import child_environment, python

DECODE_MEMORY = 4 << 30
"""Memory limit of a process that decodes a file, bytes: a picture of 200 megapixels takes half of it."""
RELEASE_MEMORY, PICTURE_PIXEL, CLIP_PIXEL, CLIP_PROCESSOR = 3 << 30, 250, 1000, 20
"""Memory limit of a process that releases files, bytes: a constant, and for each pixel of the largest picture, of
the largest frame of a clip, and of that by processor, since each decodes and encodes a frame of its own.
On two processors a picture in blocks of one pixel takes 0.2 GB and 95 a pixel, a clip of 1920 x 1080 0.3 GB and 320."""
DECODE_SECONDS = 60
"""Limit on processor time, and on waiting, seconds."""
TOO_MUCH = "decoding it took more memory or time than a file may here; nothing was kept"
TOO_LARGE = (
    "the release ended before it was done: it took more than the {:,} MB of memory that its size allows, or was "
    "killed; files that were finished before stay, and what was begun is counted"
)


class Child:
    """A running worker process."""

    def __init__(self, work: str, task: dict[str, Any], *, cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            python("dpose.studio.worker", work),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=cwd,
            env=child_environment(),
            start_new_session=True,  # Ctrl-C in the studio's terminal is passed on by the studio
        )
        self._stopped = False
        self._lost = TOO_LARGE.format(task["memory"] >> 20) if work == "release" else TOO_MUCH
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            json.dump(task, stdin)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the worker's lines until it ends; the last one has "done", "error" or "stopped"."""
        assert self._process.stdout is not None
        ended = False
        for text in self._process.stdout:
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                ended = ended or not line.keys().isdisjoint(("done", "error", "stopped"))
                yield line
        self._process.wait()
        if not ended:
            yield {"stopped": True} if self._stopped else {"error": self._lost}

    def stop(self, after: float = 10.0) -> None:
        """Stop the worker, by force if needed: finished files stay, an unfinished one is removed."""
        self._stopped = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)  # SIGINT may be ignored, by inheritance
        try:
            self._process.wait(after)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def release_memory(pixels: int, *, clip: bool) -> int:
    """Memory limit, bytes, for a release of pictures or a clip whose largest frame has so many pixels.

    At most three quarters of the machine's memory: beyond that the system may kill any process.
    """
    each = CLIP_PIXEL + CLIP_PROCESSOR * (os.cpu_count() or 1) if clip else PICTURE_PIXEL
    needed = RELEASE_MEMORY + each * pixels
    if not hasattr(os, "sysconf"):  # Windows, where no limit is set
        return needed
    return min(needed, 3 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)


def answer(work: str, task: dict[str, Any], *, seconds: float = DECODE_SECONDS, memory: int = DECODE_MEMORY) -> Any:
    """Run a worker in an empty folder, with a limit on memory and time, and return its answer.

    Args:
        work: A name in `worker.WORK`.
        task: The worker's input; paths are absolute.
        seconds: Limit on processor time, and on waiting.
        memory: Limit in bytes; 0 for no limit.
    """
    with tempfile.TemporaryDirectory() as empty:
        child = Child(work, task | {"memory": memory, "seconds": int(seconds)}, cwd=Path(empty))
        timer = threading.Timer(seconds, child.stop, (0.1,))
        timer.start()
        try:
            for line in child.lines():
                if "done" in line:
                    return line["done"]
                if "error" in line or "stopped" in line:
                    raise DposeError(line.get("code", "decoding-limit-passed"), line.get("error", TOO_MUCH))
        finally:
            timer.cancel()
            child.stop(1.0)
    raise DposeError("decoding-limit-passed", TOO_MUCH)


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
        """The job with this id."""
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
