import os
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dpose.media.images import read_image, write_image
from dpose.pose.data import cache as module
from dpose.pose.data.cache import SWITCH, PictureCache, picture_cache
from refusals import refused


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.png"
    write_image(path, np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8))
    return path


@pytest.fixture
def store(tmp_path):
    return PictureCache(tmp_path / "cache" / "pictures")


class Decoder:
    def __init__(self, path):
        self.path, self.calls, self.lock = path, 0, threading.Lock()

    def __call__(self):
        with self.lock:
            self.calls += 1
        return read_image(self.path)


def entries(store):
    return [p for p in store.folder.rglob("*") if p.is_file()]


def test_a_picture_is_decoded_once_and_comes_back_to_the_bit(store, path):
    decode = Decoder(path)
    first, second = store.read(path, decode), store.read(path, decode)
    assert decode.calls == 1
    assert isinstance(second, np.memmap)
    assert np.array_equal(first, second)
    assert not second.flags.writeable


def test_a_cache_that_another_process_clears_meanwhile_costs_time_alone(store, path, monkeypatch):
    def gone(_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(PictureCache, "_files", gone)
    image = read_image(path)
    assert np.array_equal(store.read(path, lambda: image), image)


def test_a_folder_that_goes_while_files_are_counted_is_counted_as_gone(store, path, monkeypatch):
    store.read(path, Decoder(path))
    seen = Path.iterdir

    def cleared(folder):
        shutil.rmtree(store.folder, ignore_errors=True)
        return seen(folder)

    monkeypatch.setattr(Path, "iterdir", cleared)
    assert store.size() == (0, 0)


def test_what_is_kept_is_readable_by_its_owner_alone(store, path):
    store.read(path, Decoder(path))
    (entry,) = entries(store)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    store.folder.chmod(0o755)  # opened up by accident: closed again by the next process
    PictureCache(store.folder).read(path, Decoder(path))
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_not_used(store, path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    store.folder.parent.mkdir()
    store.folder.symlink_to(tmp_path / "elsewhere")
    store.read(path, Decoder(path))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_picture_overwritten_in_place_is_decoded_again_whatever_its_size_and_times(store, path):
    first = path.read_bytes()
    write_image(path, np.ascontiguousarray(read_image(path)[::-1]))
    second = path.read_bytes()
    length = max(len(first), len(second))  # what follows a PNG's end mark says nothing
    path.write_bytes(first.ljust(length, b"\0"))
    store.read(path, Decoder(path))
    before = path.stat()
    path.write_bytes(second.ljust(length, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert np.array_equal(store.read(path, Decoder(path)), read_image(path))


def test_how_it_was_decoded_is_part_of_the_key(store, path):
    store.read(path, Decoder(path), "a")
    decode = Decoder(path)
    store.read(path, decode, "b")
    assert decode.calls == 1


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None, "object"])
def test_a_damaged_entry_is_decoded_again(store, path, damage):
    expected = store.read(path, Decoder(path))
    (entry,) = entries(store)
    if damage == "object":
        np.save(entry, np.array([{}], object), allow_pickle=True)
    else:
        entry.write_bytes(entry.read_bytes()[:-5] if damage is None else damage)
    decode = Decoder(path)
    assert np.array_equal(store.read(path, decode), expected)
    assert decode.calls == 1
    assert isinstance(store.read(path, decode), np.memmap)  # and mended


def test_many_readers_and_writers_see_whole_pictures(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for i, path in enumerate(paths):
        write_image(path, np.full((50, 60, 3), i, np.uint8))
    stores = [PictureCache(tmp_path / "shared") for _ in range(4)]

    def work(job):
        i, k = job
        image = stores[k].read(paths[i], Decoder(paths[i]))
        return image.shape == (50, 60, 3) and bool((image == i).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, [(n % 6, n % 4) for n in range(240)]))
    assert len(entries(stores[0])) == 6


def test_it_is_bounded(tmp_path):
    size = 40 * 30 * 3 + 128
    store = PictureCache(tmp_path / "cache", limit=3 * size)
    for i in range(6):
        path = tmp_path / f"{i}.png"
        write_image(path, np.full((40, 30, 3), i, np.uint8))
        assert (store.read(path, Decoder(path)) == i).all()
    assert store.size()[0] == 3
    assert store.size()[1] <= 3 * size


def test_what_was_not_used_for_a_day_makes_room(tmp_path, path):
    store = PictureCache(tmp_path / "cache", limit=4000)
    old = tmp_path / "old.png"
    write_image(old, np.zeros((40, 30, 3), np.uint8))
    store.read(old, Decoder(old))
    (entry,) = entries(store)
    os.utime(entry, (0, time.time() - 2 * module._DAY))
    fresh = PictureCache(store.folder, limit=4000)
    fresh.read(path, Decoder(path))
    assert entry not in entries(fresh)
    assert len(entries(fresh)) == 1


def test_a_picture_in_use_stays(tmp_path, path, store):
    store.read(path, Decoder(path))
    (entry,) = entries(store)
    os.utime(entry, (0, time.time() - 2 * module._DAY))
    store.read(path, Decoder(path))
    assert entry.stat().st_mtime > time.time() - module._DAY


def test_a_full_or_forbidden_disk_costs_only_time(path, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = PictureCache(blocked / "cache")
    assert store.read(path, Decoder(path)).shape == (40, 30, 3)


def test_errors_of_decoding_come_through_and_leave_nothing(store, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no")
    with refused("picture-unreadable", where="broken.png"):
        store.read(broken, Decoder(broken))
    with refused("file-unreadable"):
        store.read(tmp_path / "gone.png", Decoder(tmp_path / "gone.png"))
    assert entries(store) == []


def test_clear(store, path):
    store.read(path, Decoder(path))
    assert store.clear()[0] == 1
    assert not store.folder.exists()
    store.read(path, Decoder(path))
    assert store.size()[0] == 1


def test_the_switch(monkeypatch):
    for text in ("off", "0", "OFF"):
        monkeypatch.setenv(SWITCH, text)
        assert picture_cache() is None
    for text, size in (("500M", 500 * 2**20), ("2GiB", 2 * 2**30), ("", module.DEFAULT_BYTES)):
        monkeypatch.setenv(SWITCH, text)
        assert picture_cache().limit == size
    monkeypatch.setenv(SWITCH, "much")
    with refused("cache-size-malformed"):
        picture_cache()


def test_views_are_the_same_with_the_cache_and_without(pose_fixtures, monkeypatch, own_cache):
    from dpose.pose.data import Augment, open_data

    def views():
        units = open_data(
            f"coco:{pose_fixtures}/coco", purpose="train", input_size=(256, 192), augment=Augment.public()
        )
        return [v.image for i in range(len(units)) for v in units.load(i, np.random.default_rng(i))]

    cold, warm = views(), views()
    assert picture_cache().size()[0] == 4
    monkeypatch.setenv(SWITCH, "off")
    for a, b, c in zip(cold, warm, views(), strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
