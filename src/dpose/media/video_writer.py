"""Videos out (PyAV, H.264): with the time stamps that they are given, written beside and then renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lazy_loader
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import explain_os_error, fsync_folder, make_folder, umask
from dpose.media.container import ffmpeg_words, opened_video
from dpose.media.shown import BT709
from dpose.media.video import VideoInfo

av = lazy_loader.load("av")  # what handles pictures alone does not wait for it

WRITABLE = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""Containers that can be written, by suffix."""
LIMITED = 1
"""Number of the colour range that videos usually have (ITU-T H.273): black is 16 and white 235."""


SIZED = "rows or columns were repeated: {width}x{height} before"
"""What a written file says of its size where its sides are even and the video's are not."""


class VideoWriter:
    """Encodes frames (H.264) with the time stamps they are given; made by `open_writer`."""

    def __init__(self, path: Path, container: Any, info: VideoInfo, quality: int, sound: Any) -> None:
        self._path, self._container = path, container
        self._sound = container.add_stream_from_template(sound) if sound is not None else None
        stream = container.add_stream("libx264", rate=info.rate)
        # half-size chroma needs even sides, and few players show other chroma
        grown = info.height % 2, info.width % 2
        stream.height, stream.width = info.height + grown[0], info.width + grown[1]
        if any(grown):
            container.metadata["comment"] = SIZED.format(width=info.width, height=info.height)
        stream.pix_fmt = "yuv420p"
        # or players guess, and take BT.601's red for BT.709's
        coded = stream.codec_context
        coded.colorspace, coded.color_primaries, coded.color_trc, coded.color_range = (BT709, BT709, BT709, LIMITED)
        stream.codec_context.time_base = info.time_base
        stream.time_base = info.time_base
        # no reordering: time stamps leave as they came
        stream.codec_context.max_b_frames = 0
        # x264's macroblock tree reads uninitialized memory: one frame in some hundred was encoded otherwise
        stream.options = {"crf": str(quality), "preset": "veryfast", "mbtree": "0"}
        stream.thread_type = "AUTO"
        self._stream, self._info, self._grown = stream, info, grown
        self._last: int | None = None
        self._held: Any = None
        self._durations: dict[int, int] = {}

    @property
    def keeps_sound(self) -> bool:
        """Whether sound is copied."""
        return self._sound is not None

    def add(self, pixels: NDArray[np.uint8], pts: int, duration: int | None = None) -> None:
        """Encode one frame.

        Args:
            pixels: uint8, (H, W, C).
            pts: Time stamp, in ticks; later than the frame's before.
            duration: In ticks; 0 if unknown. None for as long as the next frame begins, and for the last one as
                the original's length says, or its rate.

        Raises:
            ValueError: another size than the video's, or a time that is not later.
        """
        size = (self._info.height, self._info.width)
        if pixels.shape[:2] != size:
            raise ValueError(f"a frame of {pixels.shape[:2]} in a video of {size}")
        if self._last is not None and pts <= self._last:
            raise ValueError(f"the time stamp {pts} is not later than the one before, {self._last}")
        self._release(pts)
        self._last = pts
        if any(self._grown):
            pixels = np.pad(pixels, ((0, self._grown[0]), (0, self._grown[1]), (0, 0)), mode="edge")
        grey = pixels.shape[2] == 1
        array = np.ascontiguousarray(pixels[:, :, 0] if grey else pixels)
        picture: Any = av.VideoFrame.from_ndarray(array, format="gray" if grey else "rgb24")
        picture = picture.reformat(format="yuv420p", dst_colorspace=BT709, dst_color_range=LIMITED)
        picture.pts, picture.time_base = pts, self._info.time_base
        if duration is None:
            self._held = picture
        else:
            self._encode(picture, duration)

    def add_sound(self, packet: Any) -> None:
        """Copy one packet of the original's sound."""
        packet.stream = self._sound
        self._container.mux(packet)

    def finish(self) -> None:
        """Write what the encoder still holds."""
        if self._last is None:
            raise DposeError("video-without-frames", "not one frame to write", str(self._path))
        tick, length = self._info.time_base, self._info.length
        end = 0 if length is None else round(length / tick)
        self._release(end if end > self._last else self._last + max(1, round(1 / (self._info.rate * tick))))
        self._write(self._stream.encode(None))

    def _release(self, until: int) -> None:
        """Encode the frame that waited to know how long it is shown."""
        if self._held is not None:
            self._encode(self._held, until - self._held.pts)
            self._held = None

    def _encode(self, picture: Any, duration: int) -> None:
        self._durations[picture.pts] = duration
        self._write(self._stream.encode(picture))

    def _write(self, packets: Any) -> None:
        for packet in packets:
            # the encoder forgets how long the last frame is shown
            duration = self._durations.pop(packet.pts, 0)
            if duration:
                packet.duration = duration
            self._container.mux(packet)


