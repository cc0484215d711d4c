"""Running cells in processes: several at once, each with its own memory, threads and GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from dpose.engines.local import spawning
from dpose.errors import DposeError
from dpose_lab.papers.experiment import Bound, Cell, Experiment, Outcome, Request
from dpose_lab.papers.experiment_cell import read_cell, run_cell
from dpose_lab.papers.schedule import Schedule

PARENT_SECONDS = 1.0
"""Interval at which a process checks that its parent is alive, seconds."""


@dataclass
class _Worker:
    """A process that runs a cell, and the end of the pipe for its outcome."""

    process: SpawnProcess
    answer: Connection
    cell: Cell
    place: int


def run_parallel(
    name: str, request: Request, bound: Bound, folder: Path, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Outcome]:
    """Run the wanted cells that have no result yet, `request.processes` at once.

    As with `run_cells`, a failed cell does not stop the others. Each process writes its cell's result itself, and saves
    its training when stopped. If this process is killed, the others notice, save and end. Threads are divided among
    the processes, and GPUs are dealt out in turn.

    Args:
        name: Name of the experiment.
        request: The request, by which a process opens the data.
        bound: The experiment with its data.
        folder: Folder claimed for the settings.
        progress: Called with the weight of finished work.

    Yields:
        Each cell's outcome, as they end.

    Raises:
        DposeError: the disk is full.
        KeyboardInterrupt: a process was stopped.
    """
    schedule = Schedule(bound, folder, progress)
    yield from schedule.settled()
    workers: list[_Worker] = []
    try:
        while schedule.left or workers:
            yield from schedule.hopeless()
            ready = schedule.ready({worker.cell.key for worker in workers})
            free = [p for p in range(request.processes) if p not in {w.place for w in workers}]
            for cell, place in zip(ready, free, strict=False):
                schedule.left.remove(cell)
                workers.append(_started(name, request, folder, cell, place))
            if not workers:
                continue
            ended = wait([worker.process.sentinel for worker in workers])
            for worker in [w for w in workers if w.process.sentinel in ended]:
                workers.remove(worker)
                yield schedule.ended(_outcome(worker, folder))
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def _started(name: str, request: Request, folder: Path, cell: Cell, place: int) -> _Worker:
    context = spawning()
    answer, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, request, folder, cell.key, place, sender))
    process.start()
    sender.close()
    return _Worker(process, answer, cell, place)


def _outcome(worker: _Worker, folder: Path) -> Outcome:
    worker.process.join()
    kind, text = "died", f"its process ended with code {worker.process.exitcode}"
    with contextlib.suppress(EOFError):
        if worker.answer.poll():
            kind, text = worker.answer.recv()
    worker.answer.close()
    if kind == "stopped":
        raise KeyboardInterrupt
    if kind == "full":
        raise DposeError("disk-full", text)
    return read_cell(folder, worker.cell) if kind == "done" else Outcome(worker.cell, "failed", error=text)


def _work(name: str, request: Request, folder: Path, key: str, place: int, sender: Connection) -> None:
    """Run one cell in this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a training handles it itself; otherwise the parent decides
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // request.processes))
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(place % torch.cuda.device_count())
    from dpose_lab.papers.registry import EXPERIMENTS

    with contextlib.suppress(BrokenPipeError):  # the parent is gone: the result is on disk all the same
        sender.send(cell_answer(EXPERIMENTS[name], request, folder, key))


def cell_answer(experiment: Experiment, request: Request, folder: Path, key: str) -> tuple[str, str]:
    """Run a cell and return its state, "done", "failed", "full" (the disk) or "stopped", and its error."""
    try:
        bound = experiment.bind(request)
    except DposeError as error:
        return "failed", error.line()
    try:
        outcome = run_cell(bound, folder, next(cell for cell in bound.cells if cell.key == key))
    except DposeError as error:
        return "full", error.line()
    except KeyboardInterrupt:
        return "stopped", ""
    return outcome.status, outcome.error


def _leave_with(parent: int) -> None:
    """Stop this process, as Ctrl-C would, when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
