"""What reads files of dpose's own, pictures, videos and weights."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import yaml

from dpose.account import charges
from dpose.account import store as high_water
from dpose.account.store import opened
from dpose.files import SHIPPED
from dpose.media.images import decode_pixels, read_image, shown_size
from dpose.media.video import VideoReader
from dpose.pose.folder import load_model
from dpose.pose.weights_file import read_tensors
from dpose.privacy.keys import kept_key
from dpose.privacy.ledger import read_ledger, spent
from dpose.privacy.signing import check_signature
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import unpack
from dpose.release.manifest import verify_manifest
from dpose.release.regions import onnx_segmenter
from dpose.release.verify import verify_release
from dpose.runs.config import RunConfig, read_yaml
from dpose.runs.reading import read_run
from dpose.runs.statement_files import open_statement
from dpose.runs.tune_config import TuningConfig
from dpose.runs.verify import verify_run
from dpose.training.checkpoint import load_checkpoint
from dpose.training.folder import RunLog, kept_places, updates_of
from fuzzing import samples
from fuzzing.mutations import (
    any_bytes,
    any_json,
    any_jsonl,
    any_ledger,
    any_onnx,
    any_png,
    any_safetensors,
    any_sqlite,
    any_yaml,
    any_zip,
)
from fuzzing.reader import Reader

ROOT = Path(__file__).resolve().parents[2]


def _pictures() -> Reader:
    def read(path: Path) -> str:
        decode_pixels(path.read_bytes(), str(path))
        read_image(path)
        shown_size(path)
        return ""

    by_suffix = {".png": any_png, ".jpg": any_bytes, ".webp": any_bytes, ".bmp": any_bytes}
    return Reader(samples.pictures(), by_suffix, read)


def _video() -> Reader:
    return Reader(samples.clips(), any_bytes, lambda path: str(sum(1 for _ in VideoReader(path)))[:0])


def _archives() -> Reader:
    def read(path: Path) -> str:
        found, statement = unpack(path.read_bytes(), str(path))
        return statement.to_json() + str(found.picture().tobytes())

    return Reader(samples.archives(), any_zip, read)


def _released() -> Reader:
    """A picture with its statement in it, and a video's statement beside it."""
    made = samples.released()

    def read(path: Path) -> str:
        if path.suffix == ".json":
            (path.parent / "b.mp4").write_bytes(made["b.mp4"])
            path = path.rename(path.parent / "b.mp4.privacy.json").parent / "b.mp4"
        statement, _ = verify_release(path)
        return statement.to_json()

    files = {".png": made["a.png"], ".jpg": made["a.jpg"], ".json": made["b.mp4.privacy.json"]}
    return Reader(files, {".png": any_png, ".jpg": any_bytes, ".json": any_json}, read)


def _manifests() -> Reader:
    made = samples.released()

    def read(path: Path) -> str:
        samples.put(path.parent, {name: made[name] for name in ("a.png", "a.jpg")})
        path.rename(path.parent / "corpus.jsonl")
        verify_manifest(path.parent)
        return ""

    return Reader({".jsonl": made["corpus.jsonl"]}, any_jsonl, read)


def _statements() -> Reader:
    made = samples.claim()

    def read(path: Path) -> str:
        PrivacyStatement.from_json(path.read_text(encoding="utf-8", errors="replace"), str(path)).verify()
        samples.put(path.parent, made | {"privacy.json": path.read_bytes()})
        verify_run(path.parent, path.parent / "state")
        said = open_statement(path.parent).statement.to_dict()
        return str([said[name] for name in ("epsilon", "delta", "events", "neighbours", "unit", "n")])

    return Reader({".json": made["privacy.json"]}, any_json, read)


def _ledgers() -> Reader:
    made = samples.claim()

    def read(path: Path) -> str:
        spent(read_ledger(path))
        samples.put(path.parent, made | {"ledger.jsonl": path.read_bytes()})
        verify_run(path.parent, path.parent / "state")
        return path.read_text()

    return Reader({".jsonl": made["ledger.jsonl"]}, any_ledger, read)


