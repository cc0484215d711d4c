"""What a run takes from the pictures that it reads, as the account of the data has it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from dpose.privacy.accounting import epsilon
from dpose.privacy.odometer import EVALUATION, Charge, Marks, marks_of
from dpose.privacy.protected import Protected, protect
from dpose.privacy.rounding import upper
from dpose.training.first_weights import Inherited
from dpose.training.kept import run_name
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
    resume: bool,
) -> Charge:
    """What the run will take from its pictures: all that its plan allows, however it ends.

    Args:
        folder: The run folder.
        bound: The plan.
        own: The units.
        options: What account and readers call the run and its data.
        opened: Pictures that are taken to be public and learnt from; None where there are none.
        seeded: Whether the noise comes from a seed.
        resume: Whether the folder holds the run already.
    """
    plan = bound.plan
    return Charge(
        id=(run_name(folder) if resume else "") or secrets.token_hex(16),
        what=options.what,
        data=options.data_name or type(own.source).__name__,
        folder=str(folder.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=own.unit.value,
        relation=own.relation,
        delta=plan.delta or 0.0,
        events=(bound.event,) if bound.event and not seeded else (),
        # a seeded run with public views protects nothing, beyond them or not
        beyond=plan.kind.public_views and not (seeded and plan.kind.private),
        marks=own.identity.marks,
        units=own.identity.units,
        views=f"{plan.public_view.kind}, width {plan.public_view.width:g}" if plan.kind.public_views else "",
        opened=marks_of(()) if opened is None else opened,
    )


def watch_charge(options: RunOptions, entry: Charge, console: Console) -> Charge | None:
    """What scoring while training takes from the pictures that are scored; None where nobody in them needs protection.

    Args:
        options: What is scored.
        entry: The run's own charge.
        console: Where progress goes.

    Raises:
        DposeError: a unit cannot be read.
    """
    watch = options.watch
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
