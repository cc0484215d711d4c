"""Several sources of people as one dataset, their labels brought to one skeleton."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpose.pose.data.augment import Augment
from dpose.pose.data.units import PoseUnits, UnitKind, smallest
from dpose.pose.skeletons import Skeleton
from dpose.units import View


class ConcatUnits:
    """A `dpose.units.UnitDataset` of the units of several others, one after the other.

    Labels are mapped to one skeleton by the joints' names: a joint that a source does not label is never visible in
    its views, so nothing is learnt from them about it. Every unit keeps its own source's crop geometry. A unit of the
    whole is a unit of one part: a picture that stands in two parts is two units, and what a guarantee says of it is
    that of a group of two.

    Args:
        parts: At least one; equal input sizes and kinds of unit.
        names: What each part is called, different from one another; unit ids begin with them.
        skeleton: Of the labels; the first part's own where None.

    Raises:
        ValueError: no part, names that are equal or of another number, or parts that do not go together.
    """

    def __init__(
        self, parts: Sequence[PoseUnits], names: Sequence[str], skeleton: Skeleton | None = None
    ) -> None:
        if not parts or len(names) != len(parts) or len(set(names)) != len(names):
            raise ValueError(
                f"{len(parts)} parts and the names {list(names)}: each part needs a name of its own"
            )
        if len({(p.input_size, p.unit) for p in parts}) > 1:
            raise ValueError("the parts differ in input size or in what a unit is")
        self.skeleton = skeleton or parts[0].skeleton
        self.names = tuple(names)
        self._parts = tuple(part.with_skeleton(self.skeleton) for part in parts)
        self._units = [(p, i) for p, part in enumerate(self._parts) for i in range(len(part))]
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
    def augment(self) -> Augment:
        """What is changed at random, in every part."""
        return self._parts[0].augment

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

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's crops (`PoseUnits.load`)."""
        part, i = self._units[index]
        return self._parts[part].load(i, rng)

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

    def limit(self, count: int, seed: int = 0) -> ConcatUnits:
        """At most `count` units, in the dataset's order, chosen by `unit_id` (`dpose.pose.data.units.smallest`).

        Raises:
            ValueError: `count` is below 1.
        """
        chosen = smallest([self.unit_id(i) for i in range(len(self))], count, seed)
        if len(chosen) == len(self):
            return self
        other = self.subset(chosen)
        other.report = (*self.report, f"limited to {count:,} of {len(self):,} units (seed {seed})")
        return other
