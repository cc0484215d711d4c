"""A text inside a PNG or JPEG file: put in, taken out, the picture's own bytes untouched."""

from __future__ import annotations

import struct
import zlib

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_COMMENT = 0xFE
_LIMIT = 1 << 20
_COMPRESSED = b"\1\0\0\0"
"""What a PNG says of a text between its name and its bytes: compressed, by deflate, in no language."""


def embed_text(data: bytes, name: str, text: str) -> bytes:
    """The file with `text` in it under `name`: a compressed iTXt chunk of a PNG, a comment segment of a JPEG.

    Args:
        data: A whole PNG or JPEG file.
        name: ASCII, at most 79 letters.
        text: At most about 60 KB for a JPEG.

    Raises:
        ValueError: another format, or a text too long for it.
    """
    if data.startswith(_PNG):
        body = name.encode("latin-1") + b"\0" + _COMPRESSED + zlib.compress(text.encode(), 9)
        chunk = struct.pack(">I", len(body)) + b"iTXt" + body
        chunk += struct.pack(">I", zlib.crc32(b"iTXt" + body))
        return data[:33] + chunk + data[33:]
    if data.startswith(_JPEG):
        body = name.encode("latin-1") + b"\0" + zlib.compress(text.encode(), 9)
        if len(body) > 65_533:
            raise ValueError(f"a text of {len(body)} bytes does not fit into a JPEG comment")
        return data[:2] + b"\xff\xfe" + struct.pack(">H", len(body) + 2) + body + data[2:]
    raise ValueError("neither PNG nor JPEG")


def extract_text(data: bytes, name: str) -> tuple[str | None, bytes]:
    """The text under `name` and the file as it was without it; None and the file itself where there is none.

    Raises:
        ValueError: the text is damaged or longer than a megabyte, there are two of it, or it stands there in more bytes
            than `embed_text` takes.
    """
    mark = name.encode("latin-1") + b"\0"
    parts, head = (_png_texts(data), _COMPRESSED) if data.startswith(_PNG) else (_comments(data), b"")
    found = [(start, end, body[len(mark) :]) for start, end, body in parts if body.startswith(mark)]
    if not found:
        return None, data
    if len(found) > 1:
        raise ValueError("there are several statements in one file")
    ((start, end, packed),) = found
    if not packed.startswith(head):
        raise ValueError("the text is damaged: its header is another")
    packed = packed[len(head) :]
    try:
        return inflated(packed, _LIMIT).decode(), data[:start] + data[end:]
    except UnicodeDecodeError as error:
        raise ValueError("the text is damaged") from error


def inflated(packed: bytes, limit: int, bits: int = zlib.MAX_WBITS) -> bytes:
    """What `packed` expands to, if nothing else is in it.

    How a library compresses is not compared, but a stream may be no longer than the quickest way to write it.

    Args:
        packed: A stream of deflate.
        limit: Bytes that it may expand to.
        bits: As zlib has them: negative for a stream without header and checksum.

    Raises:
        ValueError: it is damaged or too long, or bytes stand in it or behind it that expand to nothing.
    """
    try:
        expand = zlib.decompressobj(bits)
        raw = expand.decompress(packed, limit)
    except zlib.error as error:
        raise ValueError("the text is damaged") from error
    if expand.unconsumed_tail or not expand.eof:
        raise ValueError("the text is cut short or too long")
    if expand.unused_data:
        raise ValueError("the text is damaged: something stands behind it")
    if len(packed) > len(zlib.compress(raw, 1)) * 65 // 64 + 64:
        raise ValueError("the text is damaged: something stands in it")
    return raw


def _png_texts(data: bytes) -> list[tuple[int, int, bytes]]:
    at, found = len(_PNG), []
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"iTXt":
            found.append((at, at + 12 + length, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def _comments(data: bytes) -> list[tuple[int, int, bytes]]:
    at, found = 2, []
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", data, at + 2)
        if data[at + 1] == _COMMENT:
            found.append((at, at + 2 + length, data[at + 4 : at + 2 + length]))
        at += 2 + length
    return found
