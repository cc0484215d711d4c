import cv2
import numpy as np
import pytest

from dpose.media.fingerprint import BITS, distances, fingerprint, near_any


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
