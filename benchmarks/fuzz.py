"""Bad input for every reader: valid files, mutated where it hurts; each must end in a result or one line.

    python benchmarks/fuzz.py --inputs 10000 [--seed 0] [--only archive] [--out runs/fuzz.jsonl]

Each input is read in a process forked from one that has the readers loaded, with `MEMORY` bytes more address space than
it began with and `SECONDS` to live. A `DposeError` is an answer; anything else that is raised, a signal or the end of
the time is a crash. Where the file bears a claim (archives, run folders) a mutant that is accepted must say what the
original says; one that says something else is told as `altered`, to be looked at by hand.

Results are appended to a file of JSON lines, and input k of a seed is the same whenever it is made: a run that was
stopped goes on where it was. Exit code 1 where there was a crash.
"""

from __future__ import annotations

import dpose  # noqa: F401  # isort: skip  (before torch: it settles how torch's threads wait)

import argparse
import copy
import functools
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import safetensors.numpy
import scipy.io
import torch
import yaml

from dpose.errors import DposeError
from dpose.files import SHIPPED
from dpose.media.images import decode_pixels, encode_image, read_image, shown_size
from dpose.media.video import VideoReader
from dpose.pose.data.coco import read_coco
from dpose.pose.data.lspet import _read_labels
from dpose.pose.data.yolo import read_yolo
from dpose.pose.evaluate import _json_points, _mat_points
from dpose.pose.folder import load_model
from dpose.pose.weights_file import read_tensors
from dpose.privacy.accounting import Accountant, Event, Relation, epsilon
from dpose.privacy.entries import GENESIS, Entry, EntryType
from dpose.privacy.ledger import Ledger, read_ledger, spent
from dpose.privacy.statement import Kind, Neighbours, PrivacyStatement
from dpose.privacy.verify import verify_run
from dpose.release.archive import pack_archive, unpack
from dpose.runs.config import RunConfig, read_yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from public_doors import pixelize

MEMORY, SECONDS = 2 << 30, 20
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 1e-320, float("nan"), float("inf"), 2**63, 2**4000, "", "\0", "\ud800",
    "../../../etc/passwd", "/dev/zero", "a" * 70_000,
    "%s{}", "2026-13-45", [], {}, [[]], [None], {"": None}, [0] * 2000,
)  # fmt: skip
Mutate = Callable[[bytes, random.Random], bytes]


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
        parent, key, node = None, None, found
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
    return json.dumps(tree(json.loads(data), rng)).encode()


def any_yaml(data: bytes, rng: random.Random) -> bytes:
    choice = rng.randrange(12)
    if choice < 3:
        return any_bytes(data, rng)
    if choice == 3:
        odd = (
            "a: 2026-13-45",
            "a: !!python/object:os.system x",
            "a: &a [*a]",
            "? {a: b}\n: c",
            "a: 0x",
            "a: !!int x",
        )
        return rng.choice((rng.choice(odd).encode(), b"[" * 5000, b"a: " + b"[" * 900))
    if choice == 4:  # the billion laughs
        lines = ["a0: &a0 [x, x]"] + [f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, 40)]
        return "\n".join(lines).encode()
    found = tree(yaml.safe_load(data), rng)
    return yaml.safe_dump(found).encode("utf-8", "surrogatepass")


