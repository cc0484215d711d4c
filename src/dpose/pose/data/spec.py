"""`NAME[:ROOT][:SPLIT]`: one short text says which data, and `open_data` opens it.

Data that read their labels from a file take `,annotations=FILE` at the end of the text, for a file of another name.
A new dataset is a module of this folder and an entry in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dpose.errors import DposeError
from dpose.pose.data import coco, humanart, lspet, mpii
from dpose.pose.data.augment import Augment
from dpose.pose.data.concat import ConcatUnits
from dpose.pose.data.units import PoseUnits, UnitKind
from dpose.pose.skeletons import MPII, SKELETONS, Skeleton
from dpose.privacy.selection import Selection, as_selection

Purpose = Literal["train", "evaluate"]


@dataclass(frozen=True)
class DataKind:
    """How one kind of data is named and opened.

    Attributes:
        root: What ROOT means, for messages: "a folder", "a look".
        splits: The names a SPLIT may have.
        default: The split of each purpose.
        open: Called with root and split, and `input_size`, `augment` and `unit` by name; where `labels` is set with
            `annotations` too.
        conditions: For a split whose content depends on private pictures, what a guarantee that builds on it takes as
            given.
        within: For a split that is part of another, that other.
        choosing: The splits to choose settings on, to train and to test; () where there are none. The second is none
            that a benchmark reports.
        skeleton: Of its labels.
        labels: For data whose labels are a file that may have another name: called with root, split and that name,
            gives the file and a note.
        coco: For data in COCO's format, scored by OKS: called with root, split and the label file's name.
    """

    root: str
    splits: tuple[str, ...]
    default: Mapping[Purpose, str]
    open: Callable[..., PoseUnits]
    conditions: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, str] = field(default_factory=dict)
    choosing: tuple[str, str] | tuple[()] = ()
    skeleton: Skeleton = MPII
    labels: Callable[[Path, str, str], tuple[Path, str]] | None = None
    coco: Callable[[Path, str, str], coco.CocoSet] | None = None


def _open_lspet(
    root: str, split: str, *, input_size: tuple[int, int], augment: Augment | None, unit: UnitKind
) -> PoseUnits:
    return lspet.open_lspet(Path(root).expanduser(), split, input_size=input_size, augment=augment, unit=unit)


def _open_look(
    look: str, split: str, *, input_size: tuple[int, int], augment: Augment | None, unit: UnitKind
) -> PoseUnits:
    # here and not above: the renderer brings a compiler, which data from files should not have to load
    from dpose.pose.data.synthetic import open_synthetic
    from dpose.scene import LOOKS

    if look not in LOOKS:
        known = f"looks are {', '.join(LOOKS)}; splits are {', '.join(_SCENE_SPLITS)}"
        raise DposeError(f"no look called {look!r}", "synthetic", known)
    return open_synthetic(look, split, input_size=input_size, augment=augment, unit=unit)


_SCENE_SPLITS = ("train", "val", "test", "public", "large")
_DEFAULT: Mapping[Purpose, str] = {"train": "train", "evaluate": "val"}

SOURCES: Mapping[str, DataKind] = {
    "coco": DataKind(
        "a folder",
        ("train", "val"),
        _DEFAULT,
        coco.open_coco,
        skeleton=SKELETONS["coco"],
        labels=coco.coco_annotations,
        coco=coco.read_coco,
    ),
    "humanart": DataKind(
        "a folder",
        ("train", "val"),
        _DEFAULT,
        humanart.open_humanart,
        skeleton=SKELETONS["coco"],
        labels=humanart.humanart_annotations,
        coco=humanart.read_humanart,
    ),
    "lspet": DataKind(
        "a folder",
        (*lspet.SPLITS, *lspet.PARTS),
        {"train": "private", "evaluate": "validation"},
        _open_lspet,
        {"public": "which public pictures of LSPET were left out as near copies of private ones"},
        within=dict.fromkeys(lspet.PARTS, "private"),
        choosing=(lspet.CHOOSING_TRAIN, lspet.CHOOSING_TEST),
    ),
    "mpii": DataKind("a folder", ("train", "val"), _DEFAULT, mpii.open_mpii, labels=mpii.mpii_annotations),
    "synthetic": DataKind("a look", _SCENE_SPLITS, _DEFAULT, _open_look, choosing=("train", "val")),
}
"""Every kind of pose data by name."""


@dataclass(frozen=True)
class DataSpec:
    """A parsed data spec.

    Attributes:
        name: A key of `SOURCES`.
        root: A folder, or a look for synthetic data; "" where not given.
        split: "" where not given; the purpose then decides.
        annotations: The label file, relative to the root, where it has an unusual name; "" where not given.
    """

    name: str
    root: str = ""
    split: str = ""
    annotations: str = ""

    @classmethod
    def parse(cls, text: str) -> DataSpec:
        """Read `NAME[:ROOT][:SPLIT][,annotations=FILE]`.

        The name ends at the first colon. What follows the last colon is the split if the dataset has one of
        that name, and otherwise belongs to the root; so a root may contain colons.

        Raises:
            DposeError: no dataset has that name, or it takes no annotations.
        """
        text, _, annotations = text.partition(",annotations=")
        name, _, rest = text.partition(":")
        if name not in SOURCES:
            raise DposeError(f"no dataset called {name!r}", text, f"known are {', '.join(SOURCES)}")
        root, _, last = rest.rpartition(":")
        spec = cls(name, root, last) if last in SOURCES[name].splits else cls(name, rest)
        return spec.with_annotations(annotations) if annotations else spec

    def __str__(self) -> str:
        text = ":".join(part for part in (self.name, self.root, self.split) if part)
        return f"{text},annotations={self.annotations}" if self.annotations else text

    def with_annotations(self, file: str) -> DataSpec:
        """The same data with its labels from another file.

        Raises:
            DposeError: the dataset reads its labels from no such file.
        """
        if SOURCES[self.name].labels is None:
            raise DposeError(f"{self.name} takes no annotations file", file)
        return replace(self, annotations=file)

    @property
    def folder(self) -> Path:
        """The root as a path."""
        return Path(self.root).expanduser()

    def same_units(self, other: DataSpec) -> bool:
        """Whether two specs with their splits filled in share units, as far as names and label files tell.

        Two splits of a folder that holds one label file for both are the same units, and a part of a split shares its
        units with the whole.
        """
        one, another = self._resolved(), other._resolved()
        if self == other or one == another or one._whole() == another or one == another._whole():
            return True
        mine, its = (_labels_of(spec) for spec in (self, other))
        return mine is not None and mine == its

    def _resolved(self) -> DataSpec:
        look = SOURCES[self.name].root == "a look"
        return self if look else replace(self, root=str(self.folder.resolve()))

    def _whole(self) -> DataSpec:
        return replace(self, split=SOURCES[self.name].within.get(self.split, self.split))

    @property
    def public(self) -> bool:
        """Whether nobody in it needs protection: a split called public, or the `studio` look, which is nobody."""
        return self.split == "public" or (self.name, self.root) == ("synthetic", "studio")

    @property
    def condition(self) -> str:
        """What a guarantee takes as given that builds on these data; "" where nothing."""
        return SOURCES[self.name].conditions.get(self.split, "")

    def for_purpose(self, purpose: Purpose) -> DataSpec:
        """The same spec with its split filled in."""
        return replace(self, split=self.split or SOURCES[self.name].default[purpose])


def _labels_of(spec: DataSpec) -> Path | None:
    """The label file that a spec reads, or None where it reads none or it cannot be found."""
    find = SOURCES[spec.name].labels
    if find is None:
        return None
    try:
        return find(spec.folder, spec.split, spec.annotations)[0].resolve()
    except DposeError:
        return None


def open_data(
    spec: str | DataSpec,
    *,
    purpose: Purpose,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    limit: int | Selection | None = None,
) -> PoseUnits:
    """Open pose data by its spec.

    Args:
        spec: Such as `lspet:/data/lspet:public` or `synthetic:ward`.
        purpose: Decides the split where the spec names none: "train" or "evaluate".
        input_size: (H, W) of a view in pixels.
        augment: What to change at random; nothing where None.
        unit: What a unit is (`PoseUnits`).
        limit: At most so many units, chosen by name (`PoseUnits.limit`); a plain number is the first of a fixed order.

    Returns:
        The units; `report` says what was read and what was left out.

    Raises:
        DposeError: an unknown name, a missing root, data that cannot be read, or a split without units.
    """
    asked = _asked(spec, purpose)
    source = SOURCES[asked.name]
    options = {} if source.labels is None else {"annotations": asked.annotations}
    root = asked.root if source.labels is None else asked.folder
    units = source.open(root, asked.split, input_size=input_size, augment=augment, unit=unit, **options)
    selection = as_selection(limit)
    if selection is not None:
        units = units.limit(selection)
    if not len(units):
        raise DposeError("holds no labelled person", str(asked), "; ".join(units.report))
    return units


def open_several(
    specs: Sequence[str | DataSpec],
    *,
    purpose: Purpose,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    limit: int | Selection | None = None,
    skeleton: str | None = None,
) -> PoseUnits | ConcatUnits:
    """Open one or several data, one after the other, with labels in one skeleton.

    Args:
        specs: At least one.
        purpose: As `open_data`.
        input_size: As `open_data`.
        augment: As `open_data`.
        unit: As `open_data`.
        limit: At most so many units of all of them together, chosen by name.
        skeleton: Of the labels; the first data's own where None.

    Raises:
        DposeError: as `open_data`; or the same data are given twice.
    """
    asked = [_asked(spec, purpose) for spec in specs]
    for i, one in enumerate(asked):
        if any(one.same_units(other) for other in asked[:i]):
            raise DposeError("the same data twice", str(one), "each unit may count once only")
    target = SKELETONS[skeleton] if skeleton else SOURCES[asked[0].name].skeleton
    parts = [open_data(s, purpose=purpose, input_size=input_size, augment=augment, unit=unit) for s in asked]
    units = (
        parts[0].with_skeleton(target)
        if len(parts) == 1
        else ConcatUnits(parts, [_short(spec, asked) for spec in asked], target)
    )
    selection = as_selection(limit)
    return units if selection is None else units.limit(selection)


def open_labels(spec: str | DataSpec, *, purpose: Purpose = "evaluate") -> coco.CocoSet | None:
    """The labels of data in COCO's format, everything that is scored; None for data of another format.

    Raises:
        DposeError: as `open_data`.
    """
    asked = _asked(spec, purpose)
    read = SOURCES[asked.name].coco
    return None if read is None else read(asked.folder, asked.split, asked.annotations)


def _asked(spec: str | DataSpec, purpose: Purpose) -> DataSpec:
    asked = (DataSpec.parse(spec) if isinstance(spec, str) else spec).for_purpose(purpose)
    if not asked.root:
        source = SOURCES[asked.name]
        raise DposeError(f"{asked.name} needs {source.root}", str(spec), f"write {asked.name}:ROOT[:SPLIT]")
    return asked


def _short(spec: DataSpec, among: Sequence[DataSpec]) -> str:
    """The spec without folders above its own, which say nothing to others; whole where that is not enough."""
    names = [str(replace(s, root=Path(s.root).name)) for s in among]
    mine = str(replace(spec, root=Path(spec.root).name))
    return mine if names.count(mine) == 1 else str(spec)
