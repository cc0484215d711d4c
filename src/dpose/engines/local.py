"""This machine: this process, threads of it, or processes beside it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

from dpose.engines import WorkerDiedError, attempted
from dpose.interpreter import safe_path


class LocalEngine:
    """Workers that are processes of this machine, or threads of this process; with one worker, this process.

    Args:
        workers: How many.
        threads: Makes workers threads, and says of an item whether it may be in work beside others. One that may not
            is worked on in the caller's thread, when its turn comes.
    """

    def __init__(self, workers: int = 1, threads: Callable[[Any], bool] | None = None) -> None:
        self.workers, self._threads = workers, threads
        several = workers > 1
        # one process each: one that dies takes no other's items with it
        self._pools = [_process(workers) for _ in range(workers)] if several and not threads else []
        self._pool = ThreadPoolExecutor(workers) if several and threads else None
        self._at: dict[Future[Any], int] = {}

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Callable[[Any, Any], Any], shared: Any, item: Any) -> Future[Any] | partial[Any]:
        """As `ItemEngine.submit`; what has no worker beside this thread is begun when its result is waited for."""
        if not self._pools:
            call = partial(attempted, work, shared, item, own=self._threads is not None)
            beside = self._pool is not None and self._threads is not None and self._threads(item)
            return self._pool.submit(call) if self._pool is not None and beside else call
        loads = [list(self._at.values()).count(place) for place in range(self.workers)]
        place = loads.index(min(loads))
        try:
            task = self._pools[place].submit(attempted, work, shared, item)
        except BrokenProcessPool:
            self._pools[place].shutdown(wait=False)
            self._pools[place] = _process(self.workers)
            task = self._pools[place].submit(attempted, work, shared, item)
        self._at[task] = place
        return task

    def wait(self, tasks: Collection[Any]) -> Collection[Any]:
        """As `ItemEngine.wait`; of this process's tasks the first, so that they end in their order."""
        return wait(tasks, return_when=FIRST_COMPLETED).done if self._pools else [next(iter(tasks))]

    def result(self, task: Any) -> Any:
        """As `ItemEngine.result`."""
        if isinstance(task, partial):
            return task()
        self._at.pop(task, None)
        try:
            return task.result()
        except BrokenProcessPool as error:
            raise WorkerDiedError("its process ended") from error

    def close(self) -> None:
        """As `ItemEngine.close`; what a thread has begun it ends."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for pool in self._pools:
            working = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            # nothing is in work but where the command was stopped: a training then saves
            for process in working:
                process.terminate()
                process.join()


def _process(workers: int) -> ProcessPoolExecutor:
    threads = max(1, (os.cpu_count() or 1) // workers)
    return ProcessPoolExecutor(1, spawning(), _settle, (threads,))


def _settle(threads: int) -> None:
    """Before a worker imports anything heavy: its share of the threads; Ctrl-C is its parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def spawning() -> SpawnContext:
    """The context of multiprocessing for processes that import nothing from the current folder.

    Each is a fresh interpreter: a fork would share torch's threads and locks, and a source of randomness.
    """
    if os.name == "posix":
        with safe_path():
            resource_tracker.ensure_running()  # the process that looks after semaphores is one, too
    return _Spawning()


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802
        with safe_path():
            return SpawnProcess._Popen(process_obj)


class _Spawning(SpawnContext):
    Process = _Process
