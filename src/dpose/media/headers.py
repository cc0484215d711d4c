"""What a picture file says about itself, read before a decoder touches it: format, size, channels, bits, wholeness.

Decoders differ in what they do with a file that stops early (some return a picture whose lower half is
grey) and in how much memory a header can make them ask for. So both are settled here, from the bytes alone.

Channels and bits are settled here too, because a release publishes them: a decoder that looks for colour in a palette
or in pixels lets one changed pixel turn a grey picture into a coloured one, and no noise hides that.
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
_PNG_GREY = (0, 4)  # colour types: grey, and grey with transparency


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
        channels: 1 where the format's own fields say grey (with or without transparency), else 3. A palette's
            colours do not count: a picture with a palette has 3.
        depth: Bits that a decoded value takes, 8 or 16.
        lossy: Whether the pixels went through lossy compression.
    """

    format: str
    width: int
    height: int
    complete: bool
    channels: int = 3
    depth: int = 8
    lossy: bool = False


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
    channels, depth = 3, 8
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
            return Header("jpeg", width, height, True, channels, depth, lossy=True)
        if at + 4 > len(data):
            break
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _JPEG_FRAMES:
            precision, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            channels, depth = 1 if components == 1 else 3, 8 if precision <= 8 else 16
        # After a scan's own header comes entropy-coded data; the search for the next 0xFF passes over it.
        at += 2 + length
    if not width:
        raise HeaderError("its header is cut short")
    return Header("jpeg", width, height, False, channels, depth, lossy=True)


def _png(data: bytes) -> Header:
    width, height, bits, kind = struct.unpack_from(">IIBB", data, 16)
    at, complete = len(_PNG), False
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IEND":
            complete = True
            break
        at += 12 + length
    channels = 1 if kind in _PNG_GREY else 3
    return Header("png", width, height, complete, channels, 16 if bits == 16 else 8)


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
    return Header("webp", width, height, complete=len(data) >= declared + 8, lossy=_webp_lossy(data, 12))


def _webp_lossy(data: bytes, at: int) -> bool:
    """Whether a chunk from `at` on holds lossily compressed pixels, also one inside a frame of an animation."""
    while at + 8 <= len(data):
        name, (length,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        if name == b"VP8 ":
            return True
        if name == b"ANMF" and _webp_lossy(data[at + 24 : at + 8 + length], 0):
            return True
        at += 8 + length + length % 2
    return False


def _bmp(data: bytes) -> Header:
    (declared,) = struct.unpack_from("<I", data, 2)
    width, height = struct.unpack_from("<ii", data, 18)
    return Header("bmp", abs(width), abs(height), complete=len(data) >= declared)