def any_ledger(data: bytes, rng: random.Random) -> bytes:
    """Lines edited and sealed again, so that what lies behind the hashes is reached too."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            return any_bytes(data, rng)
        case 1:
            del lines[at]
        case 2:
            lines.insert(rng.randrange(len(lines)), lines[at])
        case 3:
            lines[at] = any_json(lines[at].strip(), rng) + b"\n"
        case _:
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
                    told = np.frombuffer(any_json(told, rng), np.uint8)
                    raw = io.BytesIO()
                    np.save(raw, told)
                    content = raw.getvalue()
                elif rng.random() < 0.1:
                    content = content[:start] + bytes(200 << 20)
                elif rng.random() < 0.1:
                    name = rng.choice(("../x.npy", "/etc/x.npy", "about.npy", "x"))
                else:
                    content = any_bytes(content, rng)
            new.writestr(name, content)
    return out.getvalue()


@dataclass(frozen=True)
class Reader:
    """A kind of file: valid ones by suffix, how they are mutated, and what reads them.

    `read` gets the mutant's path and gives what is claimed; text that must not differ from the original's, or "".
    """

    files: Mapping[str, bytes]
    mutate: Mutate
    read: Callable[[Path], str]


def _png() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)


def _pictures() -> Reader:
    files = {suffix: encode_image(_png(), suffix) for suffix in (".png", ".jpg")}
    files |= {suffix: cv2.imencode(suffix, _png())[1].tobytes() for suffix in (".webp", ".bmp")}

    def read(path: Path) -> str:
        decode_pixels(path.read_bytes(), str(path))
        read_image(path)
        shown_size(path)
        return ""

    return Reader(files, any_bytes, read)


def _video() -> Reader:
    from clips import write

    with tempfile.TemporaryDirectory() as folder:
        files = {
            suffix: write(Path(folder) / f"a{suffix}").read_bytes() for suffix in (".mp4", ".mkv", ".avi")
        }
    return Reader(files, any_bytes, lambda path: str(sum(1 for _ in VideoReader(path)))[:0])


def _archives() -> Reader:
    made = [pixelize(_png(), 2, 4, 8, **more) for more in ({}, {"delta": 1e-5})]
    files = {f".{k}.npz": pack_archive(one.frames[0], one.statement) for k, one in enumerate(made)}

    def read(path: Path) -> str:
        released, statement = unpack(path.read_bytes(), str(path))
        return statement.to_json() + str(released.picture().tobytes())

    return Reader(files, any_zip, read)


def _claim() -> tuple[bytes, bytes]:
    event, plan = Event(q=0.05, sigma=2.0, steps=20, sensitivity=1.0), "ab" * 32
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Ledger.create(place / "ledger.jsonl", plan, "key", place / "state") as ledger:
            for first in (0, 10):
                ledger.reserve(event, first, 10)
                ledger.commit(first, 10)
            head = ledger.head
        cost = epsilon([event], 1e-5, accountant=Accountant.RDP)
        statement = PrivacyStatement(
            kind=Kind.PRIVATE, unit="image", neighbours=Neighbours(Relation.ZERO_OUT), epsilon=cost, delta=1e-5,
            accountant=Accountant.RDP, n=1000, events=(event,), ledger_head=head, plan_sha256=plan,
        )  # fmt: skip
        return statement.to_json().encode(), (place / "ledger.jsonl").read_bytes()


def _statements() -> Reader:
    statement, ledger = _claim()

    def read(path: Path) -> str:
        PrivacyStatement.from_json(path.read_text(encoding="utf-8", errors="replace"), str(path))
        (path.parent / "privacy.json").write_bytes(path.read_bytes())
        (path.parent / "ledger.jsonl").write_bytes(ledger)
        verify_run(path.parent, path.parent / "state")
        said = json.loads(path.read_bytes())
        return str([said[name] for name in ("epsilon", "delta", "events", "neighbours", "unit", "n")])

    return Reader({".json": statement}, any_json, read)


def _ledgers() -> Reader:
    statement, ledger = _claim()

    def read(path: Path) -> str:
        spent(read_ledger(path))
        (path.parent / "privacy.json").write_bytes(statement)
        (path.parent / "ledger.jsonl").write_bytes(path.read_bytes())
        verify_run(path.parent, path.parent / "state")
        return path.read_text()

    return Reader({".jsonl": ledger}, any_ledger, read)


def _weights() -> Reader:
    tensors = {"a.weight": np.ones((3, 4), np.float32), "b": np.arange(5)}
    old = io.BytesIO()
    torch.save({name: torch.from_numpy(value) for name, value in tensors.items()}, old)
    files = {".safetensors": safetensors.numpy.save(tensors), ".pt": old.getvalue()}
    return Reader(files, any_bytes, lambda path: str(len(read_tensors(path)))[:0])


def _models() -> Reader:
    def read(path: Path) -> str:
        (path.parent / "config.json").write_bytes(path.read_bytes())
        (path.parent / "model.safetensors").symlink_to(SHIPPED / "nano" / "model.safetensors")
        load_model(path.parent)
        return ""

    return Reader({".json": (SHIPPED / "nano" / "config.json").read_bytes()}, any_json, read)


def _coco() -> Reader:
    person = {
        "id": 7, "image_id": 1, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "area": 900.0,
        "bbox": [2.0, 1.0, 20.0, 16.0], "keypoints": [v for j in range(17) for v in (2 + j, 1 + j, 1 + j % 2)],
    }  # fmt: skip
    content = {
        "images": [{"id": i, "file_name": f"{i}.png", "width": 32, "height": 24} for i in (1, 2)],
        "annotations": [person],
        "categories": [{"id": 1, "name": "person"}],
    }
    picture = encode_image(_png(), ".png")

    def read(path: Path) -> str:
        (path.parent / "annotations").mkdir()
        (path.parent / "train2017").mkdir()
        for i in (1, 2):
            (path.parent / "train2017" / f"{i}.png").write_bytes(picture)
        name = "annotations/person_keypoints_train2017.json"
        (path.parent / name).write_bytes(path.read_bytes())
        labels = read_coco(path.parent, "train")
        outside = [
            p
            for image in labels.images
            if not (p := image.path.resolve()).is_relative_to(path.parent.resolve())
        ]
        assert not outside, f"led out of the folder: {outside}"
        return ""

    return Reader({".json": json.dumps(content).encode()}, any_json, read)


def _yolo() -> Reader:
    described = "train: images\nval: images\nnames: ['person']\nkpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\n"
    line = "0 0.5 0.5 0.4 0.6 0.4 0.3 2 0.6 0.3 1 0 0 0\n"
    picture = encode_image(_png(), ".png")

    def read(path: Path) -> str:
        for name in ("images", "labels"):
            (path.parent / name).mkdir()
        (path.parent / "images" / "a.png").write_bytes(picture)
        yolo = path.suffix == ".yaml"
        (path.parent / "data.yaml").write_bytes(path.read_bytes() if yolo else described.encode())
        (path.parent / "labels" / "a.txt").write_bytes(line.encode() if yolo else path.read_bytes())
        read_yolo(path.parent, "train")
        return ""

    def mutate(data: bytes, rng: random.Random) -> bytes:
        return any_yaml(data, rng) if data.startswith(b"train") else any_bytes(data, rng)

    return Reader({".yaml": described.encode(), ".txt": line.encode()}, mutate, read)


def _mat(name: str, array: Any) -> bytes:
    raw = io.BytesIO()
    scipy.io.savemat(raw, {name: array})
    return raw.getvalue()


def _lspet() -> Reader:
    def read(path: Path) -> str:
        _read_labels(path, {"train": (1, 3)})
        return ""

    return Reader({".mat": _mat("joints", np.ones((14, 3, 3)))}, any_bytes, read)


def _predictions() -> Reader:
    people = np.arange(64.0).reshape(2, 16, 2)
    files = {".mat": _mat("preds", people), ".json": json.dumps(people.tolist()).encode()}

    def read(path: Path) -> str:
        (_mat_points if path.suffix == ".mat" else _json_points)(path)
        return ""

    def mutate(data: bytes, rng: random.Random) -> bytes:
        return any_json(data, rng) if data.startswith(b"[") else any_bytes(data, rng)

    return Reader(files, mutate, read)


def _settings() -> Reader:
    content = {
        "data": {"private": "synthetic:ward", "limit": 100},
        "plan": {"method": "dp-sgd", "epochs": 2, "expected_batch_size": 100, "epsilon": 4.0, "delta": 1e-5},
        "optimizer": {"name": "adamw", "lr": 0.001, "options": {"weight_decay": 0.02}},
    }

    def read(path: Path) -> str:
        RunConfig.from_dict(read_yaml(path), str(path))
        return ""

    return Reader({".yaml": yaml.safe_dump(content).encode()}, any_yaml, read)


READERS: Mapping[str, Callable[[], Reader]] = {
    "picture": _pictures, "video": _video, "archive": _archives, "statement": _statements, "ledger": _ledgers,
    "weights": _weights, "model": _models, "coco": _coco, "yolo": _yolo, "lspet": _lspet,
    "predictions": _predictions, "settings": _settings,
}  # fmt: skip


@functools.cache
def reader_of(name: str) -> Reader:
    """The reader of this name, its valid files made once."""
    return READERS[name]()


def mutant(name: str, number: int, seed: int) -> tuple[str, bytes]:
    """Suffix and content of input `number`: the same whenever it is asked for."""
    reader, rng = reader_of(name), random.Random(f"{seed}/{name}/{number}")
    suffix = rng.choice(sorted(reader.files))
    return suffix, reader.mutate(reader.files[suffix], rng)


def forked(reader: Reader, suffix: str, data: bytes) -> dict[str, Any]:
    """Read `data` in a process of its own: how it ended, seconds, and the most memory it held, libraries and all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(data)
        out, write_end = os.pipe()
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            os.close(out)
            told = _told(reader, path)
            os.write(write_end, json.dumps(told).encode()[-60_000:])
            os._exit(0)
        os.close(write_end)
        with os.fdopen(out, "rb") as pipe:
            raw = pipe.read()
        _, status, used = os.wait4(pid, 0)
    seconds = time.monotonic() - begun
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        raw = json.dumps({"ended": "crash", "what": signal.Signals(-code).name}).encode()
    return {**json.loads(raw), "seconds": round(seconds, 3), "memory": used.ru_maxrss * 1024}


