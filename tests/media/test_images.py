import io

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow

from dpose.errors import DposeError
from dpose.media import images
from dpose.media.images import decode_image, decode_pixels, image_size, read_image, write_image

RNG = np.random.default_rng(1)
SCENE = cv2.GaussianBlur(RNG.integers(0, 256, (48, 64, 3), np.uint8), (0, 0), 4)


def encoded(picture: Pillow.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def mean_difference(a, b):
    return np.abs(a.astype(int) - b.astype(int)).mean()


def test_png_comes_back_exactly_and_as_rgb(tmp_path):
    image = np.zeros((5, 7, 3), np.uint8)
    image[..., 0] = 200
    write_image(tmp_path / "deep" / "er" / "a.png", image)
    assert np.array_equal(read_image(tmp_path / "deep" / "er" / "a.png"), image)
    assert np.asarray(Pillow.open(tmp_path / "deep" / "er" / "a.png"))[0, 0].tolist() == [200, 0, 0]


def test_jpeg_comes_back_nearly_and_quality_matters(tmp_path):
    write_image(tmp_path / "a.jpg", SCENE)
    write_image(tmp_path / "b.JPG", SCENE, quality=20)
    assert mean_difference(read_image(tmp_path / "a.jpg"), SCENE) < 2
    assert (tmp_path / "b.JPG").stat().st_size < (tmp_path / "a.jpg").stat().st_size


def test_gray_is_written_and_read_as_three_channels(tmp_path):
    write_image(tmp_path / "g.png", SCENE[..., 0])
    read = read_image(tmp_path / "g.png")
    assert read.shape == SCENE.shape
    assert (read == SCENE[..., :1]).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_orientation_is_applied(kind):
    exif = Pillow.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise for viewing
    image = decode_image(encoded(Pillow.fromarray(SCENE), kind, exif=exif), "a")
    assert image.shape == (64, 48, 3)
    assert mean_difference(image, np.rot90(SCENE, -1)) < 8


def test_sixteen_bits_keep_their_high_byte():
    deep = RNG.integers(0, 65536, (6, 9), np.uint16)
    image = decode_image(cv2.imencode(".png", deep)[1].tobytes(), "a")
    assert np.array_equal(image[..., 1], (deep >> 8).astype(np.uint8))


def test_palette_alpha_one_bit_and_cmyk():
    picture = Pillow.fromarray(SCENE)
    palette = picture.quantize(16)
    assert np.array_equal(decode_image(encoded(palette, "PNG"), "a"), np.asarray(palette.convert("RGB")))
    alpha = picture.copy()
    alpha.putalpha(Pillow.fromarray(np.zeros(SCENE.shape[:2], np.uint8)))
    assert np.array_equal(decode_image(encoded(alpha, "PNG"), "a"), SCENE)
    bits = picture.convert("1")
    assert np.array_equal(decode_image(encoded(bits, "PNG"), "a"), np.asarray(bits.convert("RGB")))
    cmyk = encoded(picture.convert("CMYK"), "JPEG", quality=95)
    assert mean_difference(decode_image(cmyk, "a"), SCENE) < 3


@pytest.mark.parametrize(("kind", "options"), [("WEBP", {"lossless": True}), ("PNG", {})])
def test_of_an_animation_the_first_frame_is_read(kind, options):
    frames = {"save_all": True, "append_images": [Pillow.fromarray(255 - SCENE)], "duration": 100}
    data = encoded(Pillow.fromarray(SCENE), kind, **frames, **options)
    assert np.array_equal(decode_image(data, "a"), SCENE)
    with pytest.raises(DposeError, match="cut short"):
        decode_image(data[:-30], "a")


def test_a_gif_is_refused_in_words():
    with pytest.raises(DposeError, match=r"a\.gif: not a readable picture: not a JPEG, PNG, WebP or BMP"):
        decode_image(encoded(Pillow.fromarray(SCENE), "GIF"), "a.gif")


def test_a_truncated_jpeg_is_refused_by_name(tmp_path):
    write_image(tmp_path / "whole.jpg", SCENE)
    data = (tmp_path / "whole.jpg").read_bytes()
    for share in (0.5, 0.9):
        cut = tmp_path / f"cut{share}.jpg"
        cut.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(DposeError, match=rf"cut{share}\.jpg.*cut short"):
            read_image(cut)
        with pytest.raises(DposeError, match="cut short"):
            image_size(cut)


@pytest.mark.parametrize("suffix", [".png", ".webp", ".bmp"])
def test_other_truncated_files_are_refused(tmp_path, suffix):
    data = cv2.imencode(suffix, SCENE)[1].tobytes()
    (tmp_path / f"a{suffix}").write_bytes(data[:-20])
    with pytest.raises(DposeError, match="cut short"):
        read_image(tmp_path / f"a{suffix}")


def test_a_damaged_body_is_refused():
    data = bytearray(cv2.imencode(".png", SCENE)[1].tobytes())
    data[60:200] = bytes(140)
    with pytest.raises(DposeError, match=r"b\.png.*cannot be decoded"):
        decode_image(bytes(data), "b.png")


@pytest.mark.parametrize("data", [b"", b"hello", b"GIF89a" + bytes(50)])
def test_no_picture_at_all(data):
    with pytest.raises(DposeError, match=r"^x\.jpg: "):
        decode_image(data, "x.jpg")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DposeError, match=r"absent\.png"):
        read_image(tmp_path / "absent.png")
    with pytest.raises(DposeError, match="directory"):
        read_image(tmp_path)


