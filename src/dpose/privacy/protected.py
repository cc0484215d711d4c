"""What a guarantee is about, as one value: the units, what one of them is, how one is hidden, and which they are.

    protected = protect(units, Relation.ZERO_OUT)        # reads everything once
    protected.neighbours                                 # as the statement will have them
    len(protected.data)                                  # copies of one unit count once

A word in a plan can be wrong. This value comes from the data: what a unit is, how a selection was made, which units are
one and the same, and a digest of ids, order, contents and labels. Training, its processes, its account and its guards
take it and nothing less.

**Guarantee.** `protect` is deterministic, reads each unit by itself but for the comparison of declared identities, and
refuses data of which one unit more or less would change more than one unit (stability). Neighbours are data whose
merged units differ in one, by the relation; both have the same pattern of which of their entries are equal
(docs/proofs/dp-sgd.md). Copies that are not the same by the declared identity, such as a picture saved again, are two
units. Several processes may each read their share: all of them end with the units that one would have found
(docs/proofs/resume.md, "Who reads what").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.privacy.marks import Marks, marks_of
from dpose.privacy.merged import groups_of, merge_units
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.selection import Selection
from dpose.privacy.shares import ALONE, Readers, broadcast, is_local, read_shared
from dpose.units import (
    CanonicalUnits,
    CopiedUnits,
    FiledUnits,
    Form,
    LabelledUnits,
    Unit,
    UnitDataset,
    View,
    form_of,
    unlike,
)

DATA = "the data (units, their order, pictures or labels)"
"""What processes that hold other units differ in."""


@dataclass(frozen=True)
class Identity:
    """Which units they are. A function of private data without noise: it stands in the state folder and nowhere else.

    Attributes:
        digest: Of ids, order, contents, labels and declared identities.
        marks: Of the pictures, for the account.
        units: Their number, copies of one counted once.
        merged: How many entries of the data were copies of an earlier one.
    """

    digest: bytes = field(repr=False)
    marks: Marks = field(repr=False, compare=False)
    units: int
    merged: int


@dataclass(frozen=True)
class Protected:
    """Units that a guarantee is about. Made by `protect`.

    Attributes:
        data: The units, copies of one unit merged.
        neighbours: What one unit is, and how it is hidden.
        stability: How many units change at the most where one unit of the source does; 1.
        identity: Which they are.
        selection: How they were selected; None if all are there.

    Raises:
        DposeError: the stability is not 1.
    """

    data: UnitDataset
    neighbours: Neighbours
    stability: int
    identity: Identity = field(repr=False)
    selection: Selection | None = None

    def __post_init__(self) -> None:
        near = self.neighbours
        if self.stability != 1:
            raise DposeError(
                "selection-not-stable",
                f"one {near.unit} more or less would change {self.stability} of the selected units, and what is stated "
                f"for one would not hold ({near.relation.value})",
                "--limit",
                "select by Selection(count, relation, nominal) with the plan's relation",
            )

    @property
    def source(self) -> UnitDataset:
        """The data as they were given, before copies were merged."""
        return getattr(self.data, "unmerged", self.data)


def unit_of(data: UnitDataset) -> Unit:
    """What a unit of `data` is.

    Raises:
        DposeError: the data do not say, or in no word of `Unit`.
    """
    said = getattr(data, "unit", None)
    try:
        return Unit(str(said))
    except ValueError as error:
        what = "these data do not say what a unit is" if said is None else f"no unit is called {said!r}"
        known = ", ".join(unit.value for unit in Unit)
        raise DposeError(
            "unit-unstated", what, type(data).__name__, f"give them an attribute `unit`, one of {known}"
        ) from error


def protect(
    data: UnitDataset,
    relation: Relation = Relation.ZERO_OUT,
    *,
    threads: int = 2,
    console: Console | None = None,
    readers: Readers = ALONE,
) -> Protected:
    """Read `data` once: what a unit is, which units are one, and a digest of everything that training may read.

    Reading all of it also finds broken files before anything else is done. Of several processes each reads the units
    that are its own, and whatever of them it finds among the copies of those: nothing else need be where it is.

    Args:
        data: The units.
        relation: How a unit is hidden.
        threads: Threads that read.
        console: Where progress goes; nowhere when None. How many copies were merged is a number about private data: it
            is told here, and under add-or-remove not even here.
        readers: The processes that read them together, each called with the same.

    Raises:
        DposeError: a unit cannot be read, the data do not say what a unit is, or the way they were selected does not go
            with the relation; or the processes do not hold the same units. In every process alike.
    """
    unit = unit_of(data)
    selection: Selection | None = getattr(data, "selection", None)
    stability = 1 if selection is None else selection.stability(relation)
    console = console or Console(quiet=True)
    heading = f"dpose/identity/1 {unit.value} {len(data)}\n".encode()
    if readers.count > 1:  # one number must be one name everywhere before a share is read by numbers
        ids = (data.unit_id(index) for index in range(len(data)))
        readers.agree({DATA: hashlib.sha256(heading + b"".join(_framed((one,)) for one in ids)).digest()})
    say, total = _content_reader(data), hashlib.sha256(heading)
    marks: list[Marks] = [marks_of(())]
    names: list[list[str]] = []
    seen = bytearray()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading the data", total=len(data))
        for unit_id, hashes, labels, copies, files in read_shared(say, range(len(data)), readers, threads):
            marks.append(marks_of((*hashes, *files)))
            names.append(copies)
            for part in ((unit_id,), hashes, (labels,), copies):
                total.update(_framed(part))
            seen += _seen(unit_id, hashes, labels, copies, files)
            bar.advance(task)
    groups = groups_of(names)
    if readers.count > 1:
        _check_copies(data, say, groups, bytes(seen), readers)
        outcome = hashlib.sha256(total.digest() + hashlib.sha256(repr(groups).encode()).digest())
        readers.agree({DATA: outcome.digest()})
    merged = len(data) - len(groups)
    if merged:
        many = "Some" if relation is Relation.ADD_REMOVE else f"{merged:,} of {len(data):,}"
        console.print(
            f"{many} units ({unit.value}) are copies of others: copies count as one unit, with the views of all.",
            highlight=False,
        )
    identity = Identity(total.digest(), np.unique(np.concatenate(marks)), len(groups), merged)
    return Protected(merge_units(data, groups), Neighbours(unit, relation), stability, identity, selection)


_Said = tuple[str, Sequence[str], str, Sequence[str], Sequence[str]]


def _content_reader(data: UnitDataset) -> Callable[[int], _Said]:
    """An entry's name, contents, labels, declared identity and files."""
    first: _First = {}

    def notes(index: int) -> _Said:
        hashes = contents_of(data, index)  # first: some data find their labels on the way
        files = data.file_hashes(index) if isinstance(data, FiledUnits) else ()
        copies = declared_copies(data, index, hashes)
        return data.unit_id(index), hashes, label_digest(data, index, first), copies, files

    return notes


