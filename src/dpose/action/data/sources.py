"""Sources of a video's frames: a file, a still picture, or an array made on first use."""

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
        """Return the number of frames, at least one."""

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """Return the frames `picks` (ascending, may repeat), uint8 (len(picks), H, W, 3), resized to `size`."""

    def digest(self) -> str:
        """Return a digest of the decoded frames: equal for equal content, in whatever file."""

    def hashes(self) -> tuple[str, ...]:
        """Return all digests by which the account knows the video (`dpose.media.identity`): file, clip and frames."""


@dataclass(frozen=True)
class VideoFile:
    """A video file, decoded each time.

    Attributes:
        path: The file.
    """

    path: Path

    def count(self) -> int:
        """Return the number of frames in the file's header."""
        return _probed(self.path).frames

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """Decode up to the last of these frames."""
        wanted, frames = set(picks), {}
        last = max(picks)
        for number, frame in enumerate(read_frames(_probed(self.path))):
            if number in wanted:
                frames[number] = _resized(frame.pixels, size)
            if number == last:
                break
        return np.stack([frames[number] for number in picks])

    def digest(self) -> str:
        """Return a digest of the decoded frames together."""
        return self.hashes()[1]

    def hashes(self) -> tuple[str, ...]:
        """Return digests of the file's bytes and of its decoded frames; of a damaged file, the decodable ones."""
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
        """Return 1."""
        return 1

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """Return the picture, once for each pick."""
        return np.stack([_resized(read_image(self.path), size)] * len(picks))

    def digest(self) -> str:
        """Return a digest of the pixels."""
        return self.hashes()[1]

    def hashes(self) -> tuple[str, ...]:
        """Return digests of the file's bytes and of its pixels."""
        return self._hashes

    @cached_property
    def _hashes(self) -> tuple[str, ...]:
        return read_known(self.path)[1]


class Held:
    """A video that a function makes, in memory from then on.

    Args:
        make: Returns uint8 (T, H, W, 3).
    """

    def __init__(self, make: Callable[[], Frames]) -> None:
        self._make = make
        self._frames: Frames | None = None

    @property
    def frames(self) -> Frames:
        """All frames."""
        if self._frames is None:
            self._frames = self._make()
        return self._frames

    def count(self) -> int:
        """Return the number of frames."""
        return len(self.frames)

    def read(self, picks: Sequence[int], size: tuple[int, int]) -> Frames:
        """Return the frames of these numbers."""
        if self.frames.shape[1:3] == tuple(size):
            return self.frames[list(picks)]
        return np.stack([_resized(self.frames[number], size) for number in picks])

    def digest(self) -> str:
        """Return a digest of the pixels."""
        return self.hashes()[0]

    def hashes(self) -> tuple[str, ...]:
        """Return digests of the pixels together, and of each frame's."""
        return self._hashes

    @cached_property
    def _hashes(self) -> tuple[str, ...]:
        return clip_hashes(self.frames, self.frames.shape[:3])


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
