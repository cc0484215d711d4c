"""Small files that claim to be huge, and labels whose names lead out of their folder."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from dpose.media.images import decode_pixels, read_image
from dpose.media.video import VideoReader
from dpose.pose.data.coco import read_coco
from dpose.pose.data.lspet import _read_labels
from dpose.pose.data.mpii import read_mpii
from dpose.pose.weights_file import read_tensors
from dpose.release.archive import unpack
from dpose.release.manifest import verify_manifest
from dpose.release.verify import verify_release
from dpose.runs.config import read_yaml
from fuzzing import labels, samples
from fuzzing.mutations import as_png, png_chunks
from fuzzing.reader import Reader

SIDES = (0, 1, 9_999, 20_000, 65_535, 2**20, 2**31 - 1, 2**31, 2**32 - 1)


def png_bomb(data: bytes, rng: random.Random) -> bytes:
    """A header of many pixels over as many zeros as fit in a small file, or a text of a gigabyte of zeros."""
    chunks = png_chunks(data)
    kind, header = chunks[0]
    if rng.random() < 0.4:
        text = zlib.compress(bytes(rng.choice((2**20, 2**28))), 9)
        name = rng.choice((b"zTXt", b"iCCP", b"iTXt"))
        between = b"\0\1\0\0\0" if name == b"iTXt" else b"\0\0"
        chunks.insert(1, (name, rng.choice((b"privacy", b"dpose", b"x")) + between + text))
        return as_png(chunks)
    wide, high = rng.choice(SIDES), rng.choice(SIDES)
    chunks[0] = (kind, struct.pack(">II", wide, high) + header[8:])
    body = zlib.compress(bytes(rng.choice((10, 2**20, 2**27))), 9)
    return as_png([chunks[0], (b"IDAT", body), chunks[-1]])


def jpeg_bomb(data: bytes, rng: random.Random) -> bytes:
    """The size in the frame header."""
    at = next(i for i in range(len(data)) if data[i : i + 2] in (b"\xff\xc0", b"\xff\xc2"))
    size = struct.pack(">HH", *(min(65_535, rng.choice(SIDES)) for _ in range(2)))
    return data[: at + 5] + size + data[at + 9 :]


def field_bomb(data: bytes, rng: random.Random) -> bytes:
    """The picture's width or height, wherever it stands, in every width of number and both orders of bytes."""
    out = bytearray(data)
    for side in (24, 32, 48):
        for size in (2, 4):
            for order in ("big", "little"):
                for found in re.finditer(re.escape(side.to_bytes(size, order)), data):
                    if rng.random() < 0.2:
                        value = rng.choice(SIDES) & ((1 << 8 * size) - 1)
                        out[found.start() : found.end()] = value.to_bytes(size, order)
    return bytes(out)


def npz_bomb(data: bytes, rng: random.Random) -> bytes:
    """Members of a gigabyte of zeros, headers of arrays of a terabyte, and ten thousand members."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        chosen, how = rng.choice(old.namelist()), rng.randrange(4)
        for name in old.namelist():
            content = old.read(name)
            if name == chosen and how == 0:
                content = content + bytes(rng.choice((2**24, 2**29)))
            if name == chosen and how == 1:
                shape = rng.choice(((10**12,), (2**31, 2**31), (-1,), (10**6, 10**6)))
                header = io.BytesIO()
                np.lib.format.write_array_header_1_0(
                    header, {"descr": rng.choice(("<i8", "|u1", "<f8")), "fortran_order": False, "shape": shape}
                )
                content = header.getvalue() + content[:100]
            new.writestr(name, content)
        if how == 2:
            for number in range(10_000):
                new.writestr(f"{number}.npy", b"")
        if how == 3:
            new.writestr(chosen, bytes(2**26))
    return out.getvalue()


def safetensors_bomb(data: bytes, rng: random.Random) -> bytes:
    """Tensors of a terabyte, and a header of any length."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for name in header:
        if name != "__metadata__":
            header[name]["shape"] = rng.choice(([2**40], [2**32, 2**32], [0, 2**62], [-1]))
            header[name]["data_offsets"] = rng.choice(([0, 2**42], [0, 0], [2**63, 2**63 + 1]))
    told = json.dumps(header).encode()
    size = rng.choice((len(told), 2**62, 2**31))
    return size.to_bytes(8, "little") + told + data[8 + length :]


