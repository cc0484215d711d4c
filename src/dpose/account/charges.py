"""What the account holds: charges, each with the events that bound it, and which pictures they read.

    charges()                               # all of them, oldest first
    charges(of=marks)                       # those that read any of these pictures

Which events bound what: `dpose.privacy.events`. A second charge under one name is joined with the first:
docs/proofs/odometer.md. A process reads the journal once and holds it packed.

Charges share sets of pictures. A *cell* holds the pictures that are in exactly the same sets, so that all of them have
spent the same. Cells are the nodes of a tree: a cell's parent is in the same sets but the one that was registered last.
A new set splits the cells that it cuts through; nothing else moves. A million pictures read by a thousand runs are one
set, one cell and a thousand rows of the journal, and the cell of one picture is one look-up away.

**Guarantee.** Every row of the journal is checked when it is read (docs/proofs/odometer.md): no charge of a picture is
passed over, unless the tables of sets were altered without the key, which `check_account` finds.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from dpose.account.store import ACCEPTED, OTHER_BUILD, JournalRow, Transaction, Where, opened
from dpose.errors import DposeError
from dpose.privacy.events import Event, SampledGaussian, event_from_dict
from dpose.privacy.marks import NO_MARKS, Marks
from dpose.privacy.neighbours import ACCOUNT_UNITS, STAYS_FORM, Neighbours, Relation
from dpose.units import Unit

K = TypeVar("K")
V = TypeVar("V")

EVALUATION = "evaluation"
"""A score without noise: it has no epsilon and is not composed."""
ATTACK = "attack"
"""Attackers tried on pictures, released with noise from a seed and raw: nothing bounds what that reveals."""
EXPERIMENT = "experiment"
"""A paper's table or figure made from pictures, released with noise from a seed: nothing bounds what that reveals."""
PAGE = "page"
"""A report that shows some pictures as they are."""
SHOWN = {
    ATTACK: "say --public of pictures that need no protection",
    EXPERIMENT: "say --data-public of pictures that need no protection",
    PAGE: "leave --show-pictures out",
}
"""The kinds of charges that show pictures as they are, with the alternative to name if a budget refuses them."""
TUNING = ("tuning", "scores of tuning")
"""The two charges of a choice among trials: of the pictures that it learns from, and of those that it scores."""
PIXEL = Unit.PIXEL
"""The unit of releases: some pixels of one picture or clip."""


class State(StrEnum):
    """Progress of a charge. Charges count in every state."""

    RESERVED = "reserved"
    """It may have been computed; it was not reported as finished."""
    COMMITTED = "committed"
    """Finished: the output is complete."""
    FAILED = "failed"
    """It ended without output. What it had computed by then is unknown, so it counts."""


@dataclass(frozen=True)
class Stored:
    """Place of a charge in the account; its pictures stand there as sets that charges share.

    Attributes:
        seq: Number of the row that first named it: older charges have smaller numbers, whatever any clock said. 0 for a
            charge that the account does not hold.
        sets: Names of the sets of pictures that it read.
        opened: Names of the sets that it took to be public.
        marks: Number of marks of pictures that it read.
    """

    seq: int = 0
    sets: frozenset[int] = frozenset()
    opened: frozenset[int] = frozenset()
    marks: int = 0
    where: Where = None


