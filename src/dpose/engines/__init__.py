"""Where many items are worked on: the processes of this machine, or a Ray cluster. One function over a stream of items.

    with engine("ray", workers=2) as at:
        for ended in run_items(at, work, items, shared=config):
            ended.item, ended.result, ended.failure

`work(shared, item)` is a function that a worker can import; all that it needs is in its arguments. Results come as they
end, in any order. So many items are in work or waiting at a worker, and no more are taken from the stream: it may be of
any length. A worker may die at any moment: its items are worked on again. An item that raises is not: it has failed,
and the others go on.

Which code a worker runs: digest of dpose's own source, and the versions of what decides its bits.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from typing import Any, Generic, Protocol, TypeVar

from dpose.errors import DposeError, did_you_mean
from dpose.extensions import source_files

DECIDING = ("numpy", "cryptography")
"""Beside dpose's source and Python: what sums whole numbers, and what draws noise."""


@cache
def worker_code() -> str:
    """Digest of everything that must be the same where an item is worked on again: 16 hexadecimal digits."""
    digest = hashlib.sha256(platform.python_version().encode())
    for name in DECIDING:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    for name, file in source_files():
        digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


ATTEMPTS = 4
"""Number of attempts at an item whose workers die, before the item is taken to be the cause."""
AHEAD = 2
"""Items at each worker: the one in work, and the next."""
ENGINES = {"local": "LocalEngine", "ray": "RayEngine"}
"""Engines by name: the module in this room, and the class in it."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Any
"""What an engine calls one attempt at an item: it can be a key of a dictionary."""


class WorkerDiedError(Exception):
    """A worker died, or cannot be reached any more, before it answered."""


@dataclass(frozen=True)
class Failure:
    """Why an item failed: a `DposeError` in parts, which crosses processes.

    Attributes:
        code: Which mistake it is.
        what: What is wrong.
        where: The file, option or value that is wrong; may be empty.
        fix: What can be done about it; may be empty.
    """

    code: str
    what: str
    where: str = ""
    fix: str = ""

    @classmethod
    def of(cls, error: DposeError) -> Failure:
        """The same of an error."""
        return cls(error.code, error.what, error.where, error.fix)

    @property
    def error(self) -> DposeError:
        """The same as an error."""
        return DposeError(self.code, self.what, self.where, self.fix)


@dataclass(frozen=True)
class ItemEnd(Generic[Item, Result]):
    """What became of an item.

    Attributes:
        item: It, as it was last worked on.
        result: What `work` returned; None if it failed.
        failure: Why it failed; None if it did not.
    """

    item: Item
    result: Result | None = None
    failure: Failure | None = None


class ItemEngine(Protocol):
    """Workers, and how tasks are submitted to them."""

    workers: int
    """Their number."""

    def submit(self, work: Callable[[Any, Any], Any], shared: Any, item: Any) -> Task:
        """Have a worker compute `attempted(work, shared, item)`."""

    def wait(self, tasks: Collection[Task]) -> Collection[Task]:
        """Those of `tasks`, one at least, that have ended: waits for the first."""

    def result(self, task: Task) -> Any:
        """What an ended task returned.

        Raises:
            WorkerDiedError: it returned nothing, and may have done anything.
        """

    def close(self) -> None:
        """Let the workers go."""


def engine(name: str, **options: Any) -> AbstractContextManager[ItemEngine]:
    """The engine `name`, for as long as the block lasts.

    Args:
        name: One of `ENGINES`, or an address: ray://HOST:PORT is the engine "ray" there.
        options: The engine's; `workers`, how many, is everybody's.
    """
    kind, _, rest = name.partition("://")
    if kind not in ENGINES or (rest and kind == "local"):
        raise DposeError(
            "engine-unknown",
            f"must be one of {', '.join(ENGINES)} or ray://HOST:PORT, not {name!r}",
            "engine",
            did_you_mean(kind, ENGINES),
        )
    if rest:
        options["address"] = name
    made = getattr(import_module(f"dpose.engines.{kind}"), ENGINES[kind])
    return made(**options)  # type: ignore[no-any-return]


def attempted(work: Callable[[Any, Any], Any], shared: Any, item: Any, *, own: bool = False) -> Any:
    """What `work` returns; what it raises as a `Failure`: one broken item must not cost the others.

    Of the command's own process (`own`) only a `DposeError` is that: a bug there is not the item's.
    """
    try:
        return work(shared, item)
    except DposeError as error:
        return Failure.of(error)
    except Exception as error:
        if own:
            raise
        return Failure("worker-failed", " ".join(f"{type(error).__name__}: {error}".split()))


def run_items(
    at: ItemEngine,
    work: Callable[[Any, Item], Result],
    items: Iterable[Item],
    *,
    shared: Any = None,
    retry: Callable[[Item], Item] = lambda item: item,
    ahead: int = AHEAD,
) -> Iterator[ItemEnd[Item, Result]]:
    """Work on every item of a stream, a few of them at each worker.

    Args:
        at: The engine.
        work: From `shared` and an item to its result. Whatever it does besides must be right when it is done twice, or
            twice at a time: a worker that cannot be reached may still be at work.
        items: Taken from as workers are free.
        shared: What is the same for all items.
        retry: Called with an item whose worker died; returns what is worked on in its place. A `DposeError` that it
            raises is the item's failure.
        ahead: Items at each worker: in work, or waiting for it.

    Yields:
        Each item with its result or failure, as they end.
    """
    running: dict[Task, tuple[Item, int]] = {}
    stream = iter(items)
    more = True
    try:
        while True:
            while more and len(running) < ahead * at.workers:
                try:
                    item = next(stream)
                except StopIteration:
                    more = False
                    break
                running[at.submit(work, shared, item)] = (item, 1)
            if not running:
                return
            for task in at.wait(running):
                item, attempt = running.pop(task)
                try:
                    result = at.result(task)
                except WorkerDiedError as error:
                    if attempt == ATTEMPTS:
                        yield ItemEnd(
                            item, failure=Failure("worker-died", f"its worker died, {ATTEMPTS} times ({error})")
                        )
                        continue
                    try:
                        item = retry(item)
                    except DposeError as refused:
                        yield ItemEnd(item, failure=Failure.of(refused))
                        continue
                    running[at.submit(work, shared, item)] = (item, attempt + 1)
                    continue
                yield ItemEnd(item, failure=result) if isinstance(result, Failure) else ItemEnd(item, result)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:  # a stream that holds something lets it go now
            close()
