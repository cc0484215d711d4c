"""Specs of pose data, `NAME[:ROOT][:SPLIT]`, and `open_data`, which opens them.

Data that read their labels from a file take `,annotations=FILE` at the end of the text, for a file of another name, and
whatever has labels takes `,subjects=FILE`, which says who is on which picture.
A new dataset is a module of this folder (or of any other package) and an entry in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from dpose.data_spec import Purpose, Spec
from dpose.errors import DposeError, did_you_mean
from dpose.extensions import Registry
from dpose.pose.data.augment import Augment
from dpose.pose.data.labels import Labels, PoseDataset, units_of
from dpose.pose.data.pictures import Regions
from dpose.pose.data.units import PoseUnits, UnitKind
from dpose.pose.skeletons import Skeleton, skeleton_named
from dpose.privacy.selection import Selection, as_selection

SOURCES: Registry[PoseDataset] = Registry(
    {
        "coco": "dpose.pose.data.coco:DATASET",
        "cvat": "dpose.pose.data.label_tools:CVAT",
        "humanart": "dpose.pose.data.coco:HUMANART",
        "labelstudio": "dpose.pose.data.label_tools:LABEL_STUDIO",
        "lspet": "dpose.pose.data.lspet:DATASET",
        "mpii": "dpose.pose.data.mpii:DATASET",
        "synthetic": "dpose.pose.data.synthetic:DATASET",
        "yolo": "dpose.pose.data.yolo:DATASET",
    }
)
"""Every kind of pose data by name."""
SUBJECTS = "subjects"
"""The option of data with labels that names a file of who is on which picture."""


class DataSpec(Spec):
    """A parsed spec of pose data; `name` is a key of `SOURCES`.

    >>> spec = DataSpec.parse("mpii:/data/mpii:val,annotations=mine.json")
    >>> spec.root, spec.split, spec.option("annotations")
    ('/data/mpii', 'val', 'mine.json')
    >>> str(DataSpec.parse("synthetic:ward").for_purpose("evaluate"))
    'synthetic:ward:val'
    """

    datasets: ClassVar = SOURCES

    @property
    def dataset(self) -> PoseDataset:
        """Description of the data."""
        return SOURCES[self.name]

    @property
    def options_taken(self) -> tuple[str, ...]:
        """The dataset's own, and of data with labels the file that says who is on which picture."""
        own = self.dataset.options
        return own if self.dataset.labels is None else (*own, SUBJECTS)

    @property
    def reader_options(self) -> dict[str, str]:
        """The options that the dataset's own functions take."""
        return {name: value for name, value in self.options if name != SUBJECTS}

    def labels(self, *, pictures: bool = True) -> Labels | None:
        """The labels, with who is on each picture where a file says it; None where the data have none."""
        read = self.dataset.labels
        if read is None:
            return None
        absent = {} if pictures else {"pictures": False}
        labels = read(self.place, self.split, **absent, **self.reader_options)
        file = self.option(SUBJECTS)
        return labels.with_subjects(self.folder / Path(file).expanduser()) if file else labels

    @property
    def skeleton(self) -> Skeleton:
        """Skeleton that the labels name, or the dataset's own if they name none or cannot be read."""
        find = self.dataset.own_skeleton
        if find is None:
            return self.dataset.skeleton
        try:
            return find(self.place, self.split, **self.reader_options)
        except DposeError:  # opening the data reports what is wrong with them
            return self.dataset.skeleton

    def same_units(self, other: Spec) -> bool:
        """True if two specs with their splits filled in share units, as far as names and label files show.

        Two splits of a folder that holds one label file for both are the same units, and a part of a split shares its
        units with the whole.
        """
        mine, its = (spec.label_file if isinstance(spec, DataSpec) else None for spec in (self, other))
        return super().same_units(other) or (mine is not None and mine == its)

    @property
    def named_split(self) -> str:
        """The split; "" if one label file of another name serves for all splits."""
        file = self._label_file()
        return "" if file and file[1] else self.split

    @property
    def label_file(self) -> Path | None:
        """The label file that is read; None if there is none or it cannot be found."""
        file = self._label_file()
        return file[0].resolve() if file else None

    def _label_file(self) -> tuple[Path, str] | None:
        file = self.dataset.label_file
        try:
            return file.find(self.folder, self.split, self.option("annotations")) if file else None
        except DposeError:
            return None


