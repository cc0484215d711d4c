"""The interface of sources of photos: pictures by number, grey and in colour, with any labels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import leads_out
from dpose.media.identity import read_known
from dpose.media.images import read_image

KEPT = 1 << 29
"""Bytes of pictures cached in memory; others are read or rendered again."""


@dataclass(frozen=True)
class Photo:
    """A picture with its labels.

    Attributes:
        name: Name of the file or scene.
        pixels: uint8, (H, W), grey, as seed 002 converts all its data.
        mask: bool, (H, W), True for people; None if unknown.
        identity: Number of the person shown; None if unknown.
        hashes: Digests of the original (`dpose.media.identity`).
        colours: uint8, (H, W, 3), the picture as it was read; None if it was made grey.
    """

    name: str
    pixels: NDArray[np.uint8]
    mask: NDArray[np.bool_] | None = None
    identity: int | None = None
    hashes: tuple[str, ...] = field(default=(), repr=False)
    colours: NDArray[np.uint8] | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Size of the arrays, bytes."""
        return self.pixels.size + (0 if self.colours is None else self.colours.size)

    @classmethod
    def of_file(cls, name: str, path: Path, identity: int | None = None) -> Photo:
        """Read a picture file."""
        image, hashes = read_known(path)
        return cls(name, grey(image), None, identity, hashes, image)


@dataclass(frozen=True)
class Photos:
    """A set of pictures, loaded one at a time.

    Attributes:
        title: Name in tables.
        names: Names, one per picture.
        read: Function from a number to the picture.
        masks: Description of the masks; "" for none.
        identities: Identities, one per picture; () for none.
        rendered: True if no real people are shown.
    """

    title: str
    names: tuple[str, ...]
    read: Callable[[int], Photo] = field(repr=False)
    masks: str = ""
    identities: tuple[int, ...] = ()
    rendered: bool = False
    _cached: dict[int, Photo] = field(default_factory=dict, repr=False, compare=False)
    _seen: dict[int, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.names)

    def load(self, index: int) -> Photo:
        """Load the picture of a number: the same every time."""
        if index not in self._cached:
            photo = self.read(index)
            if self._seen.setdefault(index, photo.hashes) != photo.hashes:
                raise DposeError("file-changed", "was changed while it was in use", photo.name, "run the command again")
            if sum(one.size for one in self._cached.values()) + photo.size > KEPT:
                return photo
            self._cached[index] = photo
        return self._cached[index]

    def limit(self, count: int | None) -> Photos:
        """Choose at most `count` pictures, evenly spaced, since neighbouring frames of a video are alike."""
        if count is None or count >= len(self):
            return self
        chosen = [number * len(self) // count for number in range(count)]
        return replace(
            self,
            names=tuple(self.names[k] for k in chosen),
            identities=tuple(self.identities[k] for k in chosen) if self.identities else (),
            read=lambda index: self.read(chosen[index]),
            _cached={},
            _seen={},
        )


def grey(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A colour picture's luma, (H, W)."""
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)


def read_matte(path: Path) -> NDArray[np.uint8]:
    """Read a picture file that labels another one, grey."""
    return grey(read_image(path))


def folder_of(root: Path, names: tuple[str, ...], what: str) -> Path:
    """The first of these folders that exists in `root`."""
    if not root.is_dir():
        raise DposeError("folder-missing", "there is no such folder", str(root))
    for name in names:
        with contextlib.suppress(OSError):  # a name that no file system can hold
            if not leads_out(name) and (root / name).is_dir():
                return root / name
    raise DposeError(
        "data-folder-missing", f"has no folder of {what}", str(root), f"expected {' or '.join(names)} in it"
    )