def test_a_small_file_that_declares_a_huge_picture_is_never_decoded(monkeypatch):
    data = bytearray(cv2.imencode(".png", SCENE)[1].tobytes())
    data[16:24] = (20_000).to_bytes(4, "big") + (20_000).to_bytes(4, "big")
    monkeypatch.setattr(images.cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DposeError, match="20000 x 20000"):
        decode_image(bytes(data), "bomb.png")


def test_image_size_is_height_and_width(tmp_path):
    write_image(tmp_path / "a.jpg", SCENE)
    assert image_size(tmp_path / "a.jpg") == (48, 64)


@pytest.mark.parametrize("name", ["a.gif", "a.tiff", "a"])
def test_an_unknown_suffix_is_refused_and_nothing_is_written(tmp_path, name):
    with pytest.raises(DposeError, match=r"use \.png or \.jpg"):
        write_image(tmp_path / name, SCENE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "image", [SCENE.astype(np.float32), SCENE[..., :2], np.zeros((0, 4, 3), np.uint8), SCENE[0, 0]]
)
def test_arrays_that_are_no_pictures_are_refused(tmp_path, image):
    with pytest.raises(ValueError, match=r"picture|expected"):
        write_image(tmp_path / "a.png", image)


def test_a_failed_write_leaves_the_old_picture(tmp_path):
    write_image(tmp_path / "a.png", SCENE)
    with pytest.raises(ValueError, match="expected"):
        write_image(tmp_path / "a.png", SCENE.astype(float))
    assert np.array_equal(read_image(tmp_path / "a.png"), SCENE)


