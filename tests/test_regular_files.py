"""Readers take regular files and read them once: none waits for a FIFO, follows a link out, or trusts what changes."""

import hashlib
import json
import os
import shutil
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

import dpose
from clips import write
from dots import train
from dpose.account import State, charges
from dpose.account.store import account_key
from dpose.action.data.spec import _lines
from dpose.action.model import load_action_model
from dpose.cli import main
from dpose.errors import DposeError
from dpose.files import file_bytes, file_json, file_text, leads_outside, same_file_check, unchanged, write_atomic
from dpose.media.images import encode_image, read_image
from dpose.media.video import probe
from dpose.pose.boxes import read_detections
from dpose.pose.data.coco import read_coco
from dpose.pose.data.label_files import read_json
from dpose.pose.data.lspet import _read_labels
from dpose.pose.data.mpii import read_mpii
from dpose.pose.data.yolo import read_yolo
from dpose.pose.evaluate import _mat_points
from dpose.pose.folder import load_model
from dpose.pose.weights_file import read_tensors
from dpose.privacy.canaries import Opening
from dpose.privacy.ledger import Ledger, read_ledger
from dpose.privacy.signing import Signature, check_signature
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.archive import carried
from dpose.release.manifest import Manifest, verify_manifest
from dpose.release.regions import onnx_segmenter
from dpose.release.verify import verify_release
from dpose.runs.config import read_yaml
from dpose.runs.reading import read_run
from dpose.runs.statement_files import open_statement
from dpose.runs.verify import verify_run
from dpose.training.checkpoint import load_checkpoint
from dpose.training.folder import RunLog, read_statement
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose_lab.attacks.adversary import onnx_embedder
from refusals import refused

PICTURE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)


@pytest.fixture(autouse=True)
def _impatient():
    """A reader that waits fails its test instead of all of them."""

    def late(*_):
        raise AssertionError("waits for a file that nobody writes")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


