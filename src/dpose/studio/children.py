"""Processes that the studio starts: `dpose.studio.worker`, with limits, read line by line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
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


def answer(
    work: str, task: dict[str, Any], *, seconds: float = DECODE_SECONDS, memory: int = DECODE_MEMORY
) -> Any:
    """Run a worker in an empty folder, with a limit on memory and time, and return its answer.

    Args:
        work: A name in `worker.WORK`.
        task: The worker's input; paths are absolute.
        seconds: Limit on processor time, and on waiting.
        memory: Limit in bytes; 0 for no limit.

    Raises:
        DposeError: the worker reports an error, or passes a limit.
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
