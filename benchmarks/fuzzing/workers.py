"""Processes that read many bad inputs one after another, each under limits; what kills one is laid to its input.

A worker is forked from a process that has the readers loaded. For each input it gets `MEMORY` bytes more of address
space than it holds when it begins, and `SECONDS`. An input whose worker dies, and one that raises what it may not, is
read once more in a worker of its own, so that what an earlier input left behind is not taken for it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from fuzzing import commands, hostile, labels, readers, studies
from fuzzing.reader import Reader
from fuzzing.samples import pictures

MEMORY, SECONDS = 2 << 30, 20
EACH = 250
"""Inputs after which a worker makes room for a fresh one."""
READERS: Mapping[str, Callable[[], Reader]] = {
    **readers.READERS, **labels.READERS, **hostile.READERS, **commands.READERS,
    **studies.READERS,
}  # fmt: skip
NOT_TO_BE_OPENED = {"/etc/passwd", "/dev/zero", "/dev/random"}

Line = dict[str, Any]


@cache
def reader_of(name: str) -> Reader:
    """The reader of this name, its valid files made once."""
    return READERS[name]()


def mutant(name: str, number: int, seed: int) -> tuple[str, bytes]:
    """Suffix and content of input `number`: the same whenever it is asked for. Number -1 - k is the k-th valid file."""
    reader = reader_of(name)
    if number < 0:
        return sorted(reader.files.items())[-1 - number]
    return reader.mutant(random.Random(f"{seed}/{name}/{number}"))


class Worker:
    """A process that reads what it is told to. Its folder is in memory where there is room."""

    def __init__(self) -> None:
        self.read = 0
        room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=room))
        tasks, self._tasks = os.pipe()
        self._notes, told = os.pipe()
        self.process = os.fork()
        if not self.process:
            try:
                os.close(self._tasks)
                os.close(self._notes)
                _serve(self.folder, tasks, told)
            finally:
                os._exit(0)
        os.close(tasks)
        os.close(told)

    def ask(self, name: str, number: int, seed: int) -> Line | None:
        """Read one input; None where the process died of it. Then the worker is of no more use."""
        self.read += 1
        os.write(self._tasks, json.dumps([name, number, seed]).encode() + b"\n")
        data, until = b"", time.monotonic() + SECONDS + 15
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([self._notes], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                os.kill(self.process, signal.SIGKILL)
            piece = os.read(self._notes, 1 << 16)
            if not piece:
                return None
            data += piece
        found: Line = json.loads(data)
        return found

    def end(self) -> str:
        """Let it go; the name of the signal that killed it, "" for none."""
        os.close(self._tasks)
        os.close(self._notes)
        _, status = os.waitpid(self.process, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        code = os.waitstatus_to_exitcode(status)
        return signal.Signals(-code).name if code < 0 else "" if code == 0 else f"exit code {code}"


class Workers:
    """One worker at a time, a new one where the last has died or read enough."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def ask(self, name: str, number: int, seed: int) -> Line:
        """How reading one input ended."""
        if self._worker is None:
            self._worker = Worker()
        line = self._one(self._worker, name, number, seed)
        if line["ended"] == "crash":
            self.close()
            alone = Worker()
            line = self._one(alone, name, number, seed)
            if line.get("what") not in _SIGNALS:
                alone.end()
            if line["ended"] != "crash":
                line["not_alone"] = True  # only after others
        elif self._worker.read >= EACH:
            self.close()
        return line

    def _one(self, worker: Worker, name: str, number: int, seed: int) -> Line:
        begun = time.monotonic()
        line = worker.ask(name, number, seed)
        if line is None:
            seconds = time.monotonic() - begun
            line = {"ended": "crash", "what": worker.end() or "ended", "seconds": seconds, "memory": 0, "suffix": ""}
            if worker is self._worker:
                self._worker = None
        return line

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None


_SIGNALS = {one.name for one in signal.Signals} | {"ended"}


def _serve(folder: Path, tasks: int, told: int) -> None:
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    opened: list[str] = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
    with os.fdopen(tasks) as lines:
        for count, line in enumerate(lines):
            name, number, seed = json.loads(line)
            place = folder / str(count)
            (place / "in").mkdir(parents=True)
            (place / "canary.png").write_bytes(pictures()[".png"])
            suffix, data = mutant(name, number, seed)
            path = place / "in" / f"input{suffix}"
            path.write_bytes(data)
            opened.clear()
            found = _limited(reader_of(name), path)
            outside = [one for one in opened if one in NOT_TO_BE_OPENED or one.endswith("/canary.png")]
            there = {entry.name for entry in place.iterdir()} | {entry.name for entry in folder.iterdir()}
            if outside or there != {"in", "canary.png", str(count)}:
                found |= {"ended": "crash", "what": f"left its folder: {outside} {sorted(there)}"}
            os.write(told, json.dumps({"suffix": suffix, **found}).encode() + b"\n")
            shutil.rmtree(place, ignore_errors=True)


def _limited(reader: Reader, path: Path) -> Line:
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is counted anew
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    signal.alarm(SECONDS)
    begun = time.monotonic()
    found = _ended(reader, path)
    seconds = time.monotonic() - begun
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {**found, "seconds": round(seconds, 3), "memory": peak << 10}


def _ended(reader: Reader, path: Path) -> Line:
    try:
        return {"ended": "result", "what": reader.read(path)}
    except DposeError as error:
        line = error.line()
        return {"ended": "crash" if "\n" in line or len(line) > 4000 else "refused", "what": line[:4100]}
    except BaseException:
        return {"ended": "crash", "what": traceback.format_exc()[-3000:]}
