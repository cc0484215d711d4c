import contextlib
import io

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow

from dpose.media.headers import Header, HeaderError, read_header

RNG = np.random.default_rng(0)
SCENE = cv2.GaussianBlur(RNG.integers(0, 256, (145, 170, 3), np.uint8), (0, 0), 3)
LOSSLESS_WEBP = (cv2.IMWRITE_WEBP_QUALITY, 101)
FILES = {
    "jpeg": cv2.imencode(".jpg", SCENE)[1].tobytes(),
    "jpeg-progressive": cv2.imencode(".jpg", SCENE, (cv2.IMWRITE_JPEG_PROGRESSIVE, 1))[1].tobytes(),
    "jpeg-restarts": cv2.imencode(".jpg", SCENE, (cv2.IMWRITE_JPEG_RST_INTERVAL, 2))[1].tobytes(),
    "png": cv2.imencode(".png", SCENE)[1].tobytes(),
    "webp": cv2.imencode(".webp", SCENE, (cv2.IMWRITE_WEBP_QUALITY, 80))[1].tobytes(),
    "webp-lossless": cv2.imencode(".webp", SCENE, LOSSLESS_WEBP)[1].tobytes(),
    "bmp": cv2.imencode(".bmp", SCENE)[1].tobytes(),
}


@pytest.mark.parametrize("kind", FILES)
def test_size_and_wholeness(kind):
    name = kind.partition("-")[0]
    lossy = name == "jpeg" or kind == "webp"
    assert read_header(FILES[kind]) == Header(name, 170, 145, complete=True, lossy=lossy)


@pytest.mark.parametrize(
    ("picture", "suffix", "channels", "depth"),
    [
        (SCENE[:, :, 0], ".jpg", 1, 8),
        (SCENE[:, :, 0], ".png", 1, 8),
        (SCENE[:, :, 0].astype(np.uint16), ".png", 1, 16),
        (SCENE.astype(np.uint16), ".png", 3, 16),
        (SCENE[:, :, 0], ".bmp", 3, 8),  # the palette's colours are content
        (SCENE[:, :, 0], ".webp", 3, 8),
    ],
)
def test_channels_and_bits_are_those_of_the_format(picture, suffix, channels, depth):
    header = read_header(cv2.imencode(suffix, picture)[1].tobytes())
    assert (header.channels, header.depth) == (channels, depth)


@pytest.mark.parametrize("lossless", [True, False])
def test_an_animation_is_lossy_where_its_frames_are(lossless):
    frames = [Pillow.fromarray(SCENE), Pillow.fromarray(255 - SCENE)]
    out = io.BytesIO()
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], lossless=lossless)
    assert read_header(out.getvalue()).lossy is not lossless


@pytest.mark.parametrize("kind", ["TIFF", "GIF"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_pictures_of_a_file_are_counted(kind, count):
    frames, out = [Pillow.fromarray(SCENE // (k + 1)) for k in range(count)], io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:])
    assert read_header(out.getvalue()) == Header(kind.lower(), 170, 145, complete=True, images=count)


@pytest.mark.parametrize(
    ("picture", "how", "said"),
    [
        (SCENE[:, :, 0], {}, {"channels": 1}),
        (SCENE[:, :, 0].astype(np.uint16), {}, {"channels": 1, "depth": 16}),
        (SCENE, {"compression": "tiff_lzw"}, {}),
        (SCENE, {"compression": "jpeg"}, {"lossy": True}),
        (np.dstack([SCENE, SCENE[:, :, 0]]), {}, {"alpha": True}),
        *((SCENE, {"tiffinfo": {274: way}}, {"turned": way > 4}) for way in (1, 4, 5, 6, 7, 8)),
    ],
)
def test_a_tiff_says_what_is_in_it(picture, how, said):
    out = io.BytesIO()
    Pillow.fromarray(picture).save(out, "TIFF", **how)
    assert read_header(out.getvalue()) == Header("tiff", 170, 145, complete=True, **said)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("lost", [1, 2, 40, 300])
def test_a_missing_end_is_noticed(kind, lost):
    assert not read_header(FILES[kind][:-lost]).complete


@pytest.mark.parametrize("kind", FILES)
def test_no_prefix_crashes_or_passes_for_whole(kind):
    for length in range(0, len(FILES[kind]) - 1, 61):
        with contextlib.suppress(HeaderError):
            assert not read_header(FILES[kind][:length]).complete


def test_a_thumbnail_inside_exif_does_not_count_as_the_end():
    thumbnail = FILES["jpeg"]
    exif = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    whole = thumbnail[:2] + exif + thumbnail[2:]
    assert read_header(whole).complete
    assert not read_header(whole[: len(whole) - 300]).complete


def test_what_follows_the_end_is_no_harm():
    assert read_header(FILES["jpeg"] + b"trailing bytes of a phone's motion picture").complete


@pytest.mark.parametrize("data", [b"", b"GIF89a" + bytes(40), b"not a picture", b"\xff\xd8", b"BM"])
def test_anything_else_is_refused(data):
    with pytest.raises(HeaderError):
        read_header(data)