def written_size(info: VideoInfo) -> tuple[int, int]:
    """Width and height of what a video was written from: its own, but for a row and column that were repeated."""
    with opened_video(info.path) as container:
        said = container.metadata.get("comment") or container.metadata.get("COMMENT")
    sizes = ((info.width - wide, info.height - tall) for wide in (0, 1) for tall in (0, 1))
    found = [size for size in sizes if said == SIZED.format(width=size[0], height=size[1])]
    return found[0] if found else (info.width, info.height)


def check_writable(path: Path) -> None:
    """Refuse a name under which no video can be written.

    Raises:
        DposeError: it does not end in one of `WRITABLE`.
    """
    if path.suffix.lower() not in WRITABLE:
        raise DposeError(
            "video-suffix-unknown",
            f"cannot write videos as {path.suffix or 'a file without suffix'!r}",
            str(path),
            f"use {', '.join(WRITABLE)}",
        )


@contextlib.contextmanager
def open_writer(
    path: Path, info: VideoInfo, *, keep_sound: bool = False, quality: int = 18
) -> Iterator[tuple[VideoWriter, Path]]:
    """A writer for a video like `info`, and the temporary file beside `path` that it writes to.

    Where a side has an odd number of pixels its last row or column is repeated, so that every
    player shows it. Colours are written as BT.709, and marked so.

    The temporary file vanishes if the block fails and is left to the caller to rename if it ends well.

    Args:
        path: Where the video will be; ends in one of `WRITABLE`.
        info: The original.
        keep_sound: Copy the original's sound, unchanged.
        quality: x264's constant rate factor; 0 is lossless, 18 hardly visible.

    Raises:
        DposeError: another suffix, a sound that the container cannot hold, a full disk.
    """
    check_writable(path)
    temporary = Path()
    with contextlib.ExitStack() as stack:
        try:
            make_folder(path.parent)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
            os.close(handle)
            temporary = Path(name)
            sound = None
            if keep_sound and info.sound:
                sound = stack.enter_context(opened_video(info.path)).streams.audio[0]
            # global_header etc. follow from the format; the original's metadata is not copied
            with av.open(str(temporary), "w", format=WRITABLE[path.suffix.lower()]) as container:
                try:
                    writer = VideoWriter(path, container, info, quality, sound)
                except (av.error.FFmpegError, ValueError) as error:
                    raise DposeError(
                        "video-format-unwritable", "this format cannot be written: " + ffmpeg_words(error), str(path)
                    ) from error
                yield writer, temporary
                writer.finish()
        except DposeError:
            _remove(temporary)
            raise
        except av.error.FFmpegError as error:
            _remove(temporary)
            raise DposeError("video-write-failed", "cannot be written: " + ffmpeg_words(error), str(path)) from error
        except OSError as error:
            _remove(temporary)
            raise explain_os_error(error, path) from error
        except BaseException:
            _remove(temporary)
            raise


def settle(temporary: Path, path: Path) -> None:
    """Give a finished temporary file its final name, durably."""
    try:
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        _remove(temporary)
        raise explain_os_error(error, path) from error


@contextlib.contextmanager
def video_file(path: Path, info: VideoInfo) -> Iterator[VideoWriter]:
    """`open_writer` and `settle`: the video stands under its name where the block ends well, and not at all else."""
    with open_writer(path, info) as (writer, temporary):
        yield writer
    settle(temporary, path)


def _remove(temporary: Path) -> None:
    if temporary != Path():
        with contextlib.suppress(OSError):
            temporary.unlink()
