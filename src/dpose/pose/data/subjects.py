"""People as units: all pictures of one person together."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.data.units import PoseUnits
from dpose.privacy.selection import Selection
from dpose.units import MAX_VIEWS, Unit, View


class SubjectUnits:
    """The pictures of `images`, grouped by who they show: what protects a person however many pictures there are.

    A unit's views are those of its pictures; one of more than `MAX_VIEWS` gives a random `MAX_VIEWS` at every load.

    Args:
        images: Units of one picture each, every one of a known person; of several sources, a person of one name in
            two of them is one.

    Raises:
        DposeError: it is not known who a picture shows.
    """

    unit = Unit.SUBJECT

    def __init__(self, images: PoseUnits) -> None:
        groups: dict[str, list[int]] = {}
        for index in range(len(images)):
            names = images.subjects(index)
            if len(names) != 1:
                raise DposeError(
                    "subjects-unknown",
                    "it is not known who this shows",
                    images.unit_id(index),
                    "use plan.unit=image",
                )
            groups.setdefault(names[0], []).append(index)
        self._images = images
        self.selection: Selection | None = None
        self.set_names = images.set_names
        self._names = list(groups)
        self._groups = list(groups.values())
        self.report = (*images.report, f"{len(self):,} people")

    def __len__(self) -> int:
        return len(self._groups)

    def unit_id(self, index: int) -> str:
        """The person's name."""
        return self._names[index]

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Those of all the person's pictures."""
        return tuple(h for i in self._groups[index] for h in self._images.content_hashes(i))

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """Those of all the person's pictures."""
        return tuple(h for i in self._groups[index] for h in self._images.file_hashes(i))

    def label_digest(self, index: int) -> str:
        """Of the labels of all the person's pictures."""
        labels = [self._images.label_digest(i) for i in self._groups[index]]
        return hashlib.sha256(" ".join(labels).encode()).hexdigest()

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """Those of all the person's pictures, (pictures, 16)."""
        return np.concatenate([self._images.fingerprints(i) for i in self._groups[index]])

    def subjects(self, index: int) -> tuple[str, ...]:
        """The person."""
        return (self._names[index],)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The views of the person's pictures, or of a random `MAX_VIEWS` of them."""
        group = self._groups[index]
        if len(group) > MAX_VIEWS:
            group = [group[int(i)] for i in sorted(rng.choice(len(group), MAX_VIEWS, replace=False))]
        return [view for i in group for view in self._images.load(i, rng)]

    def canonical(self, index: int) -> list[View]:
        """The canonical views of all the person's pictures."""
        return [view for i in self._groups[index] for view in self._images.canonical(i)]

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """A canonical view, augmented."""
        return self._images.augmented(view, rng)

    def limit(self, selection: Selection) -> SubjectUnits:
        """At most so many people, chosen by name as in `PoseUnits.limit`."""
        chosen = selection.chosen(self._names)
        if selection.nominal is None and len(chosen) == len(self):
            return self
        other = object.__new__(SubjectUnits)
        other._images = self._images
        other.set_names = self.set_names
        other._names = [self._names[i] for i in chosen]
        other._groups = [self._groups[i] for i in chosen]
        other.selection = selection
        other.report = (*self.report, selection.told(len(self)))
        return other
