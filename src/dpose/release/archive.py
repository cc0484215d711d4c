"""The archive of a released picture: exact noisy sums, mask, sizes and statement in one `.npz`, nothing pickled.

    data = pack_archive(released, statement)
    released, statement = unpack(data, "a.npz")       # the very same sums

Seed 002, Tables III and IV store averages in place of pixels. Here they are the sums as they were released, before any
rounding or cutting off, so that the picture can be restored from them again, and better. The file opens with
`numpy.load(..., allow_pickle=False)`; `about` is JSON as bytes. Nothing else may be in it: headers, members and JSON
are compared with what `pack_archive` writes, so that no original hides behind or between them.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import check_free, parsed_json, read_bytes, write_atomic
from dpose.media.images import MAX_PIXELS
from dpose.media.kinds import kind_of_bytes, kind_of_name
from dpose.media.tags import inflated
from dpose.privacy.events import ExactEvent
from dpose.privacy.statement import Kind, PrivacyStatement, software_versions
from dpose.release.colour import FACTORS, Colour
from dpose.release.embed import (
    LINE,
    SUMS,
    bound_to,
    check_digest,
    check_seal,
    read_sidecar,
    read_stamp,
    sealed,
    stamped_picture,
    sums_digest,
)
from dpose.release.mechanism import TYPES, NoiseStage, Released
from dpose.release.partition import BlockSums, Mask, RegionSums
from dpose.release.released import SIZES, Layers, ReleasedSums, Shown
from dpose.release.restoration import PAINTED, Restoration

VERSION = 3
LEVELS = 2
"""The version of an archive of whole gray levels, which is all that a published algorithm's release has."""
_WORDS = ("colour", "combinations")
_MORE = (*_WORDS, "chroma", "stages")
_ABOUT_LIMIT = 1 << 20
_KINDS = (np.int8, np.int16, np.int32, np.int64)
_HEADER = 30
"""Bytes of a ZIP member's header without its name."""
_SPARE = 256
"""Bytes that NumPy's own header may add to an array."""


def pack_archive(released: Shown, statement: PrivacyStatement) -> bytes:
    """The archive's content."""
    cells = released.cells
    about: dict[str, Any]
    if isinstance(released, ReleasedSums):
        about = {"version": VERSION, **released.layers.sizes}
        arrays = {name: _narrow(released.sums[name]) for name in released.layers.shapes()}
    else:
        about = {"version": LEVELS, **{name: getattr(cells, name, 1) for name in SIZES}}
        arrays = {"values": released.values}
    if isinstance(cells, RegionSums):
        arrays["mask"] = np.packbits(cells.mask)
    made, line = sealed(released, statement)
    about["statement"] = json.loads(bound_to(_digest(about, arrays), made).to_json())
    about[LINE] = line
    members = _members(about, arrays)
    return _framed(members, [_deflated(content) for content in members.values()])


def unpack(data: bytes, where: str) -> tuple[Shown, PrivacyStatement]:
    """The released picture and its statement.

    Args:
        data: An archive's content.
        where: The file, for errors.
    """
    if kind_of_bytes(data) == "picture":
        raise DposeError("archive-damaged", "is a picture, no archive", where, "name the .npz file beside it")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            about = _about(file, where)
            layers, arrays = _content(file, about)
            sizes = [entry.compress_size for entry in file.infolist()]
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
        SyntaxError,
        tokenize.TokenError,  # NumPy's reader of an array's header lets these two out
    ) as error:
        raise DposeError("archive-damaged", "the archive is damaged or is none of dpose's", where) from error
    except Exception as error:
        if type(error).__module__ == "zlib":
            raise DposeError("archive-damaged", "the archive is damaged", where) from error
        raise
    whole, line = dict(about), about.pop(LINE)
    statement = PrivacyStatement.from_json(json.dumps(about.pop("statement")), where)
    check_digest(statement, _digest(about, arrays), where)
    restoration = restoration_of(statement, where)
    released: Shown
    if about["version"] > LEVELS:
        sums = {name: arrays[name].astype(np.int64) for name in layers.shapes()}
        released = ReleasedSums(layers, sums, _variances(statement, layers, where), restoration)
    elif statement.kind in (Kind.PRIVATE, Kind.SEEDED):
        raise DposeError("archive-without-sums", "holds gray levels in place of the sums that were released", where)
    else:
        released = Released(layers.cells, arrays["values"], restoration=restoration)
    check_seal(statement, line, {SUMS: sums_digest(released)}, where)
    members = _members(whole | {"statement": json.loads(statement.to_json())}, arrays)
    if not _holds_only(data, members, sizes):
        raise DposeError("archive-damaged", "the archive holds more than its sums and its statement", where)
    return released, statement


