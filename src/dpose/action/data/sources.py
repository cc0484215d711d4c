"""Where the frames of one video come from: a file, a still picture, or an array made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.media.identity import pixel_hash
from dpose.media.images import read_image
from dpose.media.video import VideoInfo, probe, read_frames

Frames = NDArray[np.uint8]


class VideoSource(Protocol):
    """One video."""

    def count(self) -> int:
        """How many frames there are, at least one."""

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """The frames of these numbers (ascending, they may repeat), uint8 (len(picks), H, W, 3), resized to `size`."""

    def digest(self) -> str:
        """Equal for equal content."""


@dataclass(frozen=True)
class VideoFile:
    """A video file, decoded each time.

    Attributes:
        path: The file.
    """

    path: Path

    def count(self) -> int:
        """As the file says."""
        return _probed(self.path).frames

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """Decode as far as the last frame that is wanted.

        Raises:
            DposeError: the file is missing or damaged.
        """
        wanted, found = set(picks), {}
        last = max(picks)
        for number, frame in enumerate(read_frames(_probed(self.path))):
            if number in wanted:
                found[number] = _resized(frame.pixels, size)
            if number == last:
                break
        return np.stack([found[number] for number in picks])

    def digest(self) -> str:
        """Of the file's bytes."""
        return _file_digest(self.path)


@dataclass(frozen=True)
class StillFile:
    """A picture file, as a video of one frame.

    Attributes:
        path: The file.
    """

    path: Path

    def count(self) -> int:
        """One."""
        return 1

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """The picture, as often as it is wanted.

        Raises:
            DposeError: the file is missing or damaged.
        """
        return np.stack([_resized(read_image(self.path), size)] * len(picks))

    def digest(self) -> str:
        """Of the file's bytes."""
        return _file_digest(self.path)


class Held:
    """A video that a function makes, kept in memory from then on.

    Args:
        make: Gives uint8 (T, H, W, 3).
    """

    def __init__(self, make: Callable[[], Frames]) -> None:
        self._make = make
        self._frames: Frames | None = None

    @property
    def frames(self) -> Frames:
        """All of it."""
        if self._frames is None:
            self._frames = self._make()
        return self._frames

    def count(self) -> int:
        """Its length."""
        return len(self.frames)

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """The wanted frames."""
        if self.frames.shape[1:3] == tuple(size):
            return self.frames[list(picks)]
        return np.stack([_resized(self.frames[number], size) for number in picks])

    def digest(self) -> str:
        """Of its pixels."""
        return pixel_hash(self.frames)


def whole_clip(source: VideoSource, size: tuple[int, int] | None = None) -> Frames:
    """Every frame of a source, at its own size unless one is given."""
    if isinstance(source, Held):
        return source.frames if size is None else source.read(range(source.count()), size)
    if isinstance(source, VideoFile) and size is None:
        info = _probed(source.path)
        size = (info.height, info.width)
    if size is None:
        assert isinstance(source, StillFile)
        return read_image(source.path)[None]
    return source.read(range(source.count()), size)


@lru_cache(maxsize=65536)
def _probed(path: Path) -> VideoInfo:
    return probe(path)


def _resized(frame: Frames, size: tuple[int, int]) -> Frames:
    colour = frame if frame.shape[2] == 3 else frame.repeat(3, 2)
    if colour.shape[:2] == tuple(size):
        return np.ascontiguousarray(colour)
    shrinks = size[0] <= colour.shape[0] and size[1] <= colour.shape[1]
    way = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(colour, (size[1], size[0]), interpolation=way), np.uint8)


def _file_digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise DposeError(f"cannot be read ({error.strerror})", str(path)) from error
