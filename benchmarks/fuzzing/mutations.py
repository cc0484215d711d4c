"""How valid files become bad ones: by their bytes, and by what their format says that the bytes mean."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import random
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import yaml

from dpose.privacy.entries import GENESIS, Entry, EntryType

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 1e-320, float("nan"), float("inf"), 2**63, 2**4000, "", "\0", "\ud800",
    "../../../etc/passwd", "/dev/zero", "a" * 70_000,
    "%s{}", "2026-13-45", [], {}, [[]], [None], {"": None}, [0] * 2000,
)  # fmt: skip
Mutate = Callable[[bytes, random.Random], bytes]
"""From a valid file and what is drawn to one that may not be."""


def any_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bits turned, pieces cut out, doubled, filled, and numbers in the file set to extremes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        at = rng.randrange(len(out)) if out else 0
        length = rng.choice((1, 2, 4, 8, rng.randrange(1, 1 + max(1, len(out) // 4))))
        match rng.randrange(6):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                del out[at : at + length]
            case 2:
                out[at:at] = out[at : at + length]
            case 3:
                out[at : at + length] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * length
            case 4:
                number = rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x10000, 0xFFFF))
                out[at : at + 4] = number.to_bytes(4, rng.choice(("big", "little")))
            case _:
                del out[at:]
    return bytes(out)


def tree(values: Any, rng: random.Random) -> Any:
    """One to three places in nested lists and mappings replaced, renamed, left out or doubled."""
    found = copy.deepcopy(values)
    for _ in range(rng.randrange(1, 4)):
        parent: Any = None
        key, node = None, found
        while isinstance(node, dict | list) and node and (parent is None or rng.random() < 0.8):
            parent = node
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            node = node[key]
        if parent is None:
            return rng.choice(HOSTILE)
        match rng.randrange(6):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[rng.choice(("", "x", "schema", "\0"))] = node
            case 1:
                parent.append(node)
            case 2 if isinstance(node, int | float):
                parent[key] = rng.choice((-node, node + 1, node * 2, str(node), [node]))
            case _:
                parent[key] = copy.deepcopy(rng.choice(HOSTILE))
    return found


def any_json(data: bytes, rng: random.Random) -> bytes:
    choice = rng.randrange(12)
    if choice < 2:
        return any_bytes(data, rng)
    if choice == 2:
        return rng.choice((b"[", b'{"a":')) * rng.choice((900, 100_000))
    try:
        values = json.loads(data)
    except ValueError:
        return any_bytes(data, rng)
    return json.dumps(tree(values, rng)).encode()


def any_yaml(data: bytes, rng: random.Random) -> bytes:
    choice = rng.randrange(12)
    if choice < 3:
        return any_bytes(data, rng)
    if choice == 3:
        odd = ("a: 2026-13-45", "a: !!python/object:os.system x", "a: &a [*a]", "? {a: b}\n: c", "a: 0x", "a: !!int x")
        return rng.choice((rng.choice(odd).encode(), b"[" * 5000, b"a: " + b"[" * 900))
    if choice == 4:  # the billion laughs
        lines = ["a0: &a0 [x, x]"] + [f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, 40)]
        return "\n".join(lines).encode()
    found = tree(yaml.safe_load(data), rng)
    return yaml.safe_dump(found).encode("utf-8", "surrogatepass")


def _line_edited(lines: list[bytes], at: int, rng: random.Random) -> None:
    """A line of JSON left out, doubled or edited."""
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        case _:
            lines[at] = any_json(lines[at].strip(), rng).replace(b"\n", b" ") + b"\n"


def any_ledger(data: bytes, rng: random.Random) -> bytes:
    """Lines edited and sealed again, so that what lies behind the hashes is reached too."""
    lines = data.splitlines(keepends=True)
    at, choice = rng.randrange(len(lines)), rng.randrange(5)
    if choice == 0:
        return any_bytes(data, rng)
    if choice < 4:
        _line_edited(lines, at, rng)
        return b"".join(lines)
    before = GENESIS
    for k, line in enumerate(lines):
        values = json.loads(line)
        values = tree(values, rng) if k == at else values
        try:
            values = {**values, "prev": before, "type": EntryType(values["type"])}
            entry = Entry(**{"run_id": "", **values}).sealed()
            lines[k], before = entry.line(), entry.sha256
        except (TypeError, ValueError, KeyError, AttributeError):
            lines[k] = json.dumps(values, default=str).encode() + b"\n"
    return b"".join(lines)


def any_zip(data: bytes, rng: random.Random) -> bytes:
    """Members edited, and packed again with right checksums; or a bomb in place of one."""
    if rng.random() < 0.3:
        return any_bytes(data, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            content = old.read(name)
            if name == chosen:
                start = content.find(b"\n") + 1
                told = content[start:]
                if name == "about.npy" and rng.random() < 0.8:
                    raw = io.BytesIO()
                    np.save(raw, np.frombuffer(any_json(told, rng), np.uint8))
                    content = raw.getvalue()
                elif rng.random() < 0.1:
                    content = content[:start] + bytes(200 << 20)
                elif rng.random() < 0.1:
                    name = rng.choice(("../x.npy", "/etc/x.npy", "about.npy", "x"))
                else:
                    content = any_bytes(content, rng)
            new.writestr(name, content)
    return out.getvalue()


def any_jsonl(data: bytes, rng: random.Random) -> bytes:
    """Lines of JSON left out, doubled or edited; an `end` line made to fit again, half of the times."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    if rng.randrange(5) == 0:
        return any_bytes(data, rng)
    _line_edited(lines, at, rng)
    if rng.random() < 0.5 and lines and b'"end"' in lines[-1]:
        digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
        lines[-1] = json.dumps({"type": "end", "sha256": digest}).encode() + b"\n"
    return b"".join(lines)


