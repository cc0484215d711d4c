"""Running cells by an engine's workers; each writes its cell's result into the common folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dpose.account.store import VARIABLE
from dpose.engines import ItemEngine, run_items
from dpose.errors import DposeError
from dpose.files import write_private
from dpose.privacy.keys import state_folder
from dpose_lab.papers.experiment import Bound, Outcome, Request
from dpose_lab.papers.experiment_cell import read_cell
from dpose_lab.papers.parallel import cell_answer
from dpose_lab.papers.schedule import Schedule


@dataclass(frozen=True)
class CellWork:
    """Values that all cells of a run share.

    Attributes:
        name: Name of the experiment.
        request: The request, by which a worker opens the data.
        folder: Folder of the results.
        place: Path of a file in the command's state folder; a worker that cannot read it has another folder.
        account: Digest of the account's address, which may contain a password.
    """

    name: str
    request: Request
    folder: Path
    place: str
    account: str


def work_cell(work: CellWork, key: str) -> tuple[str, str]:
    """Run a cell at a worker; returns its outcome as `cell_answer` does."""
    from dpose_lab.papers.registry import EXPERIMENTS

    if not (state_folder() / work.place).exists() or account_digest() != work.account:
        raise DposeError(
            "worker-account-differs",
            "a worker has another state folder or account than this machine: what it reads would be counted there",
            fix=f"share the folder, and set XDG_STATE_HOME and {VARIABLE} alike on all of them",
        )
    return cell_answer(EXPERIMENTS[work.name], work.request, work.folder, key)


def run_on_engine(
    name: str,
    request: Request,
    bound: Bound,
    folder: Path,
    at: ItemEngine,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Run the wanted cells that have no result yet, by the workers of an engine.

    As with `run_parallel`, a failed cell does not stop the others. A cell whose worker was killed is run again, and a
    training in it is resumed from its ledger. Cells that need others are run last.

    **Guarantee.** A worker must have the state folder and the account of the command: a training is charged there
    by the worker, before it begins, and is resumed under its own key or charged again.

    Args:
        name: Name of the experiment.
        request: The request, by which a worker opens the data.
        bound: The experiment with its data.
        folder: Folder claimed for the settings, under the same path at every worker.
        at: The engine.
        progress: Called with the weight of finished work.

    Yields:
        Each cell's outcome, as they end.

    Raises:
        DposeError: the disk is full.
        KeyboardInterrupt: a worker was stopped.
    """
    schedule = Schedule(bound, folder, progress)
    yield from schedule.settled()
    token = state_folder() / "engines" / secrets.token_hex(8)
    write_private(token, "")
    here = folder.absolute()
    work = CellWork(name, replace(request, folder=here), here, str(token.relative_to(state_folder())), account_digest())
    try:
        while schedule.left:
            yield from schedule.hopeless()
            ready = {cell.key: cell for cell in schedule.ready()}
            schedule.left = [cell for cell in schedule.left if cell.key not in ready]
            for ended in run_items(at, work_cell, list(ready), shared=work):
                cell = ready[ended.item]
                kind, text = ended.result or ("failed", "")
                if kind == "stopped":
                    raise KeyboardInterrupt
                if kind == "full":
                    raise DposeError("disk-full", text)
                if ended.failure is not None:
                    text = ended.failure.error.line()
                yield schedule.ended(read_cell(folder, cell) if kind == "done" else Outcome(cell, "failed", error=text))
    finally:
        with contextlib.suppress(OSError):
            token.unlink()


def account_digest(place: str | None = None) -> str:
    """Digest of the account's address, or of another one; an address may contain a password."""
    address = os.environ.get(VARIABLE, "") if place is None else place
    return hashlib.sha256(address.encode()).hexdigest()
