"""`NAME:ROOT[:SPLIT]`: one short text says which photos. A new source is a module here and an entry in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dpose.data_spec import Dataset, Spec
from dpose.errors import DposeError
from dpose_lab.photos.bundled import ALL, FILES, open_bundled, open_rendered
from dpose_lab.photos.celeba import open_celeba
from dpose_lab.photos.mot import open_mot
from dpose_lab.photos.photo import Photos
from dpose_lab.photos.ppm import open_ppm


@dataclass(frozen=True, kw_only=True)
class PhotoDataset(Dataset):
    """A source of photos, for the registry.

    Attributes:
        open: Opens the photos; takes the root (a `Path`, or a name where the dataset has `roots`), the split, and the
            (height, width) of rendered people.
    """

    open: Callable[..., Photos]


def _files(read: Callable[[Path], Photos]) -> PhotoDataset:
    return PhotoDataset(open=lambda root, split, size: read(root))


SOURCES: dict[str, PhotoDataset] = {
    "synthetic": PhotoDataset(
        root="look",
        roots=("studio", "ward"),
        public_roots=("studio",),
        rendered=True,
        splits=("train", "val", "test", "public", "large", "larger", "aids"),
        public_splits=("public", "aids"),
        default={"evaluate": "test"},
        open=open_rendered,
    ),
    "skimage": PhotoDataset(
        root="photograph",
        roots=(*FILES, ALL),
        public_roots=(*FILES, ALL),
        default_root=ALL,
        open=lambda root, split, size: open_bundled(root),
    ),
    "mot": _files(open_mot),
    "ppm100": _files(open_ppm),
    "celeba": _files(open_celeba),
}
"""Sources of photos by name."""


class PhotoSpec(Spec):
    """A parsed spec of photos; `name` is a key of `SOURCES`."""

    datasets: ClassVar = SOURCES
    what = "photos"

    @property
    def dataset(self) -> PhotoDataset:
        """The source of the photos."""
        return SOURCES[self.name]


def open_photos(spec: str, size: tuple[int, int], limit: int | None = None) -> Photos:
    """Open the photos that `spec` names.

    Args:
        spec: `synthetic:LOOK[:SPLIT]`, `skimage[:NAME]`, `mot:ROOT`, `ppm100:ROOT` or `celeba:ROOT`.
        size: (height, width) of rendered people; files keep their own.
        limit: Largest number of photos, evenly spaced.
    """
    parsed = PhotoSpec.parse(spec).located("evaluate")
    if limit is not None and limit < 1:
        raise DposeError("limit-not-positive", f"a limit of {limit} leaves nothing", spec, "use 1 or more")
    return parsed.dataset.open(parsed.place, parsed.split, size).limit(limit)
