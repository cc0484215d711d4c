"""What must outlive a power cut is on the disk before what depends on it; and the disk that is cut off for that."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest

import dpose
from dpose import files
from dpose.account.store import opened
from dpose.files import make_folder, private_folder, write_atomic
from dpose.release import counting

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from crashes.calls import Replay, parsed
from crashes.disk import Disk, write

PICTURE = np.arange(24 * 32, dtype=np.uint8).reshape(24, 32)


@pytest.fixture
def synced(monkeypatch):
    """The folders that were made durable, in order."""
    found = []
    real = files.fsync_folder

    def noted(folder):
        found.append(folder)
        real(folder)

    for module in (files, counting):
        monkeypatch.setattr(module, "fsync_folder", noted)
    return found


def test_a_folder_is_durable_before_anything_is_written_into_it(tmp_path, synced):
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    private_folder(tmp_path / "c")
    assert synced[2:] == [tmp_path]
    write_atomic(tmp_path / "d" / "e", "x")
    assert synced[3:] == [tmp_path, tmp_path / "d"]
    make_folder(tmp_path / "d")
    assert len(synced) == 5


def test_a_folder_is_durable_with_all_in_it_before_it_has_its_name(tmp_path, monkeypatch):
    """Otherwise a power cut leaves a run folder of empty files, and what it was copied from is gone."""
    done = []
    for name in ("fsync_file", "fsync_folder"):
        monkeypatch.setattr(files, name, lambda path, name=name: done.append((name, path)))
    monkeypatch.setattr(files.os, "replace", lambda old, new: done.append(("replace", old)))
    with files.folder_beside(tmp_path / "a") as folder:
        (folder / "in").mkdir()
        (folder / "x").write_text("x")
        (folder / "in" / "y").write_text("y")
    assert done == [
        ("fsync_file", folder / "in" / "y"),
        ("fsync_folder", folder / "in"),
        ("fsync_file", folder / "x"),
        ("fsync_folder", folder),
        ("replace", folder),
        ("fsync_folder", tmp_path),
    ]


def test_a_lock_is_durable_before_its_reservation(synced, monkeypatch):
    """Otherwise nobody could tell that a reservation's process has died, and it would seem to be at work for ever."""
    real, before = counting.charge_all, []
    monkeypatch.setattr(
        counting, "charge_all", lambda *given, **more: before.append(list(synced)) or real(*given, **more)
    )
    dpose.pixelize(PICTURE, 1, 8)
    assert any(folder.name == "releases" for folder in before[0])


def test_an_account_waits_for_the_disk(tmp_path):
    with opened(tmp_path).transaction() as account:
        assert account.rows("PRAGMA synchronous") == [(2,)]  # full
        assert account.rows("PRAGMA journal_mode") == [("wal",)]


def cuts(disk, count=200):
    return [disk.after_power_cut(random.Random(k))[0] for k in range(count)]


def test_a_disk_loses_what_was_not_synced():
    disk = Disk({"/a": b"old"})
    write(disk.find("/a"), 0, b"new")
    found = {files["/a"] for files in cuts(disk)}
    assert {b"old", b"new"} <= found <= {b"old", b"nld", b"ned", b"new"}
    disk.find("/a").sync()
    assert {files["/a"] for files in cuts(disk)} == {b"new"}


def test_a_disk_loses_names():
    disk = Disk({"/f/a": b"old"})
    disk.write("/f/b", 0, b"new")
    disk.find("/f/b").sync()
    disk.rename("/f/b", "/f/a")
    assert {tuple(sorted(files.items())) for files in cuts(disk)} == {
        (("/f/a", b"old"),),
        (("/f/a", b"old"), ("/f/b", b"new")),
        (("/f/a", b"new"),),
    }
    disk.find("/f").sync()
    assert all(files == {"/f/a": b"new"} for files in cuts(disk))


def test_a_folder_that_was_not_synced_is_lost_with_all_in_it():
    disk = Disk()
    disk.mkdir("/f")
    disk.write("/f/a", 0, b"x")
    disk.find("/f/a").sync()
    disk.find("/f").sync()
    assert {tuple(files) for files in cuts(disk)} == {(), ("/f/a",)}


def test_calls_are_read_as_they_were_made(tmp_path):
    def told(text):
        return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'

    root = "/r"
    lines = [
        f"7  mkdir({told('/r/f')}, 0777) = 0",
        f"7  openat(AT_FDCWD</>, {told('/r/f/a')}, O_WRONLY|O_CREAT|O_TRUNC, 0600) = 3</r/f/a>",
        f"7  write(3</r/f/a>, {told('abc')}, 3 <unfinished ...>",
        f"8  openat(AT_FDCWD</>, {told('/etc/b')}, O_RDONLY) = 4</etc/b>",
        "7  <... write resumed>) = 3",
        f"7  pwrite64(3</r/f/a>, {told('X')}, 1, 1) = 1",
        "7  fsync(3</r/f/a>) = 0",
        f"7  rename({told('/r/f/a')}, {told('/r/f/b')}) = 0",
        f"7  rename({told('/r/f/none')}, {told('/r/f/b')}) = -1 ENOENT (No such file)",
        f"7  write(5</r/marks>, {told('step 1' + chr(10))}, 7) = 7",
    ]
    replay = Replay(Disk(), Path(root))
    done = [replay.do(call) for call in parsed(lines)]
    assert replay.disk.now() == {"/f/b": b"aXc"}
    assert replay.marks == ["step 1"]
    assert done == [True, True, False, True, True, True, True, False]
    assert replay.disk.find("/f/b").safe == b"aXc"
