"""Which pictures were read together: sets of pictures, shared by all charges that read them, and their common cells.

A *cell* holds the pictures that are in exactly the same sets, so that all of them have spent the same. Cells are the
leaves and knots of a tree: a cell's parent is in the same sets but the one that was registered last. A new set splits
the cells that it cuts through; nothing else moves. A million pictures read by a thousand runs are one set, one cell
and a thousand lines of the journal; ask for one picture, and its cell is one look-up away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dpose.account.journal import Transaction
from dpose.account.keys import Subjects
from dpose.privacy.marks import Marks


@dataclass(frozen=True)
class PictureCell:
    """Pictures that are in the same sets.

    Attributes:
        id: Its name; larger than its parent's.
        parent: 0 for none.
        set_id: The last of its sets; the others are its parent's.
        members: How many pictures are in it and in no child of it.
    """

    id: int
    parent: int
    set_id: int
    members: int


def known_set(account: Transaction, marks: Marks) -> int | None:
    """The set of exactly these pictures; None where the account has none."""
    digest = account.key.name_of(marks)
    found = account.rows("SELECT id FROM sets WHERE digest = :digest", digest=digest)
    return int(found[0][0]) if found else None


def register_set(account: Transaction, marks: Marks) -> int:
    """The set of exactly these pictures, made if it is new."""
    known = known_set(account, marks)
    if known is not None:
        return known
    subjects = account.key.subjects(marks)
    set_id = int(account.rows("SELECT COALESCE(MAX(id), 0) + 1 FROM sets")[0][0])
    digest = account.key.set_digest(subjects)
    account.run(
        "INSERT INTO sets (id, digest, members) VALUES (:id, :digest, :members)",
        id=set_id,
        digest=digest,
        members=len(subjects),
    )
    numbers = _numbers(subjects)
    # new pictures are in no set yet (cell 0)
    account.run(
        "INSERT INTO subjects (subject, cell) SELECT one, 0 FROM ({each}) AS asked WHERE true ON CONFLICT DO NOTHING",
        numbers=numbers,
    )
    account.run(
        "INSERT INTO cells (parent, set_id, members) SELECT cell, CAST(:set AS BIGINT), COUNT(*) "
        "FROM ({each}) AS asked JOIN subjects ON subject = one GROUP BY cell",
        set=set_id,
        numbers=numbers,
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
        numbers=numbers,
    )
    _note_meetings(account, set_id)
    return set_id


def _note_meetings(account: Transaction, set_id: int) -> None:
    """Which sets share a picture with the new one: the others of the cells that it has split."""
    found = account.rows(
        "WITH RECURSIVE above(id) AS (SELECT parent FROM cells WHERE set_id = :set UNION "
        "SELECT cells.parent FROM cells JOIN above ON cells.id = above.id) "
        "SELECT DISTINCT set_id FROM cells JOIN above ON cells.id = above.id",
        set=set_id,
    )
    pairs = [{"one": set_id, "other": set_id}]
    for (other,) in found:
        pairs += [{"one": set_id, "other": int(other)}, {"one": int(other), "other": set_id}]
    account.run("INSERT INTO meets (one, other) VALUES (:one, :other)", *pairs)


def sets_of(account: Transaction, marks: Marks) -> frozenset[int]:
    """The sets that hold any of the pictures `marks`."""
    if not len(marks):
        return frozenset()
    known = known_set(account, marks)
    subjects = account.key.subjects(marks) if known is None else np.empty(0, np.int64)
    if known is not None:
        found = account.rows("SELECT other FROM meets WHERE one = :one", one=known)
    else:
        found = account.rows(
            "WITH RECURSIVE above(id) AS (SELECT DISTINCT cell FROM ({each}) AS asked JOIN subjects ON subject = one "
            "UNION SELECT cells.parent FROM cells JOIN above ON cells.id = above.id) "
            "SELECT DISTINCT set_id FROM cells JOIN above ON cells.id = above.id",
            numbers=_numbers(subjects),
        )
    return frozenset(int(row[0]) for row in found)


def without(account: Transaction, marks: Marks, sets: Iterable[int]) -> Marks:
    """Those of `marks` that are in none of `sets`."""
    sets = frozenset(sets)
    if not sets or not len(marks):
        return marks
    hashes = account.key.hashes(marks)
    found = account.rows(
        "SELECT subject, cell FROM subjects WHERE subject IN ({each})", numbers=_numbers(hashes)
    )
    chains = chains_of(account, {int(cell) for _, cell in found})
    gone = np.array([int(subject) for subject, cell in found if chains[int(cell)] & sets], np.int64)
    return marks[~np.isin(hashes, gone)]


def cells_of(account: Transaction, marks: Marks) -> frozenset[int]:
    """The cells that hold any of the pictures `marks`; 0 among them where one is in no set."""
    if not len(marks):
        return frozenset()
    known = known_set(account, marks)
    subjects = account.key.subjects(marks) if known is None else np.empty(0, np.int64)
    if known is not None:
        return frozenset(cell.id for cell in cells_within(account, known) if cell.members)
    found = account.rows(
        # joined, since each is asked for once: for IN, PostgreSQL looks up one after the other
        "SELECT cell, COUNT(*) FROM ({each}) AS asked JOIN subjects ON subject = one GROUP BY cell",
        numbers=_numbers(subjects),
    )
    cells = {int(cell) for cell, _ in found}
    return frozenset(cells if math.fsum(count for _, count in found) == len(subjects) else cells | {0})


def cells_within(account: Transaction, set_id: int) -> list[PictureCell]:
    """The cells whose pictures are in the set, empty ones too; parents before children."""
    found = account.rows(
        "WITH RECURSIVE below(id) AS (SELECT id FROM cells WHERE set_id = :set UNION "
        "SELECT cells.id FROM cells JOIN below ON cells.parent = below.id) "
        "SELECT cells.id, cells.parent, cells.set_id, cells.members FROM cells JOIN below ON cells.id = below.id "
        "ORDER BY cells.id",
        set=set_id,
    )
    return [PictureCell(*map(int, row)) for row in found]


def chains_of(account: Transaction, cells: Iterable[int]) -> dict[int, frozenset[int]]:
    """The sets that the pictures of each cell are in."""
    wanted = frozenset(cells)
    found = account.rows(
        "WITH RECURSIVE above(id) AS (SELECT id FROM cells WHERE id IN ({each}) UNION "
        "SELECT cells.parent FROM cells JOIN above ON cells.id = above.id) "
        "SELECT cells.id, cells.parent, cells.set_id FROM cells JOIN above ON cells.id = above.id ORDER BY cells.id",
        numbers=",".join(map(str, wanted)),
    )
    chains: dict[int, frozenset[int]] = {0: frozenset()}
    for cell, parent, set_id in found:
        chains[int(cell)] = chains[int(parent)] | {int(set_id)}
    return {cell: chains[cell] for cell in wanted}


def check_sets(account: Transaction, say: Callable[[int], None] = lambda done: None) -> str:
    """What is wrong with the sets, read as a whole; "" where their digests and counts are as they were registered."""
    cells = [
        PictureCell(*map(int, row))
        for row in account.rows("SELECT id, parent, set_id, members FROM cells ORDER BY id")
    ]
    chains: dict[int, frozenset[int]] = {0: frozenset()}
    for cell in cells:
        chains[cell.id] = chains.get(cell.parent, frozenset()) | {cell.set_id}
    where = np.array(account.rows("SELECT subject, cell FROM subjects"), np.int64).reshape(-1, 2)
    for cell in cells:
        if int((where[:, 1] == cell.id).sum()) != cell.members:
            return f"cell {cell.id} of its pictures has lost or won some"
    for done, (set_id, digest, members) in enumerate(account.rows("SELECT id, digest, members FROM sets")):
        inside = [cell for cell, chain in chains.items() if int(set_id) in chain]
        subjects = np.unique(where[np.isin(where[:, 1], inside), 0])
        if len(subjects) != int(members) or account.key.set_digest(subjects) != digest:
            return f"set {set_id} of its pictures is not as it was registered"
        say(done)
    return ""


def _numbers(subjects: Subjects) -> str:
    return ",".join(map(str, subjects.tolist()))
