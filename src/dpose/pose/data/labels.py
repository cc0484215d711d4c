"""Labels of a dataset as its reader returns them, and the units made of them.

A dataset is a module with a reader, which turns the dataset's own label files into `Labels`, and a `PoseDataset`, which
is its entry in `dpose.pose.data.spec.SOURCES`. Label files and pictures are found by `dpose.pose.data.label_files`,
invalid fields are collected as `Problems`, and `units_of` makes units, with the pictures' sizes checked and decoded
pictures cached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.data_spec import Dataset
from dpose.errors import DposeError
from dpose.files import file_table
from dpose.media.images import read_image
from dpose.pose.crops import PADDING
from dpose.pose.data.augment import Augment
from dpose.pose.data.cache import PictureCache, picture_cache
from dpose.pose.data.label_files import LabelFile, Problem, Problems
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import PoseUnits, UnitKind
from dpose.pose.skeletons import MPII, Skeleton
from dpose.privacy.selection import smallest

ROUND_JOINTS = 0.1
"""A box around joints is larger than they are by this share of its longer side, on each side."""
SUBJECT_COLUMNS = ("picture", "subject")
"""Of a table that says who is on which picture."""
FAR_OUTSIDE = 0.5
"""Distance of a labelled joint outside the picture, as a share of its longer side, above which it is a problem; it
stays."""


@dataclass(frozen=True)
class LabelledPerson:
    """A labelled person of a label file.

    Attributes:
        id: The annotation's number; in a list without numbers the place in it, from 0.
        keypoints: (J, 2) float64, picture pixels, counted from zero.
        flags: (J,) float64: 0 not labelled, 1 hidden, 2 seen.
        corners: (4,) float32, x0, y0, x1, y1 in picture pixels: the box to crop. None if the person is not
            learnt from: a crowd, somebody without a labelled joint or with an empty box.
        box: (4,) float64, x, y, width, height in pixels, as written; None if the file has no box.
        area: OKS's area, pixels squared; nan if unknown.
        head_length: PCKh's reference length, pixels; nan if unknown.
        crowd: True if several people share the annotation.
    """

    id: int
    keypoints: NDArray[np.float64]
    flags: NDArray[np.float64]
    corners: NDArray[np.float32] | None
    box: NDArray[np.float64] | None = None
    area: float = float("nan")
    head_length: float = float("nan")
    crowd: bool = False

    @property
    def labelled(self) -> int:
        """Number of labelled joints."""
        return int((self.flags > 0).sum())

    @cached_property
    def person(self) -> Person | None:
        """The person to learn from; None for somebody without `corners`."""
        if self.corners is None:
            return None
        keypoints = self.keypoints.astype(np.float32)
        return Person(keypoints, self.flags > 0, self.corners, self.head_length, self.area)


@dataclass(frozen=True)
class LabelledPicture:
    """A picture and everybody who is labelled in it, including people who are not learnt from.

    Attributes:
        name: The file name in the labels; unique in its dataset.
        path: The file; None if it is absent, which only readers with `pictures=False` allow.
        people: In the file's order.
        size: (H, W) in pixels according to the labels; None if they do not say.
        id: The number in the label file.
        group: Group in tables: Human-Art's category; "" for none.
        subject: Identity of the person shown, if known; equal names are the same person.
    """

    name: str
    path: Path | None
    people: tuple[LabelledPerson, ...]
    size: tuple[int, int] | None = None
    id: int = 0
    group: str = ""
    subject: str = ""

    @cached_property
    def learnt(self) -> tuple[Person, ...]:
        """The people to learn from."""
        return tuple(p.person for p in self.people if p.person is not None)


@dataclass(frozen=True)
class Labels:
    """The labels of one split, and where its pictures are.

    Attributes:
        name: Such as "coco:val".
        source: The label file.
        skeleton: Skeleton of the people's joints.
        pictures: With and without people, in the file's order.
        problems: Problems in the file.
        notes: Further lines for the report.
        padding: Size of a crop relative to a person's `corners`.
        entries: Number of people in the file, for predictions in its order, those left out too; 0 if predictions name
            pictures by number.
        cache: Cache of decoded pictures on disk; None for no cache.

    Raises:
        DposeError: a person's field is no array of its shape; or, of somebody to learn from, a labelled joint is not
            finite, or the corners hold nothing.
    """

    name: str
    source: Path
    skeleton: Skeleton
    pictures: tuple[LabelledPicture, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    padding: float = PADDING
    entries: int = 0
    cache: PictureCache | None = field(default_factory=picture_cache)

    def __post_init__(self) -> None:
        joints = len(self.skeleton)
        shapes = {"keypoints": (joints, 2), "flags": (joints,), "corners": (4,), "box": (4,)}
        learnt = []
        for picture in self.pictures:
            for person in picture.people:
                where = f"{picture.name}, person {person.id}"
                for name, shape in shapes.items():
                    value: Any = getattr(person, name)
                    if value is None and name in ("corners", "box"):
                        continue
                    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in "biuf":
                        kind = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
                        said = f"{name} must be an array of numbers of shape {shape}, not {kind}"
                        raise DposeError("label-of-wrong-shape", said, where)
                if person.corners is not None:
                    learnt.append((where, person.keypoints, person.flags, person.corners))
        if not learnt:
            return
        # all at once: one by one takes seconds for a hundred thousand people
        places, *columns = zip(*learnt, strict=True)
        keypoints, flags, corners = map(np.stack, columns)
        lost = (~np.isfinite(keypoints).all(axis=2) & (flags > 0)).any(axis=1) | ~np.isfinite(flags).all(axis=1)
        if lost.any():
            said = "keypoints of a labelled joint, and flags, must be finite"
            raise DposeError("joint-not-finite", said, places[lost.argmax()], "give it the flag 0, or a place")
        void = ~(np.isfinite(corners).all(axis=1) & (corners[:, :2] < corners[:, 2:]).all(axis=1))
        if void.any():
            said = f"corners must be x0 < x1 and y0 < y1, not {corners[void.argmax()].tolist()}"
            raise DposeError("corners-hold-nothing", said, places[void.argmax()], "say None for no box")

    @property
    def people(self) -> tuple[LabelledPerson, ...]:
        """Everybody labelled: crowds and people without joints too."""
        return tuple(person for picture in self.pictures for person in picture.people)

    def read(self, picture: LabelledPicture) -> NDArray[np.uint8]:
        """Return the decoded picture, uint8 (H, W, 3) RGB, of the size that the labels give.

        If EXIF turns the picture and the labels were made on the stored pixels, the stored pixels are returned.

        Raises:
            DposeError: the picture is missing, damaged, or of another size.
        """
        path, size = picture.path, picture.size
        if path is None:
            raise DposeError("picture-missing", "the picture is missing", picture.name)
        decode = partial(_decoded, path, size)
        return decode() if self.cache is None else self.cache.read(path, decode, repr(size) if size else "")

    @cached_property
    def _named(self) -> dict[str, LabelledPicture]:
        """The first picture of each whole name."""
        return {PurePath(picture.name).as_posix(): picture for picture in reversed(self.pictures)}

    @cached_property
    def _ending(self) -> dict[int, dict[tuple[str, ...], list[LabelledPicture]]]:
        """By so many last parts of their paths, or of their names where they are absent, which pictures end in them."""
        return {}

    def picture_of(self, path: PurePath) -> LabelledPicture | None:
        """The picture that a path names: the one with whose whole name it ends, or whose own path ends with all of it.

        Raises:
            DposeError: the paths of several do.
        """
        parts = path.parts
        for first in range(len(parts)):  # the longest name first
            if found := self._named.get("/".join(parts[first:])):
                return found
        if (known := self._ending.get(len(parts))) is None:
            known = self._ending[len(parts)] = {}
            for picture in self.pictures:
                own = (picture.path or PurePath(picture.name)).parts
                known.setdefault(own[-len(parts) :], []).append(picture)
        ends = known.get(parts, [])
        if len(ends) > 1:
            said = f"may be {ends[0].name} or {ends[1].name}: both end like it"
            raise DposeError("picture-name-ambiguous", said, str(path), "name it with the folders above it")
        return ends[0] if ends else None

    def with_subjects(self, file: Path) -> Labels:
        """Return the labels with who is on each picture, as a table in a file says it.

        Args:
            file: CSV with the columns `SUBJECT_COLUMNS`, a picture a row; one of another split, or absent, is passed
                over, and a picture without a row has no subject.

        Raises:
            DposeError: it cannot be read, names two subjects of one picture, or none of these pictures.
        """
        try:
            columns, rows = file_table(file)
        except FileNotFoundError as error:
            fix = "subjects=FILE is named relative to the dataset's folder"
            raise DposeError("file-missing", "no such file", str(file), fix) from error
        except (OSError, ValueError) as error:
            raise DposeError("subjects-unreadable", f"cannot be read ({error})", str(file)) from error
        if not set(SUBJECT_COLUMNS) <= set(columns):
            fix = f"let its first line be {','.join(SUBJECT_COLUMNS)}"
            raise DposeError("subjects-columns-differ", "has other columns", str(file), fix)
        owners: dict[str, str] = {}
        for line, row in enumerate(rows, 2):
            picture, who = self.picture_of(PurePath(row["picture"].strip().replace("\\", "/"))), row["subject"].strip()
            if picture and who and owners.setdefault(picture.name, who) != who:
                said = f"says that {picture.name} is of {who}, and before that it is of {owners[picture.name]}"
                raise DposeError("subjects-differ", said, f"{file}, row {line}", "a picture belongs to one subject")
        if not owners:
            fix = "name pictures as the labels do, or with the folders above them"
            raise DposeError("subjects-of-no-picture", "names no picture of these data", str(file), fix)
        named = tuple(replace(one, subject=owners.get(one.name, one.subject)) for one in self.pictures)
        note = f"{len(set(owners.values())):,} subjects on {len(owners):,} of {len(named):,} pictures, by {file.name}"
        return replace(self, pictures=named, notes=(*self.notes, note))

    def limit(self, count: int, seed: int = 0) -> Labels:
        """Return at most `count` pictures with their people, chosen by name (`smallest`)."""
        if count >= len(self.pictures):
            return self
        chosen = smallest([picture.name for picture in self.pictures], count, seed)
        note = f"limited to {count:,} of {len(self.pictures):,} pictures (seed {seed})"
        return replace(self, pictures=tuple(self.pictures[i] for i in chosen), notes=(*self.notes, note))

    def report(self) -> list[str]:
        """Return lines on what was read: notes, joints without sides, people not learnt from, a summary of problems."""
        people = self.people
        crowds = sum(p.crowd for p in people)
        jointless = sum(not p.crowd and not p.labelled for p in people)
        boxless = sum(p.person is None for p in people) - crowds - jointless
        empty = sum(not picture.learnt for picture in self.pictures)
        lines = list(self.notes)
        if len(self.skeleton) > 1 and not self.skeleton.flip_pairs:
            lines.append(
                f"none of the {len(self.skeleton)} joints has a left and a right: mirrored pictures keep each as it is"
            )
        for count, what in (
            (crowds, "not learnt from: crowds"),
            (jointless, "not learnt from: people without a labelled joint"),
            (boxless, "not learnt from: people whose box is empty inside the picture"),
            (empty, "pictures without anyone to learn from"),
        ):
            if count:
                lines.append(f"{count:,} {what}")
        return lines + Problems(self.problems).summary()

    def truth(self) -> dict[str, Any]:
        """Return the labels as a COCO dictionary, for `pycocotools`; for data whose people are scored by OKS."""
        images, annotations = [], []
        for picture in self.pictures:
            height, width = picture.size or (0, 0)
            images.append({"id": picture.id, "width": width, "height": height, "file_name": picture.name})
            annotations += [
                {
                    "id": p.id,
                    "image_id": picture.id,
                    "category_id": 1,
                    "iscrowd": int(p.crowd),
                    "num_keypoints": p.labelled,
                    "keypoints": np.column_stack([p.keypoints, p.flags]).ravel().tolist(),
                    "bbox": [] if p.box is None else p.box.tolist(),
                    "area": p.area,
                }
                for p in picture.people
            ]
        person = {"id": 1, "name": "person", "keypoints": list(self.skeleton.joints), "skeleton": []}
        return {"images": images, "categories": [person], "annotations": annotations}


@dataclass(frozen=True, kw_only=True)
class PoseDataset(Dataset):
    """Description of a dataset of poses. Its functions take the root and the split, and options by name.

    Attributes:
        labels: Reads the labels. The root is a `Path`, or a name if the dataset has `roots`. Options are `annotations`,
            the label file relative to the root if it has another name, and `pictures`: False includes labels of absent
            pictures. Raises `DposeError` for files that are missing or unreadable, and for labels without one usable
            picture.
        open: For data without labels to read: returns the units, and takes `input_size`, `augment` and `unit` too.
        skeleton: Skeleton of labels that name no joints of their own.
        own_skeleton: Reads the skeleton that the labels name.
        several: True if a picture may show several people; the papers then count people, not pictures.
        preset: Default model of the papers' experiments on these data.
        choosing: The splits to choose settings on, to train and to test; () for none. No benchmark reports the second.
        label_file: Usual label files, for data with one file a split.
        oks: True if people are scored by OKS, boxes and all.
    """

    labels: Callable[..., Labels] | None = None
    open: Callable[..., PoseUnits] | None = None
    skeleton: Skeleton = MPII
    own_skeleton: Callable[..., Skeleton] | None = None
    several: bool = False
    preset: str = "5m"
    choosing: tuple[str, str] | tuple[()] = ()
    label_file: LabelFile | None = None
    oks: bool = False


def photographs(
    labels: Callable[..., Labels],
    splits: tuple[str, ...] = ("train", "val"),
    options: tuple[str, ...] = ("annotations",),
    **more: Any,
) -> PoseDataset:
    """Describe photographs of several people with labels in a file, replaceable by `,annotations=FILE`."""
    return PoseDataset(
        splits=splits,
        default={"train": "train", "evaluate": "val"},
        options=options,
        distinct=("annotations",),
        labels=labels,
        several=True,
        **more,
    )


def boxed_person(
    number: int,
    joints: NDArray[np.float64],
    box: NDArray[np.float64],
    size: tuple[int, int],
    *,
    area: float = float("nan"),
    where: str,
    problems: Problems,
    crowd: bool = False,
) -> LabelledPerson:
    """Make a person of a format with joints, visibility and box. An odd value costs that value, never the person.

    A joint without a place is not labelled. A visibility that is a score labels the joint above 0. An empty box, or one
    of nan, is replaced by one around the labelled joints.

    Args:
        number: `LabelledPerson.id`.
        joints: (J, 3), x and y in pixels of the picture and 0 not labelled, 1 hidden, 2 seen.
        box: (4,), x, y, width, height in pixels.
        size: (H, W) of the picture, pixels.
        area: Pixels squared; nan for the box's.
        where: The entry, for `problems`.
        problems: Receives invalid and unusual values.
        crowd: True if several people share the annotation.
    """
    points, flags = joints[:, :2].copy(), joints[:, 2].copy()
    lost = ~np.isfinite(joints).all(axis=1) | (flags < 0)
    if (lost & ~(flags <= 0)).any():
        problems.add("a joint without a place", where, "not used")
    points[lost], flags[lost] = 0, 0
    if not np.isin(flags, (0, 1, 2)).all():
        problems.add("a visibility that is neither 0, 1 nor 2: joints above 0 are labelled", where, "kept")
        flags = np.where(flags > 0, 2.0, 0.0)
    height, width = size
    if not (np.isfinite(box).all() and (box[2:] > 0).all()):
        if flags.any() and not crowd:
            problems.add("no box, or an empty one: the joints' is taken", where, "kept")
        box = _around(points[flags > 0])
    if np.isnan(area):
        area = float(box[2:].prod())
    corners = clipped(box, size) if flags.any() and not crowd else None
    if flags.any() and not crowd and corners is None:
        problems.add("an empty box", where, "not used", f"{box.tolist()} in {width} x {height}")
    reach = FAR_OUTSIDE * max(width, height)
    far = (points < -reach) | (points > np.array([width, height]) + reach)
    if (far.any(axis=1) & (flags > 0)).any():
        problems.add("a labelled joint far outside the picture", where, "kept")
    return LabelledPerson(number, points, flags, corners, box, area, crowd=crowd)


def _around(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a box x, y, w, h around joints, (K, 2); empty if K is 0."""
    if not len(points):
        return np.zeros(4)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = ROUND_JOINTS * (high - low).max()
    return np.concatenate([low - margin, high - low + 2 * margin])


