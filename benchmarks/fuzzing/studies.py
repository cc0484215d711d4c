"""Whole commands that look at runs and releases, and what is dropped on the studio's page."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cv2
import numpy as np
import pytest
from matplotlib.figure import Figure
from starlette.testclient import TestClient

from dpose.audits import training
from dpose.errors import DposeError
from dpose.studio import opened, worker
from dpose.studio.app import Studio, make_app
from dpose.studio.roots import Roots, Workplace
from dpose.studio.security import HEADER, Door
from fuzzing import labels, samples
from fuzzing.commands import PICTURES, at_home, ran
from fuzzing.hostile import LEADING_OUT
from fuzzing.mutations import any_bytes, any_json, any_onnx, any_yaml
from fuzzing.reader import Reader
from fuzzing.readers import RUN_PARTS, put_run
from quick import texts_alone

PORT = 8765
READ = "all was read, and nothing is trained"


def _of_run(*commands: list[str]) -> Callable[[], Reader]:
    """Commands that look at a run of which one file is changed, beside the run as it was."""

    def made() -> Reader:
        def read(path: Path) -> str:
            put_run(path, samples.pose_run)
            samples.put(path.parent / "whole", samples.pose_run())
            with at_home(path.parent), pytest.MonkeyPatch.context() as patch:
                patch.setattr(Figure, "savefig", texts_alone)
                return ran(*commands)

        whole = samples.pose_run()
        files = {suffix: whole[name] for suffix, (name, _) in RUN_PARTS.items()}
        return Reader(files, {suffix: mutate for suffix, (_, mutate) in RUN_PARTS.items()}, read)

    return made


def _attack() -> Reader:
    """A picture of one of fourteen people, and the network that tells them apart."""
    rng = np.random.default_rng(0)
    crowd = {
        f"{who}/{k}.png": cv2.imencode(".png", rng.integers(0, 256, (48, 48, 3), np.uint8))[1].tobytes()
        for who in range(14)
        for k in range(3)
    }
    asked = ["--identities", "3", "--learn-from", "10", "--set", "learn_pictures=2", "--attacker", "plain"]
    how = ["--release", "pixelate", "--block", "8", "--embedder", "e.onnx", "--public", "--out", "out"]

    def read(path: Path) -> str:
        samples.put(path.parent / "people", crowd)
        (path.parent / "e.onnx").write_bytes(samples.onnx_model())
        path.rename(path.parent / ("e.onnx" if path.suffix == ".onnx" else f"people/0/0{path.suffix}"))
        with at_home(path.parent):
            return ran(["attack", "reid", "--data", "folder:people", *asked, *how])

    files = {**samples.pictures(), ".onnx": samples.onnx_model()}
    return Reader(files, {**PICTURES, ".onnx": any_onnx}, read)


def _no_run(task: Any, model: Any, units: Any, *given: Any, **named: Any) -> Any:
    """In the place of training and attack, which see no file: all units are read and put together once."""
    rng = np.random.default_rng(0)
    task.collate([units.load(index, rng) for index in range(len(units))])
    raise DposeError("studies-all-read", READ)


def _audit() -> Reader:
    """Labels of the data that an audit trains on, up to the training itself."""
    small = ["--limit", "2", "--canaries", "24", "--epochs", "2", "--batch-size", "18", "--set", "seed=1"]
    claim = ["--epsilon", "2", "--delta", "1e-3", "--no-controls", "--out", "out"]

    def read(path: Path) -> str:
        kind, own = path.suffix[1:], path.read_bytes()
        if kind == "coco":
            labels.put_coco(path.parent / "data", own)
        elif kind == "mpii":
            labels.put_mpii(path.parent / "data", own, labels.mpii_boxes())
        else:
            labels.put_yolo(path.parent / "data", own)
        with at_home(path.parent), pytest.MonkeyPatch.context() as patch:
            patch.setattr(Figure, "savefig", texts_alone)
            patch.setattr(training, "canary_run", _no_run)
            try:
                return ran(["audit", "training", "--data", f"{kind}:data:val", *small, *claim])
            except DposeError as error:
                if READ not in error.line():
                    raise
                return ""

    kinds = {".coco": samples.coco(), ".mpii": samples.mpii(), ".yolo": labels.YOLO_FILE}
    return Reader(kinds, {".coco": any_json, ".mpii": any_json, ".yolo": any_yaml}, read)


@functools.cache
def _experiment() -> samples.Files:
    """Two frames of a video in MOT's form, and the results of an experiment on them."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "seq" / "img1").mkdir(parents=True)
        for frame in (1, 2):
            cv2.imwrite(str(place / f"seq/img1/{frame:06d}.png"), rng.integers(0, 256, (20, 40)).astype(np.uint8))
        with at_home(place):
            ran(REPRODUCE)
        return {name: data for name, data in samples.contents(place).items() if not name.startswith("home")}


