"""What a run takes from the pictures that it reads, as the account of the data has it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from dpose.account import EVALUATION, Charge
from dpose.errors import DposeError
from dpose.privacy.accounting import epsilon
from dpose.privacy.entries import read_ledger
from dpose.privacy.keys import keys_kept
from dpose.privacy.ledger import head_kept
from dpose.privacy.marks import Marks, marks_of
from dpose.privacy.protected import Protected, protect
from dpose.privacy.rounding import upper
from dpose.training.checkpoint import checkpoints
from dpose.training.first_weights import Inherited
from dpose.training.local_state import run_id_of
from dpose.training.options import RunOptions
from dpose.training.plan import BoundPlan


def run_charge(
    folder: Path,
    bound: BoundPlan,
    own: Protected,
    options: RunOptions,
    *,
    opened: Marks | None,
    seeded: bool,
    known: Sequence[Charge] | None,
) -> Charge:
    """What the run will take from its pictures: all that its plan allows, however it ends.

    A run is told by its ledger. A folder without one begins a run of its own, whatever its settings call it, and is
    refused where there has been one.

    `known` is what the account holds, if the run goes on from what the folder holds; None for one that begins. `opened`
    are pictures that are taken to be public and learnt from.

    Raises:
        DposeError: the folder's ledger is missing or cannot be read.
    """
    plan, ledger = bound.plan, folder / "ledger.jsonl"
    run_id = identity = ""
    if known is not None and ledger.exists():
        first = read_ledger(ledger)[0]
        run_id, identity = first.run_id, first.sha256
    elif known is not None:
        _check_had_none(folder, known, options.state_dir, private=bound.event is not None)
        run_id = run_id_of(folder) if checkpoints(folder) else ""
    return Charge(
        id=run_id or secrets.token_hex(16),
        # without a guarantee the ledger holds a seal and counts no steps
        ledger=identity if bound.event and not seeded else "",
        what=options.what,
        data=options.data_name or type(own.source).__name__,
        folder=str(folder.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=own.neighbours.unit.value,
        relation=own.neighbours.relation,
        delta=plan.delta or 0.0,
        events=(bound.event,) if bound.event and not seeded else (),
        # a seeded run with public views protects nothing, beyond them or not
        beyond=plan.kind.public_views and not (seeded and plan.kind.private),
        marks=own.identity.marks,
        units=own.identity.units,
        views=f"{plan.public_view.kind}, width {plan.public_view.width:g}" if plan.kind.public_views else "",
        opened=marks_of(()) if opened is None else opened,
    )


def _check_had_none(folder: Path, known: Sequence[Charge], state_dir: Path | None, *, private: bool) -> None:
    """Refuse a run folder without a ledger where anything shows that it had one: what it has spent would be unknown.

    Settings that were copied from another run's folder tell of none: under them a run of its own begins.

    Raises:
        DposeError: it had one; says what tells it.
    """
    name, here = run_id_of(folder), str(folder.resolve())
    named = [entry for entry in known if entry.id == name]
    copied = bool(named) and not any(here in entry.folders for entry in named)
    notes = [file for file in ("model.safetensors", "privacy.json") if (folder / file).exists()]
    if private:
        notes += ["its checkpoints"] if checkpoints(folder) else []
        notes += ["log.jsonl"] if (folder / "log.jsonl").exists() else []
        if any(entry.ledger and here in entry.folders and name in ("", entry.id) for entry in known):
            notes.append("the account")
    if name and not copied:
        notes += ["its head, which this machine keeps"] if head_kept(name, state_dir) else []
        notes += ["its key, which this machine keeps"] if name in keys_kept(state_dir) else []
    if notes:
        raise DposeError(
            "ledger-missing",
            "the ledger of this run is missing, and what it has spent cannot be told without it (that there was one is "
            f"told by {notes[0]})",
            str(folder / "ledger.jsonl"),
            "bring it back, or start a new run in another folder",
        )


def watch_charge(options: RunOptions, entry: Charge, console: Console) -> Charge | None:
    """What scoring while training takes from the pictures that are scored; None if they are public.

    Raises:
        DposeError: a unit cannot be read.
    """
    watch = options.validation_data
    if watch is None or watch.public:
        return None
    return replace(
        entry,
        id=hashlib.sha256(f"{EVALUATION} {entry.id}".encode()).hexdigest()[:32],
        what=EVALUATION,
        data=watch.name,
        delta=0.0,
        events=(),
        beyond=False,
        marks=protect(watch.units, threads=options.threads, console=console).identity.marks,
        views="",
        start="",
        opened=marks_of(()),
    )


def tell_composed(known: Inherited, bound: BoundPlan, console: Console) -> None:
    """Say beforehand where a run's statement will claim more than its plan does."""
    plan = bound.plan
    if known.events and bound.event and plan.delta is not None:
        both = epsilon([bound.event, *known.events], plan.delta, plan.relation, plan.accountant)
        console.print(
            f"The first weights learnt from some of these {plan.unit}s too: the statement counts both runs, "
            f"epsilon {upper(both)} together.",
            highlight=False,
        )
