"""Several sources of people as one dataset, their labels brought to one skeleton."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from dpose.known_sets import SetNames
from dpose.pose.data.augment import Augment
from dpose.pose.data.units import PoseUnits, UnitKind
from dpose.pose.skeletons import Skeleton
from dpose.privacy.selection import Selection
from dpose.privacy.shares import ALONE, Readers, read_shared
from dpose.units import View


class ConcatUnits:
    """A `dpose.units.UnitDataset` of the units of several others, one after the other.

    Labels are mapped to one skeleton by the joints' names: a joint that a source does not label is never visible in
    its views, so nothing is learnt from them about it. Every unit keeps its own source's crop geometry. A unit of the
    whole is a unit of one part. A picture that stands in two parts is told twice: whoever protects these units refuses
    it (`shared_picture`) or makes one unit of the two (`dpose.privacy.protected.protect`).

    Args:
        parts: At least one; equal input sizes, kinds of unit and augmentations.
        names: What each part is called, different from one another; unit ids begin with them.
        skeleton: Of the labels; the first part's own where None.

    Raises:
        ValueError: no part, names that are equal or of another number, parts that do not go together, or two units of
            one id.
    """

    def __init__(
        self, parts: Sequence[PoseUnits], names: Sequence[str], skeleton: Skeleton | None = None
    ) -> None:
        if not parts or len(names) != len(parts) or len(set(names)) != len(names):
            raise ValueError(
                f"{len(parts)} parts and the names {list(names)}: each part needs a name of its own"
            )
        if len({(p.input_size, p.unit, p.augment) for p in parts}) > 1:
            raise ValueError("the parts differ in input size, in augmentation or in what a unit is")
        self.skeleton = skeleton or parts[0].skeleton
        self.names = tuple(names)
        self._parts = tuple(part.with_skeleton(self.skeleton) for part in parts)
        self.selection: Selection | None = None
        self._units = [(p, i) for p, part in enumerate(self._parts) for i in range(len(part))]
        if len(set(map(self.unit_id, range(len(self))))) < len(self):
            raise ValueError(f"two units of the parts {list(names)} have one id")
        self.report: tuple[str, ...] = tuple(line for part in self._parts for line in part.report)
        for name, part in zip(names, self._parts, strict=True):
            if part.missing:
                joints = ", ".join(self.skeleton.joints[j] for j in part.missing)
                self.report += (f"{name} has no labels for {joints}",)

    @property
    def input_size(self) -> tuple[int, int]:
        """(H, W) of a view in pixels."""
        return self._parts[0].input_size

    @property
    def unit(self) -> UnitKind:
        """What a unit is."""
        return self._parts[0].unit

    @property
    def set_names(self) -> SetNames:
        """Which public sets the parts are."""
        return reduce(add, (part.set_names for part in self._parts))

    @property
    def augment(self) -> Augment:
        """What is changed at random, in every part."""
        return self._parts[0].augment

    @property
    def most_views(self) -> int:
        """The most people of a unit."""
        return max(part.most_views for part in self._parts)

    def __len__(self) -> int:
        return len(self._units)

    def unit_id(self, index: int) -> str:
        """The part's name and the unit's own id, "NAME/ID"."""
        part, i = self._units[index]
        return f"{self.names[part]}/{self._parts[part].unit_id(i)}"

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """As the part has them: equal pictures have equal hashes, in whatever part they are."""
        part, i = self._units[index]
        return self._parts[part].content_hashes(i)

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """As the part has them."""
        part, i = self._units[index]
        return self._parts[part].file_hashes(i)

    def label_digest(self, index: int) -> str:
        """As the part has it (`PoseUnits.label_digest`)."""
        part, i = self._units[index]
        return self._parts[part].label_digest(i)

    def copies(self, index: int) -> tuple[str, ...]:
        """As the part has them (`PoseUnits.copies`): equal in whatever part they are."""
        part, i = self._units[index]
        return self._parts[part].copies(i)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's crops (`PoseUnits.load`)."""
        part, i = self._units[index]
        return self._parts[part].load(i, rng)

    def canonical(self, index: int) -> list[View]:
        """The crops of all the unit's people, not augmented (`PoseUnits.canonical`)."""
        part, i = self._units[index]
        return self._parts[part].canonical(i)

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """A canonical view under one draw of the augmentation, which all parts share."""
        return self._parts[0].augmented(view, rng)

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """Those of the unit's pictures, (1, 16)."""
        part, i = self._units[index]
        return self._parts[part].fingerprints(i)

    def subjects(self, index: int) -> tuple[str, ...]:
        """Who the unit shows, where that is known; a name is the same person in every part."""
        part, i = self._units[index]
        return self._parts[part].subjects(i)

    def shared_picture(self, threads: int = 2, readers: Readers = ALONE) -> tuple[str, str] | None:
        """The ids of two units of different parts that are one picture, by their content; None where there are none.

        Args:
            threads: Threads that read pictures.
            readers: The processes that read them together, each its own.
        """
        first: dict[str, int] = {}
        read = read_shared(self.content_hashes, range(len(self)), readers, threads)
        for index, hashes in enumerate(read):
            for content in hashes:
                other = first.setdefault(content, index)
                if self._units[other][0] != self._units[index][0]:
                    read.close()
                    return self.unit_id(other), self.unit_id(index)
        return None

    def with_augment(self, augment: Augment) -> ConcatUnits:
        """The same units with another augmentation."""
        other = copy.copy(self)
        other._parts = tuple(part.with_augment(augment) for part in self._parts)
        return other

    def with_skeleton(self, target: Skeleton) -> ConcatUnits:
        """The same units with their labels in another skeleton."""
        other = copy.copy(self)
        other.skeleton = target
        other._parts = tuple(part.with_skeleton(target) for part in self._parts)
        return other

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> ConcatUnits:
        """The units at `indices`, in that order."""
        other = copy.copy(self)
        other._units = [self._units[int(i)] for i in indices]
        return other

    def limit(self, selection: Selection) -> ConcatUnits:
        """At most so many units, in the dataset's order, chosen by `unit_id` (`Selection.chosen`)."""
        chosen = selection.chosen([self.unit_id(i) for i in range(len(self))])
        if selection.nominal is None and len(chosen) == len(self):
            return self
        other = self.subset(chosen)
        other.selection = selection
        other.report = (*self.report, selection.told(len(self)))
        return other
