"""Headers of AVIF and HEIC pictures: boxes of ISO/IEC 14496-12, and the properties of ISO/IEC 23008-12."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

BRANDS = {b"avif": "avif", b"heic": "heic", b"heix": "heic", b"heim": "heic", b"heis": "heic"}
"""Formats of still pictures by the brand of their file."""
_ALPHA = b"auxiliary:alpha"


@dataclass(frozen=True)
class HeifHeader:
    """What the properties of a file's primary picture say.

    Attributes:
        width: Pixels, as coded, or as cut out of that.
        height: Pixels, as coded, or as cut out of that.
        complete: False if the file ends before a box does.
        channels: 1 for a picture that is declared grey, else 3.
        alpha: True if the file holds a picture of transparency.
        turned: True if a quarter turn exchanges width and height.
        transformed: True if the picture is cut, turned or mirrored before it is shown.
    """

    width: int
    height: int
    complete: bool
    channels: int
    alpha: bool
    turned: bool
    transformed: bool


def brand(data: bytes) -> str:
    """Return "avif" or "heic" for the first bytes of such a picture; "" for others, videos among them."""
    if data[4:8] != b"ftyp":
        return ""
    (size,) = struct.unpack_from(">I", data)
    brands = [data[8:12], *(data[at : at + 4] for at in range(16, min(size, len(data), 256), 4))]
    still = brands[0] in BRANDS or brands[0] in (b"mif1", b"msf1")
    return next((BRANDS[name] for name in brands if name in BRANDS), "") if still else ""


def read_heif(data: bytes) -> HeifHeader:
    """Read the header of an AVIF or HEIC file.

    Raises:
        ValueError: no picture, or none with a size.
        struct.error: a box is cut short.
    """
    top = list(_boxes(data, 0, len(data)))
    complete = bool(top) and top[-1][2] <= len(data)
    meta = next(((start, end) for name, start, end in top if name == b"meta"), None)
    if meta is None:
        raise ValueError("it holds no picture")
    inside = {name: (start, end) for name, start, end in _boxes(data, meta[0] + 4, meta[1])}
    if not {b"pitm", b"iprp"} <= inside.keys():
        raise ValueError("it holds no picture")
    at = inside[b"pitm"][0]
    (primary,) = struct.unpack_from(">I" if data[at] else ">H", data, at + 4)
    parts = {name: (start, end) for name, start, end in _boxes(data, *inside[b"iprp"])}
    if not {b"ipco", b"ipma"} <= parts.keys():
        raise ValueError("its picture has no properties")
    properties = list(_boxes(data, *parts[b"ipco"]))
    own = [
        properties[index - 1] for index in _associated(data, parts[b"ipma"][0], primary) if 0 < index <= len(properties)
    ]
    found = {name: start for name, start, _ in own}
    if b"ispe" not in found:
        raise ValueError("its size is not declared")
    width, height = struct.unpack_from(">II", data, found[b"ispe"] + 4)
    if b"clap" in found:
        across, by, down, under = struct.unpack_from(">IIII", data, found[b"clap"])
        if not (by and under and across <= width * by and down <= height * under):
            raise ValueError("what is shown of it is larger than it")
        width, height = across // by, down // under
    grey = b"pixi" in found and data[found[b"pixi"] + 4] == 1
    quarter = b"irot" in found and data[found[b"irot"]] & 1 == 1
    alpha = any(name == b"auxC" and _ALPHA in data[start:end] for name, start, end in properties)
    moved = b"imir" in found or b"clap" in found or (b"irot" in found and data[found[b"irot"]] & 3 != 0)
    return HeifHeader(width, height, complete, 1 if grey else 3, alpha, quarter, moved)


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and end of the content of each box."""
    while start + 8 <= end:
        (size,) = struct.unpack_from(">I", data, start)
        name, head = data[start + 4 : start + 8], 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start + 8)
            head = 16
        size = size or end - start  # 0 is all that is left
        if size < head:
            raise ValueError("a box has no length")
        yield name, start + head, start + size
        start += size


def _associated(data: bytes, at: int, item: int) -> list[int]:
    """Return the numbers of an item's properties, counted from 1."""
    version, wide = data[at], data[at + 3] & 1
    (entries,) = struct.unpack_from(">I", data, at + 4)
    at += 8
    for _ in range(min(entries, 65_535)):
        (own,) = struct.unpack_from(">I" if version else ">H", data, at)
        at += 4 if version else 2
        count, at = data[at], at + 1
        size = 2 if wide else 1
        numbers = [int.from_bytes(data[at + k * size : at + (k + 1) * size], "big") for k in range(count)]
        if own == item:
            return [number & (0x7FFF if wide else 0x7F) for number in numbers]
        at += count * size
    return []