@dataclass(frozen=True)
class Charge:
    """What one run, release, audit or evaluation took from some pictures.

    Attributes:
        id: 32 hexadecimal digits; a second charge of that name adds to the first.
        what: "training", "audit", "release", one of `TUNING`, `EVALUATION`, `ATTACK`, `EXPERIMENT` or `PAGE`.
        data: Name of the data, for readers.
        folder: Folder of its results.
        at: Time, in ISO 8601; for readers: the order is the account's own.
        unit: The protected unit; `PIXEL` for releases, whose events say how many of them.
        relation: Its neighbouring relation.
        delta: Delta of its own claim.
        events: The mechanisms that it ran; empty if nothing bounds what it reveals.
        beyond: Whether it protects only what pictures hold beyond their public views. With no events: it read those
            views and the labels and nothing else.
        marks: The pictures. Empty if the charge comes from the account, which stores no marks (`stored`).
        views: With `beyond`, which public views those are, for readers.
        start: SHA-256 of the file of weights that it began with; "" for none.
        weights: SHA-256 of every file of weights that it released.
        opened: Pictures that it took to be public and learnt from: of these it protects nothing.
        area: Of a release, the pixels of the whole picture or clip, the largest of `marks`; 0 if unknown.
        units: Number of units that it read; 0 if unknown. A picture has more than one mark.
        within: Of a release, what its picture is: "image" or "video". Of a count, the stays that it protects, as
            `STAYS_FORM`.
        ledger: Hash of the first line of the ledger that counts its steps; "" if it has none. A second ledger is
            another charge.
        elsewhere: Other folders in which it was begun or taken up.
        settings: Digest of all settings that decide the output, without paths; "" if it is never compared.
        outputs: SHA-256 of every complete file of its output.
        state: Its progress.
        stored: Its place in the account.
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
    stored: Stored = field(default=Stored(), repr=False, compare=False)

    @property
    def folders(self) -> tuple[str, ...]:
        """Every folder of it, the last one first."""
        return (self.folder, *self.elsewhere)

    @property
    def seq(self) -> int:
        """Position in the account's order; 0 for a charge that the account does not hold."""
        return self.stored.seq

    @property
    def read(self) -> frozenset[int]:
        """The account's names of the sets of pictures that it read or took to be public."""
        return self.stored.sets | self.stored.opened


def names_of_run(run_id: str) -> tuple[str, str]:
    """The names that the run `run_id` is charged under: its own, and the one for what a choice scores its trials on."""
    return run_id, hashlib.sha256(f"scored {run_id}".encode()).hexdigest()[:32]


def unbounded(entry: Charge, unit: str) -> str:
    """Why nothing bounds what `entry` tells of a `unit`; "" if its events do."""
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
        own in ACCOUNT_UNITS and wanted in ACCOUNT_UNITS and ACCOUNT_UNITS.index(own) > ACCOUNT_UNITS.index(wanted)
    ):
        return ""
    some = "the pixels of each " + own + " are" if entry.unit == PIXEL else f"each {entry.unit} is"
    return f"only {some} protected, and not each {unit}"