PALETTES = {
    "grey": [level for n in range(256) for level in (n, n, n)],
    "colour": [level for n in range(256) for level in (n, 255 - n, n // 2)],
}


def kinds():
    """Ways to encode a picture of indices or gray levels, (H, W) uint8: name to encoder."""

    def palette(colours, kind):
        def run(levels):
            picture = Pillow.fromarray(levels, "P")
            picture.putpalette(PALETTES[colours])
            return encoded(picture, kind)

        return run

    def colour(levels):
        return np.stack([levels, np.roll(levels, 1), levels], axis=2)

    def cv(suffix, make=lambda levels: levels, *options):
        return lambda levels: cv2.imencode(suffix, make(levels), options)[1].tobytes()

    def pillow(mode, kind, make=lambda levels: levels, **options):
        return lambda levels: encoded(Pillow.fromarray(make(levels)).convert(mode), kind, **options)

    return {
        "bmp grey palette": palette("grey", "BMP"),
        "bmp colour palette": palette("colour", "BMP"),
        "bmp colour": cv(".bmp", colour),
        "bmp one bit": pillow("1", "BMP"),
        "png grey": cv(".png"),
        "png one bit": pillow("1", "PNG"),
        "png grey, transparent": lambda levels: encoded(
            Pillow.merge("LA", [Pillow.fromarray(levels)] * 2), "PNG"
        ),
        "png palette": palette("colour", "PNG"),
        "png grey palette": palette("grey", "PNG"),
        "png colour": cv(".png", colour),
        "png colour of one tone": cv(".png", lambda levels: np.stack([levels] * 3, axis=2)),
        "png transparent": pillow("RGBA", "PNG", colour),
        "png 16 bits": cv(".png", lambda levels: levels.astype(np.uint16)),
        "png colour, 16 bits": cv(".png", lambda levels: colour(levels).astype(np.uint16)),
        "jpeg grey": cv(".jpg"),
        "jpeg colour": cv(".jpg", colour),
        "jpeg cmyk": pillow("CMYK", "JPEG", colour),
        "webp": cv(".webp", colour, cv2.IMWRITE_WEBP_QUALITY, 80),
        "webp lossless": cv(".webp", colour, cv2.IMWRITE_WEBP_QUALITY, 101),
        "webp of one tone": cv(
            ".webp", lambda levels: np.stack([levels] * 3, axis=2), cv2.IMWRITE_WEBP_QUALITY, 101
        ),
        "webp transparent": pillow("RGBA", "WEBP", colour, lossless=True),
    }


@pytest.mark.parametrize("kind", kinds())
def test_no_pixel_decides_channels_bits_or_size(kind):
    """A release publishes them: black, white, grey, noise, and one pixel changed give one shape and one type."""
    levels = [np.full((12, 18), value, np.uint8) for value in (0, 1, 128, 255)]
    levels += [RNG.integers(0, 256, (12, 18), np.uint8) for _ in range(4)]
    for value in (0, 1, 77, 255):
        one = np.full((12, 18), 7, np.uint8)
        one[5, 6] = value
        levels.append(one)
    found = set()
    for picture in levels:
        pixels = decode_pixels(kinds()[kind](picture), "a")
        found.add((pixels.shape, pixels.dtype))
    assert len(found) == 1


def test_a_palette_has_three_channels_whatever_its_colours():
    """Two pictures one pixel apart, as an encoder writes them: the palette holds the colours that occur."""
    grey = Pillow.fromarray(np.full((12, 18), 90, np.uint8))
    shapes = set()
    for corner in ((90, 90, 90), (200, 10, 10)):
        picture = grey.convert("RGB")
        picture.putpixel((3, 3), corner)
        for kind in ("BMP", "PNG"):
            shapes.add(decode_pixels(encoded(picture.quantize(4), kind), "a").shape)
    assert shapes == {(12, 18, 3)}


def test_grey_under_transparency_is_the_grey_that_was_stored():
    levels = RNG.integers(0, 256, (12, 18), np.uint8)
    both = Pillow.merge("LA", [Pillow.fromarray(levels), Pillow.fromarray(np.roll(levels, 3))])
    assert np.array_equal(decode_pixels(encoded(both, "PNG"), "a"), levels)


def test_a_decoder_that_disagrees_with_the_header_is_not_believed(monkeypatch):
    data = cv2.imencode(".png", SCENE)[1].tobytes()
    monkeypatch.setattr(images.cv2, "imdecode", lambda *_: SCENE[:-1])
    with pytest.raises(DposeError, match="than its header declares"):
        decode_pixels(data, "a.png")
