"""`NAME[:ROOT][:SPLIT]` for videos: one short text says which, and `open_videos` opens them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dpose.action.data import folders
from dpose.action.data.units import VideoSet
from dpose.errors import DposeError
from dpose.privacy.selection import Selection, as_selection

Purpose = Literal["train", "evaluate"]
SYNTHETIC = "synthetic-clips"


@dataclass(frozen=True)
class ActionSource:
    """How one kind of videos is named and opened.

    Attributes:
        root: What ROOT means, for messages.
        splits: The names a SPLIT may have.
        default: The split of each purpose.
        open: Called with root and split.
        default_root: Where none is given; "" where one must be.
    """

    root: str
    splits: tuple[str, ...]
    default: Mapping[Purpose, str]
    open: Callable[[str, str], VideoSet]
    default_root: str = ""


def _open_clips(look: str, split: str) -> VideoSet:
    # here and not above: the renderer brings a compiler, which data from files should not have to load
    from dpose.action.data.synthetic import open_clips
    from dpose.scene import LOOKS

    if look not in LOOKS:
        raise DposeError(f"no look called {look!r}", SYNTHETIC, f"looks are {', '.join(LOOKS)}")
    return open_clips(look, split)


def _folder(read: Callable[[Path, str], VideoSet]) -> Callable[[str, str], VideoSet]:
    def opened(root: str, split: str) -> VideoSet:
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise DposeError("no such folder", root)
        return read(folder, split)

    return opened


_TEST: Mapping[Purpose, str] = {"train": "train", "evaluate": "test"}
_VAL: Mapping[Purpose, str] = {"train": "train", "evaluate": "val"}
SOURCES: Mapping[str, ActionSource] = {
    "hmdb51": ActionSource("a folder", ("train", "test"), _TEST, _folder(folders.open_hmdb51)),
    "pahmdb": ActionSource("a folder", ("train", "test"), _TEST, _folder(folders.open_pahmdb)),
    SYNTHETIC: ActionSource("a look", ("train", "val", "test"), _VAL, _open_clips, "studio"),
    "ucf101": ActionSource("a folder", ("train", "test"), _TEST, _folder(folders.open_ucf101)),
    "vispr": ActionSource("a folder", ("train", "val", "test"), _VAL, _folder(folders.open_vispr)),
}
"""Every kind of videos by name."""


@dataclass(frozen=True)
class ActionSpec:
    """A parsed spec of videos.

    Attributes:
        name: A key of `SOURCES`.
        root: A folder, or a look; "" where not given.
        split: "" where not given; the purpose then decides.
    """

    name: str
    root: str = ""
    split: str = ""

    @classmethod
    def parse(cls, text: str) -> ActionSpec:
        """Read `NAME[:ROOT][:SPLIT]`; what follows the last colon is the split if there is one of that name.

        Raises:
            DposeError: no videos have that name, or they need a root.
        """
        name, _, rest = text.partition(":")
        if name not in SOURCES:
            raise DposeError(f"no videos called {name!r}", text, f"known are {', '.join(SOURCES)}")
        source = SOURCES[name]
        root, _, last = rest.rpartition(":")
        spec = cls(name, root, last) if last in source.splits else cls(name, rest)
        spec = replace(spec, root=spec.root or source.default_root)
        if not spec.root:
            raise DposeError(f"{name} needs {source.root}", text, f"write {name}:ROOT[:SPLIT]")
        return spec

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.root, self.split) if part)

    @property
    def shown(self) -> str:
        """For readers elsewhere: of a root, which is a path on this machine, the last part."""
        return str(replace(self, root=Path(self.root).name))

    @property
    def public(self) -> bool:
        """Whether nobody in it needs protection: the `studio` look, which is nobody."""
        return (self.name, self.root) == (SYNTHETIC, "studio")

    def same_units(self, other: ActionSpec) -> bool:
        """Whether two specs with their splits filled in are the same videos, as far as names tell."""
        return self._resolved() == other._resolved()

    def _resolved(self) -> ActionSpec:
        look = SOURCES[self.name].root == "a look"
        return self if look else replace(self, root=str(Path(self.root).expanduser().resolve()))

    def for_purpose(self, purpose: Purpose) -> ActionSpec:
        """The same spec with its split filled in."""
        return replace(self, split=self.split or SOURCES[self.name].default[purpose])


def open_videos(
    spec: str | ActionSpec, *, purpose: Purpose, limit: int | Selection | None = None
) -> VideoSet:
    """Open videos by their spec.

    Args:
        spec: Such as `ucf101:/data/ucf`, `synthetic-clips:ward:test`.
        purpose: Decides the split where the spec names none.
        limit: At most so many, a choice by name.

    Raises:
        DposeError: an unknown name, a missing root, or videos that cannot be read.
    """
    asked = (ActionSpec.parse(spec) if isinstance(spec, str) else spec).for_purpose(purpose)
    videos = SOURCES[asked.name].open(asked.root, asked.split)
    selection = as_selection(limit)
    return videos if selection is None else videos.limit(selection)
