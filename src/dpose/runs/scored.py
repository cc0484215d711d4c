"""Before a score is computed: are these units that the run protects, and what does the score take from them?

Both are decided by content: the account holds marks of what every run has read, so a link, a copy of the folder or
another spelling of its path are the same pictures. Copies that were saved again and people are found where the run's
own data are at hand (`dpose.training.guards.overlap`). Only where the account does not know the run, names decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

import numpy as np
from rich.console import Console

from dpose.account import EVALUATION, PAGE, PIXEL, Charge, budgets, charge, charges, lineage, names_of_run, overlapping
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.privacy.marks import Marks, marks_of
from dpose.privacy.neighbours import Relation
from dpose.privacy.noised_query import NoisedQuery
from dpose.privacy.protected import Protected, protect
from dpose.privacy.ranges import check_delta, large_delta
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.places import learnt_from
from dpose.tensors import digest_of_tensors
from dpose.training.folder import run_name
from dpose.training.guards import overlap
from dpose.units import UnitDataset

NOISED_SCORE = "noised score"
NOT_AT_HAND = (
    "The pictures that the model learnt from are not all at hand: whether these are copies that were saved again, or "
    "show the same people, was not looked for. Equal pictures were."
)


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
) -> str:
    """Refuse to score units that the run protects; charge the score to the account of those that need protection.

    To be called before anything is scored. A score without noise has no epsilon: while a budget stands for some of the
    pictures, it is refused.

    Args:
        folder: A run or model folder.
        statement: The model's statement; None if it has none.
        units: What is to be scored.
        name: Of the data, as readers elsewhere may see it.
        public: True if the data are public.
        same: Whether the data have the name of those that the run was trained on.
        unit: What a unit of the data is.
        console: Where progress goes.

    Returns:
        The name of the charge, to be committed once the score is kept; "" where nothing is charged.
    """
    guarded, protecting = _guarantees(folder, statement)
    if guarded and same:
        raise _protected(name)
    if public and not (guarded or protecting):
        return ""
    own = protect(units, console=console)
    marks = own.identity.marks
    if guarded or protecting:
        _check_unprotected(run_name(folder) if guarded else "", protecting, own, name, console)
    return "" if public else charge(reading_charge(folder, name, marks, unit)).id


def reserve_noised_score(
    folder: Path,
    statement: PrivacyStatement | None,
    units: UnitDataset,
    query: NoisedQuery,
    *,
    seeded: bool,
    name: str,
    same: bool,
    console: Console,
) -> tuple[Protected, str]:
    """Refuse to score units that the run protects; reserve a noised score on the account of the others.

    To be called before anything is scored. Every call reserves anew: the same score again is another release.

    Args:
        folder: A run or model folder.
        statement: The model's statement; None if it has none.
        units: What is to be scored; all of them need protection.
        query: The release.
        seeded: Whether its noise comes from a seed, which bounds nothing.
        name: Of the data, as readers elsewhere may see it.
        same: Whether the data have the name of those that the run was trained on.
        console: Where progress goes.

    Returns:
        The units, copies of one merged; and the name of the charge, to be committed once the score is kept.
    """
    guarded, protecting = _guarantees(folder, statement)
    if guarded and same:
        raise _protected(name, noised=True)
    protected = protect(units, query.relation, console=console)
    if query.relation is not Relation.ADD_REMOVE:  # which hides how many there are
        if not protected.identity.units:
            raise DposeError(
                "people-to-score-missing", "there are no people to score", name, "check the data and --limit"
            )
        if query.delta:
            check_delta(query.delta, protected.identity.units)
        if warning := large_delta(query.delta, protected.identity.units):
            console.print(warning, highlight=False, soft_wrap=True)
    marks = protected.identity.marks
    if guarded or protecting:
        own = run_name(folder) if guarded else ""
        _check_unprotected(own, protecting, protected, name, console, noised=True)
    charged = reading_charge(folder, name, marks, protected.neighbours.unit.value)
    return protected, _reserve_release(charged, query, seeded)


def reserve_labels(
    place: Path,
    units: UnitDataset | None,
    absent: Sequence[str] = (),
    *,
    name: str,
    unit: str = "image",
    console: Console,
) -> str:
    """Charge what is computed without noise from units that need protection and that a run may be trained on.

    Of some pictures only labels may be at hand. The account knows pictures by their content, and cannot tell whether it
    has met the absent ones. So they are charged as what their labels say, which no other run is found by, and while any
    budget stands they are refused: it could be theirs.

    Args:
        place: Where the results go.
        units: What is read; None if nothing of it is there.
        absent: Of each absent picture, a text of its name and labels.
        name: Of the data.
        unit: What a unit of the data is.
        console: Where progress goes.

    Returns:
        The name of the charge, to be committed once the results are kept.
    """
    if absent and budgets():
        raise DposeError(
            "budget-match-unknown",
            "a budget stands, and whether it is for these pictures is unknown while they are absent",
            name,
            "put the pictures where the labels look for them",
        )
    known = marks_of(hashlib.sha256(f"dpose/labels/1 {text}".encode()).hexdigest() for text in absent)
    if units is not None:
        known = np.union1d(known, protect(units, console=console).identity.marks)
    return charge(reading_charge(place, name, known, unit)).id


def reserve_shown(place: Path, units: UnitDataset, *, name: str, console: Console) -> str:
    """Charge pictures that need protection and that a page is to show as they are.

    Args:
        place: Where the page goes.
        units: Whose pictures are shown.
        name: Of the data.
        console: Where progress goes.

    Returns:
        The name of the charge, to be committed once the page is written.
    """
    marks = protect(units, console=console).identity.marks
    return charge(reading_charge(place, name, marks, PIXEL, PAGE)).id


def _protected(name: str, *, noised: bool = False, found: str = "") -> DposeError:
    return DposeError(
        "scored-data-protected",
        ("these are the units the run protects" + (f" ({found})" if found else ""))
        + (
            "; a score would cost more than its statement says"
            if noised
            else "; their score without noise is outside any guarantee"
        ),
        name,
        "evaluate on a held-out split, which shares no picture and no person with them, and no frame of a video",
    )


def _check_unprotected(
    own: str, protecting: Sequence[Charge], units: Protected, name: str, console: Console, *, noised: bool = False
) -> None:
    """Refuse units of which the run `own` ("" for none), or one that was charged as `protecting`, protects one.

    The account knows those by content. Copies that were saved again and people are looked for (`overlap`) where the
    data of the runs are at hand; where they are not, that is said.

    Raises:
        DposeError: one is protected.
    """
    if overlapping(protecting, units.identity.marks):
        raise _protected(name, noised=noised)
    absent = False
    runs = dict.fromkeys((own, *(entry.id for entry in protecting)))
    scored_sides = {names_of_run(run)[1] for run in runs}  # of choices among trials: their data are the run's own
    for run_id in [run for run in runs if run not in scored_sides]:
        data = learnt_from(run_id) if run_id else ()
        absent |= not data
        for one in data[:1]:
            if found := overlap(units.data, one, 2, console):
                raise _protected(name, noised=noised, found=str(found))
    if absent:
        console.print(NOT_AT_HAND, highlight=False, soft_wrap=True)


def protects(folder: Path, statement: PrivacyStatement | None) -> bool:
    """Whether a model has a guarantee, or one that its weights come from: its units may not be scored without noise."""
    guarded, protecting = _guarantees(folder, statement)
    return guarded or bool(protecting)


def _guarantees(folder: Path, statement: PrivacyStatement | None) -> tuple[bool, Sequence[Charge]]:
    """Whether a model has a guarantee of its own; and the runs with one that made it, as far as the account knows them.

    Of a model whose statement is gone the account says whether its run has one.
    """
    entries, run_id, weights = charges(), run_name(folder), folder / "model.safetensors"
    names = names_of_run(run_id) if run_id else ()
    same = {file_digest(weights), digest_of_tensors(weights)} if weights.is_file() else set[str]()
    own = [entry for entry in entries if entry.id in names or same & set(entry.weights)]
    before = [entry for entry in lineage([entry.start for entry in own], entries)[0] if entry.events]
    guarded = any(e.events or e.beyond for e in own) if statement is None else statement.kind != "none"
    return guarded, [*(own if guarded else ()), *before]


def _reserve_release(score: Charge, query: NoisedQuery, seeded: bool) -> str:
    """Put one noised score on the account, under a name of its own, which is returned.

    An event on the account holds for a picture that is replaced by another, so it is the dearer of what the relation
    costs and what replacement does (`NoisedQuery.dearer`). Nothing bounds noise from a seed.
    """
    name = token_hex(16)
    charged = replace(score, id=name, what=NOISED_SCORE, relation=query.relation, delta=query.delta or 0.0)
    charge(replace(charged, events=() if seeded else (query.dearer,)))
    return name


def reading_charge(place: Path, name: str, marks: Marks, unit: str, what: str = EVALUATION) -> Charge:
    """What reads pictures and tells of them without noise: nothing bounds it, and the same again adds nothing.

    Args:
        place: Where the results go.
        name: Of the data, for readers.
        marks: The pictures.
        unit: What a unit of the data is.
        what: A score, which is counted beside all epsilons; or what shows pictures, so that there is none of them.
    """
    place, read = place.resolve(), hashlib.sha256(marks.tobytes()).hexdigest()
    return Charge(
        id=hashlib.sha256(f"{what} {place} {name} {read}".encode()).hexdigest()[:32],
        what=what,
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
