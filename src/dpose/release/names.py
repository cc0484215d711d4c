"""Names of released files: numbers, because a file's name may say who is in it.

Which number stands for which original is kept in the user's state folder, readable by nobody else, and never beside
what is released. Numbers follow the order of the names, which is a function of names and of no pixel. Numbering goes on
from command to command in one output folder, so nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_json, json_text, locked_folder, private_folder, write_private
from dpose.privacy.keys import state_folder

DIGITS = 6
_NUMBERED = re.compile(rf"(\d{{{DIGITS},{DIGITS + 1}}})\.")


def first_number(out: Path) -> int:
    """The first number that is free in an output folder: after all that stand there, and all that were given away."""
    taken = [int(number) for number in known_names(out)]
    with contextlib.suppress(OSError):
        found = (_NUMBERED.match(entry.name) for entry in out.iterdir())
        taken += [int(match[1]) for match in found if match]
    return max(taken, default=0) + 1


def numbered(number: int) -> str:
    """The name of a released file, without suffix."""
    return f"{number:0{DIGITS}d}"


def known_names(out: Path) -> dict[str, str]:
    """The originals of an output folder's files, by number, as this user's state folder knows them."""
    try:
        content = file_json(names_file(out))
        return {
            str(number): str(source) for number, source in content["names"].items() if str(number).isdigit()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def remember_names(out: Path, names: Mapping[str, str]) -> Path:
    """Write down which original each number stands for, before anything is released under it.

    Args:
        out: The output folder.
        names: Originals by number: paths that begin at the root, without links.

    Returns:
        The file that it stands in.

    Raises:
        DposeError: the state folder cannot be written, or another command gave one of the numbers away meanwhile.
    """
    file = names_file(out)
    private_folder(file.parent)
    with locked_folder(file.parent, wait=True):
        known = known_names(out)
        if taken := sorted(set(known) & set(names)):
            raise DposeError(
                "release-number-taken",
                f"another command has just begun to release here, from number {taken[0]} on",
                str(out),
                "try again",
            )
        content = {"folder": str(out.resolve()), "names": {**known, **names}}
        write_private(file, json_text(content, 1) + "\n")
    return file


def names_file(out: Path) -> Path:
    """Where the names of an output folder's originals stand."""
    digest = hashlib.sha256(str(out.resolve()).encode(errors="surrogateescape")).hexdigest()
    return state_folder() / "names" / f"{digest[:32]}.json"
