"""The one error a user ever sees: what is wrong, where, and what to do about it.

Each has a code, a few words with hyphens between them such as `ledger-cut` or `file-missing`, which the command line
prints behind the sentence, in brackets. Sentences are for people and are mended from one version to the next; a code
stays, and is what a script compares: `error.code == "released-before"`. One code may stand at several places, for the
same mistake. A refusal that is told on with a file's name keeps its code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 2000
"""Characters of a message that are told."""


class DposeError(Exception):
    """A user's mistake or a broken input, told in one line.

    The command line prints it and its code without a traceback, and exits with its `exit_code`, 2.

    Args:
        code: Which mistake it is, for scripts: two to five words with hyphens between them.
        what: What is wrong, in a few words.
        where: The file, option or value that is wrong; empty if `what` already names it.
        fix: What the user can do about it; may be empty.
    """

    exit_code = 2

    def __init__(self, code: str, what: str, where: str = "", fix: str = "") -> None:
        self.code, self.what, self.where, self.fix = code, what, where, fix
        super().__init__(self.line())

    def __reduce__(self) -> tuple[type[DposeError], tuple[str, str, str, str]]:
        return type(self), (self.code, self.what, self.where, self.fix)

    def line(self) -> str:
        """The whole message on one line: `where: what; fix`."""
        where, fix = self.where and f"{self.where}: ", self.fix and f"; {self.fix}"
        line = printable(" ".join(f"{where}{self.what}{fix}".split()))
        # a value told in it may be a whole file
        return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def printable(text: str) -> str:
    """A line of a terminal with control characters escaped, which a file's name may have."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda found: ascii(found[0])[1:-1], text)


class IncompleteError(DposeError):
    """Some of many items failed, and all others are done: exit code 1."""

    exit_code = 1


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Errors about a setting or a frame name the file that they occurred with."""
    try:
        yield
    except DposeError as error:
        if str(path) in error.line():
            raise
        what = f"{error.where}: {error.what}" if error.where else error.what
        raise DposeError(error.code, what, str(path), error.fix) from error


def did_you_mean(word: str, known: Iterable[str], before: str = "") -> str:
    """A question after the known word nearest to a misspelt one, `before` set before it; "" if none is near.

    >>> did_you_mean("epsilonn", ("epsilon", "delta"), "plan.")
    'did you mean plan.epsilon?'
    """
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {before}{near[0]}?" if near else ""
