"""The container of a video (PyAV): opened so that it holds all that is decoded, and its one stream of pictures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lazy_loader

from dpose.errors import DposeError
from dpose.files import open_regular
from dpose.media.kinds import CONTAINERS, LOOKED_AT, kind_of_bytes

av = lazy_loader.load("av")  # what handles pictures alone does not wait for it

DEMUXERS = ("mov", "matroska", "avi", "mpegts", "mpeg", "asf", "flv", "gif", "h264", "hevc")
"""FFmpeg's readers of containers that may be used, whatever a file is called: these find all of a video in the file
itself. Others (playlists, lists of files, descriptions of streams) open what a file names."""
UNSTAMPED = ("avi", "h264", "hevc")
"""Containers without time stamps of their own."""
NO_VIDEO = "is no video of a kind that is read"
SELF_CONTAINED = {"format_whitelist": ",".join(DEMUXERS), "protocol_whitelist": "file", "enable_drefs": "0"}
"""FFmpeg's options for that; a QuickTime file may name others that hold its tracks, and they are not opened."""


@contextlib.contextmanager
def opened_video(path: Path, options: dict[str, str] | None = None) -> Iterator[Any]:
    """PyAV's container of a regular file, which holds all that is decoded (`DEMUXERS`).

    Args:
        path: The file.
        options: FFmpeg's, besides those that keep it to the file.

    Raises:
        DposeError: it cannot be read, or is no video of a kind that is read.
    """
    # titles in another encoding than UTF-8 are no reason to refuse a video; PyAV takes them by itself from 19 on
    tolerant = {} if int(av.__version__.partition(".")[0]) >= 19 else {"metadata_errors": "replace"}
    try:
        with open_regular(path) as file:  # a FIFO would be waited for
            kind = kind_of_bytes(file.read(LOOKED_AT))
        # by its absolute path: a name such as "tcp:..." would otherwise be taken for an address
        container = av.open(os.fspath(path.resolve()), options={**(options or {}), **SELF_CONTAINED}, **tolerant)
    except FileNotFoundError as error:
        raise DposeError("file-missing", "there is no such file", str(path)) from error
    except av.error.ArgumentError as error:  # FFmpeg's word for a container that is not among those allowed
        raise DposeError("video-kind-unknown", NO_VIDEO, str(path), f"give {CONTAINERS}") from error
    except av.error.FFmpegError as error:
        raise _undecodable(error, path, known=bool(kind)) from error
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
    with container:
        try:
            yield container
        except av.error.FFmpegError as error:
            raise _undecodable(error, path) from error


def _undecodable(error: Exception, path: Path, *, known: bool = True) -> DposeError:
    """Return the error for a file that FFmpeg cannot read; `known` is False if its first bytes are of no kind."""
    what = f"the video cannot be decoded: {ffmpeg_words(error)}" if known else NO_VIDEO
    return DposeError("video-undecodable", what, str(path), "" if known else f"give {CONTAINERS}")


def picture_stream(container: Any, path: Path) -> Any:
    """Return the stream of pictures that is the film: the first that is no cover."""
    streams = [stream for stream in container.streams.video if not is_cover(stream)]
    if not streams:
        raise DposeError("video-missing-in-file", "has no video in it", str(path))
    if getattr(streams[0], "codec_context", None) is None:
        raise DposeError("video-undecodable", "the video cannot be decoded: nothing here knows how", str(path))
    return streams[0]


def is_cover(stream: Any) -> bool:
    """True for a picture that a file of music or film carries as its cover."""
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def ffmpeg_words(error: Exception) -> str:
    """What FFmpeg says went wrong."""
    return str(getattr(error, "strerror", "") or error)
