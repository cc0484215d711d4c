"""Copies of a unit among the units: one unit under several names, and told so by an identity fixed beforehand.

A picture that lies in a folder under eleven names would be sampled, clipped and added eleven times: what is stated for
one unit would hold for an eleventh of it. `merge_units` makes one unit of those that share a name in `copies`, with the
views of all of them; it is clipped once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpose.units import (
    CanonicalUnits,
    Draw,
    FiledUnits,
    KnownPictures,
    UnitDataset,
    View,
    most_views,
    some_of,
    views_of,
)


def groups_of(names: Sequence[Sequence[str]]) -> list[list[int]]:
    """The indices of `names` in groups that share an entry, directly or by way of others; both in the old order."""
    root = list(range(len(names)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    first: dict[str, int] = {}
    for index, entries in enumerate(names):
        for entry in entries:
            one, other = find(first.setdefault(entry, index)), find(index)
            root[max(one, other)] = min(one, other)
    groups: dict[int, list[int]] = {}
    for index in range(len(names)):
        groups.setdefault(find(index), []).append(index)
    return list(groups.values())


def merge_units(data: UnitDataset, groups: Sequence[Sequence[int]]) -> UnitDataset:
    """Units of `data`, each of `groups` as one, and no others; `data` itself where that changes nothing."""
    if [list(group) for group in groups] == [[index] for index in range(len(data))]:
        return data
    known, canonical = isinstance(data, KnownPictures), isinstance(data, CanonicalUnits)
    kind = {
        (False, False): MergedUnits,
        (True, False): _Known,
        (False, True): _Canonical,
        (True, True): _KnownCanonical,
    }[known, canonical]
    return kind(data, groups)


def first_entries(data: UnitDataset) -> Sequence[int]:
    """The number of each unit's first entry in the data before copies were merged, which says whose it is.

    A process that has read an entry takes its unit's steps, too, however many copies stand before it.
    """
    firsts: Sequence[int] = getattr(data, "firsts", range(len(data)))
    return firsts


class MergedUnits:
    """Units of `data`, several of them as one where `groups` says so (`dpose.units.UnitDataset`).

    A unit's views are those of all its copies; of more than `MAX_VIEWS` copies a random `MAX_VIEWS` give theirs.

    Args:
        data: The units.
        groups: Indices into `data`, none of them twice.

    Attributes:
        unmerged: The data as they were.
        selection: How they were selected.
        firsts: Of each unit, its first entry in `data`.
    """

    def __init__(self, data: UnitDataset, groups: Sequence[Sequence[int]]) -> None:
        self.unmerged, self._groups = data, [tuple(group) for group in groups]
        self.firsts = [group[0] for group in self._groups]
        self.selection = getattr(data, "selection", None)

    @property
    def dataset(self) -> UnitDataset:
        """The data as they were."""
        return self.unmerged

    @property
    def unit(self) -> str:
        """What a unit is."""
        return self.unmerged.unit

    @property
    def most_views(self) -> int:
        """The most views of a unit."""
        return most_views(self.unmerged) * max(map(len, self._groups), default=1)

    def __len__(self) -> int:
        return len(self._groups)

    def unit_id(self, index: int) -> str:
        """The first copy's name."""
        return self.unmerged.unit_id(self._groups[index][0])

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Those of all copies, each once."""
        return tuple(dict.fromkeys(h for i in self._groups[index] for h in self.unmerged.content_hashes(i)))

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """Those of all copies, each once."""
        units = self.unmerged
        if not isinstance(units, FiledUnits):
            return ()
        return tuple(dict.fromkeys(h for i in self._groups[index] for h in units.file_hashes(i)))

    def copies(self, index: int) -> tuple[str, ...]:
        """The place among the units: these are merged already."""
        return (f"merged {index}",)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The views of the unit's copies, or of a random `MAX_VIEWS` of them."""
        return views_of(self, index, rng)

    def entries(self, index: int, draw: Draw | None = None) -> Sequence[int]:
        """See `dpose.units.CombinedUnits`."""
        group = self._groups[index]
        return some_of(group, draw) if draw else group


class _Known(MergedUnits):
    """Merged units that tell more of their pictures (`dpose.units.KnownPictures`)."""

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """Those of all copies, (pictures, 16)."""
        known = cast(KnownPictures, self.unmerged)
        return np.concatenate([known.fingerprints(i) for i in self._groups[index]])

    def subjects(self, index: int) -> tuple[str, ...]:
        """Everybody in any of the copies."""
        known = cast(KnownPictures, self.unmerged)
        return tuple(dict.fromkeys(name for i in self._groups[index] for name in known.subjects(i)))


class _Canonical(MergedUnits):
    """Merged units that can tell content from augmentation (`dpose.units.CanonicalUnits`)."""

    def canonical(self, index: int) -> list[View]:
        """The canonical views of all copies."""
        return [v for i in self._groups[index] for v in cast(CanonicalUnits, self.unmerged).canonical(i)]

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """The batch, as the data collate it."""
        return cast(CanonicalUnits, self.unmerged).augmented(view, rng)


class _KnownCanonical(_Known, _Canonical):
    """Both."""