RUN_PARTS = {
    ".privacy.json": ("run/privacy.json", any_json),
    ".config.json": ("run/config.json", any_json),
    ".ledger.jsonl": ("run/ledger.jsonl", any_ledger),
    ".log.jsonl": ("run/log.jsonl", any_jsonl),
    ".card.md": ("run/README.md", any_bytes),
    ".safetensors": ("run/model.safetensors", any_safetensors),
}


def put_run(path: Path, run: Callable[[], samples.Files] = samples.run) -> Path:
    """A sealed run beside a mutant of one of its files, which takes that file's place; its folder."""
    suffix = path.name.removeprefix("input")
    samples.put(path.parent, run())
    path.rename(path.parent / RUN_PARTS[suffix][0])
    return path.parent / "run"


def _runs() -> Reader:
    """A sealed run folder with one file of it changed."""
    made = samples.run()

    def read(path: Path) -> str:
        folder = put_run(path)
        read_run(folder)
        found = verify_run(folder, path.parent / "state")
        return str(found.lines) + found.statement.to_json()

    files = {suffix: made[name] for suffix, (name, _) in RUN_PARTS.items()}
    return Reader(files, {suffix: mutate for suffix, (_, mutate) in RUN_PARTS.items()}, read)


def _checkpoints() -> Reader:
    made = samples.run()
    folder = sorted({name.rpartition("/")[0] for name in made if "/step-" in name})[-1]
    state, tensors = made[f"{folder}/state.json"], made[f"{folder}/state.safetensors"]

    def as_told(data: bytes) -> bytes:
        """The description, with the digest of these tensors in it: so that what lies behind it is reached."""
        import hashlib

        values = json.loads(state)
        values["sha256"]["state.safetensors"] = hashlib.sha256(data).hexdigest()
        return json.dumps(values).encode()

    def read(path: Path) -> str:
        own = path.read_bytes()
        tensor_file = own if path.suffix == ".safetensors" else tensors
        samples.put(path.parent, {"state.json": as_told(own) if tensor_file is own else own})
        samples.put(path.parent, {"state.safetensors": tensor_file})
        load_checkpoint(path.parent)
        return ""

    files = {".json": state, ".safetensors": tensors}
    return Reader(files, {".json": any_json, ".safetensors": any_safetensors}, read)


def _signatures() -> Reader:
    made = samples.run()
    statement = made["run/privacy.json"]

    def read(path: Path) -> str:
        names = {"a.json": statement, "a.json.sig": made["run/privacy.json.sig"], "key.pub": made["key.pub"]}
        names["key.pub" if path.suffix == ".pub" else "a.json.sig"] = path.read_bytes()
        samples.put(path.parent, names)
        told = PrivacyStatement.from_json(statement.decode())
        found = check_signature(path.parent / "a.json", told, path.parent / "key.pub")
        return f"{found.signs} {found.seal} {found.date}"

    return Reader(
        {".sig": made["run/privacy.json.sig"], ".pub": made["key.pub"]}, {".sig": any_json, ".pub": any_bytes}, read
    )


def _accounts() -> Reader:
    """A change that the account does not see is told as `altered`: it would hide what was spent."""
    made = samples.account()
    parts = {
        ".sqlite": next(name for name in made if name.endswith(".sqlite")),
        ".key": next(name for name in made if "key" in name),
        ".seen": next(name for name in made if "seen" in name),
    }

    def read(path: Path) -> str:
        own, place = path.read_bytes(), path.parent / "state"
        samples.put(place, {name: data for name, data in made.items() if name != parts[".seen"]})
        seen_file = high_water.seen_file(place, opened(place).name)
        seen_file.parent.mkdir()
        seen_file.write_bytes(made[parts[".seen"]])
        target = seen_file if path.suffix == ".seen" else place / parts[path.suffix]
        target.write_bytes(own)
        return str([(c.id, c.what, c.data, c.state, c.events, len(c.marks)) for c in charges(place)])

    files = {suffix: made[name] for suffix, name in parts.items()}
    return Reader(files, {".sqlite": any_sqlite, ".key": any_bytes, ".seen": any_json}, read)


