"""This machine's processes: one in which everything is done, or several beside it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

from dpose.engines import WorkerDiedError, attempted
from dpose.interpreter import safe_path


class LocalEngine:
    """Workers that are processes of this machine; of one worker, this process.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        # one process each: one that dies takes no other's items with it
        self._pools = [_process(workers) for _ in range(workers)] if workers > 1 else []
        self._at: dict[Future[Any], int] = {}

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Callable[[Any, Any], Any], shared: Any, item: Any) -> Future[Any]:
        """As `ItemEngine.submit`."""
        if not self._pools:
            done: Future[Any] = Future()
            done.set_result(attempted(work, shared, item))
            return done
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

    def wait(self, tasks: Collection[Future[Any]]) -> Collection[Future[Any]]:
        """As `ItemEngine.wait`."""
        return wait(tasks, return_when=FIRST_COMPLETED).done

    def result(self, task: Future[Any]) -> Any:
        """As `ItemEngine.result`."""
        self._at.pop(task, None)
        try:
            return task.result()
        except BrokenProcessPool as error:
            raise WorkerDiedError("its process ended") from error

    def close(self) -> None:
        """As `ItemEngine.close`."""
        for pool in self._pools:
            working = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for (
                process
            ) in working:  # nothing is in work but where the command was stopped: a training then saves
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
