"""What the account holds: charges, each with the events that bound it, and budgets.

    Charge(what="release", unit="pixel", events=(Laplace(scale, sensitivity, pixels=16),), area=640 * 480, ...)

What an event bounds: `dpose.privacy.events`. What is charged twice under one name is joined: docs/proofs/odometer.md.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from dpose.account.journal import JournalRow, Where
from dpose.errors import DposeError
from dpose.privacy.events import Event, SampledGaussian, event_from_dict
from dpose.privacy.marks import NO_MARKS, Marks
from dpose.privacy.neighbours import ACCOUNT_UNITS, Neighbours, Relation
from dpose.privacy.renyi import order_of_budget
from dpose.units import Unit

EVALUATION = "evaluation"
"""A score without noise: no epsilon, and no part of what is composed."""
ATTACK = "attack"
"""Attackers try what they find in pictures, released with noise from a seed and raw: nothing bounds what that tells."""
EXPERIMENT = "experiment"
"""A paper's table or figure made from pictures, released with noise from a seed: nothing bounds what that tells."""
PAGE = "page"
"""A report that shows some pictures as they are."""
SHOWN = {
    ATTACK: "say --public of pictures that need no protection",
    EXPERIMENT: "say --data-public of pictures that need no protection",
    PAGE: "leave --show-pictures out",
}
"""What shows pictures as they are; and what else its user may do where a budget stands."""

TUNING = ("tuning", "scores of tuning")
"""What a choice among trials takes, of the pictures that it learns from and of those that it scores: two charges."""
PIXEL = Unit.PIXEL
"""The unit of releases: some pixels of one picture or clip."""


_TEXTS = ("id", "what", "data", "folder", "at", "unit", "views", "start", "within", "settings", "ledger")


class State(StrEnum):
    """How far what was charged has come. All of them are counted."""

    RESERVED = "reserved"
    """It may have been computed: nobody has said yet that it was finished."""
    COMMITTED = "committed"
    """Its output is complete."""
    FAILED = "failed"
    """It ended without output. What it had computed by then nobody knows, so that it counts."""


@dataclass(frozen=True)
class Stored:
    """Where the account holds a charge; its pictures stand there as sets that charges share.

    Attributes:
        seq: Its place in the account's journal: what is older has a smaller one, whatever any clock said.
        sets: Names of the sets of pictures that it read.
        opened: Those of the sets that it took to be public.
        marks: How many marks of pictures it read.
        where: The account.
    """

    seq: int
    sets: frozenset[int]
    opened: frozenset[int]
    marks: int
    where: Where


@dataclass(frozen=True)
class Charge:
    """What one run, release, audit or evaluation took from some pictures.

    Attributes:
        id: 32 hexadecimal digits; a second charge of that name adds to the first.
        what: "training", "audit", "release", one of `TUNING`, `EVALUATION`, `ATTACK`, `EXPERIMENT` or `PAGE`.
        data: The data, for readers.
        folder: Where its results are.
        at: When, in ISO 8601; for readers: the order is the account's own.
        unit: What it protects; `PIXEL` for releases, whose events say how many of them.
        relation: Its neighbouring relation.
        delta: Of its own claim.
        events: What it did; empty where nothing bounds what it tells.
        beyond: Whether it protects only what pictures hold beyond their public views. With no events: it read those
            views and the labels and nothing else.
        marks: The pictures. Empty where the charge comes from the account, which keeps no marks (`stored`).
        views: With `beyond`, which public views those are, for readers.
        start: SHA-256 of the file of weights that it began with; "" for none.
        weights: SHA-256 of every file of weights that it released.
        opened: Pictures that it took to be public and learnt from: of these it protects nothing.
        area: Of a release, the pixels of the whole picture or clip, the largest of `marks`; 0 where unknown.
        units: How many units it read; 0 where that is not known. A picture has more than one mark.
        within: Of a release, what its picture is: "image" or "video".
        ledger: Hash of the first line of the ledger that counts its steps; "" for what has none. A second ledger is
            another charge.
        elsewhere: Other folders in which it was begun or taken up.
        settings: Digest of all settings that decide the output, without paths; "" where nobody will ask.
        outputs: SHA-256 of every complete file of its output.
        state: How far it has come.
        stored: Where the account holds it; None for one that it does not hold.
    """

    id: str
    what: str
    data: str
    folder: str
    at: str
    unit: str
    relation: Relation
    delta: float
    events: tuple[Event, ...]
    beyond: bool
    marks: Marks = field(repr=False, compare=False)
    views: str = ""
    start: str = ""
    weights: tuple[str, ...] = ()
    opened: Marks = field(default_factory=lambda: NO_MARKS, repr=False, compare=False)
    area: int = 0
    units: int = 0
    within: str = "image"
    ledger: str = ""
    elsewhere: tuple[str, ...] = ()
    settings: str = ""
    outputs: tuple[str, ...] = ()
    state: State = State.RESERVED
    stored: Stored | None = field(default=None, repr=False, compare=False)

    @property
    def folders(self) -> tuple[str, ...]:
        """Every folder of it, the last one first."""
        return (self.folder, *self.elsewhere)


