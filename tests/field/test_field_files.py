"""A file is what its first bytes say, whatever it is called: pictures and videos as people have them."""

import io
import itertools
import shutil
import struct

import av
import cv2
import numpy as np
import pytest
from PIL import Image as Pillow

from dpose.cli import main
from dpose.media.headers import HeaderError, read_header
from dpose.media.images import decode_image, decode_pixels, shown_size
from dpose.media.kinds import kind_of, kind_of_bytes
from dpose.media.video import probe, read_frames
from refusals import command_refused, refused

SCENE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8), (0, 0), 5)
GREY = SCENE[:, :, 0]
HIDDEN = np.dstack([SCENE, np.where(np.arange(80) < 40, 0, 255)[None].repeat(60, 0).astype(np.uint8)])


def saved(pixels, form, **more):
    out = io.BytesIO()
    (pixels if isinstance(pixels, Pillow.Image) else Pillow.fromarray(pixels)).save(out, form, **more)
    return out.getvalue()


def multiplied():
    """A TIFF whose extra sample is declared to be multiplied into the colours."""
    data, unrelated = saved(HIDDEN, "TIFF"), struct.pack("<HHII", 338, 3, 1, 2)
    assert unrelated in data
    return data.replace(unrelated, struct.pack("<HHII", 338, 3, 1, 1))


def deep(pixels, suffix=".tif"):
    """16 bits a value, by OpenCV."""
    shown = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(suffix, shown.astype(np.uint16) * 257)[1].tobytes()


