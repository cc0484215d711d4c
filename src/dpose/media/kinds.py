"""What a file is, picture or video, by its first bytes and never by its name: the two closed lists of what is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dpose.errors import DposeError
from dpose.files import open_regular
from dpose.media.headers import KINDS, HeaderError, read_header
from dpose.media.heif import brand

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".webp", ".bmp"),
    *(".tif", ".tiff", ".gif", ".avif", ".heic", ".heif"),
)
"""Usual suffixes of what `read_image` reads; what a file is its content decides (`kind_of`)."""
VIDEO_SUFFIXES = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".avi", ".webm", ".mpg", ".mpeg", ".ts"),
    *(".mts", ".m2ts", ".3gp", ".3g2", ".wmv", ".asf", ".flv", ".h264", ".264", ".h265", ".hevc"),
)
"""Usual suffixes of videos; what a file is its content decides (`kind_of`)."""

CONTAINERS = "MP4, QuickTime, 3GP, Matroska, WebM, AVI, MPEG, WMV, FLV, GIF or raw H.264"
Kind = Literal["picture", "video", ""]
NAMED = 3
"""Largest number of files that are left out by name."""
LOOKED_AT = 1_024
"""Bytes that are looked at; of a GIF, the whole: only its end says whether it moves."""

_PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"II*\0", b"MM\0*")
_VIDEOS = (
    b"\x1aE\xdf\xa3",  # Matroska, WebM
    b"FLV\x01",
    bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"),  # ASF: WMV
    b"\0\0\x01\xba",  # MPEG program stream
)
_UNREAD = (
    *(b"\0\0\0\x0cjP  ", b"\xffO\xffQ"),  # JPEG 2000
    *(b"\0\0\0\x0cJXL ", b"\xff\x0a"),  # JPEG XL
    *(b"8BPS", b"\0\0\x01\0", b"gimp xcf", b"v/1\x01", b"#?RADIANCE", b"II+\0", b"MM\0+"),
    *(b"OggS", b".RMF", b"\x06\x0e+4\x02\x05\x01\x01"),  # Ogg, RealMedia, MXF
)
"""How pictures and videos of kinds begin that are not read: PSD, ICO, XCF, EXR, HDR and BigTIFF besides."""
_PORTABLE = re.compile(rb"P([1-6]\s|7\n)")
_QUICKTIME = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
_STARTS = (b"\0\0\0\x01", b"\0\0\x01")
_H264_SPS, _HEVC_VPS = 7, 32


def kind_of(path: str | Path) -> Kind:
    """Return what a regular file is; "" for neither, and for what is no regular file.

    A file whose bytes say nothing is what its suffix says, so that its reader says what is wrong with it.
    """
    path = Path(path)
    try:
        return kind_of_content(path) or kind_of_name(path)
    except OSError:
        return ""


def kind_of_content(path: Path) -> Kind:
    """Return what the first bytes of a regular file say that it is, whatever its name says; "" for neither.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        data = file.read(LOOKED_AT)
        if data.startswith(b"GIF8"):
            data += file.read()
    return kind_of_bytes(data)


def shows_something(path: Path) -> bool:
    """Whether a regular file is a picture or video by its content, also of a kind that is not read.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        data = file.read(LOOKED_AT)
    other = data.startswith(_UNREAD) or _PORTABLE.match(data) or data[128:132] == b"DICM"
    return bool(other or kind_of_bytes(data) or path.suffix.lower() == ".tga")


def left_out(names: Sequence[str]) -> list[str]:
    """Return the line that counts and names files that were not taken; none if there are none."""
    if not names:
        return []
    return [f"left out, as no picture or video of a kind that is read: {len(names):,} ({named(names)})"]


def named(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    return ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")


def unknown_kind(path: Path | str) -> DposeError:
    """Return the error for a file that is neither."""
    return DposeError(
        "file-kind-unknown", "is neither picture nor video", str(path), f"pictures: {KINDS}; videos: {CONTAINERS}"
    )


def kind_of_name(path: Path) -> Kind:
    """Return what the suffix of a name says that a file is."""
    suffix = path.suffix.lower()
    return "picture" if suffix in IMAGE_SUFFIXES else "video" if suffix in VIDEO_SUFFIXES else ""


def kind_of_bytes(data: bytes) -> Kind:
    """Return what the first `LOOKED_AT` bytes of a file say that it is."""
    if data.startswith(b"GIF8"):
        try:
            return "video" if read_header(data).images > 1 else "picture"
        except HeaderError:
            return "picture"  # and its reader says what is wrong with it
    riff = data[8:12] if data[:4] == b"RIFF" else b""
    if data.startswith(_PICTURES) or riff == b"WEBP" or brand(data):
        return "picture"
    if data.startswith(_VIDEOS) or riff == b"AVI " or data[4:8] in _QUICKTIME or _is_stream(data):
        return "video"
    return ""


def _is_stream(data: bytes) -> bool:
    """True for an MPEG transport stream (packets of 188 bytes, or 192 with a time before each), H.264 and HEVC."""
    for first, length in ((0, 188), (4, 192)):
        places = range(first, len(data), length)
        if len(places) > 1 and all(data[at] == 0x47 for at in places):
            return True
    start = next((len(mark) for mark in _STARTS if data.startswith(mark)), 0)
    if not start or len(data) <= start:
        return False
    head = data[start]
    return (head < 0x80 and head & 0x1F in (_H264_SPS, 9)) or head >> 1 in (_HEVC_VPS, 35)