def names_of_run(run_id: str) -> tuple[str, str]:
    """The names that the run `run_id` is charged under: its own, and the one for what a choice scores its trials on."""
    return run_id, hashlib.sha256(f"scored {run_id}".encode()).hexdigest()[:32]


def unbounded(entry: Charge, unit: str) -> str:
    """Why nothing bounds what `entry` tells of a `unit`; "" where its events do."""
    if entry.what == EVALUATION:
        return "a score without noise"
    if not entry.events:
        return "no noise, noise from a seed, or pictures taken to be public"
    if entry.beyond:
        return "only what pictures hold beyond their public views is protected"
    if entry.unit == unit:
        return ""
    if entry.unit == PIXEL and not entry.area and any(e.pixels for e in entry.events):
        return "only some pixels are protected, and how many the picture has was not recorded"
    own = entry.within if entry.unit == PIXEL else entry.unit
    wanted = "image" if unit == PIXEL else unit
    if own == wanted or (
        own in ACCOUNT_UNITS
        and wanted in ACCOUNT_UNITS
        and ACCOUNT_UNITS.index(own) > ACCOUNT_UNITS.index(wanted)
    ):
        return ""
    if entry.unit == PIXEL:
        return f"only the pixels of each {own} are protected, and not each {unit}"
    return f"only each {entry.unit} is protected, and not each {unit}"


def restated(entry: Charge, asked: Neighbours) -> tuple[Event, ...]:
    """The events of `entry`, each for the neighbours that are asked about; none that `unbounded` names.

    A training event bounds a unit under every relation (whoever composes takes the one asked about); a change of some
    pixels is a replacement of their picture. Other events are restated for the pixels asked about, or for all.

    Raises:
        DposeError: an account does not tell of such neighbours: of several units, or of pixels of every frame.
    """
    if asked.scope == "frame" or asked.m is None or (asked.of_units and asked.m != 1):
        raise DposeError(
            "neighbours-unknown",
            f"an account cannot tell of {asked}",
            fix="say one unit, or pixels of all frames",
        )
    return tuple(event.for_neighbours(asked, entry.area) for event in entry.events)


def joined(before: Charge, entry: Charge) -> Charge:
    """`entry`, charged again under the name of `before`: what was read and shown once remains read and shown.

    Of every kind of events the most steps count, or the most of them. Units are not totally ordered, and neither are
    relations: a charge that claims another thing than before cannot be joined with what it was.

    Raises:
        DposeError: `entry` is of another ledger, kind, unit, relation or scope; it has events where nothing bounded
            what the charge told; or the run began with other first weights.
    """
    if before.ledger != entry.ledger:
        raise DposeError(
            "account-ledger-differs",
            "the account knows this run by another ledger",
            entry.folder,
            "bring that ledger back, or start a new run",
        )
    if before.start != entry.start:
        raise DposeError(
            "first-weights-differ",
            "the first weights are not those that this run began with",
            entry.folder,
            "bring them back as they were, or start a new run",
        )
    for name in ("what", "unit", "within", "relation", "beyond"):
        old, new = getattr(before, name), getattr(entry, name)
        if old != new:
            raise DposeError(
                "charge-claim-differs",
                f"this began with another claim than it goes on with: {name} {old} is now {new}",
                entry.folder,
                "go on with the settings that it began with, or start a new run",
            )
    if entry.events and not before.events:
        raise DposeError(
            "charge-unbounded",
            "nothing bounds what it told before, and no event that is named later does",
            entry.folder,
            "go on with the settings that it began with, or start a new run",
        )
    return replace(
        entry,
        events=_joined_events(before.events, entry.events),
        elsewhere=tuple(f for f in dict.fromkeys((*before.folders, *entry.folders)) if f != entry.folder),
        weights=tuple(dict.fromkeys((*before.weights, *entry.weights))),
        outputs=tuple(dict.fromkeys((*before.outputs, *entry.outputs))),
        area=max(before.area, entry.area) if before.area and entry.area else 0,
        units=max(before.units, entry.units),
    )


def _joined_events(before: tuple[Event, ...], after: tuple[Event, ...]) -> tuple[Event, ...]:
    """The most of each kind; none where one side has none: what nothing bounded once stays so."""
    if not before or not after:
        return ()
    most = _counted(after) | _counted(before)
    kept: list[Event] = []
    for kind, count in most.items():
        kept += [replace(kind, steps=count)] if isinstance(kind, SampledGaussian) else [kind] * count
    return tuple(kept)


def _counted(events: tuple[Event, ...]) -> Counter[Event]:
    """How many steps there are of each kind of training events, and how many of each other event."""
    counted: Counter[Event] = Counter()
    for event in events:
        if isinstance(event, SampledGaussian):
            counted[replace(event, steps=1)] += event.steps
        else:
            counted[event] += 1
    return counted


