"""Work that may be cut off at any moment, and what must be true of it afterwards.

A story is done below one folder, in a process of its own, and begun again until it ends. `mark` tells what has happened
that cannot be undone: a step that has sampled, a reservation that was granted. `check` is asked after every cut: what
was marked, and what could be seen, is counted; nothing is half-written. `over` is asked at the end.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, Protocol

Mark = Callable[[str], None]


class Story(Protocol):
    """See this module.

    Attributes:
        variants: How many stories of the kind, by number, differ in what they end with.
        apart: Whether it has processes of which one may be killed and the others not.
    """

    variants: int
    apart: bool

    def prepare(self, root: Path) -> None:
        """Make what is there at first."""

    def work(self, root: Path, mark: Mark) -> None:
        """Begin, or go on; returns when all is done."""

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """Raise an AssertionError where what must be true after a cut is not.

        Args:
            root: As the cut has left it.
            marks: All that were made before it.
            seen: Contents that each file below the root has had so far.
        """

    def over(self, root: Path, marks: set[str]) -> None:
        """The same, when the work has ended."""

    def between(self, root: Path, cuts: int) -> None:
        """What else happens after a kill."""

    def keep(self, root: Path) -> None:
        """Remember what a story that was not cut off ends with."""


class Plain:
    """A story to which nothing else happens."""

    variants = 1
    apart = False

    def between(self, root: Path, cuts: int) -> None:
        """Nothing."""

    def keep(self, root: Path) -> None:
        """Nothing."""


def end_telling(work: Callable[[], None], told: int) -> NoReturn:
    """Do what a forked process is for and end it; what it raises goes into the pipe `told`."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        os.write(told, traceback.format_exc()[-4000:].encode())
    os._exit(code)