PICTURES = {  # file, channels, bits, largest mean difference
    "jpeg": (saved(SCENE, "JPEG", quality=98), 3, 8, 2),
    "png": (saved(SCENE, "PNG"), 3, 8, 0),
    "webp": (saved(SCENE, "WEBP", lossless=True), 3, 8, 0),
    "bmp": (saved(SCENE, "BMP"), 3, 8, 0),
    "tiff": (saved(SCENE, "TIFF"), 3, 8, 0),
    "tiff, LZW": (saved(SCENE, "TIFF", compression="tiff_lzw"), 3, 8, 0),
    "tiff, deflate": (saved(SCENE, "TIFF", compression="tiff_adobe_deflate"), 3, 8, 0),
    "tiff, PackBits": (saved(SCENE, "TIFF", compression="packbits"), 3, 8, 0),
    "tiff, JPEG": (saved(SCENE, "TIFF", compression="jpeg"), 3, 8, 4),
    "tiff, grey": (saved(GREY, "TIFF"), 1, 8, 0),
    "tiff, 16 bits": (deep(SCENE), 3, 16, 0),
    "tiff, grey of 16 bits": (deep(GREY), 1, 16, 0),
    "tiff, palette": (saved(Pillow.fromarray(SCENE).quantize(64), "TIFF"), 3, 8, 12),
    "tiff of two pages": (saved(SCENE, "TIFF", save_all=True, append_images=[Pillow.fromarray(255 - SCENE)]), 3, 8, 0),
    "gif": (saved(Pillow.fromarray(SCENE).quantize(200), "GIF"), 3, 8, 12),
    "avif": (saved(SCENE, "AVIF", quality=95), 3, 8, 4),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture(name, tmp_path):
    data, channels, bits, near = PICTURES[name]
    header = read_header(data)
    assert (header.width, header.height, header.channels, header.depth) == (80, 60, channels, bits)
    assert header.complete
    pixels = decode_pixels(data, name)
    assert pixels.shape == ((60, 80) if channels == 1 else (60, 80, 3))
    shown = pixels >> 8 if bits == 16 else pixels
    assert np.abs(shown.astype(int) - (GREY if channels == 1 else SCENE)).mean() <= near
    path = tmp_path / "photo"  # no suffix
    path.write_bytes(data)
    assert kind_of(path) == "picture"
    assert shown_size(path) == (60, 80)


@pytest.mark.parametrize("name", [name for name in PICTURES if "pages" not in name])
def test_a_picture_that_is_cut_short_is_refused(name):
    data = PICTURES[name][0]
    for length in (len(data) // 2, len(data) - len(data) // 20 - 1):
        with refused(("picture-cut-short", "picture-unreadable", "picture-undecodable")):
            decode_image(data[:length], name)


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF", "AVIF", "GIF"])
def test_what_transparency_hides_is_white(form):
    more = {"lossless": True} if form == "WEBP" else {}
    data = saved(HIDDEN, form, **more)
    assert read_header(data).alpha
    shown = decode_image(data, "a")
    assert shown[:, :38].min() >= 253
    assert np.abs(shown[:, 42:].astype(int) - SCENE[:, 42:]).mean() < 14


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_tiff_is_shown_upright(orientation, tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(saved(SCENE, "TIFF", tiffinfo={274: orientation}))
    turned = decode_image(path.read_bytes(), "a")
    assert turned.shape[:2] == shown_size(path) == ((80, 60) if orientation > 4 else (60, 80))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (saved(Pillow.fromarray(GREY.astype(np.float32)), "TIFF"), "32 bits"),
        (saved(Pillow.fromarray(SCENE).convert("CMYK"), "TIFF"), "colours"),
        (multiplied(), "multiplied"),
        (saved(SCENE, "AVIF", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"), "AVIF"),
        (saved(SCENE, "ICO"), "JPEG, PNG"),
    ],
    ids=["fractions", "CMYK", "multiplied", "turned AVIF", "another format"],
)
def test_what_is_not_read_says_why(data, word):
    with refused("picture-unreadable", where=(word,)):
        decode_image(data, "a.tif")


def test_heic(tmp_path, monkeypatch):
    heif = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    out = io.BytesIO()
    heif.from_pillow(Pillow.fromarray(SCENE)).save(out, quality=95)
    header = read_header(out.getvalue())
    assert (header.format, header.width, header.height) == ("heic", 80, 60)
    assert np.abs(decode_image(out.getvalue(), "a").astype(int) - SCENE).mean() < 6
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    with refused("package-missing", where=("pip install",)):
        decode_image(out.getvalue(), "a.heic")


@pytest.mark.parametrize("at", range(0, 400, 7))
@pytest.mark.parametrize("name", ["tiff", "gif", "avif", "tiff, LZW"])
def test_a_broken_header_is_an_error_and_nothing_else(name, at):
    data = bytearray(PICTURES[name][0])
    for value in (0, 255, data[at % len(data)] ^ 1):
        data[at % len(data)] = value
        try:
            read_header(bytes(data))
        except HeaderError:
            continue


# ------------------------------------------------------------------------------------------------------- videos


def film(path, form, codec, frames=6, pixel="yuv420p", size=(64, 48)):
    with av.open(str(path), "w", format=form) as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, pixel
        for k in range(frames):
            pixels = np.full((size[1], size[0], 3), 30 + 30 * k, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode(None))
    return path


FILMS = {
    "mp4": ("mp4", "libx264", "yuv420p"),
    "mov": ("mov", "mjpeg", "yuvj420p"),
    "3gp": ("3gp", "mpeg4", "yuv420p"),
    "mkv": ("matroska", "libx264", "yuv420p"),
    "webm": ("webm", "libvpx", "yuv420p"),
    "avi": ("avi", "mpeg4", "yuv420p"),
    "ts": ("mpegts", "libx264", "yuv420p"),
    "mpeg": ("mpeg", "mpeg2video", "yuv420p"),
    "wmv": ("asf", "wmv2", "yuv420p"),
    "flv": ("flv", "flv1", "yuv420p"),
    "h264": ("h264", "libx264", "yuv420p"),
    "hevc": ("hevc", "libx265", "yuv420p"),
    "gif": ("gif", "gif", "rgb8"),
}


@pytest.mark.parametrize("name", FILMS)
def test_a_film(name, tmp_path):
    form, codec, pixel = FILMS[name]
    try:
        film(tmp_path / "film", form, codec, pixel=pixel, frames=8)
    except (av.error.FFmpegError, ValueError) as error:
        if codec in ("libx265", "mpeg2video"):
            pytest.skip(f"this FFmpeg writes no {codec} at 10 frames a second: {error}")
        raise
    assert kind_of(tmp_path / "film") == "video"
    info = probe(tmp_path / "film")
    frames = list(read_frames(info))
    assert len(frames) == info.frames == 8
    assert [round(float(frame.pixels.mean()) / 30) for frame in frames] == pytest.approx(range(1, 9), abs=1)
    assert all(one.pts < other.pts for one, other in itertools.pairwise(frames))


def test_packets_of_192_bytes(tmp_path):
    """As cameras write AVCHD: four bytes of time before each packet of a transport stream."""
    data = film(tmp_path / "a.ts", "mpegts", "libx264").read_bytes()
    packets = [data[at : at + 188] for at in range(0, len(data), 188)]
    (tmp_path / "a.mts").write_bytes(b"".join(b"\0\0\0\0" + packet for packet in packets))
    assert kind_of(tmp_path / "a.mts") == "video"
    assert probe(tmp_path / "a.mts").frames == 6


def test_a_gif_of_one_frame_is_a_picture_and_of_more_a_film():
    still, moving = Pillow.fromarray(SCENE).quantize(16), Pillow.fromarray(255 - SCENE).quantize(16)
    assert kind_of_bytes(saved(still, "GIF")) == "picture"
    assert kind_of_bytes(saved(still, "GIF", save_all=True, append_images=[moving])) == "video"


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"text\n" * 300, b"#!/bin/sh\n", b"RIFF\0\0\0\0WAVE", b"PK\x03\x04", b"\x7fELF", b"G" * 1000]
)
def test_what_is_neither(data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    # "G" is the first byte of each packet of a transport stream: a file of nothing else looks like one
    assert kind_of(tmp_path / "a") == ("video" if data[:1] == b"G" and len(data) > 500 else "")


def test_what_is_no_file_is_neither(tmp_path):
    assert kind_of(tmp_path) == kind_of(tmp_path / "gone") == ""


def test_a_name_says_nothing(tmp_path):
    film(tmp_path / "a.mp4", "mp4", "libx264")
    shutil.copy(tmp_path / "a.mp4", tmp_path / "a.jpg")
    (tmp_path / "b.mp4").write_bytes(PICTURES["png"][0])
    assert (kind_of(tmp_path / "a.jpg"), kind_of(tmp_path / "b.mp4")) == ("video", "picture")


@pytest.mark.parametrize("name", ["a.webp", "a.png"])
def test_an_animation_of_a_picture_format_says_that_its_first_picture_is_taken(tmp_path, capsys, name):
    frames = [Pillow.fromarray(np.full((24, 32, 3), 60 * k, np.uint8)) for k in (1, 2, 3)]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
    assert read_header((tmp_path / name).read_bytes()).images == 3
    assert np.unique(decode_pixels((tmp_path / name).read_bytes(), name)) == [60]
    words = ["pixelize", str(tmp_path / name), "--epsilon", "2", "--public", "--out", str(tmp_path / "o.png")]
    assert main(words) == 0
    assert "of 3 pictures in the file the first is taken" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["o.tif", "o.webp", "o.HEIC", "o.gif"])
@pytest.mark.parametrize("words", [["pixelize", "--epsilon", "2"], ["obfuscate", "--method", "blur"]])
def test_no_folder_is_called_like_a_picture_that_cannot_be_written(tmp_path, capsys, words, name):
    (tmp_path / "a.png").write_bytes(saved(SCENE, "PNG"))
    out = tmp_path / name
    command_refused(capsys, [*words, str(tmp_path / "a.png"), "--public", "--out", str(out)], "out-suffix-unknown")
    assert not out.exists()
    out.mkdir()
    assert main([*words, str(tmp_path / "a.png"), "--public", "--out", str(out)]) == 0
