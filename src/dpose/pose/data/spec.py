"""`NAME[:ROOT][:SPLIT]`: one short text says which data, and `open_data` opens it.

A new dataset is a module of this folder and an entry in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dpose.errors import DposeError
from dpose.pose.data import lspet
from dpose.pose.data.augment import Augment
from dpose.pose.data.units import PoseUnits, UnitKind

Purpose = Literal["train", "evaluate"]


@dataclass(frozen=True)
class Source:
    """How one kind of data is named and opened.

    Attributes:
        root: What ROOT means, for messages: "a folder", "a look".
        splits: The names a SPLIT may have.
        default: The split of each purpose.
        open: Called with root and split, and `input_size`, `augment` and `unit` by name.
        conditions: For a split whose content depends on private pictures, what a guarantee that builds on it takes as
            given.
    """

    root: str
    splits: tuple[str, ...]
    default: Mapping[Purpose, str]
    open: Callable[..., PoseUnits]
    conditions: Mapping[str, str] = field(default_factory=dict)


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

SOURCES: Mapping[str, Source] = {
    "lspet": Source(
        "a folder",
        tuple(lspet.SPLITS),
        {"train": "private", "evaluate": "validation"},
        _open_lspet,
        {"public": "which public pictures of LSPET were left out as near copies of private ones"},
    ),
    "synthetic": Source("a look", _SCENE_SPLITS, {"train": "train", "evaluate": "val"}, _open_look),
}
"""Every kind of pose data by name."""


@dataclass(frozen=True)
class DataSpec:
    """A parsed data spec.

    Attributes:
        name: A key of `SOURCES`.
        root: A folder, or a look for synthetic data; "" where not given.
        split: "" where not given; the purpose then decides.
    """

    name: str
    root: str = ""
    split: str = ""

    @classmethod
    def parse(cls, text: str) -> DataSpec:
        """Read `NAME[:ROOT][:SPLIT]`.

        The name ends at the first colon. What follows the last colon is the split if the dataset has one of
        that name, and otherwise belongs to the root; so a root may contain colons.

        Raises:
            DposeError: no dataset has that name.
        """
        name, _, rest = text.partition(":")
        if name not in SOURCES:
            raise DposeError(f"no dataset called {name!r}", text, f"known are {', '.join(SOURCES)}")
        root, _, last = rest.rpartition(":")
        if last in SOURCES[name].splits:
            return cls(name, root, last)
        return cls(name, rest)

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.root, self.split) if part)

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
        return DataSpec(self.name, self.root, self.split or SOURCES[self.name].default[purpose])


def open_data(
    spec: str | DataSpec,
    *,
    purpose: Purpose,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    limit: int | None = None,
) -> PoseUnits:
    """Open pose data by its spec.

    Args:
        spec: Such as `lspet:/data/lspet:public` or `synthetic:ward`.
        purpose: Decides the split where the spec names none: "train" or "evaluate".
        input_size: (H, W) of a view in pixels.
        augment: What to change at random; nothing where None.
        unit: What a unit is (`PoseUnits`).
        limit: At most so many units, chosen by name (`PoseUnits.limit`).

    Returns:
        The units; `report` says what was read and what was left out.

    Raises:
        DposeError: an unknown name, a missing root, data that cannot be read, or a split without units.
    """
    asked = (DataSpec.parse(spec) if isinstance(spec, str) else spec).for_purpose(purpose)
    source = SOURCES[asked.name]
    if not asked.root:
        raise DposeError(f"{asked.name} needs {source.root}", str(spec), f"write {asked.name}:ROOT[:SPLIT]")
    units = source.open(asked.root, asked.split, input_size=input_size, augment=augment, unit=unit)
    if limit is not None:
        if limit < 1:
            raise DposeError(f"a limit of {limit} leaves nothing", str(spec), "use 1 or more")
        units = units.limit(limit)
    if not len(units):
        raise DposeError("holds no labelled person", str(asked), "; ".join(units.report))
    return units
