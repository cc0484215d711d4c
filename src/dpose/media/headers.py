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

from dpose.media.heif import brand, read_heif

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start-of-frame markers; the rest are tables
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length: TEM and restarts
_JPEG_END = 0xD9
_ORIENTATION = 0x0112
_PNG_GREY = (0, 4)  # colour types: grey, and grey with transparency
_TIFF = (b"II*\0", b"MM\0*")
_TIFF_TYPES = {1: "B", 3: "H", 4: "I"}
_TIFF_LOSSY = (6, 7)  # JPEG
_TIFF_READ = (1, 2, 3, 4, 5, 8, 32773, 32946, *_TIFF_LOSSY)
"""Compressions that are read: none, of a fax, LZW, deflate, PackBits, JPEG."""
_MOST_PAGES = 10_000
_GIF = (b"GIF87a", b"GIF89a")
KINDS = "JPEG, PNG, WebP, BMP, TIFF, GIF, AVIF or HEIC"


class HeaderError(ValueError):
    """The bytes are no picture of a known format, or their header is broken."""


@dataclass(frozen=True)
class Header:
    """A picture file's own account of itself.

    Attributes:
        format: "jpeg", "png", "webp", "bmp", "tiff", "gif", "avif" or "heic".
        width: Pixels, as stored (before any EXIF rotation).
        height: Pixels, as stored.
        complete: False when the file ends before its own end mark or its declared length.
        channels: 1 where the format's own fields say grey (with or without transparency), else 3. A palette's
            colours do not count: a picture with a palette has 3.
        depth: Bits that a decoded value takes, 8 or 16.
        lossy: Whether the pixels went through lossy compression.
        images: How many pictures the file holds: pages, or frames. The first is read.
        turned: Whether a TIFF's or HEIC's own fields exchange width and height when the picture is shown.
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
    images: int = 1
    turned: bool = False


def read_header(data: bytes) -> Header:
    """The header of a picture file (`KINDS`).

    Raises:
        HeaderError: none of them, or the size cannot be read.
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
        if data.startswith(_TIFF):
            return _tiff(data)
        if data.startswith(_GIF):
            return _gif(data)
        if kind := brand(data):
            return _heif(data, kind)
    except (struct.error, IndexError):
        raise HeaderError("its header is cut short") from None
    raise HeaderError(f"not a {KINDS} picture")


def _heif(data: bytes, kind: str) -> Header:
    try:
        said = read_heif(data)
    except ValueError as error:
        raise HeaderError(str(error)) from None
    if kind == "avif" and said.transformed:
        raise HeaderError("an AVIF that is turned or mirrored when it is shown; save it upright")
    return Header(
        kind,
        said.width,
        said.height,
        said.complete,
        said.channels if kind == "avif" else 3,
        lossy=True,
        alpha=said.alpha,
        turned=said.turned,
    )


def _tiff(data: bytes) -> Header:
    order = "<" if data.startswith(b"II") else ">"
    (at,) = struct.unpack_from(order + "I", data, 4)
    tags, following = _tiff_tags(data, at, order)
    width, height = tags[256][0], tags[257][0]
    bits, kind, packing = tags.get(258, (1,)), tags.get(262, (1,))[0], tags.get(259, (1,))[0]
    samples, numbers = tags.get(277, (1,))[0], tags.get(339, (1,))
    colours = 3 if kind in (2, 6) else 1
    if kind not in (0, 1, 2, 3, 6) or samples not in (colours, colours + 1):
        raise HeaderError("a TIFF of colours that are not read; save it as grey or RGB")
    if len(set(bits)) > 1 or bits[0] not in (1, 8, 16) or set(numbers) - {1}:
        raise HeaderError(f"a TIFF of {bits[0]} bits or of fractions; save it with 8 or 16 bits")
    if packing not in _TIFF_READ:
        raise HeaderError("a TIFF whose compression is not read; save it with LZW or none")
    extra = tags.get(338, (0,) * (samples - colours))
    if 1 in extra:
        raise HeaderError("a TIFF whose colours are multiplied by transparency; save it without")
    places = zip(tags.get(273, tags.get(324, ())), tags.get(279, tags.get(325, ())), strict=False)
    ends = [start + length for start, length in places]
    images, seen = 1, {at}
    while following and following not in seen and images < _MOST_PAGES:
        seen.add(following)
        images += 1
        _, following = _tiff_tags(data, following, order)
    return Header(
        "tiff",
        width,
        height,
        complete=bool(ends) and max(ends) <= len(data),
        channels=1 if kind in (0, 1) else 3,
        depth=16 if bits[0] == 16 else 8,
        lossy=packing in _TIFF_LOSSY,
        alpha=samples > colours,
        images=images,
        turned=tags.get(274, (1,))[0] in (5, 6, 7, 8),
    )


