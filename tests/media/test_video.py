"""Frames, time stamps and sound survive the way through; videos that end early do not pass."""

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from clips import write
from dpose.errors import DposeError
from dpose.media.video import VideoReader, probe, read_frames
from dpose.media.video_writer import open_writer, settle

STAMPS = [0, 3, 4, 9, 10, 11, 20]  # uneven on purpose


def make_video(
    path, frames=12, size=(64, 48), rate=12, sound=False, stamps=None, codec="libx264", grey=False
):
    """A clip of moving grey levels, with a tone if asked for."""
    with av.open(str(path), "w") as out:
        video = out.add_stream(codec, rate=rate)
        video.width, video.height = size
        video.pix_fmt = "gray" if grey else "yuv420p"
        tone = out.add_stream("aac", rate=44_100) if sound else None
        if stamps:
            video.codec_context.time_base = video.time_base = Fraction(1, rate)
            video.codec_context.max_b_frames = 0
        for number in range(frames):
            pixels = np.full((size[1], size[0], 3), 40 + 10 * (number % 15), np.uint8)
            pixels[:, : number + 1] = 255
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if stamps:
                picture.pts, picture.time_base = stamps[number], Fraction(1, rate)
            for packet in video.encode(picture):
                out.mux(packet)
        for packet in video.encode(None):
            out.mux(packet)
        if tone is not None:
            wave = (np.sin(np.arange(44_100 * frames // rate) / 20) * 8000).astype(np.int16)
            for start in range(0, len(wave) - 1023, 1024):
                samples = av.AudioFrame.from_ndarray(
                    wave[None, start : start + 1024], format="s16", layout="mono"
                )
                samples.rate, samples.pts = 44_100, start
                for packet in tone.encode(samples):
                    out.mux(packet)
            for packet in tone.encode(None):
                out.mux(packet)
    return path


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt"),
    [("a.mkv", "ffv1", "bgra"), ("a.mov", "qtrle", "argb"), ("a.webm", "libvpx-vp9", "yuva420p")],
)
def test_a_video_with_transparency_is_refused(tmp_path, name, codec, pix_fmt):
    """In WebM alpha is a track of its own: the decoder gives opaque frames, with what it hides."""
    with pytest.raises(DposeError, match=rf"{name}: has transparency"):
        probe(write(tmp_path / name, codec=codec, pix_fmt=pix_fmt))


def copy(source, target, **more):
    info = probe(source)
    with open_writer(target, info, **more) as (writer, temporary):
        for frame in read_frames(info, writer):
            writer.add(frame.pixels, frame.pts, frame.duration)
    settle(temporary, target)
    return info, probe(target)


def times(info):
    return [frame.pts * info.time_base for frame in read_frames(info)]


def packets(path, kind):
    with av.open(str(path)) as container:
        stream = next(iter(getattr(container.streams, kind)))
        return [bytes(p) for p in container.demux(stream) if p.size]


def test_rate_stamps_duration_and_size_stay(tmp_path):
    before, after = copy(make_video(tmp_path / "a.mp4"), tmp_path / "b.mp4")
    assert (after.width, after.height, after.frames) == (64, 48, 12)
    assert after.rate == before.rate == 12
    assert times(after) == times(before)
    with av.open(str(tmp_path / "a.mp4")) as a, av.open(str(tmp_path / "b.mp4")) as b:
        assert a.duration == b.duration


def test_uneven_stamps_stay(tmp_path):
    source = make_video(tmp_path / "a.mkv", frames=len(STAMPS), stamps=STAMPS, rate=10)
    for name in ("b.mp4", "b.mkv", "b.mov"):
        before, after = copy(source, tmp_path / name)
        assert times(after) == times(before)
        assert [round(float(t) * 10) for t in times(after)] == STAMPS


def test_pictures_are_nearly_the_same(tmp_path):
    before, after = copy(make_video(tmp_path / "a.mp4"), tmp_path / "b.mp4", quality=4)
    for one, other in zip(read_frames(before), read_frames(after), strict=True):
        assert np.abs(one.pixels.astype(int) - other.pixels).mean() < 3


@pytest.mark.parametrize("size", [(33, 21), (64, 21), (1, 1)])
def test_odd_sizes(tmp_path, size):
    source = tmp_path / "a.mp4"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv444p"
        for _ in range(3):
            picture = av.VideoFrame.from_ndarray(np.full((size[1], size[0], 3), 90, np.uint8), format="rgb24")
            for packet in stream.encode(picture):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    _, after = copy(source, tmp_path / "b.mp4")
    assert (after.width, after.height, after.frames) == (*size, 3)


@pytest.mark.parametrize(
    ("matrix", "shape", "corner"),
    [
        ((0, 1, -1, 0), (64, 32), (2, -3)),  # a phone held upright: a quarter turn clockwise
        ((-1, 0, 0, -1), (32, 64), (-3, -3)),
        ((0, -1, 1, 0), (64, 32), (-3, 2)),
    ],
)
def test_a_turned_video_is_released_as_it_is_shown(tmp_path, matrix, shape, corner):
    source = tmp_path / "a.mp4"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        pixels = np.zeros((32, 64, 3), np.uint8)
        pixels[:16, :16] = 255
        for packet in [
            *stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")),
            *stream.encode(None),
        ]:
            out.mux(packet)
    data = bytearray(source.read_bytes())
    a, b, c, d = (value << 16 for value in matrix)
    struct.pack_into(">9i", data, data.index(b"tkhd") + 44, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    source.write_bytes(data)
    _, after = copy(source, tmp_path / "b.mp4")
    assert after.rotation == 0
    shown = next(iter(read_frames(after))).pixels
    assert shown.shape[:2] == shape
    assert shown[corner].mean() > 200
    assert shown.mean() < 80


def test_grey_stays_grey_in_its_channels(tmp_path):
    source = make_video(tmp_path / "a.mkv", codec="ffv1", grey=True)
    info = probe(source)
    assert info.channels == 1
    assert next(iter(read_frames(info))).pixels.shape == (48, 64, 1)
    copy(source, tmp_path / "b.mp4")


def test_sound_is_dropped_unless_it_is_kept(tmp_path):
    source = make_video(tmp_path / "a.mp4", frames=24, sound=True)
    assert probe(source).sound
    _, without = copy(source, tmp_path / "b.mp4")
    assert not without.sound
    _, kept = copy(source, tmp_path / "c.mp4", keep_sound=True)
    assert kept.sound
    assert packets(tmp_path / "c.mp4", "audio") == packets(source, "audio")


def test_metadata_is_dropped(tmp_path):
    source = tmp_path / "a.mp4"
    make_video(tmp_path / "plain.mp4")
    with av.open(str(tmp_path / "plain.mp4")) as given, av.open(str(source), "w") as out:
        out.metadata["title"] = "ward seven"
        out.metadata["comment"] = "patient"
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    assert b"ward seven" in source.read_bytes()
    copy(source, tmp_path / "b.mp4")
    assert b"ward seven" not in (tmp_path / "b.mp4").read_bytes()
    assert b"patient" not in (tmp_path / "b.mp4").read_bytes()


def trimmed(source, target, start, faststart=False):
    """The video without its first seconds, as phones cut: nothing is encoded anew, an edit list hides them."""
    options = {"movflags": "faststart"} if faststart else {}
    with av.open(str(source)) as given, av.open(str(target), "w", options=options) as out:
        streams = {stream.index: out.add_stream_from_template(stream) for stream in given.streams}
        for packet in given.demux():
            if packet.dts is not None:
                ticks = int(start / packet.time_base)
                packet.pts, packet.dts = packet.pts - ticks, packet.dts - ticks
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
    return target


class TestTrimmed:
    def test_only_what_is_shown_is_released(self, tmp_path):
        source = make_video(tmp_path / "a.mp4", frames=24)
        cut = trimmed(source, tmp_path / "b.mp4", Fraction(1, 2))
        with av.open(str(cut)) as container:
            assert container.streams.video[0].frames == 24  # the hidden ones are in the file and declared
        before, after = copy(cut, tmp_path / "c.mp4", quality=4)
        assert (before.frames, after.frames) == (18, 18)
        whole = [frame.pixels for frame in read_frames(probe(source))][6:]
        for one, other in zip(whole, read_frames(before), strict=True):
            assert np.array_equal(one, other.pixels)
        assert len(times(after)) == 18

    def test_an_end_that_is_cut_away(self, tmp_path):
        source = trimmed(make_video(tmp_path / "a.mp4", frames=24), tmp_path / "b.mp4", Fraction(1, 2))
        data = bytearray(source.read_bytes())
        (length,) = struct.unpack_from(">I", data, data.index(b"elst") + 12)
        assert length == 1500  # milliseconds
        struct.pack_into(">I", data, data.index(b"elst") + 12, 1000)
        source.write_bytes(data)
        before, after = copy(source, tmp_path / "c.mp4")
        assert before.frames == after.frames
        assert before.frames in (12, 13)

    def test_a_reader_misses_no_frame_that_is_not_shown(self, tmp_path):
        cut = trimmed(make_video(tmp_path / "a.mp4", frames=24), tmp_path / "b.mp4", Fraction(1, 2))
        video = VideoReader(cut)
        assert len(list(video)) == 18
        assert video.missing == 0

    def test_sound_that_was_cut_away_does_not_travel(self, tmp_path):
        source = make_video(tmp_path / "a.mp4", frames=24, sound=True)
        cut = trimmed(source, tmp_path / "b.mp4", Fraction(1, 2))
        copy(cut, tmp_path / "c.mp4", keep_sound=True)
        all_of_it, heard = packets(source, "audio"), packets(tmp_path / "c.mp4", "audio")
        assert heard == all_of_it[-len(heard) :]
        assert len(heard) <= len(all_of_it) - 20  # half a second is 21.5 packets

    def test_one_that_ends_early_is_still_refused(self, tmp_path):
        source = make_video(tmp_path / "a.mp4", frames=60)
        cut = trimmed(source, tmp_path / "b.mp4", Fraction(1, 2), faststart=True)
        assert probe(cut).frames == 54
        data = cut.read_bytes()
        cut.write_bytes(data[: len(data) * 8 // 10])
        with pytest.raises(DposeError, match=r"ends early|cannot be decoded"):
            copy(cut, tmp_path / "c.mp4")
        assert not (tmp_path / "c.mp4").exists()


class TestRefusals:
    @pytest.mark.parametrize("name", ["a.avi", "a.mkv"])
    def test_a_video_that_ends_early(self, tmp_path, name):
        source = make_video(tmp_path / name, frames=60, codec="mpeg4" if name == "a.avi" else "libx264")
        data = source.read_bytes()
        source.write_bytes(data[: len(data) * 6 // 10])
        with pytest.raises(DposeError, match=r"ends early|cannot be decoded"):
            copy(source, tmp_path / "b.mp4")
        assert [p.name for p in tmp_path.iterdir()] == [name]

    def test_an_mp4_that_ends_early(self, tmp_path):
        source = tmp_path / "a.mp4"
        make_video(tmp_path / "slow.mp4", frames=60)
        # the index in front, as for the web: then a cut file opens and only its frames are missing
        front = {"movflags": "faststart"}
        with av.open(str(tmp_path / "slow.mp4")) as given, av.open(str(source), "w", options=front) as out:
            stream = out.add_stream_from_template(given.streams.video[0])
            for packet in given.demux(given.streams.video[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    out.mux(packet)
        data = source.read_bytes()
        source.write_bytes(data[: len(data) * 8 // 10])
        with pytest.raises(DposeError, match=r"a.mp4: .*(ends early|cannot be decoded)"):
            copy(source, tmp_path / "b.mp4")
        assert not (tmp_path / "b.mp4").exists()

    def test_what_is_no_video(self, tmp_path):
        (tmp_path / "text.mp4").write_text("no video")
        (tmp_path / "empty.mp4").write_bytes(b"")
        for name in ("text.mp4", "empty.mp4", "absent.mp4"):
            with pytest.raises(DposeError, match=name):
                probe(tmp_path / name)

    def test_sound_alone(self, tmp_path):
        make_video(tmp_path / "a.mp4", sound=True, frames=24)
        with av.open(str(tmp_path / "a.mp4")) as given, av.open(str(tmp_path / "tone.mp4"), "w") as out:
            stream = out.add_stream_from_template(given.streams.audio[0])
            for packet in given.demux(given.streams.audio[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    out.mux(packet)
        with pytest.raises(DposeError, match="no video in it"):
            probe(tmp_path / "tone.mp4")

    def test_formats_that_are_not_written(self, tmp_path):
        info = probe(make_video(tmp_path / "a.mp4"))
        with pytest.raises(DposeError, match="cannot write videos"), open_writer(tmp_path / "b.gif", info):
            pass

    def test_a_failure_leaves_nothing(self, tmp_path):
        info = probe(make_video(tmp_path / "a.mp4"))

        def fail(target: Path):
            with open_writer(target, info):
                raise RuntimeError("in the middle")

        with pytest.raises(RuntimeError):
            fail(tmp_path / "b.mp4")
        assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]

    def test_a_folder_that_may_not_be_written(self, tmp_path):
        info = probe(make_video(tmp_path / "a.mp4"))
        (tmp_path / "file").write_text("")
        with pytest.raises(DposeError, match="file"), open_writer(tmp_path / "file" / "b.mp4", info):
            pass
