"""How a container says that frames are shown, and when: turns, mirrors, colours, HDR, late starts, empty chunks."""

import struct

import av
import numpy as np
import pytest

from dpose.media.images import on_white
from dpose.media.shown import HLG, PQ, tone_mapped
from dpose.media.video import empty_chunks, probe, read_frames
from dpose.media.video_writer import video_file, written_size
from refusals import refused

RED = (187, 0, 0)


def encoded(path, pictures, *, size=(64, 32), form=None, codec="libx264", first=0, setup=None, formatted=None):
    """A film of these pictures, uint8 (H, W, 3)."""
    with av.open(str(path), "w", format=form) as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        if codec == "libx264":
            stream.options = {"crf": "1"}
        if setup:
            setup(stream.codec_context)
        for k, pixels in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame = formatted(frame) if formatted else frame
            frame.pts = first + k
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def plain(level, size=(64, 32)):
    return av.VideoFrame.from_ndarray(np.full((size[1], size[0], 3), level, np.uint8), format="rgb24")


def corner(size=(64, 32)):
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[: size[1] // 2, : size[0] // 4] = 255
    return pixels


def copied(source, target):
    info = probe(source)
    with video_file(target, info) as writer:
        for frame in read_frames(info):
            writer.add(frame.pixels, frame.pts, frame.duration)
    return probe(target)


# a point (x, y) is shown at (a x + c y, b x + d y); where the white corner then is: rows, columns
MATRICES = {
    (1, 0, 0, 1): (0, 0),
    (0, 1, -1, 0): (0, -1),
    (-1, 0, 0, -1): (-1, -1),
    (0, -1, 1, 0): (-1, 0),
    (-1, 0, 0, 1): (0, -1),  # mirrored, as selfies are
    (1, 0, 0, -1): (-1, 0),
    (0, 1, 1, 0): (0, 0),
    (0, -1, -1, 0): (-1, -1),
}


@pytest.mark.parametrize(("matrix", "place"), MATRICES.items())
def test_the_whole_display_matrix(tmp_path, matrix, place):
    source = encoded(tmp_path / "a.mp4", [corner()] * 3)
    data = bytearray(source.read_bytes())
    a, b, c, d = (value << 16 for value in matrix)
    struct.pack_into(">9i", data, data.index(b"tkhd") + 44, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    source.write_bytes(data)
    info = probe(source)
    shown = next(iter(read_frames(info))).pixels
    assert shown.shape[:2] == (info.height, info.width) == ((64, 32) if matrix[0] == 0 else (32, 64))
    assert shown[place].mean() > 200
    assert [shown[other].mean() > 200 for other in ((0, 0), (0, -1), (-1, 0), (-1, -1))].count(True) == 1
    after = copied(source, tmp_path / "b.mp4")
    assert after.display.upright
    assert next(iter(read_frames(after))).pixels[place].mean() > 200


@pytest.mark.parametrize(
    ("number", "size", "full"),
    [*[(number, (64, 32), False) for number in (1, 2, 5, 6)], (1, (64, 32), True), (2, (64, 720), False)],
)
def test_a_colour_is_read_by_its_matrix_and_written_with_it(tmp_path, number, size, full):
    """Pure red stays pure red: 0.2126 of light by BT.709, 0.299 by BT.601."""
    matrix = {2: 1 if size[1] > 576 else 5}.get(number, number)
    ranged = 2 if full else 1

    def tagged(coded):
        coded.colorspace, coded.color_range = number, ranged

    def formatted(frame):
        return frame.reformat(format="yuv420p", dst_colorspace=matrix, dst_color_range=ranged)

    pixels = np.full((size[1], size[0], 3), RED, np.uint8)
    source = encoded(tmp_path / "a.mp4", [pixels] * 2, size=size, setup=tagged, formatted=formatted)
    assert np.abs(next(iter(read_frames(probe(source)))).pixels.astype(int) - RED).max() <= 4
    after = copied(source, tmp_path / "b.mp4")
    assert after.display.matrix == 1
    assert np.abs(next(iter(read_frames(after))).pixels.astype(int) - RED).max() <= 4
    with av.open(str(tmp_path / "b.mp4")) as out:
        coded = out.streams.video[0].codec_context
        assert (coded.colorspace, coded.color_primaries, coded.color_trc, coded.color_range) == (1, 1, 1, 1)


def test_hdr_is_mapped_by_a_fixed_curve_and_said(tmp_path):
    def tagged(coded):
        coded.colorspace, coded.color_trc, coded.color_primaries, coded.color_range = 9, PQ, 9, 1

    source = encoded(tmp_path / "a.mp4", [np.full((32, 64, 3), 148, np.uint8)] * 2, setup=tagged)
    info = probe(source)
    assert info.display.hdr == PQ
    assert "HDR" in info.notes[0]
    # 148 of 255 is white by PQ, 203 candela a square metre
    assert next(iter(read_frames(info))).pixels.mean() > 230


@pytest.mark.parametrize("transfer", [PQ, HLG])
def test_brighter_stays_brighter_and_each_pixel_is_its_own(transfer):
    levels = np.linspace(0, 65_535, 400).astype(np.uint16)[None, :, None].repeat(3, 2)
    mapped = tone_mapped(levels, transfer)[0].astype(int)
    assert (np.diff(mapped, axis=0) >= 0).all()
    assert mapped[0].max() <= 1
    assert mapped[-1].min() >= 254
    assert np.ptp(mapped, axis=1).max() <= 1  # grey stays grey
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 65_536, (9, 11, 3)).astype(np.uint16)
    other = picture.copy()
    other[4, 5] = 65_535 - other[4, 5]
    differs = (tone_mapped(picture, transfer) != tone_mapped(other, transfer)).any(axis=2)
    assert np.argwhere(differs).tolist() == [[4, 5]]


def test_white_of_hdr_is_nearly_white():
    """203 candela a square metre: 0.5807 of PQ's range, 0.75 of HLG's (ITU-R BT.2408)."""
    for transfer, value in ((PQ, 0.5807), (HLG, 0.75)):
        white = tone_mapped(np.full((1, 1, 3), round(value * 65_535), np.uint16), transfer)
        assert 235 <= white.min() <= white.max() <= 250


def test_a_stream_that_starts_late_is_written_from_its_start(tmp_path):
    source = encoded(tmp_path / "a.ts", [corner()] * 5, form="mpegts", first=1000)
    info = probe(source)
    assert info.start > 99
    after = copied(source, tmp_path / "b.mp4")
    times = [float(frame.pts * after.time_base) for frame in read_frames(after)]
    assert times == pytest.approx([k / 10 for k in range(5)], abs=0.1)


def avi(path, empties):
    """An AVI in which chunks are emptied, in its frames and in its index."""
    encoded(
        path,
        [np.full((32, 64, 3), 40 * k, np.uint8) for k in range(6)],
        form="avi",
        codec="mjpeg",
        formatted=lambda f: f.reformat(format="yuvj420p"),
    ) if False else None
    encoded(path, [np.full((32, 64, 3), 40 * k, np.uint8) for k in range(6)], form="avi", codec="mpeg4")
    data = bytearray(path.read_bytes())
    index = data.index(b"idx1")
    movi = data.index(b"movi")
    chunks = []
    at = movi + 4
    while data[at + 2 : at + 4] == b"dc":
        size = struct.unpack_from("<I", data, at + 4)[0]
        chunks.append((bytes(data[at : at + 4]), bytes(data[at + 8 : at + 8 + size])))
        at += 8 + size + size % 2
    flags = [struct.unpack_from("<I", data, index + 8 + 16 * k + 4)[0] for k in range(len(chunks))]
    body, entries = b"movi", b""
    for number, ((name, content), flag) in enumerate(zip(chunks, flags, strict=True)):
        for kept in ([b""] if number in empties else []) + [content]:
            entries += name + struct.pack("<III", flag if kept else 0, len(body), len(kept))
            body += name + struct.pack("<I", len(kept)) + kept + b"\0" * (len(kept) % 2)
    total = len(chunks) + len(empties)
    head = bytearray(data[: movi - 8])
    for name, offset in ((b"avih", 24), (b"strh", 40)):
        struct.pack_into("<I", head, head.index(name) + offset, total)
    whole = head + b"LIST" + struct.pack("<I", len(body)) + body + b"idx1" + struct.pack("<I", len(entries)) + entries
    struct.pack_into("<I", whole, 4, len(whole) - 8)
    path.write_bytes(whole)
    return path


@pytest.mark.parametrize("empties", [(1,), (2, 4), (5,)])
def test_an_empty_chunk_shows_the_frame_before_again(tmp_path, empties):
    source = avi(tmp_path / "a.avi", empties)
    info = probe(source)
    assert info.frames == 6 + len(empties)
    repeated = [number + before for before, number in enumerate(empties)]
    assert sorted(info.repeated) == repeated == sorted(empty_chunks(source, 0, info.frames))
    frames = [frame.pixels for frame in read_frames(info)]
    assert len(frames) == info.frames
    for number in range(1, info.frames):
        assert np.array_equal(frames[number], frames[number - 1]) == (number in repeated)


def test_a_frame_that_cannot_be_decoded_is_no_empty_chunk(tmp_path):
    source = avi(tmp_path / "a.avi", (2,))
    data = bytearray(source.read_bytes())
    last = data.rindex(b"00dc", 0, data.index(b"idx1"))
    size = struct.unpack_from("<I", data, last + 4)[0]
    data[last + 8 : last + 8 + size] = bytes(size)
    source.write_bytes(data)
    with refused(("video-undecodable", "video-length-differs")):
        list(read_frames(probe(source)))


@pytest.mark.parametrize("size", [(33, 22), (32, 21), (33, 21), (1, 1)])
def test_odd_sides_are_padded_with_their_last_row_and_column(tmp_path, size):
    pixels = np.full((size[1], size[0], 3), 90, np.uint8)
    source = tmp_path / "a.avi"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = *size, "bgr0"
        out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode(None))
    after = copied(source, tmp_path / "b.mp4")
    assert (after.width, after.height) == (size[0] + size[0] % 2, size[1] + size[1] % 2)
    assert np.abs(next(iter(read_frames(after))).pixels.astype(int) - 90).max() <= 4
    with av.open(str(tmp_path / "b.mp4")) as out:
        assert out.streams.video[0].codec_context.pix_fmt == "yuv420p"


