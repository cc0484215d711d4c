"""Before a score is computed: are these units that the run protects, and what does the score take from them?

Both are decided by content: the account holds marks of what every run has read, so a link, a copy of the folder or
another spelling of its path are the same pictures. Only where the account does not know the run, names decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from dpose.errors import DposeError
from dpose.privacy.accounting import Relation
from dpose.privacy.odometer import EVALUATION, Charge, Marks, charge_account, charges, lineage, touching
from dpose.privacy.protected import protect
from dpose.privacy.statement import PrivacyStatement
from dpose.training.kept import run_name
from dpose.units import UnitDataset


def reserve_score(
    folder: Path,
    statement: PrivacyStatement | None,
    units: UnitDataset,
    *,
    name: str,
    public: bool,
    same: bool,
    unit: str,
    console: Console,
) -> None:
    """Refuse to score units that the run protects; charge the score to the account of those that need protection.

    To be called before anything is scored. A score without noise has no epsilon: while a budget stands for some of the
    pictures, it is refused.

    Args:
        folder: A run or model folder.
        statement: Its; None where it has none.
        units: What is to be scored.
        name: Of the data, as readers elsewhere may see it.
        public: Whether nobody in the data needs protection.
        same: Whether the data have the name of those that the run was trained on.
        unit: What a unit of the data is.
        console: Where progress goes.

    Raises:
        DposeError: the run protects some of them, or a budget stands.
    """
    protects = statement is not None and statement.kind != "none"
    if protects and same:
        raise _protected(name)
    if not protects and public:
        return
    marks = protect(units, console=console).identity.marks
    if protects and touching(_protecting(folder), marks):
        raise _protected(name)
    if not public:
        charge_account(_score(folder.resolve(), name, marks, unit))


def reserve_reading(place: Path, units: UnitDataset, *, name: str, unit: str, console: Console) -> None:
    """Charge what is computed without noise from units that need protection and that a run may be trained on.

    Args:
        place: Where the results go.
        units: What is read.
        name: Of the data.
        unit: What a unit of the data is.
        console: Where progress goes.

    Raises:
        DposeError: a budget stands for some of them.
    """
    charge_account(_score(place.resolve(), name, protect(units, console=console).identity.marks, unit))


def _protected(name: str) -> DposeError:
    return DposeError(
        "these are the units the run protects; their score without noise is outside any guarantee",
        name,
        "evaluate on a held-out split",
    )


def _protecting(folder: Path) -> Sequence[Charge]:
    """The run in `folder` and those with a guarantee that its weights come from, as far as the account knows them."""
    entries, run_id = charges(), run_name(folder)
    own = [entry for entry in entries if entry.id == run_id]
    before = lineage([entry.start for entry in own], entries)[0]
    return [*own, *(entry for entry in before if entry.bounded)]


def _score(place: Path, name: str, marks: Marks, unit: str) -> Charge:
    what = hashlib.sha256(marks.tobytes()).hexdigest()
    return Charge(
        id=hashlib.sha256(f"{EVALUATION} {place} {name} {what}".encode()).hexdigest()[:32],
        what=EVALUATION,
        data=name,
        folder=str(place),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=unit,
        relation=Relation.ZERO_OUT,
        delta=0.0,
        events=(),
        beyond=False,
        marks=marks,
    )
