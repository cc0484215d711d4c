"""Pictures of people as units of a guarantee, cropped and labelled for a model.

A `Picture` loads itself, so that files and rendered scenes are the same thing here. `PoseUnits`
turns a list of pictures into a `dpose.units.UnitDataset`: it decides what a unit is, crops, augments and
labels. `SubjectUnits` groups them by person.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError, naming
from dpose.files import file_digest
from dpose.known_sets import NO_NAMES, SetNames
from dpose.media.fingerprint import fingerprint
from dpose.pose.crops import (
    PADDING,
    Box,
    Matrix,
    after,
    crop_transforms,
    invert,
    made_smaller,
    shrinks_of,
    transform_points,
    warp,
    zooms_of,
)
from dpose.pose.data.augment import Augment, Drawn, Draws, recolour, target_of, vary_view
from dpose.pose.data.label_files import Problem
from dpose.pose.data.pictures import Person, Picture, PictureMemory, Regions, remembered_region
from dpose.pose.skeletons import MPII, JointMap, Skeleton, check_in_common, joint_map
from dpose.privacy.selection import Selection
from dpose.privacy.shares import ALONE, Readers, read_shared
from dpose.units import Draw, Unit, UnmadeView, View, Warps, some_of, views_of

UnitKind = Literal["image", "crop"]

DEFAULT_CACHE_BYTES = 512 * 2**20
"""Default bound on decoded pictures in memory: enough for some 7,000 of LSPET's, or 3,500 crops of 256 x 192."""


@dataclass(frozen=True)
class _Source:
    """Pictures of one dataset.

    Attributes:
        name: Prefix of the ids of its units; "" if it is the only one.
        pictures: In the dataset's order.
        skeleton: Skeleton of the people's joints.
        padding: Size of a crop relative to a person's box.
        cache: Shared with every other selection of its units.
        way: Map to the joints of the views; None if those are its own.
    """

    name: str
    pictures: tuple[Picture, ...]
    skeleton: Skeleton
    padding: float
    cache: PictureMemory
    way: JointMap | None = None


