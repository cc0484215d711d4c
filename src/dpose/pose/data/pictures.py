"""A labelled person, a picture with its people, and decoded pictures in memory."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpose.media.identity import pixel_hash
from dpose.pose.crops import Box


@dataclass(frozen=True)
class Person:
    """One labelled person, in the dataset's own skeleton of J joints.

    Attributes:
        keypoints: (J, 2) float32, picture pixels; meaningless where not visible.
        visible: (J,) bool, true where labelled.
        box: (4,) float32, x0, y0, x1, y1 in picture pixels (see `dpose.pose.crops` for the convention).
        head_length: PCKh's reference length in picture pixels; nan if unknown.
        area: OKS's area of the person in picture pixels squared; nan if unknown.
    """

    keypoints: NDArray[np.float32]
    visible: NDArray[np.bool_]
    box: NDArray[np.float32]
    head_length: float = float("nan")
    area: float = float("nan")

    def __post_init__(self) -> None:
        """Refuse arrays of another shape."""
        joints = len(self.visible)
        shapes = (np.shape(self.keypoints), np.shape(self.visible), np.shape(self.box))
        if shapes != ((joints, 2), (joints,), (4,)):
            raise ValueError(f"a person needs keypoints (J, 2), visible (J,) and box (4,), got {shapes}")


@dataclass(frozen=True)
class Picture:
    """One picture and the people labelled in it, loaded on demand.

    Attributes:
        name: Unique in its dataset.
        count: Number of people that `read` returns.
        read: Returns the decoded picture, uint8 (H, W, 3) RGB, and its people. Called from several threads.
        subject: Identity of the person shown, if known; equal names are the same person.
        path: The file that it comes from, if any.
    """

    name: str
    count: int
    read: Callable[[], tuple[NDArray[np.uint8], tuple[Person, ...]]]
    subject: str = ""
    path: Path | None = None


class Regions(Protocol):
    """Finds the position and turn of the person of a labelled box: from this picture and box alone.

    Attributes:
        digest: Two finders with the same digest find the same regions.
    """

    digest: str

    def __call__(self, image: NDArray[np.uint8], corners: NDArray[np.float32], padding: float) -> Box:
        """Return the region to crop, padding included; the box itself, enlarged by `padding`, if no person is found."""


@dataclass
class PictureMemory:
    """Decoded pictures by index, the least recently used dropped first; safe to share between threads."""

    limit: int
    size: int = 0
    held: OrderedDict[int, tuple[NDArray[np.uint8], tuple[Person, ...]]] = field(default_factory=OrderedDict)
    known: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Hash of the pixels and digest of each person's labels, for pictures that were read before."""
    files: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Digest of the file, for pictures that were digested before."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, index: int, picture: Picture) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
        """Return the result of `Picture.read`, from memory if it is there."""
        with self.lock:
            if index in self.held:
                self.held.move_to_end(index)
                return self.held[index]
        # Decoding happens outside the lock: two threads may decode one picture, but none waits for another.
        loaded = picture.read()
        loaded[0].setflags(write=False)
        if isinstance(loaded[0], np.memmap):  # from the disk cache: the system caches it, and each holds a file open
            return loaded
        with self.lock:
            if index not in self.held and loaded[0].nbytes <= self.limit:
                self.held[index] = loaded
                self.size += loaded[0].nbytes
                while self.size > self.limit:
                    _, (old, _people) = self.held.popitem(last=False)
                    self.size -= old.nbytes
        return loaded

    def digests(self, index: int, image: NDArray[np.uint8], people: Sequence[Person]) -> tuple[str, tuple[str, ...]]:
        """Return what `known` has of a picture, which was read."""
        if index not in self.known:
            self.known[index] = pixel_hash(image), tuple(labels_of(person) for person in people)
        return self.known[index]


MOST_REGIONS = 1 << 18
"""Regions that a process remembers: more than the people of COCO, or each pass over them would look for the rest."""
_found: dict[tuple[str, str, bytes, float], Box] = {}


def remembered_region(regions: Regions, image: NDArray[np.uint8], pixels: str, person: Person, padding: float) -> Box:
    """Return the region of a person: found once a process, also where data are read anew, as by each run of a search.

    Args:
        regions: The finder.
        image: uint8, (H, W, 3) RGB.
        pixels: Its `pixel_hash`: with the box and the padding all that a region depends on.
        person: The labelled person.
        padding: Size of a crop relative to the person's box.
    """
    key = (regions.digest, pixels, person.box.tobytes(), padding)
    found = _found.get(key) or regions(image, person.box, padding)
    if len(_found) < MOST_REGIONS:
        _found[key] = found
    return found


def labels_of(person: Person) -> str:
    """Return digests of a person's box, and of all their labels."""
    box = hashlib.sha256(np.ascontiguousarray(person.box, np.float32).tobytes()).hexdigest()
    rest = hashlib.sha256(np.ascontiguousarray(person.keypoints, np.float32).tobytes())
    rest.update(np.ascontiguousarray(person.visible, bool).tobytes())
    rest.update(f"{float(person.head_length).hex()} {float(person.area).hex()}".encode())
    return f"{box} {rest.hexdigest()}"
