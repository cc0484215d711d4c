"""Pictures of people as units of a guarantee, cropped and labelled for a model.

A `Picture` knows how to load itself, so that files and rendered scenes are the same thing here. `PoseUnits`
turns a list of pictures into a `dpose.units.UnitDataset`: it decides what a unit is, crops, augments and
labels.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpose.files import file_digest
from dpose.known_sets import NO_NAMES, SetNames
from dpose.media.fingerprint import fingerprint
from dpose.media.identity import pixel_hash
from dpose.pose.crops import invert, transform_points, warp, zoom_of
from dpose.pose.data.augment import Augment, Drawn, recolour
from dpose.pose.data.detections import Box, crop_of
from dpose.pose.data.problems import Problem
from dpose.pose.data.vary import target_of, vary_view
from dpose.pose.skeletons import MPII, JointMap, Skeleton, joint_map
from dpose.privacy.selection import Selection
from dpose.units import MAX_VIEWS, View

UnitKind = Literal["image", "crop"]

DEFAULT_CACHE_BYTES = 512 * 2**20
"""Decoded pictures kept in memory: enough for some 7,000 of LSPET's, or 3,500 crops of 256 x 192."""


@dataclass(frozen=True)
class Person:
    """One labelled person, in the dataset's own skeleton of J joints.

    Attributes:
        keypoints: (J, 2) float32, picture pixels; meaningless where not visible.
        visible: (J,) bool, true where labelled.
        box: (4,) float32, x0, y0, x1, y1 in picture pixels (see `dpose.pose.crops` for the convention).
        head_length: PCKh's reference length in picture pixels; nan where unknown.
        area: OKS's area of the person in picture pixels squared; nan where unknown.
    """

    keypoints: NDArray[np.float32]
    visible: NDArray[np.bool_]
    box: NDArray[np.float32]
    head_length: float = float("nan")
    area: float = float("nan")

    def __post_init__(self) -> None:
        """Refuse arrays of another shape."""
        joints = len(self.visible)
        shapes = (np.shape(self.keypoints), np.shape(self.visible), np.shape(self.box))
        if shapes != ((joints, 2), (joints,), (4,)):
            raise ValueError(f"a person needs keypoints (J, 2), visible (J,) and box (4,), got {shapes}")


@dataclass(frozen=True)
class Picture:
    """One picture and the people labelled in it, loaded on demand.

    Attributes:
        name: Unique in its dataset.
        count: How many people `read` returns.
        read: Gives the decoded picture, uint8 (H, W, 3) RGB, and its people. Called from several threads.
        subject: Who it shows, where that is known; equal names are the same person.
        path: The file that it comes from, if any.
    """

    name: str
    count: int
    read: Callable[[], tuple[NDArray[np.uint8], tuple[Person, ...]]]
    subject: str = ""
    path: Path | None = None


class Regions(Protocol):
    """Finds where in a picture the person of a labelled box is, and how turned: from this picture and box alone.

    Attributes:
        digest: Two of one digest find the same regions.
    """

    digest: str

    def __call__(self, image: NDArray[np.uint8], corners: NDArray[np.float32], padding: float) -> Box:
        """The region to crop, with all the room that it needs; the box itself, `padding` as large, where nobody is."""


@dataclass
class _Cache:
    """Decoded pictures by index, the least recently used dropped first; safe to share between threads."""

    limit: int
    size: int = 0
    held: OrderedDict[int, tuple[NDArray[np.uint8], tuple[Person, ...]]] = field(default_factory=OrderedDict)
    known: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Of pictures read before: the hash of the pixels, and the digest of each person's labels."""
    files: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Of pictures that were asked for it: the digest of the file."""
    regions: dict[tuple[str, int, int], Box] = field(default_factory=dict)
    """By the finder's digest, picture and person."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, index: int, picture: Picture) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
        with self.lock:
            if index in self.held:
                self.held.move_to_end(index)
                return self.held[index]
        # Decoding happens outside the lock: two threads may decode one picture, but none waits for another.
        loaded = picture.read()
        loaded[0].setflags(write=False)
        if isinstance(
            loaded[0], np.memmap
        ):  # the disk cache's: the system keeps those, and each would hold a file open
            return loaded
        with self.lock:
            if index not in self.held and loaded[0].nbytes <= self.limit:
                self.held[index] = loaded
                self.size += loaded[0].nbytes
                while self.size > self.limit:
                    _, (old, _people) = self.held.popitem(last=False)
                    self.size -= old.nbytes
        return loaded