def test_a_second_camera_and_a_second_sound_are_said(tmp_path):
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as out:
        cameras = [out.add_stream("libx264", rate=10) for _ in range(2)]
        sounds = [out.add_stream("pcm_s16le", rate=8000, layout="mono") for _ in range(2)]
        for camera in cameras:
            camera.width, camera.height, camera.pix_fmt = 64, 32, "yuv420p"
        for level, camera in zip((200, 20), cameras, strict=True):
            for _ in range(3):
                out.mux(camera.encode(plain(level)))
            out.mux(camera.encode(None))
        for sound in sounds:
            heard = av.AudioFrame.from_ndarray(np.zeros((1, 2400), np.int16), format="s16", layout="mono")
            heard.rate, heard.pts = 8000, 0
            out.mux(sound.encode(heard))
            out.mux(sound.encode(None))
    info = probe(path)
    assert [line.split(" the first")[0] for line in info.notes] == [
        "of 2 videos in the file",
        "of 2 sounds in the file only",
    ]
    assert next(iter(read_frames(info))).pixels.mean() > 150


def test_a_cover_is_not_the_film(tmp_path):
    """As shops sell films: a picture of the cover is a stream of its own, before or behind the film."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as out:
        cover, camera = out.add_stream("mjpeg", rate=10), out.add_stream("libx264", rate=10)
        cover.width, cover.height, cover.pix_fmt = 16, 16, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        camera.width, camera.height, camera.pix_fmt = 64, 32, "yuv420p"
        out.mux(cover.encode(plain(9, (16, 16))))
        out.mux(cover.encode(None))
        for _ in range(3):
            out.mux(camera.encode(plain(200)))
        out.mux(camera.encode(None))
    with av.open(str(path)) as written:
        assert len(written.streams.video) == 2
    info = probe(path)
    assert (info.width, info.height, info.frames, info.notes) == (64, 32, 3, ())


def test_on_white():
    pixels = np.array([[[9, 8, 7, 0], [9, 8, 7, 255], [0, 0, 0, 128]]], np.uint8)
    assert on_white(pixels[:, :, :3], pixels[:, :, 3]).tolist() == [[[255, 255, 255], [9, 8, 7], [127, 127, 127]]]


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv", ".m4v"])
@pytest.mark.parametrize("size", [(33, 22), (33, 21), (32, 22)])
def test_a_file_with_a_repeated_row_says_its_size(tmp_path, size, suffix):
    """So that a statement about another size is found out; what anyone else writes there is not believed."""
    source = tmp_path / "a.avi"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = *size, "bgr0"
        out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((*size[::-1], 3), np.uint8), format="rgb24")))
        out.mux(stream.encode(None))
    after = copied(source, tmp_path / f"b{suffix}")
    assert written_size(after) == size
    assert written_size(probe(source)) == size