READERS = {
    "a.png": read_image,
    "b.png": verify_release,
    "c.png": carried,
    "a.mp4": probe,
    "a.npz": verify_release,
    "b.npz": carried,
    "privacy.json": lambda path: verify_run(path.parent),
    "a/privacy.json": lambda path: read_statement(path.parent),
    "b/privacy.json": lambda path: open_statement(path.parent),
    "ledger.jsonl": read_ledger,
    "a/ledger.jsonl": lambda path: Ledger.append_to(path, path.parent),
    "a.sig": Signature.in_file,
    "config.json": lambda path: load_model(path.parent),
    "a/config.json": lambda path: load_action_model(path.parent),
    "b/config.json": lambda path: read_run(path.parent),
    "a.safetensors": read_tensors,
    "a.pt": read_tensors,
    "step-1/state.json": lambda path: load_checkpoint(path.parent),
    "log.jsonl": RunLog,
    "corpus.jsonl": lambda path: Manifest(path.parent),
    "data.yaml": lambda path: read_yolo(path.parent, "train"),
    "run.yaml": read_yaml,
    "labels.json": read_json,
    "labels.txt": lambda path: list(_lines(path)),
    "joints.mat": lambda path: _read_labels(path, {"train": (1, 3)}),
    "preds.mat": _mat_points,
    "coco.json": lambda path: read_coco(path.parent, "train", path.name),
    "annot/train.json": lambda path: read_mpii(path.parent.parent, "train"),
    "results.json": read_detections,
    "a.onnx": onnx_segmenter,
    "b.onnx": lambda path: onnx_embedder(str(path)),
    "account.sqlite": lambda path: charges(path.parent),
    "a/account.key": lambda path: account_key(path.parent, make=True),
    "opening.json": Opening.read,
    "a.pub": lambda path: check_signature(path, PrivacyStatement(Kind.NONE, "image"), path),
}


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused_and_not_waited_for(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(DposeError) as found:
        READERS[name](path)
    assert "\n" not in found.value.line()


def test_only_regular_files_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind("socket")
        for name in ("fifo", "socket", "/dev/zero", "/dev/null"):
            with pytest.raises(OSError, match="not a regular file"):
                file_bytes(name)
    with pytest.raises(IsADirectoryError):
        file_bytes("folder")
    with pytest.raises(FileNotFoundError):
        file_bytes("nothing")
    Path("file").write_bytes(b'{"a": 1}\r\n')
    Path("link").symlink_to("file")
    assert file_bytes("link") == b'{"a": 1}\r\n'
    assert file_text("link") == '{"a": 1}\n'
    assert file_json("link") == {"a": 1}


def test_a_file_that_is_too_long_is_not_read(tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte that takes no room
    with pytest.raises(OSError, match="longer than 10 bytes"):
        file_bytes(path, 10)
    with pytest.raises(OSError, match="longer than"):
        file_text(path)
    with refused("file-unreadable"):
        read_yaml(path)


def test_json_that_is_nested_too_deeply_is_no_json(tmp_path):
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        file_json(tmp_path / "a.json")


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    path = tmp_path / "a"
    path.write_text("abc")
    with unchanged(path):
        path.read_text()
    check = same_file_check(path)
    check()
    write_atomic(path, "abc")
    for spoil in (lambda: write_atomic(path, "abd"), lambda: path.write_text("abcd"), path.unlink):
        check = same_file_check(path)
        spoil()
        with refused(("file-changed", "file-unreadable")):
            check()
    with refused("file-unreadable"), unchanged(path):
        pass


def test_what_is_written_goes_through_no_link(tmp_path):
    """Beside, then renamed: the name is another file's then, and those that shared the old one keep it."""
    old, hard, soft = tmp_path / "old", tmp_path / "hard", tmp_path / "soft"
    old.write_text("old")
    os.link(old, hard)
    soft.symlink_to(old)
    write_atomic(hard, "new")
    write_atomic(soft, "newer")
    assert (old.read_text(), hard.read_text(), soft.read_text()) == ("old", "new", "newer")
    assert not soft.is_symlink()


def test_a_release_writes_through_no_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.png").write_bytes(encode_image(PICTURE, ".png"))
    Path("precious").write_text("kept")
    Path("out").mkdir()
    # dangling links do not exist, and so are in nobody's way: what is written replaces them
    Path("out/000001.png").symlink_to("../elsewhere.png")
    assert main(["pixelize", "a.png", "--epsilon", "1", "--block", "8", "--out", "b.png", "--public"]) == 0
    os.link("precious", "c.png")
    assert main(["pixelize", "a.png", "--epsilon", "1", "--block", "8", "--out", "c.png", "--public"]) == 2
    assert Path("precious").read_text() == "kept"
    assert main(["pixelize", "a.png", "--epsilon", "1", "--block", "8", "--out", "out", "--public"]) == 0
    assert not Path("elsewhere.png").exists()


@pytest.fixture(scope="module")
def sealed(dots, tmp_path_factory):
    base = tmp_path_factory.mktemp("linked")
    plan = TrainingPlan(epsilon=8.0, delta=1e-4, steps=4, expected_batch_size=20, accountant="rdp")
    fast = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
    model = dots.task.build_model()
    train(dots.task, model, private=dots.data(60), plan=plan, out=base / "run", optimizer=fast, state_dir=base / "s")
    return base


@pytest.mark.parametrize("name", ["model.safetensors", "privacy.json", "ledger.jsonl", "log.jsonl", "checkpoints"])
def test_a_sealed_run_that_points_outside_is_refused(name, sealed, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(sealed / "run", run)
    assert verify_run(run, sealed / "s").spent
    (run / name).rename(tmp_path / name)
    (run / name).symlink_to(tmp_path / name)
    with refused("file-link-escapes"):
        verify_run(run, sealed / "s")


def test_a_run_may_be_reached_by_a_link_and_hold_links_to_itself(sealed, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(sealed / "run", run)
    (run / "card").mkdir()
    (run / "README.md").rename(run / "card" / "README.md")
    (run / "README.md").symlink_to("card/README.md")
    (tmp_path / "link").symlink_to(run)
    assert verify_run(tmp_path / "link", sealed / "s").spent
    assert not leads_outside(run / "README.md", tmp_path / "link")


def test_a_run_that_changes_while_it_is_verified_is_refused(sealed, tmp_path, monkeypatch):
    """Its statement is read, then another one is put in its place, for whoever reads next."""
    run = tmp_path / "run"
    shutil.copytree(sealed / "run", run)
    real = dpose.runs.verify.verify_ledger

    def swapped(*given):
        write_atomic(run / "privacy.json", (run / "privacy.json").read_bytes())
        return real(*given)

    monkeypatch.setattr(dpose.runs.verify, "verify_ledger", swapped)
    with refused("file-changed", where="privacy.json"):
        verify_run(run, sealed / "s")


def test_a_list_of_released_files_leads_nowhere_else(tmp_path):
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("../secret", "/etc/hostname", "link"):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to("../secret")
        digest = "0" * 64
        line = {"type": "file", "file": name, "sha256": {name: digest}, "epsilon": "1.0"}
        head = json.dumps({"type": "corpus", "schema": 1}) + "\n" + json.dumps(line) + "\n"
        end = {"type": "end", "sha256": hashlib.sha256(head.encode()).hexdigest()}
        (folder / "corpus.jsonl").write_text(head + json.dumps(end) + "\n")
        with refused("manifest-file-missing"):
            verify_manifest(folder)


def test_a_video_that_changes_while_it_is_released(tmp_path, monkeypatch):
    """Its digest is counted; another file's frames must not go out under it. It stays counted, and nothing stands."""
    monkeypatch.chdir(tmp_path)
    source, other = write(tmp_path / "a.mp4"), write(tmp_path / "b.mp4", rate=6)
    frames = []

    def swap():
        frames.append(1)
        if len(frames) == 1:
            shutil.copy(other, source)

    with refused("file-changed"):
        dpose.release_video(source, tmp_path / "out.mp4", 8, "1e-5", progress=swap)
    assert frames
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]
    assert [entry.state for entry in charges()] == [State.FAILED]


def test_a_video_that_changes_while_it_is_verified(tmp_path, monkeypatch):
    source = write(tmp_path / "a.mp4")
    dpose.release_video(source, tmp_path / "out.mp4", 8, "1e-5", public=True)
    verify_release(tmp_path / "out.mp4")
    real = dpose.release.verify.probe

    def swapped(path):
        path.write_bytes(path.read_bytes() + b"\0")
        return real(path)

    monkeypatch.setattr(dpose.release.verify, "probe", swapped)
    with refused("file-changed"):
        verify_release(tmp_path / "out.mp4")