def _members(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    """Return the members of an archive as they are before they are compressed, by name."""
    text = np.frombuffer(json.dumps(about, separators=(",", ":")).encode(), np.uint8)
    made = {}
    for name, array in [("about", text), *sorted(arrays.items(), key=lambda item: item[0] == "mask")]:
        raw = io.BytesIO()
        np.lib.format.write_array(raw, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        made[f"{name}.npy"] = raw.getvalue()
    return made


def _framed(members: Mapping[str, bytes], streams: Sequence[bytes]) -> bytes:
    """Return a ZIP file of members that are compressed already, with nothing in its headers that could differ.

    A fixed date: equal releases give equal bytes, and no clock is published.
    """
    front, central = b"", b""
    for (name, content), stream in zip(members.items(), streams, strict=True):
        common = struct.pack("<5H3I2H", 20, 0, 8, 0, 33, zlib.crc32(content), len(stream), len(content), len(name), 0)
        where = struct.pack("<3H2I", 0, 0, 0, 0o600 << 16, len(front))
        central += b"PK\1\2" + struct.pack("<H", 3 << 8 | 20) + common + where + name.encode()
        front += b"PK\3\4" + common + name.encode() + stream
    end = struct.pack("<4H2IH", 0, 0, len(members), len(members), len(central), len(front), 0)
    return front + central + b"PK\5\6" + end


def _deflated(content: bytes, level: int = 9) -> bytes:
    packing = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packing.compress(content) + packing.flush()


def _holds_only(data: bytes, members: Mapping[str, bytes], sizes: Sequence[int]) -> bool:
    """Whether an archive is these members and nothing else: no byte in a header, behind a stream or behind an array."""
    at, streams = 0, []
    for name, size in zip(members, sizes, strict=True):
        at += _HEADER + len(name)
        streams.append(data[at : at + size])
        at += size
    if data != _framed(members, streams):
        return False
    try:
        return all(
            inflated(stream, len(content) + 1, -zlib.MAX_WBITS) == content
            for content, stream in zip(members.values(), streams, strict=True)
        )
    except ValueError:
        return False


def restoration_of(statement: PrivacyStatement, where: str) -> Restoration:
    """How a picture was made of released values: painted where a published algorithm's statement does not say."""
    recorded = statement.release.get("restoration")
    return PAINTED if recorded is None else Restoration.read(recorded, where)


def _variances(statement: PrivacyStatement, layers: Layers, where: str) -> tuple[float, ...]:
    """Variances of each stage's noise, by the statement: what a restoration needs besides the sums."""
    stages = [NoiseStage(event, b"") for event in statement.events if isinstance(event, ExactEvent)]
    if len(stages) != 1 + layers.staged or len(stages) != len(statement.events):
        raise DposeError(
            "archive-events-differ",
            f"its statement has {len(statement.events)} events, its archive {1 + layers.staged}",
            where,
        )
    return tuple(stage.variance for stage in stages)


def _about(file: zipfile.ZipFile, where: str) -> dict[str, Any]:
    about = parsed_json(_array(file, "about", _ABOUT_LIMIT).tobytes())
    version = about["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < LEVELS:
        raise ValueError("no version")
    if version > VERSION:
        raise DposeError(
            "archive-newer", f"has version {version}: made by a newer dpose", where, "update dpose and try again"
        )
    more = _MORE if version > LEVELS else ()
    if set(about) != {"version", "statement", LINE, *SIZES, *more}:
        raise ValueError("other fields")
    if not isinstance(about[LINE], str):
        raise ValueError("no seal")
    if not all(isinstance(about[name], str) for name in _WORDS if name in more):
        raise ValueError("no words")
    for name in (*SIZES, *(_MORE[len(_WORDS) :] if version > LEVELS else ())):
        if not isinstance(about[name], int) or isinstance(about[name], bool) or about[name] < 1:
            raise ValueError(f"{name} is no size")
    if about["height"] * about["width"] > MAX_PIXELS or about["channels"] not in (1, 3) or about["peak"] not in TYPES:
        raise ValueError("sizes out of range")
    # as for what is released: without it two numbers could ask for any amount of memory
    if about["block"] > min(about["height"], about["width"]) or about["block"] % about["subdivide"]:
        raise ValueError("blocks out of range")
    found: dict[str, Any] = about
    return found


def _content(file: zipfile.ZipFile, about: dict[str, Any]) -> tuple[Layers, dict[str, NDArray[Any]]]:
    height, width, channels, peak, block, n = (about[name] for name in SIZES)
    blocks = BlockSums(height, width, block, channels, peak)
    mask, arrays = None, {}
    if n > 1:
        count = blocks.rows * blocks.columns
        arrays["mask"] = _array(file, "mask", (count + 7) // 8 + _SPARE)
        mask = np.unpackbits(arrays["mask"])[:count].astype(np.bool_).reshape(blocks.rows, blocks.columns)
    layers = _layers(blocks, about, mask)
    kinds: tuple[str, ...]
    shapes: dict[str, tuple[int, int]]
    if about["version"] > LEVELS:
        shapes, kinds = layers.shapes(), tuple(np.dtype(kind).name for kind in _KINDS)
    else:
        shapes, kinds = {"values": (layers.cells.areas.size, channels)}, (np.dtype(TYPES[peak]).name,)
    if sorted(file.namelist()) != sorted(f"{name}.npy" for name in ("about", *arrays, *shapes)):
        raise ValueError("other members")
    for name, shape in shapes.items():
        arrays[name] = _array(file, name, math.prod(shape) * np.dtype(kinds[-1]).itemsize + _SPARE)
        if arrays[name].shape != shape or arrays[name].dtype.name not in kinds:
            raise ValueError(f"{name} of another shape")
    return layers, arrays


def _layers(blocks: BlockSums, about: dict[str, Any], mask: Mask | None) -> Layers:
    if about["version"] <= LEVELS:
        return Layers(blocks, Colour.of("rgb", blocks.channels, gaussian=False), 1, about["subdivide"], mask)
    name, text, factor, stages = (about[name] for name in _MORE)
    colour = Colour.recorded(name, text) if text else Colour.of(name, blocks.channels, gaussian=False)
    plain = "" if colour.times else "grey" if blocks.channels == 1 else "rgb"
    if colour.channels != blocks.channels or (plain and name != plain):
        raise ValueError("other colours")
    if factor not in FACTORS or stages not in (1, 2) or (stages == 2 and mask is None):
        raise ValueError("layers out of range")
    return Layers(blocks, colour, factor, about["subdivide"], mask, stages == 2)


def _narrow(sums: NDArray[np.int64]) -> NDArray[Any]:
    """In the narrowest type that holds them, as released."""
    low, high = int(sums.min(initial=0)), int(sums.max(initial=0))
    return sums.astype(next(k for k in _KINDS if np.iinfo(k).min <= low and high <= np.iinfo(k).max))


def _array(file: zipfile.ZipFile, name: str, limit: int) -> NDArray[Any]:
    """One member, refused before it is expanded if it says that it is larger than it can be."""
    entry = file.getinfo(f"{name}.npy")
    if entry.file_size > limit + _SPARE:
        raise ValueError(f"{name} is too large")
    with file.open(entry) as raw:
        content = raw.read(limit + _SPARE + 1)
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return array


def _digest(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    named = ("version", *SIZES, *(_MORE if about["version"] > LEVELS else ()))
    sizes = json.dumps({name: about[name] for name in named}, sort_keys=True)
    digest = hashlib.sha256(sizes.encode())
    for name in sorted(arrays, key=lambda name: (name == "mask", list(arrays).index(name))):
        array = arrays[name]
        digest.update(b"\0" + np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def carried(path: Path) -> PrivacyStatement:
    """The statement that a released file carries."""
    if path.suffix.lower() == ".npz":
        return unpack(read_bytes(path), str(path))[1]
    if kind_of_name(path) == "video":
        return read_sidecar(path)[0]
    return read_stamp(read_bytes(path), str(path))[0]


def holds_statement(archive: Path) -> bool:
    """Whether an archive of NumPy's has the member that says what it is, or may: others' may be of anything."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(archive))) as file:
            return "about.npy" in file.namelist()
    except zipfile.BadZipFile:
        return False
    except (NotImplementedError, ValueError):  # its list of members is of another kind of zip
        return True


def restore_file(archive: Path, out: Path, method: str | None = None) -> PrivacyStatement:
    """Write the picture that an archive holds, with its statement. Costs nothing: the archive is public.

    Args:
        archive: An archive that `dpose pixelize` wrote.
        out: The picture.
        method: Another restoration, one of `restoration.METHODS`, which the statement then names; None for the
            picture as it was released, bit for bit on a machine of the same kind.
    """
    released, statement = unpack(read_bytes(archive), str(archive))
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise DposeError("picture-suffix-unknown", "a picture is restored to .png or .jpg", str(out))
    check_free(out)
    if method is not None:
        other = Restoration.chosen(method)
        released = replace(released, restoration=other)
        versions = {**software_versions(*other.libraries), **statement.software}
        record = {**statement.release, "restoration": other.to_dict()}
        statement = replace(statement, release=record, software=versions)
    write_atomic(out, stamped_picture(released, out.suffix, statement))
    return statement
