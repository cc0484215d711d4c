"""A Ray cluster: one at an address, or one that is started on this machine for the command. Extra `ray`.

Items travel as small arguments of actors' methods, which Ray keeps in the memory of the driver and of the worker that
runs them, never in its object store, which may spill to disk; only what is `shared` by all items goes there. An item
that is too large for that is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from dpose.engines import WorkerDiedError, attempted, worker_code
from dpose.errors import DposeError
from dpose.interpreter import safe_path

PATIENCE_S = 5.0
"""How long an address may take to answer."""
START_S = 120.0
"""How long a worker may take to start."""
STARTS = 8
"""Number of workers that may die as they start before a common cause is assumed."""
_MODE = "RAY_AUTH_MODE"
ITEM_BYTES = 50_000
"""An item may have so many, pickled: of over 100 KB Ray puts an argument into its object store."""
STORE_BYTES = 80 << 20
"""Ray's object store on this machine: it holds next to nothing."""


class RayEngine:
    """Workers that are actors of a Ray cluster, a processor each.

    Args:
        workers: How many.
        address: ray://HOST:PORT; "" starts a cluster on this machine, which ends with the engine.
    """

    def __init__(self, workers: int = 1, address: str = "") -> None:
        # it asks for no usage to be reported, and says nothing on the user's terminal
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # `ray start` asks for a token where there is one, and Ray's client gives it only where it is told to
        self._mode_is_set = bool(address) and _MODE not in os.environ and _token_at_hand()
        if self._mode_is_set:
            os.environ[_MODE] = "token"
        try:
            try:
                import ray
            except ImportError as error:
                raise DposeError("package-missing", "is not installed", "ray", "pip install 'ray[client]'") from error
            self.workers, self._ray, self._shared = workers, ray, dict[int, tuple[Any, Any]]()
            _connect(ray, workers, address)
            self._actor = ray.remote(_worker_class()).options(num_cpus=1, max_restarts=0, max_task_retries=0)
            self._where = address or "ray"
            started = [self._actor.remote() for _ in range(workers)]
            self._actors = [self._alive(actor) for actor in started]
        except BaseException:
            self.close()
            raise
        self._at: dict[Any, Any] = {}

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
        """As `ItemEngine.submit`."""
        if (size := len(pickle.dumps(item))) > ITEM_BYTES:
            raise DposeError("item-too-large", f"an item of {size:,} bytes is too large to stay in memory", self._where)
        loads = Counter(map(id, self._at.values()))
        actor = min(self._actors, key=lambda one: loads[id(one)])
        with self._reached():
            task = actor.work.remote(worker_code(), attempted, work, self._put(shared), item)
        self._at[task] = actor
        return task

    def wait(self, tasks: Collection[Any]) -> Collection[Any]:
        """As `ItemEngine.wait`."""
        tasks = list(tasks)
        with self._reached():
            self._ray.wait(tasks, num_returns=1)
            ended, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
        return ended  # type: ignore[no-any-return]

    def result(self, task: Any) -> Any:
        """As `ItemEngine.result`."""
        actor = self._at.pop(task)
        try:
            with self._reached():
                found, result = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            self._replace(actor)
            raise WorkerDiedError(type(error).__name__) from error
        self._same(found)
        return result

    def close(self) -> None:
        """As `ItemEngine.close`."""
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        if self._mode_is_set:
            # a cluster that this process starts later shall not have a mode that its Ray has not read
            os.environ.pop(_MODE, None)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Tell that a cluster at an address is lost; of one on this machine Ray itself ends this process."""
        try:
            yield
        except ConnectionError as error:
            raise DposeError(
                "cluster-lost", "the cluster is lost", self._where, "when it is there, run the command again"
            ) from error

    def _put(self, shared: Any) -> Any:
        """What is the same for all items, once in the cluster; kept, so that its identity stays its own."""
        if shared is None:
            return None
        if id(shared) not in self._shared:
            self._shared[id(shared)] = (shared, self._ray.put(shared))
        return self._shared[id(shared)][1]

    def _replace(self, actor: Any) -> None:
        """Put a new worker in the place of one that does not answer, unless another of its items has done so."""
        if actor in self._actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)  # one that was only cut off shall not go on
            self._actors[self._actors.index(actor)] = self._actor.remote()

    def _alive(self, actor: Any) -> Any:
        """Wait for a worker, and for another one where it dies as it starts; refuse one that runs other code."""
        for _ in range(STARTS):
            try:
                self._check(actor)
                return actor
            except self._ray.exceptions.RayActorError:
                actor = self._actor.remote()
        raise DposeError("workers-die-at-start", "workers die as they start", self._where, "look at its logs")

    def _check(self, actor: Any) -> None:
        try:
            self._same(self._ray.get(actor.code.remote(), timeout=START_S))
        except self._ray.exceptions.GetTimeoutError as error:
            raise DposeError(
                "processors-too-few",
                f"has no free processor for one of {self.workers} workers",
                self._where,
                "ask for fewer --workers",
            ) from error
        except self._ray.exceptions.RayTaskError as error:
            raise DposeError(
                "worker-code-differs",
                "dpose cannot be imported on a worker, or is another version",
                self._where,
                "install the same dpose",
            ) from error

    def _same(self, found: str) -> None:
        if found != worker_code():
            raise DposeError(
                "worker-code-differs",
                f"a worker runs another dpose than this machine (code {found}, here {worker_code()})",
                self._where,
                "install the same dpose, Python and numpy on all of them",
            )


def _connect(ray: Any, workers: int, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if not address:
        try:
            # as a client's job, it does not hand the current folder to workers as one to import from
            own = ray.job_config.JobConfig(_client_job=True)
            with safe_path():
                ray.init(
                    address="local",
                    num_cpus=workers,
                    include_dashboard=False,
                    object_store_memory=STORE_BYTES,
                    job_config=own,
                    **quiet,
                )
        except Exception as error:  # Ray has no class for it
            with contextlib.suppress(Exception):
                ray.shutdown()
            raise DposeError(
                "cluster-not-started",
                f"no cluster starts on this machine ({type(error).__name__}: {_first_line(error)})",
                "ray",
                "try again when the machine is less busy",
            ) from error
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    fix = "start one, or say --engine ray"
    try:
        if not host or not port.isdigit():
            raise DposeError("engine-address-malformed", "must be ray://HOST:PORT", address)
        # Ray itself would try for half a minute
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
        # somebody is there, and Ray does not say whether it was let in
        fix = "if it asks for a token, put it in RAY_AUTH_TOKEN; otherwise look at its logs"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of is told below
            logging.getLogger("ray.util.client").setLevel(logging.CRITICAL)
            logging.getLogger("ray.util.client.logsclient").disabled = True  # it sets a level of its own
            ray.init(address, **quiet)
    except (OSError, OverflowError, RuntimeError, ConnectionError) as error:
        raise DposeError(
            "cluster-unreachable", f"no Ray cluster answers here ({_first_line(error)})", address, fix
        ) from error


def _token_at_hand() -> bool:
    """Whether this user has a token of Ray's, where Ray looks for it."""
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return given or (Path.home() / ".ray" / "auth_token").is_file()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if not lines[0].endswith(":") else f"{lines[0]} {lines[-1].strip()}"


def _worker_class() -> type:
    """The worker, by its source and not by its name: what it runs of dpose it can tell only once it is there."""

    class Worker:
        def code(self) -> str:
            from dpose.engines import worker_code

            return worker_code()

        def work(self, code: str, attempted: Any, work: Any, shared: Any, item: Any) -> tuple[str, Any]:
            # one that took another's place was not asked before
            own = self.code()
            return own, attempted(work, shared, item) if own == code else None

    return Worker
