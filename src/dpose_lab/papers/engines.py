"""Cells by an engine's workers, each run to its end by one of them, which writes its result into the common folder."""

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
    """What is the same for all cells of a run.

    Attributes:
        name: The experiment's.
        request: By which a worker opens the data.
        folder: Of the results.
        place: Of a file that the command's state folder holds; a worker that does not find it has another one.
        account: Digest of the account's address: it may hold a password.
    """

    name: str
    request: Request
    folder: Path
    place: str
    account: str


def work_cell(work: CellWork, key: str) -> tuple[str, str]:
    """At a worker: run a cell. What became of it, as `cell_answer` has it.

    Raises:
        DposeError: what the cell trains on would be counted in another account than the command's.
    """
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
    """Run the cells that are wanted and have no result yet, by the workers of an engine.

    As `run_parallel`: a cell that fails costs no other. A cell whose worker was killed is run again, and a training in
    it goes on where its ledger says. Cells that need others are run after all that do not.

    **Guarantee.** A worker must have the state folder and the account of the command: a training is charged there, by
    whoever runs it, before it begins, and goes on under its own key or is counted again.

    Args:
        name: The experiment's, by which a worker finds it.
        request: By which a worker opens the data.
        bound: The experiment.
        folder: Claimed for its settings, and seen by every worker under this name.
        at: The engine.
        progress: Called with the weight of what was done since.

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
    work = CellWork(
        name, replace(request, folder=here), here, str(token.relative_to(state_folder())), account_digest()
    )
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
                yield schedule.ended(
                    read_cell(folder, cell) if kind == "done" else Outcome(cell, "failed", error=text)
                )
    finally:
        with contextlib.suppress(OSError):
            token.unlink()


def account_digest(place: str | None = None) -> str:
    """Digest of the account's address, or of another place: one may hold a password."""
    said = os.environ.get(VARIABLE, "") if place is None else place
    return hashlib.sha256(said.encode()).hexdigest()