REPRODUCE = ["reproduce", "002/table5", "--data", "mot:seq", "--limit", "1", "--out", "t"]


def _reproduce() -> Reader:
    """A frame, the settings and a cell of an experiment that is gone on with."""
    cells = sorted(name for name in _experiment() if name.startswith("t/cells/"))
    parts = {".png": "seq/img1/000001.png", ".settings.json": "t/settings.json", ".cell.json": cells[0]}

    def read(path: Path) -> str:
        own, name = path.read_bytes(), parts[path.name.removeprefix("input")]
        path.unlink()
        samples.put(path.parent, {**_experiment(), name: own})
        with at_home(path.parent):
            return ran(REPRODUCE)

    files = {suffix: _experiment()[name] for suffix, name in parts.items()}
    return Reader(files, {".png": PICTURES[".png"], ".settings.json": any_json, ".cell.json": any_json}, read)


def _decoded(work: str, task: dict[str, Any], **limits: object) -> Any:
    """`children.answer` in this process, which has limits of its own."""
    return worker.WORK[work](task)


@contextlib.contextmanager
def _studio(folder: Path) -> Iterator[TestClient]:
    with pytest.MonkeyPatch.context() as patch, at_home(folder):
        patch.setattr(opened, "answer", _decoded)
        (folder / "photos").mkdir()
        place = Workplace(folder / "work")
        studio = Studio(Door(PORT), Roots.of([folder / "photos"]), folder / "released", place)
        home = f"http://127.0.0.1:{PORT}"
        secret = {"origin": home, HEADER: studio.door.secret}
        client = TestClient(make_app(studio), base_url=home, headers=secret)
        try:
            yield client
        finally:
            studio.close()


def _answered(found: Any) -> Any:
    """What a page is told.

    Raises:
        DposeError: that something is wrong, in one line.
        AssertionError: something else is.
    """
    told = found.json()
    assert found.status_code in (200, 400), f"{found.status_code}: {told}"
    if found.status_code == 400:
        raise DposeError(told["code"], told["error"])
    return told


def _upload() -> Reader:
    """A picture or clip that is dropped, under a name of any kind, and what a page then asks."""

    def read(path: Path) -> str:
        own = path.read_bytes()
        names = (*LEADING_OUT, *("input",) * len(LEADING_OUT))
        name = names[sum(own) % len(names)]
        name = name.encode("utf-8", "replace").decode()
        path.unlink()
        with _studio(path.parent) as client:
            place = f"/api/upload?name={quote(f'{name}{path.suffix}')}"
            told = _answered(client.put(place, content=own))
            asked = {"file": told["id"], "hide": "box", "box": [1, 1, 9, 9], "epsilon": "2", "block": 8}
            asked |= {"delta": "1e-5"} if told["kind"] == "clip" else {}
            _answered(client.post("/api/preview", json=asked))
            _answered(client.post("/api/standing", json=asked))
        return ""

    files = {**samples.pictures(), ".mp4": samples.clips()[".mp4"]}
    return Reader(files, {**PICTURES, ".mp4": any_bytes}, read)


def _asked() -> Reader:
    """What a page asks of the studio, which may ask anything."""
    bodies = {
        ".open_file.json": b'{"place": "0/a.png"}',
        ".browse.json": b'{"place": "0"}',
        ".preview.json": b'{"file": "FILE", "hide": "box", "box": [1, 1, 9, 9], "epsilon": "2", "block": 8}',
        ".standing.json": b'{"file": "FILE", "hide": "box", "box": [1, 1, 9, 9], "epsilon": "2", "block": 8}',
        ".plan.json": b'{"units": 1000, "epochs": 5, "batch": 100, "epsilon": 4, "delta": 1e-5, "method": "dp-sgd"}',
        ".curve.json": b'{"sigma": 2.0, "steps": 50, "rate": 0.1, "delta": 1e-5, "relation": "zero-out"}',
        ".run.json": b'{"run": "0/run"}',
        ".verify.json": b'{"run": "0/run"}',
    }

    def read(path: Path) -> str:
        own, name = path.read_bytes(), path.name.removeprefix("input.").removesuffix(".json")
        path.unlink()
        with _studio(path.parent) as client:
            samples.put(path.parent / "photos", {"a.png": samples.pictures()[".png"], **samples.run()})
            told = _answered(client.post("/api/open_file", json={"place": "0/a.png"}))
            body = own.replace(b"FILE", told["id"].encode())
            _answered(client.post(f"/api/{name}", content=body))
        return ""

    return Reader(bodies, any_json, read)


READERS: Mapping[str, Callable[[], Reader]] = {
    "dpose compare": _of_run(["compare", "run", "whole/run", "--out", "a.png"]),
    "dpose report": _of_run(["report", "run"]),
    "dpose attack": _attack, "dpose audit": _audit, "dpose reproduce": _reproduce,
    "studio upload": _upload, "studio asked": _asked,
}  # fmt: skip
