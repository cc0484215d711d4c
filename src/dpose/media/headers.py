"""What a picture file says about itself, read before a decoder touches it: format, size, channels, bits, wholeness.

Decoders differ in what they do with a file that stops early (some return a picture whose lower half is
grey) and in how much memory a header can make them ask for. So both are settled here, from the bytes alone.

Channels and bits are settled here too, because a release publishes them: a decoder that looks for colour in a palette
or in pixels lets one changed pixel turn a grey picture into a coloured one, and no noise hides that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
_ORIENTATION = 0x0112
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
        alpha: Whether the format's own fields say that pixels can be transparent.
        key: Of a PNG without alpha channel: the one gray level, or red, green and blue, that is transparent, as
            decoded. Empty for none.
    """

    format: str
    width: int
    height: int
    complete: bool
    channels: int = 3
    depth: int = 8
    lossy: bool = False
    alpha: bool = False
    key: tuple[int, ...] = ()


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
    chunks = dict(reversed(list(_png_chunks(data))))  # of several the first counts
    channels, depth = 1 if kind in _PNG_GREY else 3, 16 if bits == 16 else 8
    clear, key = chunks.get(b"tRNS"), ()
    if clear is not None and kind in (0, 2):
        most = max(1, (1 << bits) - 1)
        key = tuple((level & most) * ((1 << depth) - 1) // most for level in _levels(clear, channels))
    alpha = kind in (4, 6) or clear is not None
    return Header("png", width, height, b"IEND" in chunks, channels, depth, alpha=alpha, key=key)


def _levels(clear: bytes, channels: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{channels}H", clear)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        name = data[at + 4 : at + 8]
        yield name, data[at + 8 : at + 8 + length] if name in (b"tRNS", b"eXIf") else b""
        if name == b"IEND":
            return
        at += 12 + length


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
    chunks = list(_webp_chunks(data, 12))
    lossy = any(name == b"VP8 " for name, _ in chunks)
    alpha = any(
        name == b"ALPH" or (name == b"VP8X" and body[0] & 0x10) or (name == b"VP8L" and body[4] & 0x10)
        for name, body in chunks
    )
    return Header("webp", width, height, len(data) >= declared + 8, lossy=lossy, alpha=alpha)


def _webp_chunks(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    """Names and contents of the chunks from `at` on, also of those inside the frames of an animation."""
    while at + 8 <= len(data):
        name, (length,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        body = data[at + 8 : at + 8 + length]
        yield name, body
        if name == b"ANMF":
            yield from _webp_chunks(body, 16)
        at += 8 + length + length % 2


def _bmp(data: bytes) -> Header:
    (declared,) = struct.unpack_from("<I", data, 2)
    size, width, height, _, _, packing = struct.unpack_from("<IiiHHI", data, 14)
    masks = packing in (3, 6) and (size >= 56 or packing == 6)
    alpha = masks and struct.unpack_from("<I", data, 66)[0] != 0
    return Header("bmp", abs(width), abs(height), complete=len(data) >= declared, alpha=alpha)


def orientation(data: bytes) -> int:
    """EXIF orientation of a PNG or WebP file, 1 to 8; 1, as it is stored, where there is none."""
    chunks = _png_chunks(data) if data.startswith(_PNG) else _webp_chunks(data, 12)
    for name, body in chunks if data.startswith((_PNG, b"RIFF")) else ():
        if name in (b"eXIf", b"EXIF"):
            tags = body.removeprefix(b"Exif\0\0")
            order = ">" if tags.startswith(b"MM") else "<"
            try:
                (first,) = struct.unpack_from(order + "I", tags, 4)
                (count,) = struct.unpack_from(order + "H", tags, first)
                for at in range(first + 2, first + 2 + 12 * count, 12):
                    tag, _, _, value = struct.unpack_from(order + "HHIH", tags, at)
                    if tag == _ORIENTATION and 1 <= value <= 8:
                        return int(value)
            except struct.error:
                return 1
    return 1
