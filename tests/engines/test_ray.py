"""A real Ray cluster on this machine: a worker is killed in the middle, and nothing is lost or released twice."""

import os
import signal
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from dpose.account import charges
from dpose.engines import engine, run_items
from dpose.media.images import encode_image
from dpose.release.batch import release_corpus
from dpose.release.items import Work
from dpose.release.jobs import find_jobs
from dpose.release.manifest import verify_manifest
from plain_configs import plain_cells
from refusals import refused

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
SECRET = "6b657973-stay-out-of-files"


def process(shared, item):
    time.sleep(0.02)
    return os.getpid(), len(shared), len(item)


def test_a_killed_worker_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for k in range(12):
        seen = np.random.default_rng(k).integers(0, 256, (48, 64, 3)).astype(np.uint8)
        (tmp_path / "in" / f"{k}.png").write_bytes(encode_image(cv2.GaussianBlur(seen, (0, 0), 3), ".png"))
    out = tmp_path / "out"
    jobs = find_jobs([str(tmp_path / "in")], out)
    with engine("ray", workers=2) as at:
        pids = {ended.result[0] for ended in run_items(at, process, [SECRET] * 20, shared=(1,))}
        assert len(pids) == 2
        run = release_corpus(jobs, Work(plain_cells(2, 4, 8)), at, out)
        next(run)
        os.kill(pids.pop(), signal.SIGKILL)
        assert len([1 for _ in run]) == 11
        logs = Path(ray._private.worker.global_worker.node.get_session_dir_path())
        assert not [file for file in logs.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
        monkeypatch.setattr("dpose.engines.ray.worker_code", lambda: "0" * 16)
        with refused("worker-code-differs"):
            at._check(at._actors[0])
        with refused("worker-code-differs"):
            next(run_items(at, process, [SECRET], shared=(1,)))
    assert not ray.is_initialized()
    assert [entry.state.value for entry in charges()] == ["committed"] * 12
    assert "12 files, all as they were released" in verify_manifest(out)
