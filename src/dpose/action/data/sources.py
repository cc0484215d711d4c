"""Where the frames of one video come from: a file, a still picture, or an array made when it is first asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.identity import clip_hashes, read_known
from dpose.media.images import read_image
from dpose.media.video import Damage, VideoInfo, probe, read_frames
from dpose.media.video_identity import video_hashes

Frames = NDArray[np.uint8]


class VideoSource(Protocol):
    """One video."""

    def count(self) -> int:
        """How many frames there are, at least one."""

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """The frames of these numbers (ascending, they may repeat), uint8 (len(picks), H, W, 3), resized to `size`."""

    def digest(self) -> str:
        """Of its decoded frames: equal for equal content, whatever file holds it."""

    def hashes(self) -> tuple[str, ...]:
        """All digests by which the account knows it (`dpose.media.identity`): the file's, the clip's, its frames'."""


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
        """Of its decoded frames together."""
        return self.hashes()[1]

    def hashes(self) -> tuple[str, ...]:
        """Of the file's bytes and of its decoded frames; of one that is not whole, of those that can be decoded."""
        return self._hashes

    @cached_property
    def _hashes(self) -> tuple[str, ...]:
        with contextlib.suppress(DposeError):
            return video_hashes(_probed(self.path))
        return video_hashes(probe(self.path, lenient=True), Damage())


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
        """Of its pixels."""
        return self.hashes()[1]

    def hashes(self) -> tuple[str, ...]:
        """Of the file's bytes and of its pixels."""
        return self._hashes

    @cached_property
    def _hashes(self) -> tuple[str, ...]:
        return read_known(self.path)[1]


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
        return self.hashes()[0]

    def hashes(self) -> tuple[str, ...]:
        """Of its pixels, and of each of its frames'."""
        return self._hashes

    @cached_property
    def _hashes(self) -> tuple[str, ...]:
        return clip_hashes(self.frames, self.frames.shape[:3])


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
