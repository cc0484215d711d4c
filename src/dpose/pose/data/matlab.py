"""Arrays of numbers from MATLAB's .mat files (level 5, as MATLAB 5 to 7.2 and scipy write them), and nothing else.

    preds = read_mat(Path("preds.mat"), ("preds",)).get("preds")

`scipy.io.loadmat` crashes the process on some damaged files. Here each size is checked against the available bytes
before anything is read or allocated, and only the named real arrays of numbers are read: no cells, structures,
objects or functions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import read_bytes

LARGEST = 1 << 30
"""Size of the largest array that is read, bytes."""
_HEADER, _MATRIX, _COMPRESSED, _FLAGS, _SIZES, _NAME = 128, 14, 15, 6, 5, 1
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x800


class _MatError(ValueError):
    """The file is not valid in its format."""


def read_mat(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read the real arrays of numbers with these names, as far as they exist.

    Args:
        path: The file.
        names: Names of variables; others in the file are ignored.

    Returns:
        Arrays by name, with the file's types and shapes (two dimensions at least).
    """
    try:
        return _arrays(read_bytes(path), names)
    except (_MatError, zlib.error, struct.error) as error:
        raise DposeError(
            "matlab-unreadable", f"not a readable MATLAB file ({error})", str(path), "download it again"
        ) from error


def _arrays(data: bytes, names: Collection[str]) -> dict[str, NDArray[Any]]:
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(data[124:128])
    if order is None:
        raise _MatError("of another level than 5" if data else "empty")
    arrays = {}
    for kind, content in _elements(memoryview(data)[_HEADER:], order):
        if kind == _COMPRESSED:
            unpacked = zlib.decompressobj()
            content = memoryview(unpacked.decompress(content, LARGEST + 4096))
            if unpacked.unconsumed_tail:
                raise _MatError(f"a variable of more than {LARGEST:,} bytes")
            kind, content = next(_elements(content, order), (0, memoryview(b"")))
        if kind == _MATRIX and (made := _array(content, order, names)):
            arrays[made[0]] = made[1]
    return arrays


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield kind and content of the successive elements of `data`."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # up to four bytes in the place of the size
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise _MatError("a small element that is not small")
            at += 8
        else:
            # compressed elements have no padding
            at = start + size + (-size % 8 if kind != _COMPRESSED else 0)
        if start + size > len(data):
            raise _MatError("cut short")
        yield kind, data[start : start + size]


def _array(content: memoryview, order: str, names: Collection[str]) -> tuple[str, NDArray[Any]] | None:
    """Return name and value of a variable; None if it is not one of `names`, or no array of real numbers."""
    parts = list(_elements(content, order))
    if [kind for kind, _ in parts[:3]] != [_FLAGS, _SIZES, _NAME] or len(parts[0][1]) != 8:
        return None
    (flags,) = struct.unpack_from(f"{order}I", parts[0][1])
    name = bytes(parts[2][1]).decode("latin-1")
    dtype = _CLASSES.get(flags & 0xFF)
    if name not in names or dtype is None or flags & _COMPLEX or len(parts) != 4:
        return None
    sizes = np.frombuffer(parts[1][1][: len(parts[1][1]) // 4 * 4], f"{order}i4").astype(int).tolist()
    kind, raw = parts[3]
    stored = _STORED.get(kind)
    if stored is None or len(sizes) < 2 or min(sizes) < 0:
        raise _MatError(f"{name[:40]!r} is no array")
    count = 1
    for size in sizes:
        count *= size
    if len(raw) != count * np.dtype(stored).itemsize:
        raise _MatError(f"{name[:40]!r} has not as many values as its shape says")
    values = np.frombuffer(raw, f"{order}{stored}", count).astype(dtype)
    return name, values.reshape(sizes, order="F")
