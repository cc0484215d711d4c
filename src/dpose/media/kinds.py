"""What a file is, picture or video, by its first bytes and never by its name: the two closed lists of what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from dpose.files import open_regular
from dpose.media.headers import HeaderError, read_header
from dpose.media.heif import brand

Kind = Literal["picture", "video", ""]
LOOKED_AT = 1_024
"""Bytes that are looked at; of a GIF, the whole: only its end says whether it moves."""

_PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"II*\0", b"MM\0*")
_VIDEOS = (
    b"\x1aE\xdf\xa3",  # Matroska, WebM
    b"FLV\x01",
    bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"),  # ASF: WMV
    b"\0\0\x01\xba",  # MPEG program stream
)
_QUICKTIME = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
_STARTS = (b"\0\0\0\x01", b"\0\0\x01")
_H264_SPS, _HEVC_VPS = 7, 32


def kind_of(path: str | Path) -> Kind:
    """Return what a regular file is; "" for neither, and for what cannot be read or is no regular file."""
    try:
        with open_regular(Path(path)) as file:
            data = file.read(LOOKED_AT)
            if data.startswith(b"GIF8"):
                data += file.read()
    except OSError:
        return ""
    return kind_of_bytes(data)


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
