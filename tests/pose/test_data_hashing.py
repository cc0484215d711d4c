import cv2
import numpy as np
import pytest

from dpose.errors import DposeError
from dpose.media.images import write_image
from dpose.pose.data import hashing
from dpose.pose.data.hashing import BITS, distances, fingerprint, fingerprint_files, near_any


def scene(seed, shape=(180, 240)):
    noise = np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8).astype(np.float32)
    blurred = cv2.GaussianBlur(noise, (0, 0), 12)
    return cv2.normalize(blurred, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def apart(a, b):
    return int(distances(fingerprint(a)[None], fingerprint(b)[None])[0, 0])


def test_distance_counts_bits():
    a, b = np.random.default_rng(0).integers(0, 256, (2, 20, 16), np.uint8)
    expected = [[np.unpackbits(x ^ y).sum() for y in b] for x in a]
    assert np.array_equal(distances(a, b), expected)
    assert distances(a, ~a).diagonal().tolist() == [BITS] * 20


@pytest.mark.parametrize("seed", range(5))
def test_copies_of_a_picture_are_near(seed):
    image = scene(seed)
    copies = {
        "the same": image,
        "saved again": cv2.imdecode(cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, 40))[1], 1),
        "smaller": cv2.resize(image, (97, 73), interpolation=cv2.INTER_AREA),
        "brighter": cv2.convertScaleAbs(image, alpha=0.8, beta=40),
        "gray": np.repeat(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2),
    }
    assert {name: apart(image, copy) for name, copy in copies.items() if apart(image, copy) > 16} == {}


def test_other_pictures_are_far():
    prints = np.stack([fingerprint(scene(seed)) for seed in range(40)])
    between = distances(prints, prints)[np.triu_indices(40, 1)]
    assert between.min() > 24
    assert abs(between.mean() - BITS / 2) < 6


def test_near_any_is_inclusive_and_knows_empty_sets():
    a = np.zeros((1, 16), np.uint8)
    b = a.copy()
    b[0, 0] = 0b111
    assert near_any(a, b, 3).tolist() == [True]
    assert near_any(a, b, 2).tolist() == [False]
    assert near_any(a, b[:0], 128).tolist() == [False]
    assert near_any(a[:0], b, 128).tolist() == []


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
        raise DposeError("not allowed to write here")

    monkeypatch.setattr(hashing, "write_atomic", refuse)
    assert fingerprint_files(files, "reading").shape == (6, 16)
    assert cache_files() == []


def test_a_damaged_picture_is_named_and_nothing_is_cached(files):
    files[3].write_bytes(files[3].read_bytes()[:-30])
    with pytest.raises(DposeError, match=r"3\.png.*cut short"):
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
