"""Small valid files of every kind, made once by the library itself."""

from __future__ import annotations

import functools
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
import scipy.io
from rich.console import Console

from clips import write as write_clip
from dots import Dots, DotsTask, train
from dpose.account.store import close_connections, opened
from dpose.media.images import encode_image
from dpose.privacy.accounting import Accountant
from dpose.privacy.marks import marks_of
from dpose.privacy.signing import new_key, sign
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import pack_archive
from dpose.release.manifest import Manifest
from dpose.runs.config import RunConfig
from dpose.runs.train import train_run
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.units import Unit
from dpose_scene import data as rendered
from public_doors import pixelize, release_video
from run_folders import finished_run
from stored import charged, release_charge, run_charge

Files = dict[str, bytes]


@functools.cache
def picture() -> Any:
    """uint8 (24, 32, 3)."""
    return np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)


@functools.cache
def pictures() -> Files:
    """Picture files by suffix."""
    files = {suffix: encode_image(picture(), suffix) for suffix in (".png", ".jpg")}
    return files | {suffix: cv2.imencode(suffix, picture())[1].tobytes() for suffix in (".webp", ".bmp")}


def contents(folder: Path) -> Files:
    """All files below a folder, by their paths in it."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def put(folder: Path, files: Files) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)


@functools.cache
def clips() -> Files:
    """Video files by suffix."""
    with tempfile.TemporaryDirectory() as folder:
        return {s: write_clip(Path(folder) / f"a{s}").read_bytes() for s in (".mp4", ".mkv", ".avi")}


@functools.cache
def archives() -> Files:
    """Released archives with Laplace and with Gaussian noise."""
    made = (pixelize(picture(), 2, 4, 8), pixelize(picture(), 2, 4, 8, delta=1e-5))
    return {
        f".{k}.npz": pack_archive(one.frames[0], one.statement)  # type: ignore[arg-type]  # it is no published one
        for k, one in enumerate(made)
    }


@functools.cache
def released() -> Files:
    """A released picture, a list of it, and a released video with its sidecar."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = pixelize(picture(), 2, 4, 8)
        for suffix in (".png", ".jpg"):
            made.save(place / f"a{suffix}")
        from dpose.files import file_digest

        with Manifest(place) as listed:
            for name in ("a.png", "a.jpg"):
                listed.add(place / name, {place / name: file_digest(place / name)}, made.statement)
            listed.end()
        (place / "in.mp4").write_bytes(clips()[".mp4"])
        release_video(place / "in.mp4", place / "b.mp4", 8, "1e-5")
        (place / "in.mp4").unlink()
        return contents(place)


@functools.cache
def claim() -> Files:
    """A private statement, its ledger and what else their seal binds: the folder of a run without real weights."""
    plan = TrainingPlan(epsilon=8.0, delta=1e-5, steps=20, expected_batch_size=50, unit=Unit.IMAGE)
    with tempfile.TemporaryDirectory() as folder:
        finished_run(Path(folder) / "run", Path(folder) / "state", plan, blocks=2)
        return contents(Path(folder) / "run")


@functools.cache
def run() -> Files:
    """A finished private run of four steps under "run/", its state under "state/", a signature of its statement."""
    with tempfile.TemporaryDirectory() as folder:
        place, task = Path(folder), DotsTask()
        plan = TrainingPlan(epsilon=8.0, delta=1e-4, steps=4, expected_batch_size=20, accountant=Accountant.RDP)
        fast = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
        train(
            task, task.build_model(), private=Dots(60), plan=plan, out=place / "run", optimizer=fast,
            state_dir=place / "state", console=Console(quiet=True),
        )  # fmt: skip
        public = new_key(place / "key")
        file = place / "run" / "privacy.json"
        sign(file, PrivacyStatement.from_json(file.read_text()), place / "key")
        assert public.exists()
        return contents(place)


@functools.cache
def pose_run() -> Files:
    """The same of `dpose train` on four rendered people, which a report can be written of."""
    values = {
        "data": {"private": "synthetic:ward", "limit": 4, "validation_data": "synthetic:studio"},
        "plan": {"epsilon": 8.0, "delta": 1e-3, "steps": 2, "expected_batch_size": 2, "accountant": "rdp"},
    }
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        place = Path(folder)
        patch.setenv("XDG_STATE_HOME", str(place))
        patch.setattr(rendered, "SPLITS", {"train": 8, "val": 4, "test": 4, "public": 4})
        train_run(RunConfig.from_dict(values, "fuzz"), place / "run", Console(quiet=True))
        return {name.replace("dpose/", "state/"): data for name, data in contents(place).items()}


@functools.cache
def account() -> Files:
    """An account of two runs and two releases: the database, its key, how far it was seen."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        marks = marks_of(["a", "b"])
        charged(run_charge(0), run_charge(1), release_charge(2, marks), release_charge(3, marks), where=place)
        close_connections(opened(place).url)
        return {name: data for name, data in contents(place).items() if not name.endswith(("-wal", "-shm"))}


def coco(names: tuple[str, ...] = ("1.png", "2.png")) -> bytes:
    """Labels of one person in two pictures, in COCO's format."""
    person = {
        "id": 7, "image_id": 1, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "area": 900.0,
        "bbox": [2.0, 1.0, 20.0, 16.0], "keypoints": [v for j in range(17) for v in (2 + j, 1 + j, 1 + j % 2)],
    }  # fmt: skip
    images = [
        {"id": i, "file_name": name, "width": 32, "height": 24, "category": "dance"} for i, name in enumerate(names, 1)
    ]
    content = {"images": images, "annotations": [person], "categories": [{"id": 1, "name": "person"}]}
    return json.dumps(content).encode()


def mpii(names: tuple[str, ...] = ("1.png", "2.png")) -> bytes:
    """Labels of a person in each of two pictures, as MPII's in JSON."""
    joints = [[2.0 + j, 1.0 + j] for j in range(16)]
    people = [
        {"image": name, "center": [16.0, 12.0], "scale": 0.1, "joints": joints, "joints_vis": [1] * 16}
        for name in names
    ]
    return json.dumps(people).encode()


def mat(**arrays: Any) -> bytes:
    """A .mat file."""
    raw = io.BytesIO()
    scipy.io.savemat(raw, arrays)
    return raw.getvalue()


def onnx_model() -> bytes:
    """A segmenter of one convolution."""
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((1, 3, 1, 1), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 24, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 24, 32])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