def restated(entry: Charge, requested: Neighbours) -> tuple[Event, ...]:
    """The events of `entry`, each restated for the neighbours `requested`; `unbounded` must have named no reason.

    A training event bounds a unit under every relation (the composition takes the one asked about); a change of some
    pixels is a replacement of their picture. Other events are restated for the pixels asked about, or for all; those of
    a count for the stays, over as many neighbours as cover them. Of several units, and of pixels of every frame, an
    account has no figures: refused.
    """
    if requested.scope == "frame" or requested.m is None or (requested.of_units and requested.m != 1):
        raise DposeError(
            "neighbours-unknown", f"an account cannot tell of {requested}", fix="say one unit, or pixels of all frames"
        )
    if entry.unit == Unit.STAY:
        # a stay of S seconds is covered by ceil(S / s) stays of s, any K stays by ceil(K / k) times k of them
        own = Neighbours.parse(entry.within, (STAYS_FORM,))
        k = -(-requested.count * math.ceil(requested.longest / own.longest) // own.count)
        return tuple(event.times(k) for event in entry.events)
    return tuple(event.for_neighbours(requested, entry.area) for event in entry.events)


def joined(before: Charge, entry: Charge) -> Charge:
    """`entry`, charged again under the name of `before`: what was read and shown once remains read and shown.

    Of every kind of events the most steps count, or the most of them. Units are not totally ordered, and neither are
    relations: a charge that claims another thing than before cannot be joined with what it was.

    Raises:
        DposeError: `entry` is of another ledger, kind, unit, relation or scope; it has events where nothing bounded
            what the charge told; or the run began with other first weights.
    """
    folder, anew = entry.folder, "go on with the settings that it began with, or start a new run"
    if before.ledger != entry.ledger:
        said = "the account knows this run by another ledger"
        raise DposeError("account-ledger-differs", said, folder, "bring that ledger back, or start a new run")
    if before.start != entry.start:
        said = "the first weights are not those that this run began with"
        raise DposeError("first-weights-differ", said, folder, "bring them back as they were, or start a new run")
    for name in ("what", "unit", "within", "relation", "beyond"):
        if (old := getattr(before, name)) != (new := getattr(entry, name)):
            said = f"this began with another claim than it goes on with: {name} {old} is now {new}"
            raise DposeError("charge-claim-differs", said, folder, anew)
    if entry.events and not before.events:
        said = "nothing bounds what it told before, and no event that is named later does"
        raise DposeError("charge-unbounded", said, folder, anew)
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
    """The most of each kind; none if one side has none: what nothing bounded once stays unbounded."""
    if not before or not after:
        return ()
    most = _counted(after) | _counted(before)
    each = ([replace(e, steps=n)] if isinstance(e, SampledGaussian) else [e] * n for e, n in most.items())
    return tuple(chain(*each))


def _counted(events: tuple[Event, ...]) -> Counter[Event]:
    """Number of steps of each kind of training events, and number of each other event."""
    counted: Counter[Event] = Counter()
    for event in events:
        steps = event.steps if isinstance(event, SampledGaussian) else 1
        counted[replace(event, steps=1) if isinstance(event, SampledGaussian) else event] += steps
    return counted


def worst_case(entry: Charge) -> Charge:
    """`entry` as it counts for pictures that it took to be public: nothing bounds what it tells of those."""
    return replace(entry, events=(), beyond=False)


def lineage(digests: Iterable[str], entries: Sequence[Charge]) -> tuple[list[Charge], list[str]]:
    """The runs that weights come from: the one that released them, the one that released its first weights, and so on.

    `digests` are SHA-256 of files of weights. Returns the runs among `entries`, each once, and the digests that none of
    them released.
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


# in the journal

_HELD = tuple(f.name for f in fields(Charge) if f.name not in ("events", "marks", "opened", "stored"))
"""What a charge's row says of it besides its events and its sets of pictures."""
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_HELD, str),
    **dict.fromkeys(("weights", "outputs", "elsewhere"), lambda values: tuple(map(str, values))),
    **{"delta": float, "area": int, "units": int, "relation": Relation, "state": State},
    "beyond": lambda value: value is True,
}
"""How each of it is read."""


def charge_to_dict(entry: Charge, digests: Mapping[int, str]) -> dict[str, Any]:
    """The journal's record of a charge: its sets by name and digest, and no picture."""
    sets, opened = ({str(s): digests[s] for s in sorted(names)} for names in (entry.stored.sets, entry.stored.opened))
    return {
        **{name: getattr(entry, name) for name in _HELD},
        "delta": repr(float(entry.delta)),
        "events": [event.to_dict() for event in entry.events],
        "sets": sets,
        "opened": opened,
        "marks": entry.stored.marks,
    }