def any_safetensors(data: bytes, rng: random.Random) -> bytes:
    """The header's JSON edited, and its length told truly; or any bytes."""
    if rng.random() < 0.4:
        return any_bytes(data, rng)
    length = int.from_bytes(data[:8], "little")
    header = any_json(data[8 : 8 + length], rng)
    told = len(header) if rng.random() < 0.8 else rng.choice((0, 2**63, 2**32, len(header) + 1))
    return told.to_bytes(8, "little") + header + data[8 + length :]


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kinds and contents of a PNG's chunks."""
    found, at = [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def as_png(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG of these chunks, their checksums right."""
    out = [b"\x89PNG\r\n\x1a\n"]
    for kind, content in chunks:
        out += [struct.pack(">I", len(content)), kind, content, struct.pack(">I", zlib.crc32(kind + content))]
    return b"".join(out)


def any_png(data: bytes, rng: random.Random) -> bytes:
    """A chunk edited, with its checksum made right: header, pixels, and the statement in a text chunk."""
    if rng.random() < 0.25:
        return any_bytes(data, rng)
    chunks = png_chunks(data)
    at = rng.randrange(len(chunks))
    kind, content = chunks[at]
    match rng.randrange(6):
        case 0:
            del chunks[at]
        case 1:
            chunks.insert(rng.randrange(len(chunks)), chunks[at])
        case 2 if kind == b"IDAT":
            pixels = zlib.decompressobj().decompress(content)  # a chunk may hold the first part of them alone
            chunks[at] = (kind, zlib.compress(any_bytes(pixels, rng)))
        case 3 if kind in (b"tEXt", b"iTXt") and b"{" in content:
            start = content.index(b"{")
            chunks[at] = (kind, content[:start] + any_json(content[start:], rng))
        case _:
            chunks[at] = (kind, any_bytes(content, rng))
    return as_png(chunks)


def any_text(data: bytes, rng: random.Random) -> bytes:
    """Lines of words: words replaced by hostile ones, lines doubled and left out; or any bytes."""
    if rng.random() < 0.3:
        return any_bytes(data, rng)
    lines = [line.split(b" ") for line in data.split(b"\n")]
    for _ in range(rng.randrange(1, 4)):
        line = rng.choice(lines)
        word = str(rng.choice(HOSTILE)).encode("utf-8", "replace")[:80_000]
        match rng.randrange(4):
            case 0:
                lines.append(line)
            case 1 if line:
                del line[rng.randrange(len(line))]
            case 2:
                line.insert(rng.randrange(len(line) + 1), word)
            case _ if line:
                line[rng.randrange(len(line))] = word
    return b"\n".join(b" ".join(line) for line in lines)


def any_mat(data: bytes, rng: random.Random) -> bytes:
    """A variable of another type, shape or value; or any bytes."""
    if rng.random() < 0.4:
        return any_bytes(data, rng)
    content = {name: value for name, value in scipy.io.loadmat(io.BytesIO(data)).items() if name[0] != "_"}
    name = rng.choice(sorted(content))
    value = content[name]
    match rng.randrange(8):
        case 0:
            content[name] = value.astype(rng.choice((np.int8, np.uint16, np.float32, np.complex64, np.bool_)))
        case 1:
            content[name] = value[..., : value.shape[-1] // 2]
        case 2:
            content[name] = np.full_like(value, rng.choice((np.nan, np.inf, -np.inf, 1e308, -1.0)))
        case 3:
            content[name] = np.array([["a", 3], [0, "b"]], object)
        case 4:
            content[name] = "text"
        case 5:
            content[name] = value.reshape(-1)
        case 6:
            content[name] = {"inside": value}
        case _:
            content[rng.choice(("x", "__header__", "joints", "preds"))] = content.pop(name)
    raw = io.BytesIO()
    scipy.io.savemat(raw, content, do_compression=rng.random() < 0.5)
    return raw.getvalue()


def any_sqlite(data: bytes, rng: random.Random) -> bytes:
    """Cells, rows and tables of a database edited by SQL; or any bytes."""
    if rng.random() < 0.35:
        return any_bytes(data, rng)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.sqlite"
        file.write_bytes(data)
        with sqlite3.connect(file) as base:
            tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            table = rng.choice([t for t in tables if not t.startswith("sqlite_")])
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
            rows = [row[0] for row in base.execute(f"SELECT rowid FROM {table}")]
            row, column = rng.choice(rows or [1]), rng.choice(columns)
            value = rng.choice((None, -1, 0, 2**62, 1e308, "", "x" * 70_000, b"\xff", "[" * 9000, "{}"))
            (old,) = base.execute(f"SELECT {column} FROM {table} WHERE rowid = {row}").fetchone() or (0,)
            if isinstance(old, str) and old[:1] in ("{", "["):
                value = any_json(old.encode(), rng).decode("utf-8", "replace")
            edited = f"UPDATE {table} SET {column} = ? WHERE rowid = {row}"
            others = (
                f"DELETE FROM {table} WHERE rowid >= {row}",
                f"DELETE FROM {table} WHERE rowid = {row}",
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
            )
            with contextlib.suppress(sqlite3.Error, OverflowError):
                if rng.random() < 0.5:
                    base.execute(edited, (value,))
                else:
                    base.execute(rng.choice(others))
        base.close()
        return file.read_bytes()


def any_onnx(data: bytes, rng: random.Random) -> bytes:
    """A model's nodes, types and shapes edited; or any bytes."""
    import onnx

    if rng.random() < 0.4:
        return any_bytes(data, rng)
    model = onnx.load_from_string(data)
    graph = model.graph
    match rng.randrange(7):
        case 0:
            graph.node[0].op_type = rng.choice(("Loop", "", "Nothing", "If"))
        case 1:
            graph.input[0].type.tensor_type.elem_type = rng.randrange(20)
        case 2:
            dim = graph.input[0].type.tensor_type.shape.dim
            dim[rng.randrange(len(dim))].dim_value = rng.choice((-1, 0, 1, 2**31, 2**62))
        case 3:
            graph.node.append(graph.node[0])
        case 4:
            model.opset_import[0].version = rng.choice((0, -1, 999))
        case 5:
            del graph.output[:]
        case _:
            graph.node[0].input[0] = rng.choice(("", "y", "../../../etc/passwd"))
    return model.SerializeToString()
