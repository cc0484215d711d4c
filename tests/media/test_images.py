import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageCms

from dpose.media import images
from dpose.media.identity import pixel_hash
from dpose.media.images import decode_image, decode_pixels, image_size, read_image, write_image
from refusals import refused

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


@pytest.mark.parametrize("mode", ["L", "RGB", "LA", "RGBA", "P"])
def test_a_profile_changes_no_pixel_and_no_decoder_complains_of_it(mode, capfd):
    """A profile of colours in a grey PNG is what libpng writes about to the terminal."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = Pillow.fromarray(SCENE).convert(mode)
    plain, profiled = encoded(picture, "PNG"), encoded(picture, "PNG", icc_profile=profile)
    assert b"iCCP" in profiled
    assert np.array_equal(decode_pixels(profiled, "a.png"), decode_pixels(plain, "a.png"))
    assert np.array_equal(decode_image(profiled, "a.png"), decode_image(plain, "a.png"))
    assert capfd.readouterr() == ("", "")
    with refused(("picture-cut-short", "picture-undecodable"), where="a.png"):
        decode_image(profiled[:60], "a.png")


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


def test_palette_one_bit_and_cmyk():
    picture = Pillow.fromarray(SCENE)
    palette = picture.quantize(16)
    assert np.array_equal(decode_image(encoded(palette, "PNG"), "a"), np.asarray(palette.convert("RGB")))
    bits = picture.convert("1")
    assert np.array_equal(decode_image(encoded(bits, "PNG"), "a"), np.asarray(bits.convert("RGB")))
    cmyk = encoded(picture.convert("CMYK"), "JPEG", quality=95)
    assert mean_difference(decode_image(cmyk, "a"), SCENE) < 3


@pytest.mark.parametrize(("kind", "options"), [("WEBP", {"lossless": True}), ("PNG", {})])
def test_of_an_animation_the_first_frame_is_read(kind, options):
    frames = {"save_all": True, "append_images": [Pillow.fromarray(255 - SCENE)], "duration": 100}
    data = encoded(Pillow.fromarray(SCENE), kind, **frames, **options)
    assert np.array_equal(decode_image(data, "a"), SCENE)
    with refused("picture-cut-short"):
        decode_image(data[:-30], "a")


def test_another_format_is_refused_in_words():
    with refused("picture-unreadable", where=("a.ico", "BMP")):
        decode_image(encoded(Pillow.fromarray(SCENE), "ICO"), "a.ico")


def test_a_truncated_jpeg_is_refused_by_name(tmp_path):
    write_image(tmp_path / "whole.jpg", SCENE)
    data = (tmp_path / "whole.jpg").read_bytes()
    for share in (0.5, 0.9):
        cut = tmp_path / f"cut{share}.jpg"
        cut.write_bytes(data[: int(len(data) * share)])
        with refused("picture-cut-short", where=f"cut{share}.jpg"):
            read_image(cut)
        with refused("picture-cut-short"):
            image_size(cut)


@pytest.mark.parametrize("suffix", [".png", ".webp", ".bmp"])
def test_other_truncated_files_are_refused(tmp_path, suffix):
    data = cv2.imencode(suffix, SCENE)[1].tobytes()
    (tmp_path / f"a{suffix}").write_bytes(data[:-20])
    with refused("picture-cut-short"):
        read_image(tmp_path / f"a{suffix}")


def test_a_damaged_body_is_refused():
    data = bytearray(cv2.imencode(".png", SCENE)[1].tobytes())
    data[60:200] = bytes(140)
    with refused("picture-undecodable", where="b.png"):
        decode_image(bytes(data), "b.png")


@pytest.mark.parametrize("data", [b"", b"hello", b"GIF89a" + bytes(50)])
def test_no_picture_at_all(data):
    with refused(("picture-empty", "picture-unreadable"), where="x.jpg"):
        decode_image(data, "x.jpg")


def test_missing_file_and_folder(tmp_path):
    with refused("file-unreadable", where="absent.png"):
        read_image(tmp_path / "absent.png")
    with refused("file-unreadable", where="directory"):
        read_image(tmp_path)


def test_a_small_file_that_declares_a_huge_picture_is_never_decoded(monkeypatch):
    data = bytearray(cv2.imencode(".png", SCENE)[1].tobytes())
    data[16:24] = (20_000).to_bytes(4, "big") + (20_000).to_bytes(4, "big")
    monkeypatch.setattr(images.cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with refused("picture-too-large", where="20000"):
        decode_image(bytes(data), "bomb.png")


@pytest.mark.parametrize("at", [16, 20])
def test_a_file_that_declares_no_pixels_is_never_decoded(at, monkeypatch):
    data = bytearray(cv2.imencode(".png", SCENE)[1].tobytes())
    data[at : at + 4] = bytes(4)
    monkeypatch.setattr(images.cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with refused("picture-without-pixels", where="empty.png"):
        decode_image(bytes(data), "empty.png")


def test_image_size_is_height_and_width(tmp_path):
    write_image(tmp_path / "a.jpg", SCENE)
    assert image_size(tmp_path / "a.jpg") == (48, 64)


@pytest.mark.parametrize("name", ["a.gif", "a.tiff", "a"])
def test_an_unknown_suffix_is_refused_and_nothing_is_written(tmp_path, name):
    with refused("picture-suffix-unknown"):
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
        "png grey, transparent": lambda levels: encoded(Pillow.merge("LA", [Pillow.fromarray(levels)] * 2), "PNG"),
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
        "webp of one tone": cv(".webp", lambda levels: np.stack([levels] * 3, axis=2), cv2.IMWRITE_WEBP_QUALITY, 101),
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


def test_a_decoder_that_disagrees_with_the_header_is_not_believed(monkeypatch):
    data = cv2.imencode(".png", SCENE)[1].tobytes()
    monkeypatch.setattr(images.cv2, "imdecode", lambda *_: SCENE[:-1])
    with refused("picture-differs-from-header"):
        decode_pixels(data, "a.png")


def laid_on_white(colours, alpha):
    """By floating point: what a viewer shows on a white page."""
    peak = np.iinfo(colours.dtype).max
    share = (alpha / peak).reshape(*alpha.shape, *[1] * (colours.ndim - 2))
    return np.floor(colours * share + peak * (1 - share) + 0.5).astype(colours.dtype)


class TestTransparency:
    """What transparency hides is in no picture that is read, whichever way the file says that it is hidden."""

    ALPHA = np.add.outer(np.arange(48) * 5 % 256, np.arange(64) * 3 % 256).astype(np.uint8)

    @pytest.mark.parametrize("kind", ["PNG", "WEBP"])
    @pytest.mark.parametrize("turned", range(1, 9))
    @pytest.mark.parametrize("order", ["<", ">"])
    def test_colours_are_laid_on_white_and_turned_with_their_alpha(self, kind, turned, order):
        exif = Pillow.Exif()
        exif.endian = order
        exif[0x0112] = turned
        picture = Pillow.fromarray(np.dstack([SCENE, self.ALPHA]))
        options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
        data = encoded(picture, kind, exif=exif.tobytes(), **options)
        upright = laid_on_white(SCENE, self.ALPHA)
        found = decode_image(data, "a", orient=False)
        assert np.array_equal(found, upright)
        ways = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE")
        ways += ("ROTATE_270", "TRANSVERSE", "ROTATE_90")
        shown = Pillow.fromarray(upright)
        if turned > 1:
            shown = shown.transpose(getattr(Pillow.Transpose, ways[turned - 2]))
        assert np.array_equal(decode_image(data, "a"), np.asarray(shown))
        assert np.array_equal(decode_pixels(data, "a"), np.asarray(shown))

    def test_grey_and_16_bits(self):
        both = encoded(Pillow.merge("LA", [Pillow.fromarray(SCENE[:, :, 0]), Pillow.fromarray(self.ALPHA)]), "PNG")
        grey = laid_on_white(SCENE[:, :, 0], self.ALPHA)
        assert np.array_equal(decode_pixels(both, "a"), grey)
        assert np.array_equal(decode_image(both, "a"), np.dstack([grey] * 3))
        deep = RNG.integers(0, 65536, (6, 9, 4), np.uint16)
        deep[0, 0] = 65535
        data = cv2.imencode(".png", cv2.cvtColor(deep, cv2.COLOR_RGBA2BGRA))[1].tobytes()
        assert np.array_equal(decode_pixels(data, "a"), laid_on_white(deep[:, :, :3], deep[:, :, 3]))
        assert np.array_equal(decode_image(data, "a"), decode_pixels(data, "a") >> 8)

    @pytest.mark.parametrize("mode", ["P", "L", "RGB", "1", "2 bits", "16 bits", "colour, 16 bits"])
    def test_a_palette_or_one_colour_may_be_transparent(self, mode):
        """A tRNS chunk: levels of a palette's entries, or the one colour that is transparent."""
        levels = RNG.integers(0, 4, (12, 18), np.uint8)
        if "16" in mode:
            deep = levels.astype(np.uint16) * 5000
            deep, key = (np.dstack([deep, deep, deep + 1]), (5000, 5000, 5001)) if "col" in mode else (deep, (5000,))
            data = cv2.imencode(".png", deep[..., ::-1] if deep.ndim == 3 else deep)[1].tobytes()
            data = data[:33] + _chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) + data[33:]
            clear, shown = levels == 1, deep
        elif mode == "2 bits":
            picture = Pillow.fromarray(levels * 85)
            rows = np.packbits(np.unpackbits(levels[..., None], axis=2)[:, :, -2:].reshape(12, -1), axis=1)
            body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
            ihdr = struct.pack(">IIBBBBB", 18, 12, 2, 0, 0, 0, 0)
            parts = [(b"IHDR", ihdr), (b"tRNS", b"\0\1"), (b"IDAT", body), (b"IEND", b"")]
            data = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)
            clear, shown = levels == 1, np.asarray(picture)
        else:
            picture = Pillow.fromarray(levels * 80).convert("RGB").quantize(4)
            picture = picture if mode == "P" else Pillow.fromarray(levels * 80).convert(mode)
            one = 1 if mode == "P" else picture.getpixel((3, 3))
            data = encoded(picture, "PNG", transparency=one)
            shown = np.asarray(picture.convert("RGB" if mode == "P" else "L" if mode == "1" else mode))
            clear = np.asarray(picture) == 1 if mode == "P" else (np.atleast_3d(shown) == one).all(axis=2)
        assert 0 < clear.sum() < clear.size
        wanted = shown.copy()
        wanted[clear] = np.iinfo(shown.dtype).max
        assert np.array_equal(decode_pixels(data, "a"), wanted)
        assert np.array_equal(
            decode_image(data, "a")[..., 0], wanted.reshape(12, 18, -1)[..., 0] >> (8 if "16" in mode else 0)
        )

    @pytest.mark.parametrize("kind", [".bmp", ".webp", "animated PNG", "animated WEBP"])
    def test_other_files(self, kind):
        whole = np.dstack([SCENE, self.ALPHA])
        if kind.startswith("."):
            options = [cv2.IMWRITE_WEBP_QUALITY, 60] if kind == ".webp" else []
            data = cv2.imencode(kind, cv2.cvtColor(whole, cv2.COLOR_RGBA2BGRA), options)[1].tobytes()
        else:
            more = {"save_all": True, "append_images": [Pillow.fromarray(255 - whole)], "duration": 100}
            more |= {"lossless": True, "exact": True} if "WEBP" in kind else {}
            data = encoded(Pillow.fromarray(whole), kind.split()[1], **more)
        assert mean_difference(decode_image(data, "a"), laid_on_white(SCENE, self.ALPHA)) < (
            3 if kind == ".webp" else 1e-9
        )

    def test_hidden_colours_change_nothing(self):
        """Not even the digests that a picture is known by."""
        clear = np.broadcast_to(np.where(np.arange(64) < 20, 0, 255).astype(np.uint8), (48, 64))
        shown = [SCENE.copy(), SCENE.copy()]
        shown[1][:, :20] = 255 - shown[1][:, :20]
        found = [decode_image(encoded(Pillow.fromarray(np.dstack([s, clear])), "PNG"), "a") for s in shown]
        assert np.array_equal(*found)
        assert (found[0][:, :20] == 255).all()
        assert pixel_hash(found[0]) == pixel_hash(found[1])

    def test_one_pixel_of_a_file_is_one_pixel_of_the_picture(self):
        whole = np.dstack([SCENE, self.ALPHA])
        other = whole.copy()
        other[7, 9] = (255, 0, 255, 255 - other[7, 9, 3])
        found = [decode_image(encoded(Pillow.fromarray(one), "PNG"), "a").astype(int) for one in (whole, other)]
        assert np.argwhere((found[0] != found[1]).any(axis=2)).tolist() == [[7, 9]]

    def test_what_cannot_be_told_is_refused(self, monkeypatch):
        data = encoded(Pillow.fromarray(np.dstack([SCENE, self.ALPHA])), "PNG")
        monkeypatch.setattr(images, "orientation", lambda _: 3)
        with refused("transparency-orientation-unknown"):
            decode_image(data, "a.png")
        decode = cv2.imdecode
        monkeypatch.setattr(images.cv2, "imdecode", lambda raw, _: decode(raw, cv2.IMREAD_COLOR))
        with refused("transparency-undecodable"):
            decode_image(data, "a.png")

    @pytest.mark.parametrize("packing", ["none", "masks without alpha"])
    def test_a_bmp_of_32_bits_without_alpha_is_not_made_white(self, packing):
        if packing == "none":
            data = encoded(Pillow.fromarray(np.dstack([SCENE, self.ALPHA])), "BMP")
        else:
            rows = np.dstack([SCENE[::-1, :, ::-1], np.zeros((48, 64), np.uint8)]).tobytes()
            masks = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
            info = struct.pack("<IiiHHIIiiII", 40, 64, 48, 1, 32, 3, len(rows), 0, 0, 0, 0)
            data = b"BM" + struct.pack("<IHHI", 66 + len(rows), 0, 0, 66) + info + masks + rows
        assert np.array_equal(decode_image(data, "a"), SCENE)


def _chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
