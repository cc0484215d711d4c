"""Units read by several processes, each its own: no process needs all pictures, and all have what was read of each.

    for said in read_shared(of, numbers, readers, threads): ...

A unit is one process's for a whole run: that of its number. What its process says of it is what all go by, whatever
file another machine holds under the same name; a process that reads a unit of another's must find the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dpose.errors import DposeError

BLOCK = 64
"""Number of units each process reads before it tells the others."""


class Readers(Protocol):
    """The processes of a run, as one of them sees them."""

    @property
    def index(self) -> int:
        """Which one this is, from 0."""

    @property
    def count(self) -> int:
        """Their number."""

    def gather(self, content: bytes) -> list[bytes]:
        """Every process's `content`, in their order, in every process."""

    def agree(self, digests: Mapping[str, bytes]) -> None:
        """Hold all of them to the same digests, each of 32 bytes, by what they are of.

        Raises:
            DposeError: one differs in some process; in every process.
        """


@dataclass(frozen=True)
class _Alone:
    index: int = 0
    count: int = 1

    def gather(self, content: bytes) -> list[bytes]:
        return [content]

    def agree(self, digests: Mapping[str, bytes]) -> None:
        """Anyone who is alone agrees."""


ALONE: Readers = _Alone()
"""One process that reads everything."""


def is_local(number: int, readers: Readers) -> bool:
    """Whether the unit of this number is this process's. The processes' units are disjoint and together all of them."""
    return number % readers.count == readers.index


def read_shared(of: Callable[[int], Any], numbers: Sequence[int], readers: Readers, threads: int = 2) -> Generator[Any]:
    """What `of` says of every unit, in their order, each asked in the process whose unit it is.

    Args:
        of: What JSON can hold, of the unit at an index; called from several threads.
        numbers: Of each unit, the number that says whose it is.
        readers: The processes. All of them must ask the same, and take as much of the answer.
        threads: Threads that read.

    Raises:
        DposeError: as `of`, of whichever process; in every process.
    """
    with ThreadPoolExecutor(max(1, threads)) as pool:
        if readers.count == 1:
            yield from pool.map(of, range(len(numbers)))
            return
        size = BLOCK * readers.count
        for first in range(0, len(numbers), size):
            block = range(first, min(first + size, len(numbers)))
            own = [index for index in block if is_local(numbers[index], readers)]
            read = broadcast(partial(_said, of, own, pool), readers)
            said = {index: value for part in read for index, value in part}
            if said.keys() != set(block) or sum(map(len, read)) != len(block):
                raise DposeError(
                    "processes-read-differently", "a process of this run left out units of its own, or read others'"
                )
            yield from (said[index] for index in block)


def _said(of: Callable[[int], Any], own: Sequence[int], pool: ThreadPoolExecutor) -> list[tuple[int, Any]]:
    return list(zip(own, pool.map(of, own), strict=True))


def broadcast(do: Callable[[], Any], readers: Readers) -> list[Any]:
    """What each process returned, in their order, in every process.

    Raises:
        DposeError: what one of them raised; in every process, so that none waits for one that gave up.
    """
    try:
        own = {"said": do()}
    except DposeError as error:
        if readers.count == 1:
            raise
        own = {"failed": [error.code, error.what, error.where, error.fix]}
    parts = [json.loads(part) for part in readers.gather(json.dumps(own).encode())]
    for part in parts:
        if "failed" in part:
            code, *said = part["failed"]
            raise DposeError(code, *said)
    return [part["said"] for part in parts]
