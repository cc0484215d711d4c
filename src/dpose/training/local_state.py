"""What a run folder must not hold: where the data lie on this machine, and what was typed.

A run folder travels, and paths name people, wards and projects. So it holds settings with the last part of each path,
and the full ones stand in the user's state folder by the run's name, readable by no other user; they are needed to go
on with the run, to draw its report and to tell its data from others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpose.files import file_json, write_private
from dpose.privacy.entries import read_ledger
from dpose.privacy.keys import state_folder

SCHEMA = 1


@dataclass(frozen=True)
class Places:
    """A run's settings as they were given.

    Attributes:
        settings: As the command that began the run takes them, with every path whole.
        command: What the user typed; "" where nothing was.
    """

    settings: Mapping[str, Any]
    command: str = ""


def keep_places(run_id: str, places: Places, state_dir: Path | None = None) -> None:
    """Write what the folder of the run `run_id` must not hold.

    Raises:
        DposeError: the state folder cannot be written.
    """
    content = {"schema": SCHEMA, "settings": dict(places.settings), "command": places.command}
    write_private(_file(run_id, state_dir), json.dumps(content) + "\n")


def kept_places(run_id: str, state_dir: Path | None = None) -> Places | None:
    """The stored settings of the run `run_id`; None if this machine has none that can be read."""
    try:
        content = file_json(_file(run_id, state_dir))
        if content["schema"] != SCHEMA:
            return None
        return Places(dict(content["settings"]), str(content["command"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a run from another machine


def run_id_of(folder: Path) -> str:
    """The name of the run in `folder`, as its config.json says; "" where it says none."""
    try:
        found = file_json(folder / "config.json").get("run_id", "")
    except (OSError, ValueError, AttributeError):
        return ""
    # it becomes a file name
    named = isinstance(found, str) and len(found) == 32 and set(found) <= set("0123456789abcdef")
    return found if named else ""


def run_name(folder: Path) -> str:
    """The name of the run in `folder`: its ledger's or, without one, its config's; "" where neither has one.

    Raises:
        DposeError: the ledger cannot be read, or was altered.
    """
    ledger = folder / "ledger.jsonl"
    return read_ledger(ledger)[0].run_id if ledger.exists() else run_id_of(folder)


def _file(run_id: str, state_dir: Path | None) -> Path:
    return state_folder(state_dir) / "runs" / f"{run_id}.json"