def charge_from(row: JournalRow, where: Where, first: int | None = None) -> Charge:
    """The charge in a row of the journal, refused if another dpose wrote it; its place is that of row `first`."""
    values, place = row.body, f"row {row.seq} of the account"
    try:
        sets, public = (frozenset(map(int, values[name])) for name in ("sets", "opened"))
        return Charge(
            **{name: read(values[name]) for name, read in _READ.items()},
            events=tuple(event_from_dict(event, place) for event in values["events"]),
            marks=NO_MARKS,
            stored=Stored(row.seq if first is None else first, sets, public, int(values["marks"]), where),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("account-row-unreadable", f"{place} cannot be read ({error})", fix=OTHER_BUILD) from error


def grown(mapping: ChainMap[K, V], more: Mapping[K, V]) -> ChainMap[K, V]:
    """The entries of `mapping`, which stays as it is, and `more` in place of those with the same keys.

    Its layers, newest first, are never written to, and each is less than half of the one below it: of n entries one is
    copied log2(n) times at most, however few are added at a time, and a reader of one mapping is not disturbed.
    """
    newest, layers = dict(more), list(mapping.maps)
    while layers and 2 * len(newest) >= len(layers[0]):
        newest = {**layers.pop(0), **newest}
    return ChainMap(newest, *layers)


class Charges(Mapping[str, Charge]):
    """Charges by id, oldest first; each is unpacked from its row when it is read.

    `rows` has of each, deflated, the number of the row that first named it, that of its newest row, and the body. One
    of them before it was deflated is `like`, which most others equal: the dictionary of the compression.
    """

    def __init__(self, rows: ChainMap[str, bytes] | None = None, like: bytes = b"", where: Where = None) -> None:
        self._rows: ChainMap[str, bytes] = ChainMap() if rows is None else rows
        self._like, self._where = like, where

    def with_rows(self, rows: Iterable[JournalRow], where: Where) -> Charges:
        """These charges, and those in newer `rows` of the journal; refused if a row is of another dpose."""
        like, packed = self._like, self._rows.new_child()
        for row in rows:
            charge_from(row, where)
            first = _unpacked(packed[row.name], like)[0] if row.name in packed else row.seq
            text = json.dumps([first, row.seq, row.body], separators=(",", ":")).encode()
            like = like or text
            squeeze = zlib.compressobj(9, wbits=-15, memLevel=4, zdict=like)
            packed[row.name] = squeeze.compress(text) + squeeze.flush()
        return Charges(grown(self._rows, packed.maps[0]), like, where)

    def __getitem__(self, name: str) -> Charge:
        first, seq, body = _unpacked(self._rows[name], self._like)
        return charge_from(JournalRow(seq, "charge", name, body, ""), self._where, first)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _unpacked(content: bytes, like: bytes) -> tuple[int, int, dict[str, Any]]:
    first, seq, body = json.loads(zlib.decompressobj(wbits=-15, zdict=like).decompress(content))
    return first, seq, body


@dataclass(frozen=True)
class History:
    """The content of the journal, up to a row.

    Attributes:
        seq: Number of that row; 0 for none.
        mac: MAC of that row.
        charges: By id, oldest first, as they stand now.
        budgets: The rows that set budgets, by their names.
        accepted: Number of times that the account was set back and accepted as it was.
        by_set: Of each set of pictures, the ids of the charges that read it, so that the charges of one picture are
            found among a million without looking at the others.
    """

    seq: int = 0
    mac: str = ""
    charges: Charges = field(default_factory=Charges)
    budgets: Mapping[str, JournalRow] = field(default_factory=dict)
    accepted: int = 0
    by_set: ChainMap[int, tuple[str, ...]] = field(default_factory=ChainMap, repr=False)

    def among(self, sets: Iterable[int]) -> list[Charge]:
        """The charges that read any of `sets`, as `reading`; oldest first."""
        sets = frozenset(sets)
        names = {name for one in sets for name in self.by_set.get(one, ())}
        return reading(sorted((self.charges[name] for name in names), key=lambda entry: entry.seq), sets)

    def with_rows(self, rows: Sequence[JournalRow], where: Where) -> History:
        """This history, and newer `rows`, of which there is at least one."""
        budgets, by_set = dict(self.budgets), self.by_set.new_child()
        charged = [row for row in rows if row.kind == "charge"]
        for row in charged:
            for one in row_sets(row):
                names = by_set.get(one, ())
                by_set[one] = names if row.name in names else (*names, row.name)
        for row in rows:
            if row.kind == "budget":
                budgets[row.name] = row
            elif row.kind == "lift":
                budgets.pop(row.name, None)
        return History(
            rows[-1].seq,
            rows[-1].mac,
            self.charges.with_rows(charged, where),
            budgets,
            self.accepted + sum(row.kind == ACCEPTED for row in rows),
            grown(self.by_set, by_set.maps[0]),
        )


def row_sets(row: JournalRow) -> frozenset[int]:
    """The sets of pictures that a charge in a row of the journal read or took to be public."""
    return frozenset(map(int, (*row.body["sets"], *row.body["opened"])))


def history(account: Transaction) -> History:
    """All rows of the journal, refused if they are not as written; what was read before is not read again."""
    made = before = account.known or History()
    for rows in account.journal(before.seq, before.mac):
        made = made.with_rows(rows, account.store.where)
    if made is not before:
        account.known = made
        if not account.appended:  # what is not committed yet may never be
            account.store.known = made
    return made


def charges(where: Where = None, *, of: Marks | None = None) -> list[Charge]:
    """The recorded charges, oldest first, by the account's own numbers and no clock.

    With `of` only those that read any of these pictures. One that took some of them to be public comes without its
    events: nothing bounds what it tells.
    """
    with opened(where).transaction(write=False) as account:
        if of is not None:
            return history(account).among(sets_of(account, of))
        return list(history(account).charges.values())


def overlapping(entries: Iterable[Charge], marks: Marks) -> list[Charge]:
    """The charges among `entries` that read any of the pictures `marks`: by the account for those that it holds.

    One that took some of them to be public comes without its events: nothing bounds what it tells of those.
    """

    @cache
    def sets_in(where: Where) -> frozenset[int]:
        with opened(where).transaction(write=False) as account:
            return sets_of(account, marks)

    found = []
    for entry in entries:
        if entry.seq:
            found += reading([entry], sets_in(entry.stored.where))
        elif np.isin(entry.opened, marks).any():
            found.append(worst_case(entry))
        elif np.isin(entry.marks, marks).any():
            found.append(entry)
    return found


def reading(entries: Iterable[Charge], sets: frozenset[int]) -> list[Charge]:
    """The charges among `entries` that read any of the account's `sets`, as `overlapping`."""
    read = (entry for entry in entries if entry.read & sets)
    return [worst_case(entry) if entry.stored.opened & sets else entry for entry in read]


def groups(where: Where = None) -> list[list[Charge]]:
    """All charges, in groups that have pictures in common, directly or by way of others; oldest first.

    The two sides of a choice among trials are in one group, though they share no picture.
    """
    store = opened(where)
    try:
        with store.transaction(write=False) as account:
            entries = list(history(account).charges.values())
            meets = account.numbers("SELECT one, other FROM meets")
        above = {one: one for one, _ in meets}
        chosen = {names_of_run(entry.id)[1]: entry for entry in entries if entry.what == TUNING[0]}
        both = [[e for e in (entry, chosen.get(entry.id)) if e] for entry in entries]
        # a charge's own sets are joined by it, and those of both sides of a choice
        own = [sorted(s for e in sides for s in e.stored.sets) for sides in both]

        def root(one: int) -> int:
            while above[one] != one:
                above[one] = one = above[above[one]]
            return one

        for first, *others in [*meets, *filter(None, own)]:
            for other in others:
                above[root(other)] = root(first)
        found = defaultdict[int, list[Charge]](list)
        for entry, sets in zip(entries, own, strict=True):
            found[root(sets[0]) if sets else -entry.seq].append(entry)
        return list(found.values())
    except (KeyError, ValueError, TypeError) as error:
        raise store.altered("which sets of pictures meet is not what was written") from error


def rollback_count(where: Where = None) -> int:
    """Number of times that the account was set back and accepted: each time less may stand as spent than was."""
    with opened(where).transaction(write=False) as account:
        return history(account).accepted


def check_account(where: Where = None) -> str:
    """What is wrong with the account, read as a whole; "" for nothing.

    The journal is checked row by row, and every set of pictures against the digest that charges name it by, its members
    and their number as they were registered, and the sets that it shares pictures with.
    """
    store = opened(where)
    with store.transaction(write=False) as account:
        store.known = None
        try:
            rows = list(chain(*account.journal()))
        except DposeError as error:
            return error.what
        sets = {str(name): (digest, n) for name, digest, n in account.rows("SELECT id, digest, members FROM sets")}
        for row in rows:
            named = {**row.body.get("sets", {}), **row.body.get("opened", {})}
            if any(name not in sets or sets[name][0] != digest for name, digest in named.items()):
                return f"row {row.seq} names a set of pictures that is another one"
        cells = account.numbers("SELECT id, parent, set_id, members FROM cells ORDER BY id")
        held = np.array(account.rows("SELECT subject, cell FROM subjects ORDER BY cell"), np.int64).reshape(-1, 2)
        cuts = np.flatnonzero(np.diff(held[:, 1])) + 1
        of_cell = {int(part[0, 1]): part[:, 0] for part in np.split(held, cuts) if len(part)}
        nobody = np.zeros(0, np.int64)
        of_set: dict[int, list[Any]] = {}
        chains: dict[int, frozenset[int]] = {0: frozenset()}
        meets = {(int(name), int(name)) for name in sets}
        for cell, parent, set_id, members in cells:
            above = chains.get(parent, frozenset())
            chains[cell] = above | {set_id}
            meets.update(pair for other in above for pair in ((set_id, other), (other, set_id)))
            subjects = of_cell.get(cell, nobody)
            for one in chains[cell]:
                of_set.setdefault(one, []).append(subjects)
            if len(subjects) != members:
                return f"cell {cell} of its pictures has lost or won some"
        if set(account.numbers("SELECT one, other FROM meets")) != meets:
            return "which sets of pictures meet is not what was written"
        for name, (digest, count) in sets.items():
            subjects = np.unique(np.concatenate(of_set.get(int(name), [nobody])))
            if len(subjects) != int(count) or account.key.set_digest(subjects) != digest:
                return f"set {name} of its pictures is not as it was registered"
        return ""


# which pictures were read together


def known_set(account: Transaction, marks: Marks) -> int | None:
    """The set of exactly these pictures; None if the account has none."""
    found = account.numbers("SELECT id FROM sets WHERE digest = :digest", digest=account.key.name_of(marks))
    return found[0][0] if found else None


def register_set(account: Transaction, marks: Marks) -> int:
    """The set of exactly these pictures, made if it is new."""
    known = known_set(account, marks)
    if known is not None:
        return known
    subjects = account.key.subjects(marks)
    set_id = account.numbers("SELECT COALESCE(MAX(id), 0) + 1 FROM sets")[0][0]
    made = {"id": set_id, "digest": account.key.set_digest(subjects), "members": len(subjects)}
    account.run("INSERT INTO sets (id, digest, members) VALUES (:id, :digest, :members)", made)
    # new pictures are in no set yet (cell 0)
    account.run(
        "INSERT INTO subjects (subject, cell) SELECT one, 0 FROM ({each}) AS asked WHERE true ON CONFLICT DO NOTHING",
        numbers=subjects,
    )
    account.run(
        "INSERT INTO cells (parent, set_id, members) SELECT cell, CAST(:set AS BIGINT), COUNT(*) "
        "FROM ({each}) AS asked JOIN subjects ON subject = one GROUP BY cell",
        set=set_id,
        numbers=subjects,
    )
    account.run(
        "UPDATE cells SET members = members - (SELECT split.members FROM cells AS split "
        "WHERE split.parent = cells.id AND split.set_id = :set) "
        "WHERE id IN (SELECT parent FROM cells WHERE set_id = :set)",
        set=set_id,
    )
    account.run(
        "UPDATE subjects SET cell = cells.id FROM ({each}) AS asked, cells "
        "WHERE subject = one AND parent = subjects.cell AND set_id = :set",
        set=set_id,
        numbers=subjects,
    )
    # it meets itself, and the other sets of the cells that it has split
    split = account.numbers("SELECT id FROM cells WHERE set_id = :set", set=set_id)
    met = {set_id, *(other for _, _, other in _above(account, [cell for (cell,) in split]))}
    pairs = {pair for other in met for pair in ((set_id, other), (other, set_id))}
    account.run(
        "INSERT INTO meets (one, other) VALUES (:one, :other)",
        *({"one": one, "other": other} for one, other in sorted(pairs)),
    )
    return set_id


def _above(account: Transaction, cells: Iterable[int]) -> list[tuple[int, ...]]:
    """Cells and all cells above them: of each its name, its parent's and that of its last set; parents first."""
    return account.numbers(
        "WITH RECURSIVE above(id) AS (SELECT id FROM cells WHERE id IN ({each}) UNION "
        "SELECT cells.parent FROM cells JOIN above ON cells.id = above.id) "
        "SELECT cells.id, cells.parent, cells.set_id FROM cells JOIN above ON cells.id = above.id ORDER BY cells.id",
        numbers=cells,
    )


def sets_meeting(account: Transaction, sets: Iterable[int]) -> frozenset[int]:
    """The sets that share a picture with one of `sets`, those among them."""
    sets = frozenset(sets)
    found = account.numbers("SELECT DISTINCT other FROM meets WHERE one IN ({each})", numbers=sets)
    met = frozenset(other for (other,) in found)
    if not sets <= met:  # each meets itself
        raise account.store.altered("which sets of pictures meet is not what was written")
    return met


def sets_of_people(account: Transaction, known: History, sets: Iterable[int]) -> frozenset[int]:
    """The sets that may show somebody who is in `sets`: those that charges for subjects connect with them.

    Who is on a picture is not known here. What a charge for subjects read may all be of one.
    """
    found = sets_meeting(account, sets)
    while True:
        joined = (entry.read for entry in known.among(found) if entry.unit == Unit.SUBJECT)
        more = sets_meeting(account, found.union(*joined))
        if more == found:
            return found
        found = more


def sets_of(account: Transaction, marks: Marks) -> frozenset[int]:
    """The sets that hold any of the pictures `marks`."""
    known = known_set(account, marks)
    if known is not None:
        return sets_meeting(account, [known])
    return frozenset(set_id for _, _, set_id in _above(account, cells_of(account, marks)))


def without(account: Transaction, marks: Marks, sets: Iterable[int]) -> Marks:
    """Those of `marks` that are in none of `sets`."""
    sets = frozenset(sets)
    if not sets or not len(marks):
        return marks
    hashes = account.key.hashes(marks)
    found = account.numbers("SELECT subject, cell FROM subjects WHERE subject IN ({each})", numbers=hashes)
    chains = chains_of(account, {cell for _, cell in found})
    gone = np.array([subject for subject, cell in found if chains[cell] & sets], np.int64)
    return marks[~np.isin(hashes, gone)]


def cells_of(account: Transaction, marks: Marks) -> frozenset[int]:
    """The cells that hold any of the pictures `marks`; 0 among them if one is in no set."""
    known = known_set(account, marks)
    if known is not None:
        return cells_within(account, [known])
    subjects = account.key.subjects(marks)
    found = account.numbers(
        # joined, since each is asked for once: for IN, PostgreSQL looks up one after the other
        "SELECT cell, COUNT(*) FROM ({each}) AS asked JOIN subjects ON subject = one GROUP BY cell",
        numbers=subjects,
    )
    cells = {cell for cell, _ in found}
    return frozenset(cells if sum(count for _, count in found) == len(subjects) else cells | {0})


def cells_within(account: Transaction, sets: Iterable[int]) -> frozenset[int]:
    """The cells whose pictures are in any of `sets`, but for empty ones."""
    found = account.numbers(
        "WITH RECURSIVE below(id) AS (SELECT id FROM cells WHERE set_id IN ({each}) UNION "
        "SELECT cells.id FROM cells JOIN below ON cells.parent = below.id) "
        "SELECT cells.id FROM cells JOIN below ON cells.id = below.id WHERE members <> 0",
        numbers=sets,
    )
    return frozenset(cell for (cell,) in found)


def chains_of(account: Transaction, cells: Iterable[int]) -> dict[int, frozenset[int]]:
    """The sets that the pictures of each cell are in."""
    wanted = frozenset(cells)
    chains: dict[int, frozenset[int]] = {0: frozenset()}
    for cell, parent, set_id in _above(account, wanted):
        chains[cell] = chains[parent] | {set_id}
    return {cell: chains[cell] for cell in wanted}