class PoseUnits:
    """A `dpose.units.UnitDataset` of people in pictures.

    **Units.** With `unit="image"` a unit is a picture and its views are the crops of its people; a picture
    of more than `MAX_VIEWS` gives a random `MAX_VIEWS` at every load. With `unit="crop"` every person is a
    unit alone, which is how the papers count; it protects no picture that shows two people (PRIVACY.md,
    "Unit").

    **Randomness.** All of it comes from the `rng` given to `load`. Without augmentation and with at most
    `MAX_VIEWS` people nothing is drawn.

    **Memory.** Decoded pictures are cached up to `cache_bytes`, shared with everything made by `subset`,
    `limit` and `with_augment`. `load` may be called from several threads.

    **Several sources.** `joined` units are those of several datasets, one after the other. Each has its own crop
    geometry, and its labels are mapped to one skeleton by the joints' names: a joint that a source does not label is
    never visible in its views, so nothing is learnt from them about it. A picture in two sources is two
    units: code that protects them refuses it (`shared_picture`) or makes one unit of the two
    (`dpose.privacy.protected.protect`).

    Args:
        pictures: In the dataset's order. With `unit="image"` one without people is a unit without views.
        input_size: (H, W) of a view in pixels.
        augment: Random changes.
        unit: "image" or "crop".
        padding: Size of a crop relative to a person's box.
        skeleton: Skeleton of the people's joints; `with_skeleton` gives the labels in another one.
        cache_bytes: Bound on decoded pictures in memory; 0 caches none.

    Attributes:
        report: Lines on what was read and what was left out, which the reader of the labels sets.
        problems: Problems in the label file, one by one, likewise.

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
        padding: float = PADDING,
        skeleton: Skeleton = MPII,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        if len({picture.name for picture in pictures}) != len(pictures):
            raise ValueError("two pictures have the same name")
        if unit not in ("image", "crop"):
            raise ValueError(f"unit must be 'image' or 'crop', got {unit!r}")
        self.input_size = input_size
        self.augment = augment if augment is not None else Augment.none()
        self.unit = unit
        self.report: tuple[str, ...] = ()
        self.problems: tuple[Problem, ...] = ()
        self.skeleton = skeleton
        own = _Source("", tuple(pictures), skeleton, padding, PictureMemory(cache_bytes))
        self._sources: tuple[_Source, ...] = (own,)
        self._regions: Regions | None = None
        self.selection: Selection | None = None
        self.set_names: SetNames = NO_NAMES
        self._units: list[tuple[int, int, tuple[int, ...]]] = []
        for p, picture in enumerate(pictures):
            people = tuple(range(picture.count))
            self._units += [(0, p, people)] if unit == "image" else [(0, p, (k,)) for k in people]

    @classmethod
    def joined(cls, parts: Sequence[PoseUnits], names: Sequence[str], skeleton: Skeleton | None = None) -> PoseUnits:
        """Join the units of several datasets.

        Args:
            parts: At least one; equal input sizes, kinds of unit, augmentations and regions.
            names: Name of each part, different from one another; unit ids are "NAME/ID".
            skeleton: Skeleton of the labels; the first part's own if None.

        Raises:
            DposeError: a part's labels have none of the skeleton's joints.
            ValueError: no part, names that are equal or of another number, parts that do not go together, or two units
                of one id.
        """
        if not parts or len(names) != len(parts) or len(set(names)) != len(names):
            raise ValueError(f"{len(parts)} parts and the names {list(names)}: each part needs a name of its own")
        if len({(p.input_size, p.unit, p.augment, id(p._regions)) for p in parts}) > 1:
            raise ValueError("the parts differ in input size, in augmentation or in what a unit is")
        other = parts[0].subset(()).with_skeleton(skeleton or parts[0].skeleton)
        other._sources, other.selection = (), None
        for name, part in zip(names, parts, strict=True):
            with naming(name):
                mapped = part.with_skeleton(other.skeleton)
            first = len(other._sources)
            other._units += [(first + source, picture, people) for source, picture, people in mapped._units]
            other._sources += tuple(
                replace(source, name="/".join(filter(None, (name, source.name)))) for source in mapped._sources
            )
        ids = {other.unit_id(k) for k in range(len(other))}
        if len(ids) < len(other):
            raise ValueError(f"two units of the parts {list(names)} have one id")
        other.set_names = reduce(add, (part.set_names for part in parts))
        other.problems = tuple(problem for part in parts for problem in part.problems)
        other.report = tuple(line for part in parts for line in part.report)
        for source in other._sources:
            if source.way is not None and source.way.missing:
                joints = ", ".join(other.skeleton.joints[j] for j in source.way.missing)
                other.report += (f"{source.name} has no labels for {joints}",)
        return other

    def __len__(self) -> int:
        return len(self._units)

    @property
    def most_views(self) -> int:
        """The largest number of people of a unit."""
        return max((len(people) for *_, people in self._units), default=1)

    @property
    def padding(self) -> float:
        """Size of the first source's crops relative to a person's box."""
        return self._sources[0].padding

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures of these units, each once, in the datasets' order."""
        return tuple(self._sources[s].pictures[p] for s, p in sorted({(s, p) for s, p, _ in self._units}))

    def _at(self, index: int) -> tuple[_Source, int, tuple[int, ...]]:
        """Return the source of a unit, its picture's index there, and its people's indices in the picture."""
        source, picture, people = self._units[index]
        return self._sources[source], picture, people

    def unit_id(self, index: int) -> str:
        """Return the picture's name, with "#k" for the k-th person of a crop; "NAME/ID" in several sources."""
        source, picture, people = self._at(index)
        name = source.pictures[picture].name + (f"#{people[0]}" if self.unit == "crop" else "")
        return f"{source.name}/{name}" if source.name else name

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Return SHA-256 of the decoded pixels and their shape, hex: other metadata in the file changes nothing."""
        return (self._known(index)[0],)

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """Return SHA-256 of the picture's file, hex; () for a picture without a file."""
        source, picture, _ = self._at(index)
        files = source.cache.files
        if picture not in files:
            path = source.pictures[picture].path
            files[picture] = () if path is None else (file_digest(path),)
        return files[picture]

    def label_digest(self, index: int) -> str:
        """Return a digest of the unit's people (joints, boxes and other facts) and of the skeleton of these labels."""
        source, _, people = self._at(index)
        labels = self._known(index)[1]
        text = f"{source.skeleton.name} {self.skeleton.name} {source.padding!r} {[labels[k] for k in people]}"
        if self._regions is not None:
            text += f" {self._regions.digest}"
        return hashlib.sha256(text.encode()).hexdigest()

    def copies(self, index: int) -> tuple[str, ...]:
        """Return the hash of the picture's pixels; with the person's box for a crop, since crops share pixels."""
        pixels, labels = self._known(index)
        if self.unit == "image":
            return (pixels,)
        (person,) = self._at(index)[2]
        box = labels[person].partition(" ")[0]
        return (f"{pixels} {box}",)

    def _known(self, index: int) -> tuple[str, tuple[str, ...]]:
        source, picture, _ = self._at(index)
        known = source.cache.known.get(picture)
        return known or source.cache.digests(picture, *source.cache.get(picture, source.pictures[picture]))

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """Load the unit's crops.

        Each view's image is uint8 `(*input_size, 3)` RGB. Its target holds, in crop pixels and in the order of
        `skeleton`'s J joints,

        * `keypoints` (J, 2) float32: zero where not labelled;
        * `visible` (J,) float32: 1 where labelled and inside the crop: what to train on;
        * `labelled` (J,) float32: 1 where labelled, inside the crop or not: what to score;
        * `head_length` () float32: PCKh's reference length; nan if unknown;
        * `area` () float32: OKS's area of the person, in crop pixels squared; nan if unknown;
        * `inverse` (2, 3) float32: from crop pixels to picture pixels. For a mirrored crop it leads back to
          the picture as it is, where left and right have their old names.
        """
        source, picture, people = self._at(index)
        chosen = some_of(people, lambda: rng)
        return self._crops(source, picture, chosen, lambda: self.augment.draw(rng))

    def patches(self) -> PersonPatches:
        """See `dpose.units.PatchedUnits`."""
        return PersonPatches(self)

    def canonical(self, index: int) -> list[View]:
        """Load the crops of all the unit's people, not augmented, as `load` describes them."""
        return self._crops(*self._at(index), Drawn)

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """Return a canonical view under one draw of the augmentation (`vary_view`)."""
        return vary_view(view, self.augment, self.skeleton.flip_order, rng)

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """Return the picture's `dpose.media.fingerprint`, (1, 16)."""
        source, picture, _ = self._at(index)
        image, _ = source.cache.get(picture, source.pictures[picture])
        return fingerprint(image)[None]

    def subjects(self, index: int) -> tuple[str, ...]:
        """Return the person shown, if known; a name is the same person in every source."""
        source, picture, _ = self._at(index)
        subject = source.pictures[picture].subject
        return (subject,) if subject else ()

    def shared_picture(self, readers: Readers = ALONE) -> tuple[str, str] | None:
        """Return the ids of two units of different sources with the same picture content, or None.

        Args:
            readers: Processes that read them together, each its own share.
        """
        if len(self._sources) < 2:
            return None
        first: dict[str, int] = {}
        read = read_shared(self.content_hashes, range(len(self)), readers)
        for index, hashes in enumerate(read):
            for content in hashes:
                other = first.setdefault(content, index)
                if self._units[other][0] != self._units[index][0]:
                    read.close()
                    return self.unit_id(other), self.unit_id(index)
        return None

    def with_augment(self, augment: Augment) -> PoseUnits:
        """Return the same units with another augmentation; `Augment.none()` gives the canonical crops."""
        other = self.subset(range(len(self)))
        other.augment = augment
        return other

    def with_skeleton(self, target: Skeleton, *, disjoint: bool = False) -> PoseUnits:
        """Return the same units with labels in another skeleton; joints that cannot be converted are not labelled.

        Args:
            target: The other skeleton.
            disjoint: True for units whose labels are replaced anyway, by others in the target's joints.

        Raises:
            DposeError: there is no joint that can be converted, and `disjoint` is not set.
        """
        if not disjoint:
            check_in_common(self.skeleton, target, joint_map(self.skeleton, target))
        other = self.subset(range(len(self)))
        other.skeleton = target
        other._sources = tuple(
            replace(s, way=None if target == s.skeleton else joint_map(s.skeleton, target)) for s in self._sources
        )
        return other

    def with_regions(self, regions: Regions | None) -> PoseUnits:
        """Return the same units, cropped where `regions` finds each person, upright; None crops the labelled boxes."""
        other = self.subset(range(len(self)))
        other._regions = regions
        return other

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> PoseUnits:
        """Return the units at `indices`, in that order."""
        other = object.__new__(PoseUnits)
        other.__dict__.update(self.__dict__)
        other._units = [self._units[int(i)] for i in indices]
        return other

    def limit(self, selection: Selection) -> PoseUnits:
        """Return at most so many units, in the dataset's order, chosen by `unit_id` (`Selection.chosen`)."""
        chosen = selection.chosen([self.unit_id(i) for i in range(len(self))])
        if selection.nominal is None and len(chosen) == len(self):
            return self
        other = self.subset(chosen)
        other.selection = selection
        other.report = (*self.report, selection.notes(len(self)))
        return other

    def _crops(self, source: _Source, picture: int, people: Sequence[int], draw: Callable[[], Drawn]) -> list[View]:
        image, labelled = source.cache.get(picture, source.pictures[picture])
        views = []
        for k in people:
            region = self._region(source, picture, k, image, labelled)
            views.append(self._crop(source, image, labelled[k], region, draw()))
        return views

    def _region(
        self, source: _Source, picture: int, number: int, image: NDArray[np.uint8], people: Sequence[Person]
    ) -> Box | None:
        """Return where a person was found and how turned; None without `regions`, when the labelled box counts."""
        if self._regions is None:
            return None
        pixels, _ = source.cache.digests(picture, image, people)
        return remembered_region(self._regions, image, pixels, people[number], source.padding)

    def _crop(
        self, source: _Source, image: NDArray[np.uint8], person: Person, region: Box | None, drawn: Drawn
    ) -> View:
        one = Draws(np.array([drawn.rotation]), np.array([drawn.scale]), np.array([drawn.flip]), None)
        matrices, targets = self._geometry(source, [(person, region)], one)
        target = {name: value[0] for name, value in targets.items()}
        return View(recolour(warp(image, matrices[0], self.input_size), drawn.colour), target)

    def _geometry(
        self, source: _Source, people: Sequence[tuple[Person, Box | None]], draws: Draws
    ) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Matrices (V, 2, 3) from picture to view, and targets each (V, ...), of people of one source under V draws."""
        regions = [Box(person.box.astype(np.float64), 1.0) if region is None else region for person, region in people]
        padding = np.array([source.padding if region is None else 1.0 for _, region in people])
        matrices = crop_transforms(
            np.stack([region.corners for region in regions]),
            self.input_size,
            padding * draws.scale,
            draws.rotation + [region.turn for region in regions],
            draws.flip,
        )
        keypoints = transform_points(matrices, np.stack([person.keypoints for person, _ in people]))
        labelled = np.stack([np.asarray(person.visible, bool) for person, _ in people])
        if draws.flip.any():
            order, flips = list(source.skeleton.flip_order), draws.flip
            keypoints[flips], labelled[flips] = keypoints[flips][:, order], labelled[flips][:, order]
        if source.way is not None:
            keypoints, labelled = source.way.points(keypoints), source.way.values(labelled) > 0
        zooms = zooms_of(matrices)
        targets = target_of(
            keypoints,
            labelled,
            self.input_size,
            head_length=np.array([person.head_length for person, _ in people]) * zooms,
            area=np.array([person.area for person, _ in people]) * zooms**2,
            inverse=invert(matrices),
        )
        return matrices, targets


@dataclass(frozen=True)
class _Patched:
    """One person whose pictures were cut: of which source, labelled and found how, and the way to each patch.

    Attributes:
        ways: By how much the picture is made smaller, the patch's place among the person's, and the (2, 3) matrix from
            the picture to it.
    """

    source: _Source
    person: Person
    region: Box | None
    ways: dict[int, tuple[int, Matrix]]


class PersonPatches:
    """`dpose.units.Patches` of the people of `units`: each picture, smaller where views skip pixels, about the person.

    Args:
        units: What `load` is asked of otherwise.
    """

    def __init__(self, units: PoseUnits) -> None:
        self._units, self.view_size = units, units.input_size
        self._first = np.cumsum([0, *(len(people) for *_, people in units._units)]).tolist()
        self._people: dict[int, _Patched] = {}

    def of(self, index: int) -> dict[int, list[NDArray[np.uint8]]]:
        """See `dpose.units.Patches`."""
        units = self._units
        source, picture, people = units._at(index)
        image, labelled = source.cache.get(picture, source.pictures[picture])
        found = {}
        for number, k in enumerate(people, self._first[index]):
            region = units._region(source, picture, k, image, labelled)
            self._people[number], found[number] = self._cut(source, image, labelled[k], region)
        return found

    def _cut(
        self, source: _Source, image: NDArray[np.uint8], person: Person, region: Box | None
    ) -> tuple[_Patched, list[NDArray[np.uint8]]]:
        augment = self._units.augment
        ends = Draws(np.zeros(2), np.array(augment.scale), np.zeros(2, bool), None)
        matrices, _ = self._units._geometry(source, [(person, region)] * 2, ends)
        least, most = shrinks_of(matrices).tolist()
        height, width = self._units.input_size
        middle = np.array([(width - 1) / 2, (height - 1) / 2])
        # of the largest view: all of it in whatever turn, with the pixels between which the last ones lie
        reach = math.hypot(width, height) / 2 / zooms_of(matrices[1]) + 2
        ways, found = {}, []
        for shrink in range(least, most + 1):
            small, back = made_smaller(image, shrink)
            there = invert(back)
            centre = transform_points(there, transform_points(invert(matrices[1]), middle))
            radius = reach * zooms_of(there) + 2
            sides = np.array([small.shape[1], small.shape[0]])
            first = np.clip(np.floor(centre - radius), 0, sides - 1).astype(int)
            last = np.clip(np.ceil(centre + radius) + 1, first + 1, sides).astype(int)
            found.append(np.ascontiguousarray(small[first[1] : last[1], first[0] : last[0]]))
            there[:, 2] -= first
            ways[shrink] = (len(found) - 1, there)
        return _Patched(source, person, region, ways), found

    def looks(self, index: int, draw: Draw) -> list[UnmadeView]:
        """See `dpose.units.Patches`."""
        people = self._units._units[index][2]
        chosen = some_of(range(len(people)), draw)
        first = self._first[index]
        return [UnmadeView(first + k, self._units.augment.numbers(draw)) for k in chosen]

    def warps(self, looks: Sequence[UnmadeView]) -> Warps:
        """See `dpose.units.Patches`."""
        augment, count = self._units.augment, len(looks)
        draws = Draws.none(count)
        if looks[0].numbers is not None:
            draws = augment.draws(np.stack([look.numbers for look in looks if look.numbers is not None]))
        people = [self._people[look.person] for look in looks]
        matrices: Matrix = np.empty((count, 2, 3))
        targets: dict[str, NDArray[Any]] = {}
        for source in {id(one.source): one.source for one in people}.values():
            own = np.array([k for k, one in enumerate(people) if one.source is source])
            part = Draws(draws.rotation[own], draws.scale[own], draws.flip[own], None)
            geometry = [(people[k].person, people[k].region) for k in own]
            matrices[own], found = self._units._geometry(source, geometry, part)
            for name, value in found.items():
                targets.setdefault(name, np.empty((count, *value.shape[1:]), value.dtype))[own] = value
        chosen = [one.ways[shrink] for one, shrink in zip(people, shrinks_of(matrices).tolist(), strict=True)]
        return Warps(
            np.array([(look.person, which) for look, (which, _) in zip(looks, chosen, strict=True)]),
            after(np.stack([way for _, way in chosen]), invert(matrices)),
            draws.colour,
            targets,
        )


class SubjectUnits:
    """The pictures of `images`, grouped by person: protects a person however many pictures there are.

    A unit's views are those of its pictures; one of more than `MAX_VIEWS` gives a random `MAX_VIEWS` at every load.

    Args:
        images: Units of one picture each, every one of a known person; the same name in several sources is the same
            person.
    """

    unit = Unit.SUBJECT

    def __init__(self, images: PoseUnits) -> None:
        groups: dict[str, list[int]] = {}
        for index in range(len(images)):
            names = images.subjects(index)
            if len(names) != 1:
                fix = "name them in a file, as in NAME:ROOT,subjects=FILE, or use plan.unit=image"
                raise DposeError("subjects-unknown", "it is not known who this shows", images.unit_id(index), fix)
            groups.setdefault(names[0], []).append(index)
        self.dataset = images
        self.selection: Selection | None = None
        self.set_names = images.set_names
        self._names = list(groups)
        self._groups = list(groups.values())
        self.report = (*images.report, f"{len(self):,} people")

    def __len__(self) -> int:
        return len(self._groups)

    def unit_id(self, index: int) -> str:
        """Return the person's name."""
        return self._names[index]

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Return the hashes of all the person's pictures."""
        return tuple(h for i in self._groups[index] for h in self.dataset.content_hashes(i))

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """Return the hashes of all the person's files."""
        return tuple(h for i in self._groups[index] for h in self.dataset.file_hashes(i))

    def label_digest(self, index: int) -> str:
        """Return a digest of the labels of all the person's pictures."""
        labels = [self.dataset.label_digest(i) for i in self._groups[index]]
        return hashlib.sha256(" ".join(labels).encode()).hexdigest()

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """Return the fingerprints of all the person's pictures, (pictures, 16)."""
        return np.concatenate([self.dataset.fingerprints(i) for i in self._groups[index]])

    def subjects(self, index: int) -> tuple[str, ...]:
        """Return the person's name."""
        return (self._names[index],)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """Load the views of the person's pictures, or of a random `MAX_VIEWS` of them."""
        return views_of(self, index, rng)

    def entries(self, index: int, draw: Draw | None = None) -> Sequence[int]:
        """See `dpose.units.CombinedUnits`."""
        group = self._groups[index]
        return some_of(group, draw) if draw else group

    def canonical(self, index: int) -> list[View]:
        """Load the canonical views of all the person's pictures."""
        return [view for i in self._groups[index] for view in self.dataset.canonical(i)]

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """Return a canonical view, augmented."""
        return self.dataset.augmented(view, rng)

    def limit(self, selection: Selection) -> SubjectUnits:
        """Return at most so many people, chosen by name as in `PoseUnits.limit`."""
        chosen = selection.chosen(self._names)
        if selection.nominal is None and len(chosen) == len(self):
            return self
        other = object.__new__(SubjectUnits)
        other.dataset = self.dataset
        other.set_names = self.set_names
        other._names = [self._names[i] for i in chosen]
        other._groups = [self._groups[i] for i in chosen]
        other.selection = selection
        other.report = (*self.report, selection.notes(len(self)))
        return other