def _state() -> Reader:
    """What the state folder keeps of runs beside the account: keys, heads of ledgers, settings."""
    made = samples.claim()
    ledger = made["ledger.jsonl"]
    run_id = json.loads(ledger.splitlines()[0])["run_id"]
    last = json.loads(ledger.splitlines()[-1])
    key = {"schema": 1, "key": "ab" * 32, "data": "cd" * 32, "surroundings": {"torch": "2"}}
    head = {"run_id": run_id, "seq": last["seq"], "sha256": last["sha256"]}
    places = {"schema": 1, "settings": {"data": {"private": "ward"}}, "command": "dpose train"}
    kinds = {".key": ("keys", key), ".head": ("heads", head), ".run": ("runs", places)}

    def read(path: Path) -> str:
        kind, _ = kinds[path.suffix]
        samples.put(path.parent / "state" / kind, {f"{run_id}.json": path.read_bytes()})
        kept_key(run_id, path.parent / "state")
        kept_places(run_id, path.parent / "state")
        samples.put(path.parent, made)
        verify_run(path.parent, path.parent / "state")
        return ""

    return Reader({s: json.dumps(values).encode() for s, (_, values) in kinds.items()}, any_json, read)


def _logs() -> Reader:
    """The log of a run that is taken up again."""

    def read(path: Path) -> str:
        with RunLog(path) as log:
            updates_of(path, "key")
            log.write("step", step=1)
        return ""

    return Reader({".jsonl": samples.run()["run/log.jsonl"]}, any_jsonl, read)


def _weights() -> Reader:
    tensors = {"a.weight": np.ones((3, 4), np.float32), "b": np.arange(5)}
    old = io.BytesIO()
    torch.save({name: torch.from_numpy(value) for name, value in tensors.items()}, old)
    files = {".safetensors": safetensors.numpy.save(tensors), ".pt": old.getvalue()}
    by_suffix = {".safetensors": any_safetensors, ".pt": any_bytes}
    return Reader(files, by_suffix, lambda path: str(len(read_tensors(path)))[:0])


def _models() -> Reader:
    def read(path: Path) -> str:
        (path.parent / "config.json").write_bytes(path.read_bytes())
        (path.parent / "model.safetensors").symlink_to(SHIPPED / "nano" / "model.safetensors")
        load_model(path.parent)
        return ""

    return Reader({".json": (SHIPPED / "nano" / "config.json").read_bytes()}, any_json, read)


def _onnx() -> Reader:
    def read(path: Path) -> str:
        onnx_segmenter(path)(samples.picture())
        return ""

    return Reader({".onnx": samples.onnx_model()}, any_onnx, read)


SETTINGS = {
    "data": {"private": "synthetic:ward", "limit": 100},
    "plan": {"method": "dp-sgd", "epochs": 2, "expected_batch_size": 100, "epsilon": 4.0, "delta": 1e-5},
    "optimizer": {"name": "adamw", "lr": 0.001, "options": {"weight_decay": 0.02}},
}


def _settings() -> Reader:
    def read(path: Path) -> str:
        RunConfig.from_dict(read_yaml(path), str(path))
        return ""

    return Reader({".yaml": yaml.safe_dump(SETTINGS).encode()}, any_yaml, read)


def _grids() -> Reader:
    def read(path: Path) -> str:
        TuningConfig.from_yaml(path, epsilon=4.0, delta=1e-5)
        return ""

    return Reader({".yaml": (ROOT / "examples" / "tune.yaml").read_bytes()}, any_yaml, read)


READERS: Mapping[str, Callable[[], Reader]] = {
    "picture": _pictures, "video": _video, "archive": _archives, "released": _released, "manifest": _manifests,
    "statement": _statements, "ledger": _ledgers, "run": _runs, "checkpoint": _checkpoints,
    "signature": _signatures, "account": _accounts, "state": _state, "log": _logs, "weights": _weights,
    "model": _models, "onnx": _onnx, "settings": _settings, "grid": _grids,
}  # fmt: skip