def mat_bomb(data: bytes, rng: random.Random) -> bytes:
    """A compressed element of zeros, and dimensions of a terabyte."""
    if rng.random() < 0.5:
        body = zlib.compress(struct.pack("<II", 14, 2**29) + bytes(2**27), 9)
        return data[:128] + struct.pack("<II", 15, len(body)) + body
    out = bytearray(data)
    for found in re.finditer(re.escape(struct.pack("<I", 14)), data[128:]):
        start = 128 + found.start()
        out[start : start + 4] = rng.choice(SIDES).to_bytes(4, "little")
    return bytes(out)


def yaml_bomb(_: bytes, rng: random.Random) -> bytes:
    """The billion laughs, long keys, and numbers of a million digits."""
    many = rng.choice((5, 20, 60))
    lines = ["a0: &a0 [x, x]"] + [f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, many)]
    merged = ["a0: &a0 {x: 1}"] + [f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}]}}" for k in range(1, many)]
    odd = (b"a: " + b"9" * 900_000, b"? " + b"x" * 900_000 + b"\n: 1", b"a: 1" + b":59" * 9_000)
    return rng.choice(("\n".join(lines).encode(), "\n".join(merged).encode(), *odd))


def _bombs() -> Reader:
    tensors = samples.run()["run/model.safetensors"]
    files = {
        ".png": samples.released()["a.png"], ".jpg": samples.pictures()[".jpg"],
        ".webp": samples.pictures()[".webp"], ".bmp": samples.pictures()[".bmp"],
        ".mp4": samples.clips()[".mp4"], ".avi": samples.clips()[".avi"], ".npz": samples.archives()[".0.npz"],
        ".safetensors": tensors, ".mat": samples.mat(joints=np.ones((14, 3, 3))), ".yaml": b"a: 1\n",
    }  # fmt: skip
    by_suffix = {
        ".png": png_bomb, ".jpg": jpeg_bomb, ".webp": field_bomb, ".bmp": field_bomb, ".mp4": field_bomb,
        ".avi": field_bomb, ".npz": npz_bomb, ".safetensors": safetensors_bomb, ".mat": mat_bomb,
        ".yaml": yaml_bomb,
    }  # fmt: skip

    def read(path: Path) -> str:
        match path.suffix:
            case ".png":
                decode_pixels(path.read_bytes(), str(path))
                verify_release(path)
            case ".mp4" | ".avi":
                for _ in VideoReader(path):
                    pass
            case ".npz":
                unpack(path.read_bytes(), str(path))
            case ".safetensors":
                read_tensors(path)
            case ".mat":
                _read_labels(path, {"train": (1, 3)})
            case ".yaml":
                read_yaml(path)
            case _:
                read_image(path)
        return ""

    return Reader(files, by_suffix, read)


LEADING_OUT = (
    "../canary.png", "x/../../canary.png", "..\\canary.png", "/etc/passwd", "../../../../../../../etc/passwd",
    "C:\\canary.png", "./../canary.png", "images/../../canary.png", "\0../canary.png", "a\n../canary.png",
    "file:///etc/passwd", "tcp://127.0.0.1:9", "concat:/etc/passwd", "~/canary.png", "\udcff../canary.png", ".", "..",
)  # fmt: skip
"""Names that lead out of their folder; what lies there is a canary, whose opening `workers` refuses."""


def led_out(data: bytes, rng: random.Random) -> bytes:
    """Names in a file replaced by such as lead out of its folder."""
    name = rng.choice(LEADING_OUT)
    told = json.dumps(name).encode()[1:-1]
    pattern = rb"[\w./-]+\.(png|jpg|avi|safetensors)"
    first = rng.random() < 0.5
    return re.sub(pattern, lambda _: told, data, count=int(first))


def _paths() -> Reader:
    files = {
        ".coco": samples.coco(), ".mpii": samples.mpii(),
        ".ucf": b"A/v_A_g01_c01.avi 1\nA/v_A_g02_c01.avi 1\n",
        ".jsonl": samples.released()["corpus.jsonl"],
    }  # fmt: skip

    def read(path: Path) -> str:
        root, own = path.parent, path.read_bytes()
        match path.suffix:
            case ".coco":
                labels.put_coco(root, own)
                return labels.inside((picture.path for picture in read_coco(root, "train").pictures), root)
            case ".mpii":
                labels.put_mpii(root, own, labels.mpii_boxes())
                return labels.inside((picture.path for picture in read_mpii(root, "train").pictures), root)
            case ".ucf":
                path = path.rename(root / "input.ucf")
                return labels.READERS["lists"]().read(path)
            case _:
                made = samples.released()
                samples.put(root, {name: made[name] for name in ("a.png", "a.jpg")} | {"corpus.jsonl": own})
                verify_manifest(root)
        return ""

    return Reader(files, led_out, read)


READERS: Mapping[str, Callable[[], Reader]] = {"bomb": _bombs, "path": _paths}
