import cv2
import numpy as np
import pytest

from dpose.errors import DposeError
from dpose.media.fingerprint import fingerprint
from dpose.media.images import write_image
from dpose.pose.data import cache as hashing
from dpose.pose.data.cache import fingerprint_files
from refusals import refused

pytestmark = pytest.mark.usefixtures("own_cache")


def scene(seed, shape=(180, 240)):
    noise = np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8).astype(np.float32)
    blurred = cv2.GaussianBlur(noise, (0, 0), 12)
    return cv2.normalize(blurred, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "pictures" / f"{i}.png" for i in range(6)]
    for seed, path in enumerate(paths):
        write_image(path, scene(seed, (40, 50)))
    return paths


def cache_files():
    return sorted(hashing.Path(hashing.platformdirs.user_cache_dir("dpose")).rglob("*.npz"))


def test_files_come_in_order_and_are_read_once(files, monkeypatch):
    first = fingerprint_files(files, "reading")
    assert np.array_equal(first, [fingerprint(scene(seed, (40, 50))) for seed in range(6)])
    monkeypatch.setattr(hashing, "read_image", lambda _: pytest.fail("read again"))
    assert np.array_equal(fingerprint_files(files, "reading"), first)


def test_a_changed_file_is_read_again(files):
    before = fingerprint_files(files, "reading")
    write_image(files[2], scene(99, (40, 50)))
    after = fingerprint_files(files, "reading")
    assert np.flatnonzero((before != after).any(axis=1)).tolist() == [2]


def permissions(path):
    return path.stat().st_mode & 0o777


def test_nobody_else_can_read_them(files):
    fingerprint_files(files, "reading")
    (cached,) = cache_files()
    assert (permissions(cached), permissions(cached.parent)) == (0o600, 0o700)


def test_those_of_an_earlier_version_are_closed(files, monkeypatch):
    first = fingerprint_files(files, "reading")
    (cached,) = cache_files()
    cached.chmod(0o644)
    cached.parent.chmod(0o755)
    other = cached.with_name("other.npz")
    other.write_bytes(b"of other pictures")
    other.chmod(0o644)
    monkeypatch.setattr(hashing, "read_image", lambda _: pytest.fail("read again"))
    assert np.array_equal(fingerprint_files(files, "reading"), first)
    assert [permissions(p) for p in (cached.parent, cached, other)] == [0o700, 0o600, 0o600]


def test_where_others_can_come_in_none_are_kept(files, monkeypatch):
    first = fingerprint_files(files, "reading")
    (cached,) = cache_files()
    cached.unlink()
    monkeypatch.setattr(hashing, "private_folder", lambda _: False)
    assert np.array_equal(fingerprint_files(files, "reading"), first)
    assert cache_files() == []


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 nonsense", b"\x93NUMPY"])
def test_a_damaged_cache_is_made_again(files, damage):
    first = fingerprint_files(files, "reading")
    (cached,) = cache_files()
    cached.write_bytes(damage)
    assert np.array_equal(fingerprint_files(files, "reading"), first)
    assert np.array_equal(hashing._cached(cached, 6), first)


def test_a_cache_of_another_shape_is_made_again(files):
    first = fingerprint_files(files, "reading")
    (cached,) = cache_files()
    with cached.open("wb") as file:
        np.savez(file, fingerprints=np.zeros((5, 16), np.uint8))
    assert np.array_equal(fingerprint_files(files, "reading"), first)


def test_a_cache_that_cannot_be_written_is_no_error(files, monkeypatch):
    def refuse(*_):
        raise DposeError("write-denied", "not allowed to write here")

    monkeypatch.setattr(hashing, "write_private", refuse)
    assert fingerprint_files(files, "reading").shape == (6, 16)
    assert cache_files() == []


def test_a_damaged_picture_is_named_and_nothing_is_cached(files):
    files[3].write_bytes(files[3].read_bytes()[:-30])
    with refused("picture-cut-short", where="3.png"):
        fingerprint_files(files, "reading")
    assert cache_files() == []


def test_the_bar_appears_only_when_it_takes_long(files, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    fingerprint_files(files, "comparing quickly")
    assert "comparing" not in capsys.readouterr().err
    monkeypatch.setattr(hashing, "_PATIENCE", 0.0)
    write_image(files[0], scene(50, (40, 50)))
    fingerprint_files(files, "comparing slowly")
    assert "comparing slowly" in capsys.readouterr().err