class PoseUnits:
    """A `dpose.units.UnitDataset` of people in pictures.

    **Units.** With `unit="image"` a unit is a picture and its views are the crops of its people; a picture
    of more than `MAX_VIEWS` gives a random `MAX_VIEWS` at every load. With `unit="crop"` every person is a
    unit alone, which is how the papers count; it protects no picture that shows two people (PRIVACY.md,
    "Unit").

    **Randomness.** All of it comes from the `rng` given to `load`. Without augmentation and with at most
    `MAX_VIEWS` people nothing is drawn.

    **Memory.** Decoded pictures are kept up to `cache_bytes`, shared with everything made by `subset`,
    `limit` and `with_augment`. `load` may be called from several threads.

    Args:
        pictures: In the dataset's order; those without people are left out.
        input_size: (H, W) of a view in pixels.
        augment: What to change at random.
        unit: "image" or "crop".
        padding: How much larger than a person's box the crop reaches.
        skeleton: Of the people's joints; `with_skeleton` gives the labels in another one.
        report: Lines on what was read and what was left out.
        problems: What was wrong with the label file, one by one.
        cache_bytes: Bound on decoded pictures in memory; 0 keeps none.
        nobody: Whether pictures without people are units, too, which have no views: of data whose pictures are read
            whole, all of them count.

    Raises:
        ValueError: two pictures have the same name, or an unknown kind of unit.
    """

    def __init__(
        self,
        pictures: Sequence[Picture],
        *,
        input_size: tuple[int, int],
        augment: Augment | None = None,
        unit: UnitKind = "image",
        padding: float = 1.25,
        skeleton: Skeleton = MPII,
        report: Sequence[str] = (),
        problems: Sequence[Problem] = (),
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        nobody: bool = False,
    ) -> None:
        if len({picture.name for picture in pictures}) != len(pictures):
            raise ValueError("two pictures have the same name")
        if unit not in ("image", "crop"):
            raise ValueError(f"unit must be 'image' or 'crop', got {unit!r}")
        self.input_size = input_size
        self.augment = augment if augment is not None else Augment.none()
        self.unit = unit
        self.report = tuple(report)
        self.problems = tuple(problems)
        self._pictures = tuple(pictures)
        self.padding = padding
        self._own = skeleton
        self._map: JointMap | None = None
        self._regions: Regions | None = None
        self._cache = _Cache(cache_bytes)
        self.selection: Selection | None = None
        self.set_names: SetNames = NO_NAMES
        self._units: list[tuple[int, tuple[int, ...]]] = []
        for p, picture in enumerate(pictures):
            people = tuple(range(picture.count))
            if people or nobody:
                self._units += [(p, people)] if unit == "image" else [(p, (k,)) for k in people]

    def __len__(self) -> int:
        return len(self._units)

    @property
    def most_views(self) -> int:
        """The most people of a unit."""
        return max((len(people) for _, people in self._units), default=1)

    @property
    def skeleton(self) -> Skeleton:
        """Of the joints that `load` gives."""
        return self._own if self._map is None else self._map.target

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures of these units, each once, in the dataset's order."""
        return tuple(self._pictures[p] for p in sorted({p for p, _ in self._units}))

    @property
    def missing(self) -> tuple[int, ...]:
        """Joints of `skeleton` that the dataset has no labels for."""
        return () if self._map is None else self._map.missing

    def unit_id(self, index: int) -> str:
        """The picture's name, with "#k" for its k-th person where a unit is a crop."""
        picture, people = self._units[index]
        name = self._pictures[picture].name
        return name if self.unit == "image" else f"{name}#{people[0]}"

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """SHA-256 of the decoded pixels and their shape, hex: other metadata in the file changes nothing."""
        return (self._known(index)[0],)

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """SHA-256 of the picture's file, hex; nothing for one that is in none."""
        picture, _ = self._units[index]
        if picture not in self._cache.files:
            path = self._pictures[picture].path
            self._cache.files[picture] = () if path is None else (file_digest(path),)
        return self._cache.files[picture]

    def label_digest(self, index: int) -> str:
        """Of the unit's people: joints, boxes and what else is known of them, and the skeleton they are told in."""
        _, people = self._units[index]
        labels = self._known(index)[1]
        told = f"{self._own.name} {self.skeleton.name} {self.padding!r} {[labels[k] for k in people]}"
        if self._regions is not None:
            told += f" {self._regions.digest}"
        return hashlib.sha256(told.encode()).hexdigest()

    def copies(self, index: int) -> tuple[str, ...]:
        """The picture's pixels; of a crop with the person's box, since the people of a picture share its pixels."""
        pixels, labels = self._known(index)
        if self.unit == "image":
            return (pixels,)
        _, (person,) = self._units[index]
        box = labels[person].partition(" ")[0]
        return (f"{pixels} {box}",)

    def _known(self, index: int) -> tuple[str, tuple[str, ...]]:
        picture, _ = self._units[index]
        known = self._cache.known.get(picture)
        if known is None:
            image, people = self._cache.get(picture, self._pictures[picture])
            known = pixel_hash(image), tuple(_labels_of(person) for person in people)
            self._cache.known[picture] = known
        return known

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's crops.

        Each view's image is uint8 `(*input_size, 3)` RGB. Its target holds, in crop pixels and in the order of
        `skeleton`'s J joints,

        * `keypoints` (J, 2) float32: zero where not labelled;
        * `visible` (J,) float32: 1 where labelled and inside the crop: what to train on;
        * `labelled` (J,) float32: 1 where labelled, inside the crop or not: what to score;
        * `head_length` () float32: PCKh's reference length; nan where unknown;
        * `area` () float32: OKS's area of the person, in crop pixels squared; nan where unknown;
        * `inverse` (2, 3) float32: from crop pixels to picture pixels. For a mirrored crop it leads back to
          the picture as it is, where left and right have their old names.
        """
        index_of_picture, people = self._units[index]
        if len(people) > MAX_VIEWS:
            people = tuple(sorted(int(k) for k in rng.choice(people, MAX_VIEWS, replace=False)))
        image, labelled = self._cache.get(index_of_picture, self._pictures[index_of_picture])
        return [
            self._crop(
                image,
                labelled[k],
                self._region(index_of_picture, k, image, labelled[k]),
                self.augment.draw(rng),
            )
            for k in people
        ]

    def canonical(self, index: int) -> list[View]:
        """The crops of all the unit's people, not augmented, as `load` describes them."""
        picture, people = self._units[index]
        image, labelled = self._cache.get(picture, self._pictures[picture])
        return [
            self._crop(image, labelled[k], self._region(picture, k, image, labelled[k]), Drawn())
            for k in people
        ]

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """A canonical view under one draw of the augmentation (`vary_view`)."""
        return vary_view(view, self.augment, self.skeleton.flip_order, rng)

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """The picture's `dpose.media.fingerprint`, (1, 16)."""
        picture, _ = self._units[index]
        image, _ = self._cache.get(picture, self._pictures[picture])
        return fingerprint(image)[None]

    def subjects(self, index: int) -> tuple[str, ...]:
        """Who the picture shows, where that is known."""
        subject = self._pictures[self._units[index][0]].subject
        return (subject,) if subject else ()

    def with_augment(self, augment: Augment) -> PoseUnits:
        """The same units with another augmentation; `Augment.none()` gives the canonical crops."""
        other = self.subset(range(len(self)))
        other.augment = augment
        return other

    def with_skeleton(self, target: Skeleton) -> PoseUnits:
        """The same units with their labels in another skeleton; joints that they say nothing about are not labelled."""
        other = self.subset(range(len(self)))
        other._map = None if target == self._own else joint_map(self._own, target)
        return other

    def with_regions(self, regions: Regions | None) -> PoseUnits:
        """The same units, cropped where `regions` finds each person, upright; where None, about the labelled boxes."""
        other = self.subset(range(len(self)))
        other._regions = regions
        return other

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> PoseUnits:
        """The units at `indices`, in that order."""
        other = object.__new__(PoseUnits)
        other.__dict__.update(self.__dict__)
        other._units = [self._units[int(i)] for i in indices]
        return other

    def limit(self, selection: Selection) -> PoseUnits:
        """At most so many units, in the dataset's order, chosen by `unit_id` (`Selection.chosen`)."""
        chosen = selection.chosen([self.unit_id(i) for i in range(len(self))])
        if selection.nominal is None and len(chosen) == len(self):
            return self
        other = self.subset(chosen)
        other.selection = selection
        other.report = (*self.report, selection.told(len(self)))
        return other

    def _region(self, picture: int, number: int, image: NDArray[np.uint8], person: Person) -> Box | None:
        """Where a person was found and how turned; None where nothing looks for people and the labelled box counts."""
        if self._regions is None:
            return None
        key = (self._regions.digest, picture, number)
        if key not in self._cache.regions:
            self._cache.regions[key] = self._regions(image, person.box, self.padding)
        return self._cache.regions[key]

    def _crop(self, image: NDArray[np.uint8], person: Person, region: Box | None, drawn: Drawn) -> View:
        box, padding = (_labelled_box(person), self.padding) if region is None else (region, 1.0)
        matrix = crop_of(box, self.input_size, padding, drawn.rotation, drawn.scale, drawn.flip)
        keypoints = transform_points(matrix, person.keypoints)
        labelled = np.asarray(person.visible, bool)
        if drawn.flip:
            order = list(self._own.flip_order)
            keypoints, labelled = keypoints[order], labelled[order]
        if self._map is not None:
            keypoints, labelled = self._map.points(keypoints), self._map.values(labelled) > 0
        zoom = zoom_of(matrix)
        target = target_of(
            keypoints,
            labelled,
            self.input_size,
            head_length=person.head_length * zoom,
            area=person.area * zoom**2,
            inverse=invert(matrix),
        )
        return View(recolour(warp(image, matrix, self.input_size), drawn.colour), target)


def _labelled_box(person: Person) -> Box:
    return Box(np.asarray(person.box, np.float64), 1.0)


def _labels_of(person: Person) -> str:
    """Digests of a person's box, and of everything that is labelled of them."""
    box = hashlib.sha256(np.ascontiguousarray(person.box, np.float32).tobytes()).hexdigest()
    rest = hashlib.sha256(np.ascontiguousarray(person.keypoints, np.float32).tobytes())
    rest.update(np.ascontiguousarray(person.visible, bool).tobytes())
    rest.update(f"{float(person.head_length).hex()} {float(person.area).hex()}".encode())
    return f"{box} {rest.hexdigest()}"
