"""Video as frames with their times, in and out (PyAV). Sound and container metadata are not carried along."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import av
import numpy as np

from dpose.errors import DposeError
from dpose.files import explain_os_error, fsync_folder
from dpose.media.images import MAX_PIXELS, Image
from dpose.media.video import shown_frames

VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".gif")
"""What `VideoReader` is asked to read when a folder is listed; the reading itself goes by the file's content."""

WRITTEN = (".mp4", ".mov", ".mkv")
"""What `VideoWriter` writes, all with H.264."""


class VideoReader:
    """The frames of a video, one at a time, never all in memory.

    Iterating yields (frame, time): uint8 (H, W, 3) RGB, turned upright, and the time since the first frame in seconds,
    an exact fraction. Frames that cannot be decoded are passed over; when the iteration is over, `whole` says whether
    there were none, `damaged` how many packets were, and `missing` how many frames fewer came out than the file
    announces.

    Use it as a context manager; it can be iterated once.

    Args:
        path: The file.

    Raises:
        DposeError: the file is missing, no video, cut off before its index, or its pictures are too large.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DposeError("no such file", str(path))
        try:
            # by its absolute path: a name such as "tcp:..." would otherwise be taken for an address
            self._container = av.open(os.fspath(self.path.resolve()))
        except (av.FFmpegError, OSError, ValueError) as error:
            raise DposeError("is no readable video, or is cut off before its index", str(path)) from error
        if not self._container.streams.video:
            self._container.close()
            raise DposeError("holds no pictures, only sound", str(path))
        self._stream = self._container.streams.video[0]
        if getattr(self._stream, "codec_context", None) is None:
            self._container.close()
            raise DposeError("is no readable video, or is cut off before its index", str(path))
        self._stream.thread_type = "AUTO"
        if self._stream.width * self._stream.height > MAX_PIXELS:
            self._container.close()
            raise DposeError(
                f"frames of more than {MAX_PIXELS:,} pixels", str(path), "make the video smaller"
            )
        rate = self._stream.average_rate or self._stream.guessed_rate or Fraction(25)
        self.rate = Fraction(rate)
        self.time_base = Fraction(self._stream.time_base or 1 / self.rate)
        self.announced = int(self._stream.frames or 0)
        if self.announced and "mp4" in self._container.format.name:
            with contextlib.suppress(DposeError):  # what is damaged is told when the frames are read
                self.announced = shown_frames(self.path, self.announced)
        length = self._stream.duration
        self.duration = None if length is None else length * self.time_base
        whole = self._container.duration
        self._length = self.duration or (None if whole is None else Fraction(whole, 1_000_000))
        self._latest = Fraction(0)
        self.read = 0
        self.damaged = 0

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.close()

    @property
    def missing(self) -> int:
        """How many frames fewer were read than the file announces; 0 where it announces none."""
        return max(0, self.announced - self.read)

    @property
    def whole(self) -> bool:
        """After the iteration: whether all came out that the file announces, by number or by length."""
        short = self._length is not None and self._latest + 2 / self.rate < self._length
        return not (self.damaged or self.missing or short)

    def __iter__(self) -> Iterator[tuple[Image, Fraction]]:
        first: Fraction | None = None
        latest = Fraction(-1)
        # an AVI file has decoding times only; what stands for others there is out of order
        counts = self._container.format.name == "avi"
        for frame in self._decoded():
            stamp = frame.dts if counts else frame.pts
            time = None if stamp is None else Fraction(stamp) * self.time_base
            if first is None:
                first = time if time is not None else Fraction(0)
            # a frame without a time, or after damage with one that runs backwards, follows at the frame rate
            since = time - first if time is not None else latest + 1 / self.rate
            if since <= latest:
                since = latest + 1 / self.rate
            self._latest = latest = max(since, Fraction(0))
            self.read += 1
            picture = np.asarray(frame.to_ndarray(format="rgb24"))
            turns = round(getattr(frame, "rotation", 0) / 90) % 4
            yield np.ascontiguousarray(np.rot90(picture, turns)), latest

    def _decoded(self) -> Iterator[Any]:
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except (av.FFmpegError, OSError):  # the file ends in the middle of a packet
                self.damaged += 1
                return
            try:
                yield from packet.decode()
            except av.FFmpegError:
                self.damaged += 1


class VideoWriter:
    """A video written frame by frame that appears under its name when all is written, and not at all otherwise.

    H.264; a side of an odd number of pixels grows by one, its last row or column repeated.

    Use it as a context manager.

    Args:
        path: Ends in one of `WRITTEN`.
        rate: Frames a second, as players show it.
        time_base: The grain of times in seconds; those given to `write` are rounded to it.
        duration: Of the whole video in seconds: the last frame is shown until then. It is shown as long as the rate
            says where this is None, or before the last frame.

    Raises:
        DposeError: another suffix, or the file cannot be written.
    """

    def __init__(
        self, path: str | Path, rate: Fraction, time_base: Fraction, duration: Fraction | None = None
    ) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() not in WRITTEN:
            raise DposeError(
                f"cannot write video as {self.path.suffix!r}", str(path), f"use {', '.join(WRITTEN)}"
            )
        self.rate, self.time_base, self.duration = rate, time_base, duration
        self._size: tuple[int, int] | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, self._temporary = tempfile.mkstemp(
                dir=self.path.parent, prefix=f".{self.path.stem}.", suffix=self.path.suffix
            )
            os.close(descriptor)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        self._container = av.open(self._temporary, "w")
        self._stream: Any = self._container.add_stream("libx264", rate=rate)
        self._stream.pix_fmt = "yuv420p"
        # no frames that wait for later ones: with uneven times those would change the length that players see
        self._stream.options = {"crf": "18", "preset": "veryfast", "bf": "0"}
        self._stream.codec_context.time_base = time_base
        self._held: tuple[Any, int] | None = None
        self._lengths: dict[int, int] = {}

    def __enter__(self) -> VideoWriter:
        return self

    def write(self, image: Image, time: Fraction) -> None:
        """Add a frame.

        Args:
            image: uint8 (H, W, 3) RGB, all of one size.
            time: Seconds since the first; later than the frame's before.

        Raises:
            ValueError: another size than the first frame's, or a time that is not later.
            DposeError: the disk is full.
        """
        size = (image.shape[0], image.shape[1])
        if self._size is None:
            self._size = size
            self._stream.height, self._stream.width = (side + side % 2 for side in size)
        if size != self._size:
            raise ValueError(f"a frame of {size} after one of {self._size}")
        at = round(time / self.time_base)
        if self._held is not None and at <= self._held[1]:
            raise ValueError(f"time {time} is not later than the frame before")
        even = np.pad(image, ((0, size[0] % 2), (0, size[1] % 2), (0, 0)), mode="edge")
        frame: Any = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
        frame.pts, frame.time_base = at, self.time_base
        if self._held is not None:
            self._encode(*self._held, at - self._held[1])
        self._held = (frame, at)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._held is not None:
                self._encode(*self._held, self._last(self._held[1]))
                self._mux(self._stream.encode(None))
            self._container.close()
            if kind is None:
                if self._held is None:
                    raise DposeError("not one frame to write", str(self.path))
                with open(self._temporary, "rb") as file:
                    os.fsync(file.fileno())
                os.chmod(self._temporary, 0o644)
                os.replace(self._temporary, self.path)
                fsync_folder(self.path.parent)
        except (OSError, av.FFmpegError) as problem:
            raise _explained(problem, self.path) from problem
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)

    def _last(self, at: int) -> int:
        """How long the last frame is shown, in time bases."""
        left = 0 if self.duration is None else round(self.duration / self.time_base) - at
        return left if left > 0 else max(1, round(1 / (self.rate * self.time_base)))

    def _encode(self, frame: Any, at: int, duration: int) -> None:
        self._lengths[at] = duration
        try:
            self._mux(self._stream.encode(frame))
        except (OSError, av.FFmpegError) as error:
            raise _explained(error, self.path) from error

    def _mux(self, packets: Any) -> None:
        for packet in packets:
            # without the length of each frame the last one's is guessed, and the video's length changes
            packet.duration = self._lengths.pop(packet.pts, packet.duration)
            self._container.mux(packet)


def _explained(error: Exception, path: Path) -> DposeError:
    if isinstance(error, OSError):
        return explain_os_error(error, path)
    return DposeError(f"cannot be written ({error})", str(path))
