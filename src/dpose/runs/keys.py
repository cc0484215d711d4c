"""The keys of runs that may still go on: which are kept on this machine, and how to be rid of one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpose.account import Charge, charges
from dpose.errors import DposeError
from dpose.files import locked_folder
from dpose.privacy.entries import read_ledger
from dpose.privacy.keys import forget_key, keys_kept

NONE = "No key is kept on this machine: every private run that it knows is finished or given up."
WHY = (
    "The holder of a run's key can take its noise away. It is kept so that a stopped run can go on at no cost "
    "(dpose train --resume RUN; of a choice among trials the same dpose tune again), and deleted when the run ends. To "
    "give a run up: dpose keys RUN --discard; a choice: dpose tune --discard --out RUN"
)


def list_keys(state_dir: Path | None = None) -> RenderableType:
    """Every run whose key is kept, with what the account knows of it."""
    kept = keys_kept(state_dir)
    if not kept:
        return Text(NONE)
    known = _known(state_dir)
    table = Table(title=f"{len(kept)} kept", title_justify="left", caption=WHY, caption_justify="left")
    for column in ("since", "data", "run"):
        table.add_column(column, no_wrap=column == "since", overflow="fold")
    for name in kept:
        entry = known.get(name)
        if entry is None:
            table.add_row("", "", f"{name} (not in the account)")
        else:
            there = [folder for folder in entry.folders if (Path(folder) / "ledger.jsonl").exists()]
            table.add_row(entry.at[:10], entry.data, "\n".join(there) or f"{name} (its folder is gone)")
    return table


def discard_key(run: str, state_dir: Path | None = None) -> str:
    """Overwrite and delete the key of a run.

    Args:
        run: Its folder, or the name that `list_keys` gives where the folder is gone.
        state_dir: Where keys are kept; the user's state folder by default.

    Returns:
        What was done and what it means, for the user.
    """
    with _held(run) as name:
        if name not in keys_kept(state_dir):
            return f"{run}: no key of this run is kept on this machine."
        forget_key(name, state_dir)
    return (
        f"{run}: its key is overwritten and deleted (a journal or a backup of the disk may still hold it). What the "
        "run has spent stays spent. If it is resumed all the same, it goes on under a new key, and the steps since its "
        "last checkpoint are counted once more."
    )


@contextlib.contextmanager
def _held(run: str) -> Iterator[str]:
    """The run's name in the state folder; no process is at work on it while the block lasts."""
    folder = Path(run)
    if not folder.is_dir():
        if re.fullmatch(r"[0-9a-f]{32}", run):
            yield run
            return
        raise DposeError("run-missing", "there is no such run", run, "see dpose keys")
    ledger = folder / "ledger.jsonl"
    if not ledger.exists():
        raise DposeError("ledger-missing", "has no ledger, so it is no run with a key", str(folder), "see dpose keys")
    with locked_folder(folder):
        yield read_ledger(ledger)[0].run_id


def _known(state_dir: Path | None) -> dict[str, Charge]:
    return {entry.id: entry for entry in charges(state_dir)}