def _tiff_tags(data: bytes, at: int, order: str) -> tuple[dict[int, tuple[int, ...]], int]:
    """Return the whole numbers of a directory by tag, and where the next directory stands; 0 for none."""
    (count,) = struct.unpack_from(order + "H", data, at)
    tags: dict[int, tuple[int, ...]] = {}
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, many = struct.unpack_from(order + "HHI", data, entry)
        code = _TIFF_TYPES.get(kind)
        if code is None or many * struct.calcsize(code) > len(data):
            continue
        inline = many * struct.calcsize(code) <= 4
        place = entry + 8 if inline else struct.unpack_from(order + "I", data, entry + 8)[0]
        tags[tag] = struct.unpack_from(f"{order}{many}{code}", data, place)
    if 256 not in tags or 257 not in tags:
        raise HeaderError("a TIFF without a size")
    return tags, struct.unpack_from(order + "I", data, at + 2 + 12 * count)[0]


def _gif(data: bytes) -> Header:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    images, clear, complete = 0, False, False
    while at < len(data):
        if data[at] == 0x3B:
            complete = True
            break
        if data[at] == 0x21:
            clear |= images == 0 and data[at + 1] == 0xF9 and data[at + 3] & 1 == 1
            at = _after_blocks(data, at + 2)
        elif data[at] == 0x2C:
            left, top, across, down, own = struct.unpack_from("<HHHHB", data, at + 1)
            # what the first picture leaves free of the screen is transparent
            clear |= images == 0 and (left, top, across, down) != (0, 0, width, height)
            images += 1
            at = _after_blocks(data, at + 11 + (3 << (own & 7) + 1 if own & 0x80 else 0))
        else:
            break
    if not images:
        raise HeaderError("a GIF without a picture")
    return Header("gif", width, height, complete, alpha=clear, images=images)


def _after_blocks(data: bytes, at: int) -> int:
    """Return where a chain of blocks ends, each of which begins with its length."""
    while data[at]:
        at += 1 + data[at]
    return at + 1


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
    frames = int.from_bytes(chunks.get(b"acTL", b"")[:4], "big")
    return Header("png", width, height, b"IEND" in chunks, channels, depth, images=max(1, frames), alpha=alpha, key=key)


def _levels(clear: bytes, channels: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{channels}H", clear)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        name = data[at + 4 : at + 8]
        yield name, data[at + 8 : at + 8 + length] if name in (b"tRNS", b"eXIf", b"acTL") else b""
        if name == b"IEND":
            return
        at += 12 + length


def without_profile(data: bytes) -> bytes:
    """A PNG without its colour profile, which nothing applies and libpng may complain of; any other file as it is."""
    if not data.startswith(_PNG) or b"iCCP" not in data:
        return data
    kept, at = [data[: len(_PNG)]], len(_PNG)
    while at + 12 <= len(data):
        end = at + 12 + struct.unpack_from(">I", data, at)[0]
        kept.append(b"" if data[at + 4 : at + 8] == b"iCCP" else data[at:end])
        at = end
    return b"".join((*kept, data[at:]))


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
    frames = sum(name == b"ANMF" for name, _ in chunks)
    return Header("webp", width, height, len(data) >= declared + 8, lossy=lossy, images=max(1, frames), alpha=alpha)


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
