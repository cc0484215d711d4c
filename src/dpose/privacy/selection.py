"""Which units a limit keeps: chosen by their names, so that one unit more or less moves no more than itself.

    data.limit(Selection(500))                                           # 500 units, by a fixed order of names
    data.limit(Selection(500, Relation.ADD_REMOVE, nominal=7000))        # each unit with a chance of 500 in 7,000

The first 500 of an order are a fine choice where the number of units is public. Where one unit may be there or not, an
added name can push another one out: two units change, and a guarantee for one is none for that. There each unit is kept
or not by itself, and how many are kept is not told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dpose.errors import DposeError
from dpose.privacy.neighbours import Relation

_ALL = 1 << 64


@dataclass(frozen=True)
class Selection:
    """A limited number of units of some data, chosen by name.

    Attributes:
        count: How many, at least 1; under add-or-remove the number expected of `nominal` units.
        relation: The neighbouring relation of the guarantee that the selected units are for.
        nominal: Under add-or-remove, and only there, the constant that stands for the number of units there are.
        seed: Another one makes another choice.

    Raises:
        DposeError: `count` is below 1, or `nominal` does not go with the relation.
    """

    count: int
    relation: Relation = Relation.ZERO_OUT
    nominal: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise DposeError(
                "limit-not-positive", f"a limit of {self.count} leaves nothing", "--limit", "use 1 or more"
            )
        if (self.relation is Relation.ADD_REMOVE) != (self.nominal is not None):
            raise DposeError(
                "nominal-units-missing",
                "a limit under add-or-remove, and only there, needs a nominal number of units",
                "plan.nominal_units",
            )

    def chosen(self, names: Sequence[str]) -> list[int]:
        """The indices, in order, of the names that are kept.

        The choice looks at names only, never at content. It is the same on every machine, and a smaller count's choice
        is part of a larger one's.

        **Guarantee.** Names that differ in one (added, removed, or exchanged, as `relation` has it) give choices that
        differ in one at the most: stability 1.
        """
        if self.nominal is not None:
            bound = _ALL * min(self.count, self.nominal) // self.nominal
            return [i for i, name in enumerate(names) if self._place(name) < bound]
        return smallest(names, self.count, self.seed)

    def stability(self, relation: Relation) -> int:
        """How many units change at the most where one unit of the whole does, by `relation`."""
        if relation is Relation.ADD_REMOVE and self.nominal is None:
            return 2  # an added name takes another one's place
        if relation is Relation.REPLACE and self.nominal is not None:
            return 2  # an exchanged name may be kept where the old one was not: the number is public there, and moves
        return 1

    def notes(self, there: int) -> str:
        """One line on what was kept of `there` units; under add-or-remove no number that was counted."""
        if self.nominal is not None:
            return f"limited to some {self.count:,} of nominally {self.nominal:,} units (seed {self.seed})"
        return f"limited to {self.count:,} of {there:,} units (seed {self.seed})"

    def _place(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=f"dpose/limit/{self.seed}".encode())
        return int.from_bytes(digest.digest(), "big")


def as_selection(limit: int | Selection | None) -> Selection | None:
    """A plain number as the first of a fixed order by name, which no guarantee by add-or-remove can build on."""
    return Selection(limit) if isinstance(limit, int) else limit


def smallest(names: Sequence[str], count: int, seed: int = 0) -> list[int]:
    """The indices, in order, of the `count` names whose SHA-256 of "seed:name" is smallest.

    The choice looks at names only, never at content. It is the same on every machine, and a smaller count's
    choice is part of a larger one's.

    >>> smallest(["ann", "ben", "cleo", "dan"], 2)
    [1, 3]

    Raises:
        ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"a limit must be at least 1, got {count}")
    if count >= len(names):
        return list(range(len(names)))
    ranks = [hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names]
    return sorted(sorted(range(len(names)), key=ranks.__getitem__)[:count])
