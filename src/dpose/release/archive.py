"""The compact archive of a released picture: cell values, mask, sizes and statement in one `.npz`, nothing pickled.

    data = pack(released, statement)
    released, statement = unpack(data, "a.npz")       # bit for bit

Seed 002, Tables III and IV store averages in place of pixels. Here they are whole gray levels, as released, so what is
restored is the picture itself. The file opens with `numpy.load(..., allow_pickle=False)`; `about` is JSON as bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.images import MAX_PIXELS
from dpose.privacy.accounting import Event
from dpose.privacy.statement import PrivacyStatement
from dpose.release.embed import LINE, bound_to, check_digest
from dpose.release.mechanism import TYPES, NoiseStage, Released
from dpose.release.operators import BlockSums, Cells, RegionSums
from dpose.release.restoration import PAINTED, Restoration
from dpose.release.sealing import PIXELS, SIZES, SUMS, check_seal, pixels_digest, sealed, sums_digest

VERSION = 2
"""1 had no seal."""
_SIZES = SIZES
_ABOUT_LIMIT = 1 << 20
_SPARE = 256
"""Bytes that NumPy's own header may add to an array."""


def pack_archive(released: Released, statement: PrivacyStatement) -> bytes:
    """The archive's content."""
    cells = released.cells
    regions = isinstance(cells, RegionSums)
    about = {
        "version": VERSION,
        **{name: getattr(cells, name, 1) for name in _SIZES},
    }
    mask = np.packbits(cells.mask) if isinstance(cells, RegionSums) else None
    made, line = sealed(released, statement)
    bound = bound_to(_digest(about, released.values, mask), made)
    about["statement"] = json.loads(bound.to_json())
    about[LINE] = line
    arrays: dict[str, NDArray[Any]] = {
        "about": np.frombuffer(json.dumps(about, separators=(",", ":")).encode(), np.uint8),
        "values": released.values,
    }
    if regions and mask is not None:
        arrays["mask"] = mask
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, array in arrays.items():
            # a fixed date: equal releases give equal bytes, and no clock is published
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            raw = io.BytesIO()
            np.lib.format.write_array(raw, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            file.writestr(entry, raw.getvalue())
    return out.getvalue()


def unpack(data: bytes, where: str) -> tuple[Released, PrivacyStatement]:
    """The released picture and its statement.

    Args:
        data: An archive's content.
        where: The file, for errors.

    Raises:
        DposeError: it is no archive, was altered, is not what was sealed, or was made by a newer dpose.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            about = _about(file, where)
            cells, values, mask = _content(file, about)
    except DposeError:
        raise
    except (
        zipfile.BadZipFile,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        OSError,
        NotImplementedError,
        MemoryError,
        RecursionError,
    ) as error:
        raise DposeError("the archive is damaged or is none of dpose's", where) from error
    except Exception as error:
        if type(error).__module__ == "zlib":
            raise DposeError("the archive is damaged", where) from error
        raise
    line = about.pop(LINE, "")
    statement = PrivacyStatement.from_json(json.dumps(about.pop("statement")), where)
    check_digest(statement, _digest(about, values, mask), where)
    restoration = Restoration.recorded(statement.release)
    noise = [NoiseStage(one, b"").variance for one in statement.events if not isinstance(one, Event)]
    released = Released(cells, values, max(noise, default=0.0), restoration)
    if statement.seal or line:
        found = {SUMS: sums_digest(released)}
        if restoration == PAINTED:  # others are floating point, whose last digit differs between machines
            found[PIXELS] = pixels_digest(released.picture())
        check_seal(statement, line, found, where)
    return released, statement


def _about(file: zipfile.ZipFile, where: str) -> dict[str, Any]:
    about = json.loads(_array(file, "about", _ABOUT_LIMIT).tobytes())
    version = about["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("no version")
    if version > VERSION:
        raise DposeError(f"has version {version}: made by a newer dpose", where, "update dpose and try again")
    if set(about) != {"version", "statement", *_SIZES, *([LINE] if version > 1 else [])}:
        raise ValueError("other fields")
    if not isinstance(about.get(LINE, ""), str):
        raise ValueError("no seal")
    for name in _SIZES:
        if not isinstance(about[name], int) or isinstance(about[name], bool) or about[name] < 1:
            raise ValueError(f"{name} is no size")
    if (
        about["height"] * about["width"] > MAX_PIXELS
        or about["channels"] not in (1, 3)
        or about["peak"] not in TYPES
    ):
        raise ValueError("sizes out of range")
    # as for what is released: without it two numbers could ask for any amount of memory
    if about["block"] > min(about["height"], about["width"]) or about["block"] % about["subdivide"]:
        raise ValueError("blocks out of range")
    found: dict[str, Any] = about
    return found


def _content(
    file: zipfile.ZipFile, about: dict[str, Any]
) -> tuple[Cells, NDArray[Any], NDArray[np.uint8] | None]:
    height, width, channels, peak, block, n = (about[name] for name in _SIZES)
    blocks = BlockSums(height, width, block, channels, peak)
    cells: Cells = blocks
    mask = None
    wanted = {"about.npy", "values.npy"}
    if n > 1:
        wanted.add("mask.npy")
        count = blocks.rows * blocks.columns
        mask = _array(file, "mask", (count + 7) // 8 + _SPARE)
        flags = np.unpackbits(mask)[:count].astype(np.bool_).reshape(blocks.rows, blocks.columns)
        cells = RegionSums(height, width, block, n, flags, channels, peak)
    if sorted(file.namelist()) != sorted(wanted):
        raise ValueError("other members")
    kind = np.dtype(TYPES[peak])
    values = _array(file, "values", cells.areas.size * channels * kind.itemsize + _SPARE)
    if values.shape != (cells.areas.size, channels) or values.dtype != kind:
        raise ValueError("values of another shape")
    return cells, values, mask


def _array(file: zipfile.ZipFile, name: str, limit: int) -> NDArray[Any]:
    """One member, refused before it is expanded if it says that it is larger than it can be."""
    entry = file.getinfo(f"{name}.npy")
    if entry.file_size > limit + _SPARE:
        raise ValueError(f"{name} is too large")
    with file.open(entry) as raw:
        content = raw.read(limit + _SPARE + 1)
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return array


def _digest(about: dict[str, Any], values: NDArray[Any], mask: NDArray[np.uint8] | None) -> str:
    sizes = json.dumps({name: about[name] for name in ("version", *_SIZES)}, sort_keys=True)
    digest = hashlib.sha256(sizes.encode() + b"\0" + values.astype(values.dtype.newbyteorder("<")).tobytes())
    if mask is not None:
        digest.update(b"\0" + mask.tobytes())
    return digest.hexdigest()
