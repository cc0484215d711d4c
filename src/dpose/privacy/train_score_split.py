"""Two sides of private data: what trials learn from, and what they are scored on.

    sides = split_sides(protect(units), share=0.2)
    sides.training, sides.scored               # no unit, no copy of one and no known person is on both

**Guarantee.** Which unit is on which side is a function of names alone (of units, and of people where they are known):
public, fixed beforehand, and the same for neighbours by zero-out, who have the same names. So a unit's neighbours
differ on one side, and mechanisms on the two sides compose in parallel (docs/proofs/tuning.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from dpose.errors import DposeError
from dpose.privacy.merged import groups_of, merge_units
from dpose.privacy.neighbours import Relation
from dpose.privacy.protected import Protected, protect
from dpose.units import KnownPictures


@dataclass(frozen=True)
class Sides:
    """Units in two parts. Made by `split_sides`.

    Attributes:
        training: What trials learn from.
        scored: What they are scored on.
    """

    training: Protected
    scored: Protected


def split_sides(whole: Protected, share: float, *, threads: int = 2, console: Console | None = None) -> Sides:
    """Set about a `share` of the units apart, whole people at a time.

    Groups of units (those that show one person, where that is known) are taken in a fixed order by their names until
    there are enough; so the share may be passed by less than the last group.

    Args:
        whole: The units, for neighbours by zero-out.
        share: Of the units, to be scored on; in (0, 1).
        threads: Threads that read.
        console: Where progress goes.

    Raises:
        DposeError: the relation is another, the share is out of range, or nothing is left on a side.
    """
    relation = whole.neighbours.relation
    if relation is not Relation.ZERO_OUT:
        raise DposeError(
            "sides-relation-unsupported",
            f"sides of data are fixed for zero-out, not for {relation.value}",
        )
    if not 0 < share < 1:
        raise DposeError("score-share-out-of-range", f"must lie between 0 and 1, not {share}", "score_share")
    data = whole.data
    ids = [data.unit_id(index) for index in range(len(data))]
    known = data if isinstance(data, KnownPictures) else None
    people = [known.subjects(index) if known else () for index in range(len(data))]
    together = groups_of(
        [
            (f"unit {name}", *(f"person {who}" for who in shown))
            for name, shown in zip(ids, people, strict=True)
        ]
    )
    apart: list[int] = []
    for group in sorted(together, key=lambda group: _place(ids[group[0]])):
        if len(apart) >= share * len(data):
            break
        apart += group
    chosen = set(apart)
    rest = [index for index in range(len(data)) if index not in chosen]
    if not rest:
        raise DposeError(
            "units-left-none",
            f"nothing is left to learn from: {len(data):,} units show people who belong together",
            "score_share",
            "use a smaller share, or more data",
        )

    def side(indices: Sequence[int]) -> Protected:
        part = merge_units(data, [[index] for index in indices])
        return protect(part, relation, threads=threads, console=console)

    return Sides(side(rest), side(sorted(chosen)))


def _place(name: str) -> bytes:
    return hashlib.sha256(f"dpose/sides/1 {name}".encode()).digest()