def _told(reader: Reader, path: Path) -> dict[str, str]:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.alarm(SECONDS)
    try:
        return {"ended": "result", "what": reader.read(path)}
    except DposeError as error:
        line = error.line()
        return {"ended": "crash" if "\n" in line or len(line) > 4000 else "refused", "what": line[:4100]}
    except BaseException:
        return {"ended": "crash", "what": traceback.format_exc()[-3000:]}


def main() -> int:
    """Make and read the inputs that are still missing, and sum up."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--inputs", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", choices=sorted(READERS), action="append")
    asked.add_argument("--out", type=Path, default=Path("runs/fuzz.jsonl"))
    options = asked.parse_args()
    cv2.setNumThreads(0)
    names = options.only or list(READERS)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    found = {
        (line["reader"], line["number"]): line
        for line in map(json.loads, lines)
        if line["seed"] == options.seed
    }
    claims: dict[tuple[str, str], str] = {}
    for name in names:
        for suffix, data in reader_of(name).files.items():
            whole = forked(reader_of(name), suffix, data)
            if whole["ended"] != "result":
                raise SystemExit(f"{name}{suffix}: the valid file is not read: {whole['what']}")
            claims[name, suffix] = whole["what"]
    wanted = [(names[k % len(names)], k // len(names)) for k in range(options.inputs)]
    with options.out.open("a") as out:
        for name, number in wanted:
            if (name, number) in found:
                continue
            suffix, data = mutant(name, number, options.seed)
            line = forked(reader_of(name), suffix, data)
            if line["ended"] == "result":
                line["ended"] = "result" if line["what"] == claims[name, suffix] else "altered"
            line = {"reader": name, "number": number, "seed": options.seed, "suffix": suffix, **line}
            if line["ended"] in ("result", "refused"):
                line["what"] = line["what"][:200]
            found[name, number] = line
            out.write(json.dumps(line) + "\n")
            out.flush()
    told = [found[one] for one in wanted]
    for name in names:
        mine = [line for line in told if line["reader"] == name]
        slowest, largest = (max((line[key] for line in mine), default=0) for key in ("seconds", "memory"))
        print(
            f"{name:12} {dict(Counter(line['ended'] for line in mine))} slowest {slowest:.2f} s, {largest >> 20} MiB"
        )
    crashes = [line for line in told if line["ended"] == "crash"]
    for last, count in Counter(
        (c["reader"], c["what"].strip().splitlines()[-1][:200]) for c in crashes
    ).items():
        print(count, *last)
    return int(bool(crashes))


if __name__ == "__main__":
    sys.exit(main())