def open_data(
    spec: str | DataSpec,
    *,
    purpose: Purpose = "train",
    input_size: tuple[int, int] = (256, 192),
    augment: Augment | None = None,
    unit: UnitKind = "image",
    limit: int | Selection | None = None,
    regions: Regions | None = None,
    skeleton: str | None = None,
) -> PoseUnits:
    """Open pose data by a spec.

    >>> units = open_data("synthetic:studio:val", input_size=(64, 48), limit=3)
    >>> len(units), units.unit_id(0).startswith("studio-val-")
    (3, True)

    Args:
        spec: Such as `lspet:/data/lspet:public` or `synthetic:ward`.
        purpose: Decides the split if the spec names none: "train" or "evaluate".
        input_size: (H, W) of a view in pixels.
        augment: Random changes; none if None.
        unit: The unit of the guarantee (`PoseUnits`).
        limit: Largest number of units, chosen by name (`PoseUnits.limit`); a plain number takes the first of a fixed
            order.
        regions: Finds where to crop (`PoseUnits.with_regions`).
        skeleton: Skeleton of the labels, that of the model to train; the data's own if None.

    Returns:
        The units; `report` says what was read and what was left out.

    Raises:
        DposeError: an unknown name or unit, a size that is none, a missing root, data that cannot be read, or a split
            without units.
    """
    how: dict[str, Any] = {"input_size": _size(input_size), "augment": augment, "unit": _unit(unit)}
    resolved = _resolved(spec, purpose)
    dataset, labels = resolved.dataset, resolved.labels()
    if labels is not None:
        units = units_of(labels, **how)
    else:
        assert dataset.open is not None, f"{resolved.name} has neither labels nor units"
        units = dataset.open(resolved.place, resolved.split, **how, **resolved.reader_options)
    units.set_names = resolved.set_names
    if skeleton is not None:
        units = units.with_skeleton(skeleton_named(skeleton))
    selection = as_selection(limit)
    if selection is not None:
        units = units.limit(selection)
    if not len(units):
        raise DposeError("people-missing", "holds no labelled person", str(resolved), "; ".join(units.report))
    return units if regions is None else units.with_regions(regions)


def open_several(
    specs: Sequence[str | DataSpec],
    *,
    purpose: Purpose,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    limit: int | Selection | None = None,
    regions: Regions | None = None,
) -> PoseUnits:
    """Open one or several datasets as one, with labels in the first one's skeleton.

    Args:
        specs: At least one.
        purpose: As in `open_data`.
        input_size: (H, W) of a view in pixels.
        augment: Random changes; none if None.
        unit: As in `open_data`.
        limit: Largest number of units of all of them together, chosen by name.
        regions: As in `open_data`.
    """
    resolved = [_resolved(spec, purpose) for spec in specs]
    for i, one in enumerate(resolved):
        if any(one.same_units(other) for other in resolved[:i]):
            raise DposeError("data-given-twice", "the same data twice", str(one), "each unit may count once only")
    target = resolved[0].skeleton
    how = {"purpose": purpose, "input_size": input_size, "augment": augment, "unit": unit, "regions": regions}
    parts = [open_data(s, **how) for s in resolved]  # type: ignore[arg-type]
    units = (
        parts[0].with_skeleton(target)
        if len(parts) == 1
        else PoseUnits.joined(parts, [_short(spec, resolved) for spec in resolved], target)
    )
    selection = as_selection(limit)
    return units if selection is None else units.limit(selection)


def open_labels(spec: str | DataSpec, *, purpose: Purpose = "evaluate", pictures: bool = True) -> Labels | None:
    """Read the labels of data, for scores with a measure of their own and for boxes; None if they have none.

    Args:
        spec: As in `open_data`.
        purpose: As in `open_data`.
        pictures: True to leave out labels of absent pictures.
    """
    return _resolved(spec, purpose).labels(pictures=pictures)


def _size(given: Any) -> tuple[int, int]:
    """Return (H, W) of a view; refuse what is not two positive whole numbers."""
    sides = list(given) if isinstance(given, list | tuple | np.ndarray) else []
    whole = [int(n) for n in sides if isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0]
    if len(sides) != 2 or len(whole) != 2:
        said = "must be height and width in pixels, whole numbers"
        raise DposeError("input-size-malformed", said, f"input_size {given}", "say (256, 192)")
    return whole[0], whole[1]


def _unit(given: Any) -> UnitKind:
    """Return a kind of unit; refuse an unknown one."""
    kinds: tuple[UnitKind, ...] = get_args(UnitKind)
    for kind in kinds:
        if kind == given:
            return kind
    fix = did_you_mean(str(given), kinds) or f"choose one of {', '.join(kinds)}"
    raise DposeError("unit-unsupported", f"pose data has no unit {given!r}", "unit", fix)


def _resolved(spec: str | DataSpec, purpose: Purpose) -> DataSpec:
    return (DataSpec.parse(spec) if isinstance(spec, str) else spec).located(purpose)


def _short(spec: DataSpec, among: Sequence[DataSpec]) -> str:
    """Return the spec without folders above its own, which mean nothing to others; whole if that is ambiguous."""
    names = [str(replace(s, root=Path(s.root).name)) for s in among]
    mine = str(replace(spec, root=Path(spec.root).name))
    return mine if names.count(mine) == 1 else str(spec)
