"""Processes that the studio starts: `dpose.studio.worker`, with limits, read line by line."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.interpreter import environment, python

DECODE_MEMORY = 4 << 30
"""Address space of a process that decodes a file, bytes: a picture of 200 megapixels takes half of it."""
DECODE_SECONDS = 60
"""Of processor time, and of waiting."""
TOO_MUCH = "decoding it took more memory or time than a file may here; nothing was kept"


class Child:
    """A worker at work."""

    def __init__(self, work: str, task: dict[str, Any], *, cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            python("dpose.studio.worker", work),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=cwd,
            env=environment(),
            start_new_session=True,  # Ctrl-C in the studio's terminal is the studio's to pass on
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            json.dump(task, stdin)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends; the last one has "done", "error" or "stopped"."""
        assert self._process.stdout is not None
        ended = False
        for text in self._process.stdout:
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                ended = ended or not line.keys().isdisjoint(("done", "error", "stopped"))
                yield line
        self._process.wait()
        if not ended:
            yield {"error": TOO_MUCH}

    def stop(self, after: float = 10.0) -> None:
        """Ask it to stop: what it has finished stays, what it has begun is taken away. Kill it if it does not."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)  # SIGINT may be ignored, by inheritance
        try:
            self._process.wait(after)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def answer(
    work: str, task: dict[str, Any], *, seconds: float = DECODE_SECONDS, memory: int = DECODE_MEMORY
) -> Any:
    """What a worker found, with a limit on its memory and time, in an empty folder.

    Args:
        work: A name in `worker.WORK`.
        task: What it is given; paths are absolute.
        seconds: Of processor time, and of waiting.
        memory: Address space, bytes; 0 for any.

    Raises:
        DposeError: it says what is wrong, or passes a limit.
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
                    raise DposeError(line.get("error", TOO_MUCH))
        finally:
            timer.cancel()
            child.stop(1.0)
    raise DposeError(TOO_MUCH)
