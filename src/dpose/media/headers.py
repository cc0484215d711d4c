"""What a picture file says about itself, read before a decoder touches it: format, size, and if it is whole.

Decoders differ in what they do with a file that stops early (some return a picture whose lower half is
grey) and in how much memory a header can make them ask for. So both are settled here, from the bytes alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {
    0xC4,
    0xC8,
    0xCC,
}  # start-of-frame markers; the rest are tables
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length: TEM and restarts
_JPEG_END = 0xD9


class HeaderError(ValueError):
    """The bytes are no picture of a known format, or their header is broken."""


@dataclass(frozen=True)
class Header:
    """A picture file's own account of itself.

    Attributes:
        format: "jpeg", "png", "webp" or "bmp".
        width: Pixels, as stored (before any EXIF rotation).
        height: Pixels, as stored.
        complete: False when the file ends before its own end mark or its declared length.
    """

    format: str
    width: int
    height: int
    complete: bool


def read_header(data: bytes) -> Header:
    """The header of a JPEG, PNG, WebP or BMP file.

    Raises:
        HeaderError: none of the four, or the size cannot be read.
    """
    try:
        if data.startswith(_JPEG):
            return _jpeg(data)
        if data.startswith(_PNG):
            return _png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data.startswith(b"BM"):
            return _bmp(data)
    except (struct.error, IndexError):
        raise HeaderError("its header is cut short") from None
    raise HeaderError("not a JPEG, PNG, WebP or BMP picture")


def _jpeg(data: bytes) -> Header:
    """Walk the segments by their lengths: an EXIF thumbnail is a whole JPEG with an end mark of its own."""
    width = height = 0
    at = 2
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 1 >= len(data):
            break
        marker = data[at + 1]
        if marker in (0x00, 0xFF) or marker in _JPEG_BARE:  # stuffed byte, fill byte, restart
            at += 1 if marker == 0xFF else 2
            continue
        if marker == _JPEG_END:
            if not width:
                raise HeaderError("a JPEG without a frame")
            return Header("jpeg", width, height, complete=True)
        if at + 4 > len(data):
            break
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
        # After a scan's own header comes entropy-coded data; the search for the next 0xFF passes over it.
        at += 2 + length
    if not width:
        raise HeaderError("its header is cut short")
    return Header("jpeg", width, height, complete=False)


def _png(data: bytes) -> Header:
    width, height = struct.unpack_from(">II", data, 16)
    at, complete = len(_PNG), False
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IEND":
            complete = True
            break
        at += 12 + length
    return Header("png", width, height, complete)


def _webp(data: bytes) -> Header:
    (declared,) = struct.unpack_from("<I", data, 4)
    chunk = data[12:16]
    if chunk == b"VP8X":
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
    elif chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif chunk == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise HeaderError("a WebP of an unknown kind")
    return Header("webp", width, height, complete=len(data) >= declared + 8)


def _bmp(data: bytes) -> Header:
    (declared,) = struct.unpack_from("<I", data, 2)
    width, height = struct.unpack_from("<ii", data, 18)
    return Header("bmp", abs(width), abs(height), complete=len(data) >= declared)