def _seen(unit_id: str, hashes: Sequence[str], labels: str, copies: Sequence[str], files: Sequence[str]) -> bytes:
    parts = ((unit_id,), hashes, (labels,), copies, files)
    return hashlib.sha256(b"".join(map(_framed, parts))).digest()


def _check_copies(
    data: UnitDataset, say: Callable[[int], _Said], groups: Sequence[Sequence[int]], seen: bytes, readers: Readers
) -> None:
    """Read the copies of this process's units that others have read, and refuse one that is something else here.

    After this a process has read every entry that it trains on, and found what all the others go by.
    """

    def look() -> None:
        for group in groups:
            if not is_local(group[0], readers):
                continue
            for index in group:
                if not is_local(index, readers) and _seen(*say(index)) != seen[32 * index : 32 * index + 32]:
                    raise DposeError(
                        "processes-read-differently",
                        f"the processes of this run differ in {DATA}: {data.unit_id(index)} is not what another read",
                        f"process {readers.index} of {readers.count}",
                        "give all of them the same files; nothing was charged or written",
                    )

    broadcast(look, readers)


def contents_of(data: UnitDataset, index: int) -> tuple[str, ...]:
    """The `content_hashes` of a unit: what accounts and guards know it by.

    Raises:
        DposeError: it has none. Charged and compared by nothing, it could be read again and again. Or it gives one
            text, whose letters would be taken for hashes that most units share.
    """
    hashes = data.content_hashes(index)
    if isinstance(hashes, str):
        raise DposeError(
            "hashes-not-tuple",
            f"content_hashes of {data.unit_id(index)} gives a str, not a tuple of them",
            type(data).__name__,
            "return (the hash,)",
        )
    if not hashes:
        raise DposeError(
            "unit-without-hash",
            f"{data.unit_id(index)} has no content hash, so that neither accounts nor guards could know it again",
            type(data).__name__,
            "let content_hashes give one hash for each picture of the unit",
        )
    return hashes


