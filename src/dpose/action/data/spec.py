"""Specs of videos, `NAME[:ROOT][:SPLIT]`, and `open_videos`, which opens them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from dpose.action.data import folders
from dpose.action.data.units import VideoSet
from dpose.data_spec import Dataset, Purpose, Spec
from dpose.privacy.selection import Selection, as_selection


@dataclass(frozen=True, kw_only=True)
class VideoDataset(Dataset):
    """Description of a dataset of videos.

    Attributes:
        open: Returns the videos; takes the root (a `Path`, or a name if the dataset has `roots`), the split, and
            options by name.
    """

    open: Callable[..., VideoSet]


def _open_clips(look: str, split: str) -> VideoSet:
    # here and not above: the renderer brings a compiler, which data from files should not have to load
    from dpose.action.data.synthetic import open_clips

    return open_clips(look, split)


def _folder(read: Callable[[Path, str], VideoSet], held_out: str = "test", *more: str) -> VideoDataset:
    default: Mapping[Purpose, str] = {"train": "train", "evaluate": held_out}
    return VideoDataset(splits=("train", held_out, *more), default=default, open=read)


SOURCES: dict[str, VideoDataset] = {
    "hmdb51": _folder(folders.open_hmdb51),
    "pahmdb": _folder(folders.open_pahmdb),
    "synthetic-clips": VideoDataset(
        root="look",
        roots=("studio", "ward"),
        default_root="studio",
        public_roots=("studio",),
        rendered=True,
        splits=("train", "val", "test"),
        default={"train": "train", "evaluate": "val"},
        open=_open_clips,
    ),
    "ucf101": _folder(folders.open_ucf101),
    "vispr": _folder(folders.open_vispr, "val", "test"),
}
"""Every kind of videos by name."""


class ActionSpec(Spec):
    """A parsed spec of videos; `name` is a key of `SOURCES`.

    >>> spec = ActionSpec.parse("synthetic-clips:ward").for_purpose("evaluate")
    >>> str(spec), spec.public
    ('synthetic-clips:ward:val', False)
    """

    datasets: ClassVar = SOURCES
    what = "videos"

    @property
    def dataset(self) -> VideoDataset:
        """Description of the videos."""
        return SOURCES[self.name]


def open_videos(
    spec: str | ActionSpec, *, purpose: Purpose, limit: int | Selection | None = None
) -> VideoSet:
    """Open videos by a spec.

    Args:
        spec: Such as `ucf101:/data/ucf`, `synthetic-clips:ward:test`.
        purpose: Decides the split if the spec names none.
        limit: Largest number of videos, chosen by name.
    """
    parsed = (ActionSpec.parse(spec) if isinstance(spec, str) else spec).located(purpose)
    opened = parsed.dataset.open(parsed.place, parsed.split, **dict(parsed.options))
    videos = replace(opened, set_names=parsed.set_names)
    selection = as_selection(limit)
    return videos if selection is None else videos.limit(selection)
