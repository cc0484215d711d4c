"""Obscured videos: what each method does, and that nothing is claimed for any of them."""

import math

import cv2
import numpy as np
import pytest

from clips import write
from dpose.media.video import probe
from dpose.privacy.statement import Kind
from dpose.release.faces import cascade_faces
from dpose.release.grid import Shape
from dpose.release.obfuscate import METHODS, Obfuscator, random_motion
from dpose.release.verify import verify_release
from public_doors import obfuscate_file
from refusals import refused

SHAPE = Shape(1, 96, 128, 3)
PICTURE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (96, 128, 3)).astype(np.uint8), (0, 0), 2)


def astronaut():
    """A public-domain portrait that comes with scikit-image."""
    from skimage import data

    return np.ascontiguousarray(data.astronaut()[:256, 100:356])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_shape_and_type_stay(method, channels):
    picture = PICTURE[:, :, :channels]
    shown = Obfuscator(method, Shape(1, 96, 128, channels), 0).apply(picture)
    assert shown.shape == picture.shape
    assert shown.dtype == np.uint8


@pytest.mark.parametrize(("method", "size"), [("isr-32x24", (32, 24)), ("isr-16x12", (16, 12))])
def test_inverse_super_resolution(method, size):
    work = Obfuscator(method, SHAPE, 3)
    shown = work.apply(PICTURE)
    small = cv2.resize(shown, size, interpolation=cv2.INTER_NEAREST)
    again = cv2.resize(small, (128, 96), interpolation=cv2.INTER_NEAREST)
    assert np.array_equal(shown, again)  # so many values and no more
    assert np.array_equal(work.apply(PICTURE), shown)  # one motion for all frames of a video
    assert not np.array_equal(Obfuscator(method, SHAPE, 4).apply(PICTURE), shown)
    still = cv2.resize(PICTURE, size, interpolation=cv2.INTER_AREA)
    assert np.abs(still.mean() - shown.mean()) < 12
    assert not np.array_equal(still, small)


def test_motions_are_small_and_differ():
    found = [random_motion(32, 24, np.random.default_rng(seed)) for seed in range(200)]
    scales = [np.sqrt(np.linalg.det(matrix[:, :2])) for matrix in found]
    turns = [np.degrees(np.arctan2(matrix[0, 1], matrix[0, 0])) for matrix in found]
    assert 0.9 <= min(scales) < 0.92
    assert 1.08 < max(scales) <= 1.1
    assert -10 <= min(turns) < -9
    assert 9 < max(turns) <= 10


def test_blur_and_pixelation_take_detail_away():
    for method in ("blur", "pixelate"):
        shown = Obfuscator(method, SHAPE).apply(PICTURE)
        assert (
            np.abs(np.diff(shown.astype(int), axis=1)).mean()
            < 0.5 * np.abs(np.diff(PICTURE.astype(int), axis=1)).mean()
        )
    blocks = Obfuscator("pixelate", SHAPE).apply(PICTURE)
    assert len(np.unique(blocks.reshape(-1, 3), axis=0)) <= 6 * 8
    assert blocks[:16, :16].std(axis=(0, 1)).max() == 0


def test_a_face_is_blurred_and_the_rest_is_not():
    picture = astronaut()
    work = Obfuscator("face-blur", Shape(1, *picture.shape))
    shown = work.apply(picture)
    changed = (shown != picture).any(axis=2)
    faces = cascade_faces(picture)
    assert work.faces == len(faces) > 0
    inside = np.zeros(changed.shape, bool)
    for top, left, bottom, right in faces:
        more = math.ceil(0.1 * (right - left))
        inside[max(0, top - more) : bottom + more, max(0, left - more) : right + more] = True
    assert not changed[~inside].any()
    assert changed[inside].mean() > 0.8
    blurred = cv2.GaussianBlur(picture, (21, 21), 10)
    assert np.array_equal(shown[inside], blurred[inside])
    assert "faces were found in 1 frames" in work.caveats()[0]


def test_no_face_no_change():
    assert np.array_equal(Obfuscator("face-blur", SHAPE).apply(np.full_like(PICTURE, 90)), np.full_like(PICTURE, 90))
    assert cascade_faces(PICTURE[:20]) == []


@pytest.mark.parametrize("method", METHODS)
def test_files(tmp_path, method):
    source = write(tmp_path / "a.mp4", sound=True)
    info = probe(source)
    statement = obfuscate_file(info, tmp_path / "b.mp4", method, seed=1)
    assert statement.kind is Kind.NONE
    assert "NOTHING IS GUARANTEED" in statement.paragraph()
    after = probe(tmp_path / "b.mp4")
    assert (after.width, after.height, after.frames, after.rate, after.sound) == (48, 32, 9, info.rate, False)
    assert "nothing is claimed" in verify_release(tmp_path / "b.mp4")[1]


def test_what_cannot_be_done(tmp_path):
    info = probe(write(tmp_path / "a.mp4", size=(16, 12)))
    with refused("method-unknown"):
        obfuscate_file(info, tmp_path / "b.mp4", "mosaic")
    with refused("video-too-small", where="a.mp4"):
        obfuscate_file(info, tmp_path / "b.mp4", "isr-32x24")
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
