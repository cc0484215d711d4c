"""Specs of videos, `NAME[:ROOT][:SPLIT]`, and `open_videos`, which opens them.

`synthetic-clips`: rendered films of a few actions by imaginary people, with their attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

from dpose.action.data import folders
from dpose.action.data.sources import Held
from dpose.action.data.units import Video, VideoSet
from dpose.data_spec import Dataset, Purpose, Spec
from dpose.extensions import rendered_people
from dpose.privacy.selection import Selection, as_selection

SKIRTS = ("skirt", "dress", "gown")
WITNESS: Mapping[str, Callable[[Mapping[str, str]], bool]] = {
    "dark skin": lambda a: a["skin"] in ("brown", "deep", "ebony"),
    "fair skin": lambda a: a["skin"] in ("porcelain", "fair", "beige"),
    "dark hair": lambda a: a["hair"].startswith(("black", "dark brown")),
    "child": lambda a: a["age"] == "child",
    "elderly": lambda a: a["age"] == "elderly",
    "stout": lambda a: a["build"] == "stout",
    "skirt or dress": lambda a: a["bottom"].endswith(SKIRTS),
    "shorts": lambda a: a["bottom"].endswith("shorts"),
}
"""Attributes of a person by name, each true or not."""


@lru_cache(maxsize=16)
def open_clips(look: str, split: str, size: tuple[int, int] | None = None) -> VideoSet:
    """Open one split of the films of a look; each is rendered on first use, and stays in memory.

    Args:
        look: `studio` or `ward`.
        split: One of the look's splits.
        size: (height, width) in pixels; None for the default size.
    """
    people = rendered_people()
    videos = []
    for index in range(people.FILM_SPLITS[split]):
        labels = people.film_labels(look, split, index)
        videos.append(
            Video(
                f"{split}/{labels.name}",
                Held(partial(people.film, look, split, index, size or people.FILM_SIZE)),
                people.FILM_ACTIONS.index(labels.action),
                tuple(int(true_of(labels.attributes)) for true_of in WITNESS.values()),
                f"rendered-{labels.identity}",
            )
        )
    note = f"synthetic-clips:{look}:{split}: {len(videos):,} rendered films, one imaginary person in each"
    return VideoSet(tuple(videos), people.FILM_ACTIONS, tuple(WITNESS), (note,))


@dataclass(frozen=True, kw_only=True)
class VideoDataset(Dataset):
    """Description of a dataset of videos.

    Attributes:
        open: Returns the videos; takes the root (a `Path`, or a name if the dataset has `roots`), the split, and
            options by name.
    """

    open: Callable[..., VideoSet]


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
        open=open_clips,
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


def open_videos(spec: str | ActionSpec, *, purpose: Purpose, limit: int | Selection | None = None) -> VideoSet:
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