def contents_and_files(data: UnitDataset, index: int) -> tuple[str, ...]:
    """All digests by which a unit is known again: of its contents and, where the data know them, of its files.

    Raises:
        DposeError: as `contents_of`.
    """
    files = data.file_hashes(index) if isinstance(data, FiledUnits) else ()
    return (*contents_of(data, index), *files)


_First = dict[None, tuple[str, Form]]
"""The unit whose labels were read first, and their form."""
_KINDS = {"b": "bool", "i": "int", "u": "unsigned int", "f": "float"}


def label_digest(data: UnitDataset, index: int, first: _First | None = None) -> str:
    """A digest of a unit's labels and weights: the data's own, or of the targets of its views.

    With `first`, where the form of the labels read first is kept, labels of other names or of another kind of number
    are refused: in a batch they would be rounded to that of others. Sizes are for a task to bring together.
    """
    if isinstance(data, LabelledUnits):
        return data.label_digest(index)
    views = data.canonical(index) if isinstance(data, CanonicalUnits) else data.load(index, np.random.default_rng(0))
    if first is not None:
        _check_labels(data, index, views, first)
    return digest_of_targets(views)


def _check_labels(data: UnitDataset, index: int, views: Sequence[View], first: _First) -> None:
    for view in views:
        form: Form = {name: (_KINDS.get(of.kind, of.kind),) for name, (of, _) in form_of(view.target).items()}
        unit, known = first.setdefault(None, (data.unit_id(index), form))
        if known != form:
            raise DposeError(
                "views-not-alike",
                f"the labels of {unit} and {data.unit_id(index)} differ in {unlike(known, form)}",
                type(data).__name__,
                "give those of all units one kind",
            )


def digest_of_targets(views: Sequence[View]) -> str:
    """A digest of the targets and weights of some views, hex."""
    total = hashlib.sha256()
    for view in views:
        total.update(f"view {float(view.weight).hex()}\n".encode())
        for name in sorted(view.target):
            value = np.ascontiguousarray(view.target[name])
            total.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
            total.update(repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes())
    return total.hexdigest()


def declared_copies(data: UnitDataset, index: int, hashes: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """What a unit is by its declared identity: the data's own, or its contents; of a crop with its labels.

    The people of one picture share its content and are units of their own.

    Args:
        data: The units.
        index: Which.
        hashes: Its `content_hashes`, where they are known: some data read a file for them.
    """
    if isinstance(data, CopiedUnits):
        return data.copies(index)
    hashes = contents_of(data, index) if hashes is None else hashes
    if unit_of(data) is Unit.CROP:
        return (hashlib.sha256(_framed((*hashes, label_digest(data, index)))).hexdigest(),)
    return hashes


def _framed(parts: Sequence[str]) -> bytes:
    lengths_and_texts = [len(text.encode()).to_bytes(8, "big") + text.encode() for text in parts]
    return len(parts).to_bytes(8, "big") + b"".join(lengths_and_texts)