def clipped(box: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float32] | None:
    """Clip a box x, y, w, h to a picture of (H, W) pixels, as x0, y0, x1, y1; None if nothing is left of it."""
    x, y, w, h = box
    high = np.array(size[::-1], np.float64) - 1
    low_corner = np.clip([x, y], 0, high)
    high_corner = np.clip([x + w, y + h], 0, high)
    corners = np.concatenate([low_corner, high_corner]).astype(np.float32)
    return None if w <= 0 or h <= 0 or (corners[2:] <= corners[:2]).any() else corners


def units_of(
    labels: Labels,
    *,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    include_empty: bool = False,
) -> PoseUnits:
    """Return the people of `labels` to learn from, as units.

    Args:
        labels: Result of a dataset's reader. Absent pictures are no units.
        input_size: (H, W) of a view in pixels.
        augment: Random changes; none if None.
        unit: "image" or "crop".
        include_empty: True if pictures without people to learn from are units, too.
    """
    pictures = [
        Picture(p.name, len(p.learnt), partial(_read, labels, p), p.subject, p.path)
        for p in labels.pictures
        if p.path is not None and (p.learnt or include_empty)
    ]
    people = sum(len(picture.learnt) for picture in labels.pictures)
    units = PoseUnits(
        pictures, input_size=input_size, augment=augment, unit=unit, padding=labels.padding, skeleton=labels.skeleton
    )
    units.report = (f"{labels.name}: {len(pictures):,} pictures, {people:,} people", *labels.report())
    units.problems = tuple(labels.problems)
    return units


def _read(labels: Labels, picture: LabelledPicture) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
    return labels.read(picture), picture.learnt


def _decoded(path: Path, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    image = read_image(path)
    if size is None:
        return image
    if image.shape[:2] == size[::-1] != size:
        image = read_image(path, orient=False)
    if image.shape[:2] != size:
        actual = f"{image.shape[1]} x {image.shape[0]}"
        raise DposeError(
            "picture-size-differs", f"is {actual} pixels, but its labels are for {size[1]} x {size[0]}", str(path)
        )
    return image