def worst_case(entry: Charge) -> Charge:
    """`entry` as it counts for pictures that it took to be public: nothing bounds what it tells of those."""
    return replace(entry, events=(), beyond=False)


def charge_to_dict(
    entry: Charge, sets: Mapping[int, str], opened: Mapping[int, str], marks: int
) -> dict[str, Any]:
    """What the journal keeps of a charge: its sets by name and digest, and no picture."""
    return {
        **{name: getattr(entry, name) for name in _TEXTS},
        "delta": repr(float(entry.delta)),
        "relation": entry.relation.value,
        "events": [event.to_dict() for event in entry.events],
        "beyond": entry.beyond,
        "weights": list(entry.weights),
        "area": entry.area,
        "units": entry.units,
        "outputs": list(entry.outputs),
        "elsewhere": list(entry.elsewhere),
        "state": entry.state.value,
        "sets": {str(name): digest for name, digest in sets.items()},
        "opened": {str(name): digest for name, digest in opened.items()},
        "marks": marks,
    }


def charge_from(row: JournalRow, where: Where, first: int | None = None) -> Charge:
    """The charge in a row of the journal; its place is that of row `first`, which first named it.

    Raises:
        DposeError: the row was written by another dpose.
    """
    values = row.body
    try:
        return Charge(
            **{name: str(values[name]) for name in _TEXTS},
            relation=Relation(values["relation"]),
            delta=float(values["delta"]),
            events=tuple(
                event_from_dict(event, f"row {row.seq} of the account") for event in values["events"]
            ),
            beyond=values["beyond"] is True,
            weights=tuple(map(str, values["weights"])),
            marks=NO_MARKS,
            opened=NO_MARKS,
            area=int(values["area"]),
            units=int(values.get("units", 0)),
            outputs=tuple(map(str, values["outputs"])),
            elsewhere=tuple(map(str, values["elsewhere"])),
            state=State(values["state"]),
            stored=Stored(
                row.seq if first is None else first,
                frozenset(map(int, values["sets"])),
                frozenset(map(int, values["opened"])),
                int(values["marks"]),
                where,
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError(
            "account-row-unreadable",
            f"row {row.seq} of the account cannot be read ({error})",
            fix="update dpose",
        ) from error


def lineage(digests: Iterable[str], entries: Sequence[Charge]) -> tuple[list[Charge], list[str]]:
    """The runs that weights come from: the one that released them, the one that released its first weights, and so on.

    Args:
        digests: SHA-256 of files of weights.
        entries: Of the account.

    Returns:
        The runs, each once; and the digests that no run of the account released.
    """
    found: dict[str, Charge] = {}
    left, seen, unknown = list(digests), set[str](), []
    while left:
        digest = left.pop()
        if not digest or digest in seen:
            continue
        seen.add(digest)
        by = [entry for entry in entries if digest in entry.weights]
        if not by:
            unknown.append(digest)
        found |= {entry.id: entry for entry in by}
        left += [entry.start for entry in by]
    return list(found.values()), unknown


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on some pictures.

    Attributes:
        epsilon: Of everything together.
        delta: At which it is counted.
        data: The data, for readers.
        marks: The pictures; empty where the budget comes from the account.
        neighbours: What it protects. What protects a weaker unit, or only what pictures hold beyond their public views,
            is bounded by nothing here.
        owner: A word that whoever changes or lifts it must know; "" where anybody may. It is kept as a keyed hash.
        set_id: What the account calls these pictures; 0 where it does not hold the budget.
    """

    epsilon: float
    delta: float
    data: str
    marks: Marks = field(repr=False, compare=False)
    neighbours: Neighbours = field(default_factory=lambda: Neighbours(Unit.IMAGE))
    owner: str = field(default="", repr=False, compare=False)
    set_id: int = field(default=0, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What the account calls it: there is one for a set of pictures."""
        return budget_name(self.set_id)

    @property
    def order(self) -> float:
        """The order of its filter."""
        return order_of_budget(self.epsilon, self.delta)[0]

    @property
    def cap(self) -> float:
        """The Renyi divergence of that order that may be spent."""
        return order_of_budget(self.epsilon, self.delta)[1]


def budget_name(set_id: int) -> str:
    """What the account calls the budget of a set of pictures."""
    return f"budget {set_id}"


def budget_to_dict(budget: Budget, digest: str, owner: str) -> dict[str, Any]:
    """What the journal keeps of a budget."""
    return {
        "epsilon": repr(float(budget.epsilon)),
        "delta": repr(float(budget.delta)),
        "data": budget.data,
        "unit": budget.neighbours.unit.value,
        "neighbours": budget.neighbours.to_dict(),
        "owner": owner,
        "set": budget.set_id,
        "digest": digest,
    }


def budget_from(row: JournalRow) -> Budget:
    """The budget in a row of the journal."""
    values = row.body
    near = Neighbours.read(values["neighbours"], values["unit"])
    assert near is not None
    return Budget(
        float(values["epsilon"]),
        float(values["delta"]),
        str(values["data"]),
        NO_MARKS,
        near,
        set_id=int(values["set"]),
    )
